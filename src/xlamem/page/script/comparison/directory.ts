/** The page of many programs: a table of them, each of which opens its page. */

import { programIn } from "../data/address.js";
import { barHead, capacityBar, type BarScale, scaleOf } from "../parts/capacity_bar.js";
import { fill, h, name, plain } from "../parts/dom.js";
import { count, exactSize, number, size } from "../parts/format.js";
import { button, section, sentence } from "../parts/frame.js";
import type { Directory, Report } from "../data/model.js";
import type { Page } from "../parts/view.js";

type Row = Directory["rows"][number];

/** Rows that are shown at first, and added by the button below. */
const ROWS = 200;
const MAX_FAILED = 200;
const MAX_PATH = 56;
const STATES = { true: ["\u2713", "fits"], false: ["\u2715", "does not fit"], null: ["?", "not known"] } as const;

interface Column {
  readonly title: string;
  readonly class?: string;
  /** What it is sorted by; undefined if it cannot be. Unknown numbers are the smallest. */
  readonly key?: (row: Row) => number | string;
  cell(row: Row): Node[];
}

/** Draw the table. Its links change the address of the page, which shows a program. */
export function directoryView(host: HTMLElement, report: Report, page: Page): void {
  const directory = report.directory!;
  const table = section("directory", "Programs", "");
  const opened = h("nav", { class: "back", "aria-label": "Programs", hidden: true }, h("a", { href: "#" }, "\u2190 All programs"));
  table.host.append(
    h("p", { class: "headline" }, summary(directory)),
    ...directory.folded.map((text) => sentence(plain(text, 500))),
    ...(directory.rows.length ? [new ProgramTable(directory).element] : []),
  );
  const parts = [table.element, ...(directory.failed.length ? [failures(directory)] : [])];
  host.append(opened, ...parts);
  makeRoom(page, opened, parts);
  addEventListener("hashchange", () => {
    if (programIn(location.hash, report.programs.length) === null) page.store.set({ program: -1 });
  });
}

/** Hide the table while a program is shown; then show it again as it was scrolled. */
function makeRoom(page: Page, opened: HTMLElement, parts: readonly HTMLElement[]): void {
  let scrolled = 0;
  const update = () => {
    const isOpen = page.store.state.program >= 0;
    if (isOpen === !opened.hidden) return;
    if (isOpen) scrolled = scrollY;
    opened.hidden = !isOpen;
    for (const part of parts) part.hidden = isOpen;
    requestAnimationFrame(() => scrollTo(0, isOpen ? 0 : scrolled));
  };
  page.store.on(["program"], update);
  update();
}

/** `39 programs; the largest needs 164.00 GiB. 36 fit into 15.75 GiB, 3 do not.` */
function summary({ rows, failed }: Directory): string {
  const dumps = rows.reduce((sum, row) => sum + row.occurrences, 0);
  const of = dumps > rows.length ? ` in ${count(dumps, "dump")}` : "";
  const largest = rows[0]?.must_fit == null ? "" : `; the largest needs ${size(rows[0].must_fit)}`;
  const bad = failed.length ? ` ${count(failed.length, "dump")} cannot be read.` : "";
  return `${count(rows.length, "program")}${of}${largest}.${verdicts(rows)}${bad}`;
}

function verdicts(rows: readonly Row[]): string {
  const judged = rows.filter((row) => row.available !== null);
  const available = judged[0]?.available;
  if (available == null) return "";
  const [good, over, unknown] = [true, false, null].map((fits) => judged.filter((row) => row.fits === fits).length) as [number, number, number];
  const fit = `${number(good)} ${good === 1 ? "fits" : "fit"} into ${size(available)}`;
  const not = over ? [`${number(over)} ${over === 1 ? "does" : "do"} not`] : [];
  return ` ${[fit, ...not, ...(unknown ? [`of ${number(unknown)} it is not known`] : [])].join(", ")}.`;
}

function failures({ failed }: Directory): HTMLElement {
  const { element, host } = section("failed", "Not readable", "");
  const items = failed.slice(0, MAX_FAILED).map(({ path, error }) => h("li", {}, name(path, 160, { class: "path" }), h("div", { class: "muted" }, plain(error, 400))));
  const more = failed.length - items.length;
  host.append(h("ul", { class: "failed" }, ...items), ...(more > 0 ? [sentence(`and ${count(more, "other")}`)] : []));
  return element;
}

class ProgramTable {
  readonly element: HTMLElement;
  readonly #rows: readonly Row[];
  readonly #columns: readonly Column[];
  readonly #heads: HTMLElement[];
  readonly #body = h("tbody", { role: "rowgroup" });
  readonly #status = h("p", { class: "status", role: "status" });
  readonly #more: HTMLButtonElement;
  #shown: readonly Row[] = [];
  #query = "";
  #sort = { column: -1, descending: true };
  #limit = ROWS;

