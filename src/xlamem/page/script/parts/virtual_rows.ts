/** A list of rows of one height, of which only those that are visible are in the document. */

import { h } from "./dom.js";

/** Browsers do not scroll over much more than this, in pixels. A longer list scrolls faster. */
const MAX_HEIGHT = 8_000_000;
/** Rows above and below those that are visible. */
const MARGIN = 6;

export class VirtualRows {
  /** To be placed in the element that scrolls, below what is above the rows. */
  readonly body = h("div", { class: "rows", role: "rowgroup" });
  readonly #scroller: HTMLElement;
  readonly #render: (row: number) => HTMLElement;
  /** Height of the scroller without what sticks to its top, and its position. Reading them anew would cost a layout. */
  #room = 0;
  #top = 0;
  #rowHeight: number;
  #n = 0;
  /** Row to be revealed as soon as there is room, or -1. */
  #wanted = -1;
  #requested = 0;

  /** `header` is the height of what sticks to the top of the scroller. */
  constructor(scroller: HTMLElement, header: number, rowHeight: number, render: (row: number) => HTMLElement) {
    [this.#scroller, this.#rowHeight, this.#render] = [scroller, rowHeight, render];
    scroller.addEventListener("scroll", () => {
      this.#top = scroller.scrollTop;
      if (!this.#requested) this.#requested = requestAnimationFrame(() => this.#draw());
    });
    new ResizeObserver(([entry]) => {
      this.#room = Math.max(0, entry!.contentRect.height - header);
      if (this.#wanted >= 0 && this.#room > 0) this.reveal(this.#wanted);
      this.#draw();
    }).observe(scroller);
  }

  /** Show n rows. */
  show(n: number, rowHeight = this.#rowHeight): void {
    [this.#n, this.#rowHeight] = [n, rowHeight];
    this.body.style.height = `${this.#height}px`;
    this.#top = Math.min(this.#top, Math.max(0, this.#height - this.#room));
    this.#draw();
  }

  /** Scroll until a row is visible. */
  reveal(row: number): void {
    this.#wanted = this.#room > 0 ? -1 : row;
    if (this.#wanted >= 0) return;
    const { first, visible } = this.#window();
    if (row < first) this.#scrollTo(row);
    else if (row + 1 > first + visible) this.#scrollTo(row + 1 - visible);
  }

  /** Number of rows that are visible at the same time. */
  get visible(): number {
    return Math.max(1, Math.floor(this.#window().visible));
  }

  get #height(): number {
    return Math.min(MAX_HEIGHT, this.#n * this.#rowHeight);
  }

  /** First visible row and number of visible rows; both can have fractions. */
  #window(): { first: number; visible: number } {
    const visible = this.#room / this.#rowHeight;
    const hidden = this.#height - this.#room;
    return { first: hidden > 0 ? Math.min(1, this.#top / hidden) * (this.#n - visible) : 0, visible };
  }

  #scrollTo(first: number): void {
    const last = this.#n - this.#room / this.#rowHeight;
    this.#top = last > 0 ? (first / last) * (this.#height - this.#room) : 0;
    this.#scroller.scrollTop = this.#top;
    this.#draw();
  }

  #draw(): void {
    cancelAnimationFrame(this.#requested);
    this.#requested = 0;
    const { first, visible } = this.#window();
    const from = Math.max(0, Math.floor(first) - MARGIN);
    const to = Math.min(this.#n, Math.ceil(first + visible) + MARGIN);
    const rows = Array.from({ length: Math.max(0, to - from) }, (_, i) => this.#render(from + i));
    const top = this.#top + (from - first) * this.#rowHeight;
    rows.forEach((row, i) => (row.style.transform = `translateY(${Math.round(top + i * this.#rowHeight)}px)`));
    this.body.replaceChildren(...rows);
  }
}
