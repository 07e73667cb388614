/** The page of two programs: what changed from A to B. */

import { accountTitle, spacesOf, usageOf } from "./accounts.js";
import { Aligned, type Series } from "./aligned.js";
import type { ProgramData } from "./data.js";
import { ints } from "./decode.js";
import { fill, h, name, plain } from "./dom.js";
import { count, exactSize, number, signedSize, size } from "./format.js";
import { button, choice, section, sentence } from "./frame.js";
import type { AccountDifference, Difference, Report } from "./model.js";
import { Partners, TwoMaps } from "./two_maps.js";
import type { Page } from "./view.js";
import { type Side, SIDES, Warp } from "./warp.js";
import { waterfall } from "./waterfall.js";

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

/** Draw the comparison. `open` shows the page of A (0) or B (1). */
export async function comparisonView(host: HTMLElement, report: Report, page: Page, open: (program: number) => void): Promise<void> {
  const difference = report.difference!;
  const data = { a: page.programs[0]!, b: page.programs[1]! };
  const verdict = section("difference", "What changed from A to B", "");
  verdict.host.append(...summary(difference), sides(data, open));
  host.append(verdict.element);
  if (difference.same) host.append(...editSection(difference));
  else await changes(host, difference, data, page);
}

async function changes(host: HTMLElement, difference: Difference, data: BySide<ProgramData>, page: Page): Promise<void> {
  const [stepsA, stepsB, buffersA, buffersB, ...members] = await Promise.all([
    ints(difference.steps.a),
    ints(difference.steps.b),
    ints(difference.buffers.a),
    ints(difference.buffers.b),
    ...difference.accounts.map(membersOf),
  ]);
  const why = section("changes", "Where the bytes went", "Each change leads from the number of A to that of B. They add up to the byte.");
  const time = section("aligned", "Both timelines", "Steps with matching instructions are at the same place.");
  const where = section("maps", "Both address maps", "");
  host.append(why.element, ...editSection(difference), time.element, where.element);
  const maps = new TwoMaps(where.host, data, page, new Partners(data, buffersA, buffersB));
  const aligned = timelines(time.host, data, new Warp({ a: stepsA, b: stepsB }, lengths(data)), maps);
  const show = (i: number) => {
    const { account } = difference.accounts[i]!;
    const spaces = { a: spacesOf(data.a, account), b: spacesOf(data.b, account) };
    aligned?.show(seriesOf(data, spaces));
    maps.show(spaces);
  };
  addWaterfalls(why.host, difference, members, maps, show);
  show(0);
}

async function membersOf({ members: { row, a, b } }: AccountDifference): Promise<Members> {
  const [rows, rowsOfA, rowsOfB] = await Promise.all([ints(row), ints(a), ints(b)]);
  return { row: rows, a: rowsOfA, b: rowsOfB };
}

// -- the verdict --------------------------------------------------------------------------------------

function summary({ verdict, accounts }: Difference): HTMLElement[] {
  const total = accounts[0]!;
  const figures = [
    ["must fit", total.reserved],
    ["in use at the peak", total.peak],
  ] as const;
  const amounts = figures.map(([label, { a, b }]) => {
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
  const words = h("div", { class: "words" }, h("p", { class: "headline" }, plain(verdict, 1500)));
  return [h("div", { class: "difference-verdict" }, h("div", { class: "amounts" }, ...amounts), words)];
}

function sides(data: BySide<ProgramData>, open: (program: number) => void): HTMLElement {
  const items = SIDES.map((side, i) => {
    const { model } = data[side];
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

function addWaterfalls(
  host: HTMLElement, { accounts }: Difference, members: readonly Members[], maps: TwoMaps, showAccount: (i: number) => void,
): void {
  let [account, kind] = [0, accounts[0]!.reserved.rows.length > 0 ? 0 : 1];
  const body = h("div", {});
  const draw = () => {
    kinds.press(kind);
    names.press(account);
    maps.highlight(null);
    fill(body, chart(accounts[account]!, NUMBERS[kind]!, members[account]!, maps));
  };
  const names = choice("Memory space", accounts.map(({ account: text }) => plain(accountTitle(text), 40)), (i) => {
    account = i;
    draw();
    showAccount(i);
  });
  const kinds = choice("Number", ["Must fit", "In use at the peak"], (i) => {
    kind = i;
    draw();
  });
  host.append(h("div", { class: "row" }, accounts.length > 1 ? names.element : null, kinds.element), body);
  draw();
}

function chart(difference: AccountDifference, kind: (typeof NUMBERS)[number], members: Members, maps: TwoMaps): HTMLElement {
  const data = difference[kind];
  const what = kind === "reserved" ? (difference.account === "device_total" ? "must fit" : "reserved") : "in use at the peak";
  if (data.rows.length === 0) {
    const text = data.a === data.b ? `Nothing changed: ${size(data.a)} ${what} in A and in B.` : "";
    return sentence(text);
  }
  const isPeak = kind === "peak";
  const counts = new Int32Array(data.rows.length);
  members.row.forEach((row, i) => (counts[row]! += Number(members.a[i]! >= 0 || members.b[i]! >= 0)));
  const buffersOf = (row: number) => ({
    title: data.rows[row]!.label,
    a: members.a.filter((_, i) => members.row[i] === row),
    b: members.b.filter((_, i) => members.row[i] === row),
  });
  const table = waterfall(data, what, {
    point: (row) => isPeak && maps.point(row < 0 || counts[row] === 0 ? null : buffersOf(row)),
    select: (row) => maps.highlight(row < 0 ? null : buffersOf(row)),
    hasBuffers: (row) => isPeak && counts[row]! > 0,
  });
  const { step_a, step_b } = difference;
  const steps = `The buffers in use at step ${number(step_a)} of A are compared with those at step ${number(step_b)} of B.`;
  return h("div", {}, table, isPeak && maps.areTimed ? h("p", { class: "note" }, steps) : null);
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
