/** The page of two programs: what changed from A to B. */

import { accountTitle, spacesOf, usageOf } from "./accounts.js";
import { Aligned, type Series } from "./aligned.js";
import type { ProgramData } from "../data/data.js";
import { ints } from "../data/decode.js";
import { fill, h, name, plain } from "../parts/dom.js";
import { count, exactSize, minusSigns, number, signedSize, size } from "../parts/format.js";
import { button, choice, section, sentence } from "../parts/frame.js";
import type { AccountDifference, Difference, Report, Waterfall } from "../data/model.js";
import { Partners, TwoMaps } from "./two_maps.js";
import type { Page } from "../parts/view.js";
import { type Side, SIDES, Warp } from "../data/warp.js";
import { type Handlers, waterfall } from "./waterfall.js";

/** More of a text is only in its title. */
const MAX_TEXT = 320;
const NUMBERS = ["reserved", "peak"] as const;
const EVIDENCE: Readonly<Record<string, string>> = {
  interface: "seen in arguments and outputs",
  names: "seen in names of operations",
  buffers: "seen in buffers",
  files: "seen in flags or versions",
};

type Members = { row: Int32Array; a: Int32Array; b: Int32Array };
type BySide<T> = Readonly<Record<Side, T>>;

/** The views that need columns; they follow the selected account and row. */
interface Explorer {
  readonly maps: TwoMaps;
  readonly members: readonly Members[];
  show(account: number): void;
}

/** Draw the comparison, at first what needs no columns. `decode` decodes both programs; `open` shows one (A is 0). */
export async function comparisonView(
  host: HTMLElement, report: Report, page: Page, decode: () => Promise<unknown>, open: (program: number) => void,
): Promise<void> {
  const difference = report.difference!;
  const verdict = section("difference", "What changed from A to B", "");
  const isTimed = report.programs.every((model) => model.steps !== null); // otherwise allocations are compared as a whole
  verdict.host.append(...summary(difference, isTimed), sides(report, open));
  host.append(verdict.element);
  if (difference.same) {
    host.append(...editSection(difference));
    return;
  }
  const why = section("changes", "Where the bytes went", "Each change leads from the number of A to that of B. They add up to the byte.");
  const time = section("aligned", "Both timelines", "Steps with matching instructions are at the same place.");
  const where = section("maps", "Both address maps", "");
  host.append(why.element, ...editSection(difference), time.element, where.element);
  const waterfalls = new Waterfalls(why.host, difference, isTimed);
  time.host.append(h("p", { class: "sentence loading" }, "Reading the columns …"));
  try {
    await decode();
    const explorer = await explorerOf(difference, { a: page.programs[0]!, b: page.programs[1]! }, page, time.host, where.host);
    waterfalls.connect(explorer);
  } catch (error) {
    fill(time.host, sentence((error as Error).message, true));
  }
}

async function explorerOf(
  difference: Difference, data: BySide<ProgramData>, page: Page, time: HTMLElement, where: HTMLElement,
): Promise<Explorer> {
  const [stepsA, stepsB, buffersA, buffersB, ...members] = await Promise.all([
    ints(difference.steps.a),
    ints(difference.steps.b),
    ints(difference.buffers.a),
    ints(difference.buffers.b),
    ...difference.accounts.map(membersOf),
  ]);
  const maps = new TwoMaps(where, data, page, new Partners(data, buffersA, buffersB));
  const aligned = timelines(fill(time), data, new Warp({ a: stepsA, b: stepsB }, lengths(data)), maps);
  const show = (i: number) => {
    const { account } = difference.accounts[i]!;
    const spaces = { a: spacesOf(data.a, account), b: spacesOf(data.b, account) };
    aligned?.show(seriesOf(data, spaces));
    maps.show(account, spaces);
  };
  return { maps, members, show };
}

async function membersOf({ members: { row, a, b } }: AccountDifference): Promise<Members> {
  const [rows, rowsOfA, rowsOfB] = await Promise.all([ints(row), ints(a), ints(b)]);
  return { row: rows, a: rowsOfA, b: rowsOfB };
}

