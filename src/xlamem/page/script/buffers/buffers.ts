/** The buffers in use at the step, as a table. */

import { copyText } from "../parts/clipboard.js";
import { type Cells, type Column, COLUMNS, isReserved, scopeOf, tabSeparated } from "./columns.js";
import type { ProgramData } from "../data/data.js";
import { fill, h, name, newId, onWidth } from "../parts/dom.js";
import { count, number, size } from "../parts/format.js";
import { button } from "../parts/frame.js";
import { liveSet } from "../data/live.js";
import { matching } from "../data/matching.js";
import { scopePath } from "../data/names.js";
import { orderOf } from "../data/sorting.js";
import type { Store } from "../data/store.js";
import type { View } from "../parts/view.js";
import { VirtualRows } from "../parts/virtual_rows.js";

/** Height of a row, and of one with two lines, in pixels. */
const ROW = 28;
const TALL = 46;
/** From this width on, each row is one line, in pixels. */
const WIDE = 620;
/** Columns of a narrow table; the name is above the scope. */
const NARROW: readonly string[] = ["bytes", "name", "life"];
/** Delay of a search after the last key, in milliseconds. */
const PAUSE = 150;

export const buffersView: View = (host, data, { store }) => void new BufferTable(host, data, store);

class BufferTable {
  readonly #data: ProgramData;
  readonly #store: Store;
  readonly #summary = h("p", { class: "summary", role: "status" });
  readonly #search: HTMLInputElement;
  readonly #header = h("div", { class: "head", role: "row", "aria-rowindex": 1 });
  readonly #grid: HTMLElement;
  readonly #rows: VirtualRows;
  readonly #id = newId("row");
  #cells: Cells;
  /** Rows of the live set that match, in order. */
  #shown = new Int32Array(0);
  #sort: { column: Column; descending: boolean } = { column: COLUMNS[0]!, descending: true };
  /** Position in `shown` that the keys move. */
  #active = 0;
  #columns = COLUMNS;

