/** A waterfall: a table of the changes from A to B, with a bar for each, and the numbers of A and B. */

import { h, name, plain, svg } from "../parts/dom.js";
import { exactSize, minusSigns, number, shortSize, signedSize, size } from "../parts/format.js";
import { button } from "../parts/frame.js";
import type { Waterfall } from "../data/model.js";

/** An axis that would show less than this share of its length as changes does not begin at 0. */
const MIN_SHARE = 0.25;
/** The changes then fill this share of it. */
const SHARE = 0.8;
/** Share of the axis that is free behind the longest bar. */
const ROOM = 0.02;
const TICKS = 4;
/** Width of the smallest bars in percent of the axis. */
const MIN_WIDTH = 0.2;
const MAX_TEXT = 300;

type WaterfallRow = Waterfall["rows"][number];

export interface Handlers {
  /** The reader points at a row, -1 at none. */
  point(row: number): void;
  /** The reader selects a row; -1 to select none. */
  select(row: number): void;
  /** Whether the buffers of a row can be shown. */
  hasBuffers(row: number): boolean;
}

/** Levels before and after each change, and the axis. */
interface Scale {
  readonly levels: readonly number[];
  readonly low: number;
  readonly high: number;
}

/** Draw a waterfall; without handlers, its rows cannot be selected. */
export function waterfall(data: Waterfall, what: string, handlers: Handlers | null): HTMLElement {
  const scale = scaleOf(data);
  const selectors: { row: number; element: HTMLElement }[] = [];
  let selected = -1;
  const select = (row: number) => {
    selected = selected === row ? -1 : row;
    for (const s of selectors) s.element.setAttribute("aria-pressed", String(s.row === selected));
    handlers?.select(selected);
  };
  const changes = data.rows.map((row, i) => {
    const label = labelOf(row, handlers?.hasBuffers(i) ? () => select(i) : null);
    if (label instanceof HTMLButtonElement) selectors.push({ row: i, element: label });
    const [from, to] = [scale.levels[i]!, scale.levels[i + 1]!];
    return tableRow(kindOf(row.change), row.change ? signedSize(row.change) : "\u00b10", exactSize(row.change), details(row, label), bar(scale, from, to, from, to), {
      pointerenter: () => handlers?.point(i),
      pointerleave: () => handlers?.point(-1),
    });
  });
  const end = (side: string, bytes: number, first: boolean) => {
    const chart = bar(scale, scale.low, bytes, first ? null : bytes, first ? bytes : null);
    return tableRow("total", size(bytes), exactSize(bytes), [h("span", { class: "row-label" }, `${side}: ${what}`)], chart, {});
  };
  return h(
    "div",
    { class: "waterfall" },
    h(
      "table",
      { role: "table", "aria-label": plain(`${what}: changes from A to B`) },
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          h("th", { scope: "col", role: "columnheader", class: "number" }, "Bytes"),
          h("th", { scope: "col", role: "columnheader" }, "Change"),
          h("th", { scope: "col", role: "columnheader", class: "chart-cell" }, h("span", { class: "off-screen" }, "Chart"), axis(scale)),
        ),
      ),
      h("tbody", { role: "rowgroup" }, end("A", data.a, true), ...changes, end("B", data.b, false)),
    ),
    scale.low > 0 ? h("p", { class: "note truncated" }, `The axis begins at ${size(scale.low)}, not at 0: the bars of A and B are cut off.`) : null,
  );
}

function scaleOf({ a, b, rows }: Waterfall): Scale {
  const levels = [a];
  for (const { change } of rows) levels.push(levels.at(-1)! + change);
  const lowest = Math.min(b, ...levels);
  const highest = Math.max(b, ...levels, 1);
  const changes = highest - lowest;
  const begins = changes > 0 && changes < MIN_SHARE * highest ? highest - changes / SHARE : 0;
  const low = Math.max(0, Math.floor(begins));
  return { levels, low, high: highest + ROOM * (highest - low) };
}

