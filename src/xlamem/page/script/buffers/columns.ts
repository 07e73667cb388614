/** The columns of the table of buffers. */

import type { ProgramData } from "../data/data.js";
import { type Child, h, name, plain } from "../parts/dom.js";
import { number, oneLine, percent, size } from "../parts/format.js";
import type { LiveSet } from "../data/live.js";
import { bufferName, scopeOfBuffer } from "../data/names.js";
import { ranksOf } from "../data/sorting.js";
import { categoryName, labelOf, plainShape } from "../parts/wording.js";

/** What the cells of a row are made from: row `i` of a live set. */
export interface Cells {
  readonly data: ProgramData;
  readonly live: LiveSet;
  readonly step: number;
}

export interface Column {
  readonly key: string;
  readonly title: string;
  readonly explanation: string;
  readonly isNumber?: boolean;
  /** Whether the largest come first when the reader sorts by it for the first time. */
  readonly descends?: boolean;
  cell(cells: Cells, i: number): Child;
  /** A number for each of these rows, by which they are sorted. */
  keys(cells: Cells, rows: Int32Array): ArrayLike<number>;
}

const MAX_TEXT = 200;

export const COLUMNS: readonly Column[] = [
  {
    key: "bytes",
    title: "Bytes",
    explanation: "Bytes in use at the step. Bytes that several buffers share are those of one of them.",
    isNumber: true,
    descends: true,
    cell: ({ live }, i) => size(live.bytes[i]!),
    keys: bytesOf,
  },
  {
    key: "name",
    title: "Name",
    explanation: "Instruction that defines it, and index in its shape.",
    cell: (cells, i) => titled(nameOf(cells, i)),
    keys: (cells, rows) => ranksOf(Array.from(rows, (i) => nameOf(cells, i))),
  },
  textColumn("scope", "Scope", "Named scope of the operation that made it.", scopeOf),
  {
    key: "source",
    title: "Source",
    explanation: "File and line.",
    cell: (cells, i) => lineOf(sourceOf(cells, i)),
    keys: (cells, rows) => ranksOf(Array.from(rows, (i) => sourceOf(cells, i))),
  },
  textColumn("what", "What", "Kind or category, and phase.", kindOf),
  {
    key: "life",
    title: "Life",
    explanation: "First and last step. The bar shows them among all steps.",
    cell: lifeCell,
    keys: ({ data, live }, rows) => Float64Array.from(rows, (i) => data.buffers.start[live.buffer[i]!] ?? -1),
  },
  textColumn("shape", "Shape", "Element type and dimensions.", (cells, i) => plainShape(shapeOf(cells, i))),
  {
    key: "share",
    title: "Share",
    explanation: "Share of what is in use at the step.",
    isNumber: true,
    descends: true,
    cell: ({ live }, i) => percent(live.bytes[i]!, live.total),
    keys: bytesOf,
  },
  {
    key: "padding",
    title: "Padding",
    explanation: "Bytes that its layout adds.",
    isNumber: true,
    descends: true,
    cell: (cells, i) => {
      const padding = paddingOf(cells, i);
      return padding > 0 ? size(padding) : padding === 0 ? "\u2013" : "?";
    },
    keys: (cells, rows) => Float64Array.from(rows, (i) => paddingOf(cells, i)),
  },
];

/** A column of texts, of which each cell shows all or a part. */
function textColumn(
  key: string,
  title: string,
  explanation: string,
  text: (cells: Cells, i: number) => string,
  shown: (text: string) => string = (text) => text,
): Column {
  return {
    key,
    title,
    explanation,
    cell: (cells, i) => titled(text(cells, i), shown),
    keys: (cells, rows) => ranksOf(Array.from(rows, (i) => text(cells, i))),
  };
}

/** A text with all of itself as title, because its column may be too narrow for it. */
function titled(text: string, shown: (text: string) => string = (text) => text): Child {
  return name(shown(text), MAX_TEXT, { title: plain(text) });
}

/** The file without its folders, and the line, which stays visible in a narrow column. */
function lineOf(source: string): Child {
  const file = source.slice(source.lastIndexOf("/") + 1);
  const end = file.search(/:\d+$/);
  if (end < 0) return titled(source, () => file);
  return h("span", { class: "source-line", title: plain(source) }, name(file.slice(0, end), MAX_TEXT), h("span", {}, file.slice(end)));
}

function bytesOf({ live }: Cells, rows: Int32Array): Float64Array {
  return Float64Array.from(rows, (i) => live.bytes[i]!);
}

/** Whether a row is what no live buffer of an allocation covers. */
export function isReserved({ live }: Cells, i: number): boolean {
  return i >= live.nLive;
}