  constructor(host: HTMLElement, data: ProgramData, store: Store) {
    [this.#data, this.#store] = [data, store];
    this.#cells = this.#atStep();
    this.#search = this.#searchBox();
    this.#grid = h("div", { class: "grid", role: "grid", tabindex: 0, "aria-label": "Buffers in use at the step" });
    this.#rows = new VirtualRows(this.#grid, ROW, ROW, (row) => this.#row(row));
    this.#grid.append(h("div", { role: "rowgroup", class: "head-group" }, this.#header), this.#rows.body);
    const copy = button("Copy", () => void this.#copy(copy), { title: "Copy these rows as a table" });
    host.append(h("div", { class: "table-bar" }, this.#summary, this.#search, copy), this.#grid);
    this.#grid.addEventListener("keydown", (event) => this.#onKey(event));
    onWidth(this.#grid, (width) => this.#fit(width));
    store.on(["space", "step"], () => {
      this.#cells = this.#atStep();
      this.#filter();
    });
    store.on(["query", "scope"], () => this.#filter());
    store.on(["buffer"], () => this.#revealSelected());
  }

  #atStep(): Cells {
    const { space, step } = this.#store.state;
    return { data: this.#data, live: liveSet(this.#data, space, step), step };
  }

  #searchBox(): HTMLInputElement {
    const label = "Search names, scopes, kinds, shapes and source lines";
    const names = { "aria-label": label, title: label, placeholder: "Search" };
    const search = h("input", { type: "search", spellcheck: "false", ...names });
    search.value = this.#store.state.query;
    let timer = 0;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#store.set({ query: search.value }), PAUSE);
    });
    return search;
  }

  #fit(width: number): void {
    const isNarrow = width < WIDE;
    this.#columns = isNarrow ? COLUMNS.filter(({ key }) => NARROW.includes(key)) : COLUMNS;
    this.#grid.classList.toggle("narrow", isNarrow);
    this.#filter();
    this.#revealSelected();
  }

  // -- rows ------------------------------------------------------------------------------------------------

  /** Show the rows that match, in order. */
  #filter(): void {
    const { query, scope } = this.#store.state;
    if (document.activeElement !== this.#search) this.#search.value = query;
    const mask = matching(this.#data, query, scope);
    const { live } = this.#cells;
    const rows = Int32Array.from({ length: live.length }, (_, i) => i);
    this.#show(mask ? rows.filter((i) => mask[live.buffer[i]!] === 1) : rows);
  }

  #show(rows: Int32Array): void {
    const { column, descending } = this.#sort;
    const keys = Float64Array.from(column.keys(this.#cells, rows));
    this.#shown = orderOf(descending ? keys.map((key) => -key) : keys).map((i) => rows[i]!);
    this.#active = Math.max(0, this.#selectedRow());
    this.#describe();
    this.#drawHeader();
    this.#grid.setAttribute("aria-rowcount", String(rows.length + 1));
    this.#grid.setAttribute("aria-colcount", String(this.#columns.length));
    this.#rows.show(rows.length, this.#grid.classList.contains("narrow") ? TALL : ROW);
    this.#markActive();
  }

  /** `12 of 340 buffers, 1.00 GiB of 2.00 GiB in use at step 5` */
  #describe(): void {
    const { query, scope } = this.#store.state;
    const { live, step } = this.#cells;
    const n = this.#shown.length;
    const bytes = this.#shown.reduce((sum, i) => sum + live.bytes[i]!, 0);
    const all = this.#data.model.steps === null ? "of memory" : `in use at step ${number(step)}`;
    const isAll = n === live.length;
    const text = isAll
      ? `${count(n, "buffer")}, ${size(live.total)} ${all}`
      : `${number(n)} of ${count(live.length, "buffer")}, ${size(bytes)} of ${size(live.total)} ${all}`;
    const clear = (label: Node, what: { query: string } | { scope: number }): HTMLElement =>
      button(h("span", {}, label, " \u00d7"), () => this.#store.set(what), { class: "filter", title: "Remove this filter" });
    fill(
      this.#summary,
      text,
      scope > 0 ? clear(name(scopePath(this.#data, scope), 40), { scope: 0 }) : null,
      query.trim() ? clear(name(query.trim(), 40), { query: "" }) : null,
    );
  }

  #drawHeader(): void {
    const { column: sorted, descending } = this.#sort;
    const headers = this.#columns.map((column, i) => {
      const order = column !== sorted ? "none" : descending ? "descending" : "ascending";
      const sort = button(column.title, () => this.#sortBy(column), { title: column.explanation });
      return h("div", { class: cellClass(column), role: "columnheader", "aria-colindex": i + 1, "aria-sort": order }, sort);
    });
    const focused = Array.from(this.#header.children).findIndex((cell) => cell.contains(document.activeElement));
    fill(this.#header, ...headers);
    headers[focused]?.querySelector("button")?.focus();
  }

  #sortBy(column: Column): void {
    const isSame = this.#sort.column === column;
    this.#sort = { column, descending: isSame ? !this.#sort.descending : column.descends === true };
    this.#show(this.#shown.slice().sort());
    this.#rows.reveal(0);
  }

  #row(position: number): HTMLElement {
    const i = this.#shown[position]!;
    const isNarrow = this.#grid.classList.contains("narrow");
    const cells = this.#columns.map((column, at) =>
      h(
        "div",
        { class: cellClass(column), role: "gridcell", "aria-colindex": at + 1 },
        column.cell(this.#cells, i),
        isNarrow && column.key === "name" ? h("div", { class: "muted" }, name(scopeOf(this.#cells, i))) : null,
      ),
    );
    const classes = ["row", isReserved(this.#cells, i) ? "reserved" : "", position === this.#active ? "active" : ""];
    const row = h(
      "div",
      {
        id: `${this.#id}-${position}`,
        class: classes.join(" ").trim(),
        role: "row",
        "aria-rowindex": position + 2,
        "aria-selected": String(this.#isSelected(i)),
      },
      ...cells,
    );
    row.addEventListener("click", () => this.#select(position));
    return row;
  }

  // -- selection -------------------------------------------------------------------------------------------

  #isSelected(i: number): boolean {
    const { buffer } = this.#store.state;
    return buffer >= 0 && this.#cells.live.buffer[i] === buffer;
  }

  /** Position of the selected buffer, -1 if it is not shown. */
  #selectedRow(): number {
    return this.#store.state.buffer < 0 ? -1 : this.#shown.findIndex((i) => this.#isSelected(i));
  }

  #select(position: number): void {
    this.#active = position;
    const buffer = this.#cells.live.buffer[this.#shown[position]!] ?? -1;
    if (buffer < 0) return;
    this.#store.set({ buffer });
    this.#redraw();
  }

  #revealSelected(): void {
    const row = this.#selectedRow();
    if (row >= 0) {
      this.#active = row;
      this.#rows.reveal(row);
    }
    this.#redraw();
  }

  #redraw(): void {
    this.#rows.show(this.#shown.length);
    this.#markActive();
  }

  #markActive(): void {
    if (this.#shown.length) this.#grid.setAttribute("aria-activedescendant", `${this.#id}-${this.#active}`);
    else this.#grid.removeAttribute("aria-activedescendant");
  }

  #onKey(event: KeyboardEvent): void {
    if (event.target !== this.#grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = this.#rows.visible;
    const moves: Readonly<Record<string, number>> = {
      ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity,
    }; // prettier-ignore
    const by = moves[event.key];
    if (by !== undefined) this.#move(by);
    else if (event.key === "Enter" || event.key === " ") this.#select(this.#active);
    else return;
    event.preventDefault();
  }

  #move(by: number): void {
    this.#active = Math.max(0, Math.min(this.#shown.length - 1, this.#active + by));
    this.#rows.reveal(this.#active);
    this.#redraw();
  }

  // -- copy ------------------------------------------------------------------------------------------------

  async #copy(copy: HTMLElement): Promise<void> {
    const copied = await copyText(tabSeparated(this.#cells, this.#shown));
    fill(copy, copied ? "Copied" : "Not copied");
    setTimeout(() => fill(copy, "Copy"), 1500);
  }
}

function cellClass(column: Column): string {
  return column.isNumber ? `cell ${column.key} number` : `cell ${column.key}`;
}