// -- the verdict --------------------------------------------------------------------------------------

function summary({ verdict, accounts }: Difference, isTimed: boolean): HTMLElement[] {
  const total = accounts[0]!;
  const figures = [
    ["must fit", total.reserved],
    ["in use at the peak", total.peak],
  ] as const;
  const amounts = figures.slice(0, isTimed ? 2 : 1).map(([label, { a, b }]) => {
    const [value, unit] = (a === b ? "\u00b10 B" : signedSize(b - a)).split(" ");
    const kind = b > a ? "figure up" : b < a ? "figure down" : "figure";
    return h(
      "div",
      { class: "amount", title: `${exactSize(a)} in A, ${exactSize(b)} in B` },
      h("div", { class: kind }, value!, " ", h("span", { class: "unit" }, unit!)),
      h("div", { class: "caption" }, label),
      h("div", { class: "caption muted" }, `${size(a)} \u2192 ${size(b)}`),
    );
  });
  const words = h("div", { class: "words" }, h("p", { class: "headline" }, plain(minusSigns(verdict), 1500)));
  return [h("div", { class: "difference-verdict" }, h("div", { class: "amounts" }, ...amounts), words)];
}

function sides({ programs }: Report, open: (program: number) => void): HTMLElement {
  const items = SIDES.map((side, i) => {
    const model = programs[i]!;
    const facts = [model.platform, model.steps === null ? "no live ranges" : count(model.steps - 1, "step")].filter((text) => text !== null);
    return h(
      "li",
      {},
      h("strong", { class: `side side-${side}` }, side.toUpperCase()),
      h(
        "div",
        { class: "side-words" },
        h("div", {}, name(model.name, 100)),
        h("div", { class: "muted" }, ...facts.map((text) => h("span", { class: "fact" }, plain(text))), name(model.path, 120, { class: "path" })),
        ...model.problems.map((text) => h("div", { class: "bad" }, plain(text, 300))),
      ),
      button(`Open ${side.toUpperCase()}`, () => open(i), { title: `Show the whole page of ${side.toUpperCase()} below` }),
    );
  });
  return h("ul", { class: "sides" }, ...items);
}

// -- where the bytes went -----------------------------------------------------------------------------

class Waterfalls {
  readonly #accounts: readonly AccountDifference[];
  readonly #isTimed: boolean;
  readonly #body = h("div", {});
  readonly #names: ReturnType<typeof choice>;
  readonly #kinds: ReturnType<typeof choice>;
  #account = 0;
  /** Index of NUMBERS. */
  #kind: number;
  #explorer: Explorer | null = null;