function kindOf(change: number): string {
  return change > 0 ? "up" : change < 0 ? "down" : "same";
}

function tableRow(
  kind: string, amount: string, exact: string, label: Node[], chart: Node, on: { pointerenter?: () => void; pointerleave?: () => void },
): HTMLElement {
  return h(
    "tr",
    { class: kind, role: "row", on },
    h("td", { class: "number", role: "cell", title: exact }, amount),
    h("th", { scope: "row", role: "rowheader" }, ...label),
    h("td", { class: "chart-cell", role: "cell" }, chart),
  );
}

function labelOf(row: WaterfallRow, select: (() => void) | null): HTMLElement {
  const text = name(row.label, 90);
  if (!select) return h("span", { class: "row-label" }, text);
  return button(text, select, { class: "row-label", "aria-pressed": "false", title: "Show these buffers in the address maps" });
}

function details(row: WaterfallRow, label: HTMLElement): Node[] {
  const n = row.n > 1 ? [h("span", { class: "times" }, `${number(row.n)}\u00d7`)] : [];
  const mark = row.mark ? [h("span", { class: "mark" }, plain(row.mark))] : [];
  const more = [row.detail, row.source].filter(Boolean);
  const small = more.map((text) => h("span", { class: text === row.source ? "source" : "detail" }, name(minusSigns(text), MAX_TEXT)));
  return [h("span", { class: "row-title" }, ...n, label, ...mark), ...(small.length ? [h("span", { class: "row-details" }, ...small)] : [])];
}

// -- bars ---------------------------------------------------------------------------------------------

/** A bar between two levels. Lines lead to it from the level before, and from it to the level after; null for none. */
function bar(scale: Scale, from: number, to: number, before: number | null, after: number | null): SVGElement {
  const [left, right] = [Math.min(from, to), Math.max(from, to)].map((bytes) => share(scale, bytes)) as [number, number];
  const isCut = scale.low > 0 && from === scale.low;
  return svg(
    "svg",
    { class: "bar", "aria-hidden": "true" },
    before === null ? null : lead(scale, before, "0", "22%"),
    after === null ? null : lead(scale, after, "78%", "100%"),
    svg("rect", { x: `${left}%`, y: "22%", width: `${Math.max(MIN_WIDTH, right - left)}%`, height: "56%" }),
    isCut ? cut() : null,
  );
}

function lead(scale: Scale, bytes: number, y1: string, y2: string): SVGElement {
  const x = `${share(scale, bytes)}%`;
  return svg("line", { class: "lead", x1: x, x2: x, y1, y2 });
}

/** A break across a bar whose beginning is not shown. */
function cut(): SVGElement {
  return svg("svg", { class: "cut", x: "10", y: "0", width: "14", height: "100%", viewBox: "0 0 14 40", preserveAspectRatio: "none" }, svg("path", { d: "M9 0 L3 13 L9 27 L3 40" }));
}

function share({ low, high }: Scale, bytes: number): number {
  return (100 * (bytes - low)) / (high - low || 1);
}

/** Labels of the axis at round sizes. */
function axis(scale: Scale): SVGElement {
  const step = 2 ** Math.ceil(Math.log2((scale.high - scale.low) / TICKS || 1));
  const ticks: SVGElement[] = [];
  for (let bytes = Math.ceil(scale.low / step) * step; bytes <= scale.high; bytes += step) {
    const x = share(scale, bytes);
    const anchor = x < 6 ? "start" : x > 94 ? "end" : "middle";
    ticks.push(svg("text", { x: `${x}%`, y: "12", "text-anchor": anchor }, shortSize(bytes)), svg("line", { x1: `${x}%`, x2: `${x}%`, y1: "18", y2: "24" }));
  }
  return svg("svg", { class: "axis", "aria-hidden": "true" }, ...ticks);
}
