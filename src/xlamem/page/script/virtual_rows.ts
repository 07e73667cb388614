/** A list of rows of one height, of which only those that are visible are in the document. */

import { h } from "./dom.js";

/** Browsers do not scroll over much more than this, in pixels. A longer list scrolls faster. */
const MAX_HEIGHT = 8_000_000;
/** Rows above and below those that are visible. */
const MARGIN = 6;

export class VirtualRows {
  /** To be placed in the element that scrolls, below what is above the rows. */
  readonly body: HTMLElement;
  readonly #scroller: HTMLElement;
  readonly #header: HTMLElement;
  readonly #render: (row: number) => HTMLElement;
  #rowHeight: number;
  #n = 0;
  #requested = 0;

  /** `header` sticks to the top of the scroller. */
  constructor(scroller: HTMLElement, header: HTMLElement, rowHeight: number, render: (row: number) => HTMLElement) {
    [this.#scroller, this.#header, this.#rowHeight, this.#render] = [scroller, header, rowHeight, render];
    this.body = h("div", { class: "rows", role: "rowgroup" });
    scroller.addEventListener("scroll", () => {
      if (!this.#requested) this.#requested = requestAnimationFrame(() => this.#draw());
    });
  }

  /** Show n rows. */
  show(n: number, rowHeight = this.#rowHeight): void {
    [this.#n, this.#rowHeight] = [n, rowHeight];
    this.body.style.height = `${Math.min(MAX_HEIGHT, n * rowHeight)}px`;
    this.#draw();
  }

  /** Scroll until a row is visible. */
  reveal(row: number): void {
    const { first, visible } = this.#window();
    if (row < first) this.#scrollTo(row);
    else if (row + 1 > first + visible) this.#scrollTo(row + 1 - visible);
  }

  /** Number of rows that are visible at the same time. */
  get visible(): number {
    return Math.max(1, Math.floor(this.#window().visible));
  }

  /** First visible row and number of visible rows; both can have fractions. */
  #window(): { first: number; visible: number } {
    const room = this.#scroller.clientHeight - this.#header.offsetHeight;
    const visible = room / this.#rowHeight;
    const height = Math.min(MAX_HEIGHT, this.#n * this.#rowHeight);
    const share = height > room ? Math.min(1, this.#scroller.scrollTop / (height - room)) : 0;
    return { first: share * Math.max(0, this.#n - visible), visible };
  }

  #scrollTo(first: number): void {
    const room = this.#scroller.clientHeight - this.#header.offsetHeight;
    const height = Math.min(MAX_HEIGHT, this.#n * this.#rowHeight);
    const last = this.#n - room / this.#rowHeight;
    this.#scroller.scrollTop = last > 0 ? (first / last) * (height - room) : 0;
    this.#draw();
  }

  #draw(): void {
    this.#requested = 0;
    const { first, visible } = this.#window();
    const from = Math.max(0, Math.floor(first) - MARGIN);
    const to = Math.min(this.#n, Math.ceil(first + visible) + MARGIN);
    const rows = Array.from({ length: Math.max(0, to - from) }, (_, i) => this.#render(from + i));
    const top = this.#scroller.scrollTop + (from - first) * this.#rowHeight;
    rows.forEach((row, i) => (row.style.transform = `translateY(${Math.round(top + i * this.#rowHeight)}px)`));
    this.body.replaceChildren(...rows);
  }
}