  constructor(host: HTMLElement, { accounts }: Difference, isTimed: boolean) {
    this.#isTimed = isTimed;
    this.#accounts = accounts;
    this.#kind = accounts[0]!.reserved.rows.length > 0 ? 0 : 1;
    const titles = accounts.map(({ account }) => plain(accountTitle(account), 40));
    this.#names = choice("Memory space", titles, (i) => {
      this.#account = i;
      this.#draw();
      this.#explorer?.show(i);
    });
    this.#kinds = choice("Number", ["Must fit", isTimed ? "In use at the peak" : "By buffer"], (i) => {
      this.#kind = i;
      this.#draw();
    });
    host.append(h("div", { class: "row" }, accounts.length > 1 ? this.#names.element : null, this.#kinds.element), this.#body);
    this.#draw();
  }

  /** Let rows be selected, and show the account in other views. */
  connect(explorer: Explorer): void {
    this.#explorer = explorer;
    explorer.maps.onReset = () => this.#draw(); // with no row selected
    explorer.show(this.#account);
    this.#draw();
  }

  #draw(): void {
    this.#names.press(this.#account);
    this.#kinds.press(this.#kind);
    this.#explorer?.maps.highlight(null);
    this.#explorer?.maps.point(null); // no event says that the pointer has left a row that is replaced
    fill(this.#body, ...this.#chart(this.#accounts[this.#account]!, NUMBERS[this.#kind]!));
  }

  #chart(difference: AccountDifference, kind: (typeof NUMBERS)[number]): HTMLElement[] {
    const data = difference[kind];
    const what = kind === "peak" && this.#isTimed ? "in use at the peak" : difference.account === "device_total" ? "must fit" : "reserved";
    if (data.rows.length === 0) return [sentence(`Nothing changed: ${size(data.a)} ${what} in A and in B.`)];
    const explorer = kind === "peak" ? this.#explorer : null;
    const table = waterfall(data, what, explorer ? rowsOf(data, explorer, this.#account) : null);
    const { step_a, step_b } = difference;
    const steps = `The buffers in use at step ${number(step_a)} of A are compared with those at step ${number(step_b)} of B.`;
    return explorer?.maps.areTimed ? [table, h("p", { class: "note" }, steps)] : [table];
  }
}

/** What happens when the reader points at rows of a waterfall or selects them. */
function rowsOf(data: Waterfall, { maps, members }: Explorer, account: number): Handlers {
  const { row: rows, a, b } = members[account]!;
  const counts = new Int32Array(data.rows.length);
  rows.forEach((row, i) => (counts[row]! += Number(a[i]! >= 0 || b[i]! >= 0)));
  const buffersOf = (row: number) => {
    const ofRow = (column: Int32Array) => column.filter((_, i) => rows[i] === row);
    return counts[row] ? { title: data.rows[row]!.label, a: ofRow(a), b: ofRow(b) } : null;
  };
  return {
    point: (row) => maps.point(buffersOf(row)),
    select: (row) => maps.highlight(buffersOf(row)),
    hasBuffers: (row) => counts[row]! > 0,
  };
}

// -- what changed in the program ------------------------------------------------------------------------

/** The section, unless nothing changed. */
function editSection({ edits }: Difference): HTMLElement[] {
  if (edits.length === 0) return [];
  const { element, host } = section("edits", "What changed in the program", "Bytes are those at the peak of device memory that the edit explains.");
  host.append(editList(edits));
  return [element];
}

function editList(edits: Difference["edits"]): HTMLElement {
  const items = edits.map(({ text, kind, evidence, change, n }) => {
    const amount = change ? signedSize(change) : "";
    return h(
      "li",
      {},
      h("span", { class: `number ${change > 0 ? "up" : change < 0 ? "down" : ""}`, title: change ? exactSize(change) : null }, amount),
      h("span", { class: "edit-words", title: plain(text) }, plain(text, MAX_TEXT), h("span", { class: "muted" }, plain(`${[kind, n ? count(n, "buffer") : "", EVIDENCE[evidence] ?? ""].filter(Boolean).join(" \u00b7 ")}`))),
    );
  });
  return h("ul", { class: "edits" }, ...items);
}

// -- time -----------------------------------------------------------------------------------------------

function lengths(data: BySide<ProgramData>): Record<Side, number> {
  return { a: data.a.model.steps ?? 0, b: data.b.model.steps ?? 0 };
}

function timelines(host: HTMLElement, data: BySide<ProgramData>, warp: Warp, maps: TwoMaps): Aligned | null {
  if (data.a.model.steps === null || data.b.model.steps === null) {
    host.append(sentence("Without live ranges on both sides, the timelines cannot be compared."));
    return null;
  }
  return new Aligned(host, data, warp, (side, step) => maps.goTo(side, step));
}

function seriesOf(data: BySide<ProgramData>, spaces: BySide<readonly number[]>): Record<Side, Series> | null {
  const found = SIDES.map((side) => {
    const usage = usageOf(data[side], spaces[side]);
    return usage && { usage, peak: usage.reduce((best, bytes, step) => (bytes > usage[best]! ? step : best), 0) };
  });
  return found[0] && found[1] ? { a: found[0], b: found[1] } : null;
}