/** The name of the buffer; for what is reserved, that of the allocation. */
function nameOf(cells: Cells, i: number): string {
  const { data, live } = cells;
  return isReserved(cells, i) ? data.allocations.label[live.allocation[i]!]! : labelOf(data, live.buffer[i]!);
}

function kindOf(cells: Cells, i: number): string {
  const { data, live } = cells;
  const { category, categoryNames, kind, kindNames, phase, phaseNames } = data.buffers;
  const buffer = live.buffer[i]!;
  if (isReserved(cells, i)) {
    const { allocations } = data;
    return `${categoryName(allocations.categoryNames[allocations.category[live.allocation[i]!]!] ?? "")}, reserved`;
  }
  const what = kindNames[kind[buffer]!] ?? categoryName(categoryNames[category[buffer]!] ?? "");
  const when = phaseNames[phase[buffer]!];
  return when ? `${what}, ${when}` : what;
}

export function scopeOf({ data, live }: Cells, i: number): string {
  const buffer = live.buffer[i]!;
  return buffer < 0 ? "" : scopeOfBuffer(data, buffer);
}

function shapeOf({ data: { buffers }, live }: Cells, i: number): string {
  return buffers.shapeNames[buffers.shape[live.buffer[i]!] ?? -1] ?? "";
}

function sourceOf({ data: { buffers }, live }: Cells, i: number): string {
  return buffers.sourceNames[buffers.source[live.buffer[i]!] ?? -1] ?? "";
}

/** Bytes of padding of a row, none of what is reserved; -1 if they are not known. */
function paddingOf(cells: Cells, i: number): number {
  if (isReserved(cells, i)) return 0;
  const { data: { buffers }, live } = cells; // prettier-ignore
  const buffer = live.buffer[i]!;
  const unpadded = buffers.unpadded[buffer] ?? -1;
  return unpadded < 0 ? -1 : Math.max(0, buffers.size[buffer]! - unpadded);
}

function lifeCell({ data, live, step }: Cells, i: number): Child {
  const buffer = live.buffer[i]!;
  const steps = data.model.steps ?? 1;
  const [first, last] = [data.buffers.start[buffer] ?? -1, data.buffers.end[buffer] ?? -1];
  if (first < 0) return data.model.steps === null ? "not known" : "always";
  const life = h("span", { class: "life" });
  life.style.left = `${(100 * first) / steps}%`;
  life.style.width = `${(100 * (last + 1 - first)) / steps}%`;
  const now = h("span", { class: "now" });
  now.style.left = `${(100 * (step + 0.5)) / steps}%`;
  const track = h("span", { class: "track", "aria-hidden": "true" }, life, now);
  return h("span", { class: "life-cell" }, track, h("span", {}, `${number(first)}\u2013${number(last)}`));
}

// -- copies ---------------------------------------------------------------------------------------------

type Field = readonly [string, (cells: Cells, i: number) => string | number];

const FIELDS: readonly Field[] = [
  ["bytes", ({ live }, i) => live.bytes[i]!],
  ["exclusive", ({ live }, i) => live.exclusive[i]!],
  ["role", (cells, i) => (isReserved(cells, i) ? "reserved" : "value")],
  ["name", ({ data, live }, i) => (live.buffer[i]! < 0 ? "" : bufferName(data, live.buffer[i]!))],
  ["what", kindOf],
  ["scope", scopeOf],
  ["op_name", ({ data: { buffers }, live }, i) => buffers.opNames[buffers.opName[live.buffer[i]!] ?? -1] ?? ""],
  ["source", sourceOf],
  ["shape", shapeOf],
  ["padding", (cells, i) => known(paddingOf(cells, i))],
  ["start", ({ data: { buffers }, live }, i) => known(buffers.start[live.buffer[i]!] ?? -1)],
  ["end", ({ data: { buffers }, live }, i) => known(buffers.end[live.buffer[i]!] ?? -1)],
  ["allocation", ({ data, live }, i) => data.allocations.allocation[live.allocation[i]!]!],
  ["allocation_name", ({ data, live }, i) => data.allocations.label[live.allocation[i]!]!],
  ["offset", ({ data: { buffers }, live }, i) => buffers.offset[live.buffer[i]!] ?? ""],
];

function known(n: number): string | number {
  return n < 0 ? "" : n;
}

/** These rows as text with tabs between fields and a header. */
export function tabSeparated(cells: Cells, rows: Int32Array): string {
  const lines = Array.from(rows, (i) => FIELDS.map(([, field]) => oneLine(String(field(cells, i)))).join("\t"));
  return `${[FIELDS.map(([title]) => title).join("\t"), ...lines].join("\n")}\n`;
}