  constructor({ rows }: Directory) {
    this.#rows = rows;
    this.#columns = columnsOf(rows);
    const search = h("input", { type: "search", placeholder: "Search programs", "aria-label": "Search programs", on: { input: () => this.#search(search.value) } });
    this.#heads = this.#columns.map((column, i) => this.#head(column, i));
    this.#more = button("", () => this.#show(this.#limit + ROWS));
    this.element = h(
      "div",
      { class: "directory" },
      h("div", { class: "row" }, search, this.#status),
      h("table", { class: "programs-table", role: "table", "aria-label": "Programs" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...this.#heads)), this.#body),
      this.#more,
    );
    this.#show(ROWS);
  }

  #head({ title, key, class: kind }: Column, i: number): HTMLElement {
    const label = key ? button(title, () => this.#sortBy(i), { class: "sorter" }) : h("span", {}, title);
    const axis = kind === "chart-cell" ? barHead(scaleOf(this.#rows)) : null;
    return h("th", { scope: "col", role: "columnheader", class: kind ?? null }, label, axis);
  }

  #search(text: string): void {
    this.#query = text.trim().toLowerCase();
    this.#show(ROWS);
  }

  #sortBy(column: number): void {
    const again = this.#sort.column === column;
    this.#sort = { column, descending: again ? !this.#sort.descending : typeof this.#columns[column]!.key!(this.#rows[0]!) === "number" };
    this.#show(this.#limit);
  }

  #show(limit: number): void {
    this.#limit = limit;
    this.#shown = this.#sorted(this.#rows.filter(({ name: text, path, platform }) => `${text}\n${path}\n${platform ?? ""}`.toLowerCase().includes(this.#query)));
    const visible = this.#shown.slice(0, limit);
    fill(this.#body, ...visible.map((row) => this.#row(row)));
    fill(this.#status, this.#query ? `${count(this.#shown.length, "program")} of ${number(this.#rows.length)}` : "");
    const more = this.#shown.length - visible.length;
    this.#more.hidden = more <= 0;
    fill(this.#more, `Show ${number(Math.min(more, ROWS))} more of ${number(more)}`);
    this.#heads.forEach((head, i) => head.setAttribute("aria-sort", i !== this.#sort.column ? "none" : this.#sort.descending ? "descending" : "ascending"));
  }

  #sorted(rows: readonly Row[]): readonly Row[] {
    const key = this.#columns[this.#sort.column]?.key;
    if (!key) return rows;
    const sign = this.#sort.descending ? -1 : 1;
    return [...rows].sort((a, b) => sign * compared(key(a), key(b)));
  }

  #row(row: Row): HTMLElement {
    const cells = this.#columns.map(({ title, cell, class: kind }, i) =>
      i === 0
        ? h("th", { scope: "row", role: "rowheader" }, ...cell(row))
        : h("td", { role: "cell", class: kind ?? null, "data-title": title }, ...cell(row)),
    );
    return h("tr", { role: "row", class: row.fits === false ? "over" : null }, ...cells);
  }
}

function compared(a: number | string, b: number | string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

// -- columns --------------------------------------------------------------------------------------------

function columnsOf(rows: readonly Row[]): Column[] {
  const scale = scaleOf(rows);
  const folder = commonFolder(rows);
  const judged = rows.some((row) => row.available !== null);
  const repeated = rows.some((row) => row.occurrences > 1);
  const columns: (Column | null)[] = [
    { title: "Program", key: (row) => row.name.toLowerCase(), cell: (row) => programCell(row, folder) },
    { title: "Platform", key: (row) => row.platform ?? "", cell: (row) => [text(row.platform ?? "?")] },
    numeric("Steps", (row) => row.steps, (row) => number(row.steps === null ? null : row.steps - 1)),
    repeated ? numeric("Dumps", (row) => row.occurrences, (row) => number(row.occurrences)) : null,
    numeric("Peak", (row) => row.peak, (row) => size(row.peak), (row) => row.peak),
    numeric("Must fit", (row) => row.must_fit, (row) => size(row.must_fit), (row) => row.must_fit),
    { title: judged ? "Against the capacity" : "Against the largest", class: "chart-cell", cell: (row) => [barOf(row, scale)] },
    judged ? { title: "Fits", class: "state-cell", key: (row) => (row.fits === null ? 1 : row.fits ? 2 : 0), cell: (row) => [stateOf(row)] } : null,
  ];
  return columns.filter((column) => column !== null);
}

function numeric(title: string, value: (row: Row) => number | null, shown: (row: Row) => string, bytes?: (row: Row) => number | null): Column {
  const exact = (row: Row) => (bytes?.(row) == null ? null : exactSize(bytes(row)!));
  return { title, class: "number", key: (row) => value(row) ?? -1, cell: (row) => [h("span", { title: exact(row) }, shown(row))] };
}

function text(value: string): Node {
  return document.createTextNode(plain(value, 40));
}

/** The name, which opens the page if there is one, and the path without the folder of all programs. */
function programCell(row: Row, folder: string): Node[] {
  const label = name(row.name, 80);
  const state = row.complete ? [] : [h("span", { class: "mark" }, "truncated")];
  const path = name(row.path.slice(folder.length), MAX_PATH, { class: "path", title: plain(row.path) });
  return [h("div", { class: "row-title" }, linkOf(row, label), ...state), h("div", { class: "muted" }, path)];
}

/** The folder that contains all programs, up to its last slash. */
function commonFolder(rows: readonly Row[]): string {
  let folder = rows[0]?.path ?? "";
  for (const { path } of rows) while (!path.startsWith(folder)) folder = folder.slice(0, -1);
  return folder.slice(0, folder.lastIndexOf("/") + 1);
}

function linkOf({ program, file }: Row, label: HTMLElement): HTMLElement {
  const target = program >= 0 ? `#program=${program}` : file;
  return target ? h("a", { href: target }, label) : label;
}

function barOf({ must_fit: bytes, available, fits }: Row, scale: BarScale): Node {
  return bytes === null ? text("") : capacityBar(bytes, available, fits, scale);
}

/** Empty for a program that is not compared with the device, since it is for another platform. */
function stateOf({ fits, available }: Row): Node {
  if (available === null) return text("");
  const [sign, words] = STATES[`${fits}`];
  return h("span", { class: `state state-${fits}` }, h("span", { class: "sign", "aria-hidden": "true" }, sign), words);
}
