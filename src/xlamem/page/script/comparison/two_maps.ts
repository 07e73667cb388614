/** The address maps of A and B: buffers without a partner, or those of a change, stand out. */

import { accountTitle } from "./accounts.js";
import { initial } from "../data/address.js";
import type { ProgramData } from "../data/data.js";
import { detailView } from "../buffers/detail.js";
import { fill, h, plain } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { button, sentence } from "../parts/frame.js";
import { addressMap } from "../map/map.js";
import { select } from "../parts/selection.js";
import { Store } from "../data/store.js";
import type { Page } from "../parts/view.js";
import { type Side, SIDES } from "../data/warp.js";

/** With more buffers than this, the maps do not follow the pointer in the waterfall. */
const MOST_TO_FOLLOW = 200_000;
const HEIGHT = 300;
const SELECTED = "the selected buffer";

/** Buffers of both sides that stand out; -1 for none. */
export interface Chosen {
  readonly title: string;
  readonly a: Int32Array;
  readonly b: Int32Array;
}

type BySide<T> = Readonly<Record<Side, T>>;

const ALONE = -2;
const LEFT_OUT = -1;

/** The buffers of A and B that match. */
export class Partners {
  /** Row of the partner, LEFT_OUT if this file does not have it, ALONE without one. */
  readonly #partner: BySide<Int32Array>;

  constructor(data: BySide<ProgramData>, a: Int32Array, b: Int32Array) {
    const [ofA, ofB] = [data.a, data.b].map(({ buffers }) => new Int32Array(buffers.length).fill(ALONE)) as [Int32Array, Int32Array];
    a.forEach((row, i) => {
      if (row >= 0) ofA[row] = b[i]!;
      if (b[i]! >= 0) ofB[b[i]!] = row;
    });
    this.#partner = { a: ofA, b: ofB };
  }

  /** The partner of a buffer; negative without one. */
  of(side: Side, buffer: number): number {
    return this.#partner[side][buffer] ?? ALONE;
  }

  /** What the details of the other side are while a buffer is selected. */
  words(side: Side, buffer: number): string {
    const partner = this.of(side, buffer);
    return partner >= 0 ? "the same buffer here" : partner === LEFT_OUT ? "has the buffer too, but this file leaves it out" : "has no such buffer";
  }

  /** Rows of the buffers of a side that have none. */
  without(side: Side): Int32Array {
    const partner = this.#partner[side];
    return Int32Array.from(partner.keys()).filter((row) => partner[row] === ALONE);
  }
}

export class TwoMaps {
  readonly #data: BySide<ProgramData>;
  readonly #partners: Partners;
  readonly #pages: BySide<Page>;
  readonly #marked: BySide<Uint8Array>;
  readonly #alone: BySide<Int32Array>;
  readonly #repaint: Record<Side, () => void> = { a: () => undefined, b: () => undefined };
  /** Each map, and what is shown instead where a side does not have the memory. */
  readonly #maps: BySide<HTMLElement> = { a: h("div", { class: "map" }), b: h("div", { class: "map" }) };
  readonly #absent: BySide<HTMLElement> = { a: sentence(""), b: sentence("") };
  /** Updated in place: replacing the button can lose a click or the focus, and a replaced live region is not announced. */
  readonly #words = h("p", { class: "status", "aria-live": "polite" });
  readonly #all = button("Show new and gone buffers", () => this.onReset());
  readonly #captions: BySide<HTMLElement> = { a: h("span", {}), b: h("span", {}) };
  /** What the details of a side are. */
  readonly #titles: BySide<HTMLElement> = { a: h("span", {}, SELECTED), b: h("span", {}, SELECTED) };
  /** Called when the reader asks for the buffers without a partner. */
  onReset: () => void = () => this.highlight(null);
  #chosen: Chosen | null = null;
  #pointed: Chosen | null = null;
  #frame = 0;

  constructor(host: HTMLElement, data: BySide<ProgramData>, page: Page, partners: Partners) {
    [this.#data, this.#partners] = [data, partners];
    const pageOf = (i: number): Page => ({ ...page, store: new Store({ ...initial(i, page.report.programs[i]), colorBy: "category" }) });
    this.#pages = { a: pageOf(0), b: pageOf(1) };
    this.#marked = { a: new Uint8Array(data.a.buffers.length), b: new Uint8Array(data.b.buffers.length) };
    this.#alone = { a: partners.without("a"), b: partners.without("b") };
    this.#mark();
    host.append(h("div", { class: "row" }, this.#words, this.#all), h("div", { class: "two-columns" }, ...SIDES.map((side) => this.#map(side))), this.#details());
    for (const side of SIDES) this.#follow(side);
  }

  #map(side: Side): HTMLElement {
    const map = this.#maps[side];
    const title = h("h3", {}, h("strong", { class: `side side-${side}` }, side.toUpperCase()), " ", this.#captions[side]);
    this.#repaint[side] = addressMap(map, this.#data[side], this.#pages[side], { highlight: this.#marked[side], height: HEIGHT });
    return h("div", {}, title, map, this.#absent[side]);
  }

  #details(): HTMLElement {
    const hosts = SIDES.map((side) => {
      const host = h("div", {});
      detailView(host, this.#data[side], this.#pages[side]);
      return h("div", {}, h("h3", {}, h("strong", { class: `side side-${side}` }, side.toUpperCase()), " ", this.#titles[side]), host);
    });
    return h("div", { class: "two-columns" }, ...hosts);
  }

  /** Select the partner of a buffer that is selected, and none if it is no longer. */
  #follow(side: Side): void {
    const other = side === "a" ? "b" : "a";
    const { store } = this.#pages[side];
    store.on(["buffer"], ({ buffer }) => {
      const there = this.#pages[other].store;
      if (buffer < 0) {
        const selected = there.state.buffer;
        if (selected >= 0 && this.#partners.of(other, selected) < 0) return; // that is why none is selected here
        there.set({ buffer: -1 });
        for (const title of Object.values(this.#titles)) fill(title, SELECTED);
        return;
      }
      const partner = this.#partners.of(side, buffer);
      if (partner >= 0 && partner === there.state.buffer) return;
      fill(this.#titles[side], SELECTED);
      fill(this.#titles[other], this.#partners.words(side, buffer));
      if (partner >= 0) select(there, this.#data[other], partner);
      else there.set({ buffer: -1 });
    });
    store.on(["colorBy"], ({ colorBy }) => this.#pages[other].store.set({ colorBy }));
  }

  /** Whether both sides have live ranges. */
  get areTimed(): boolean {
    return SIDES.every((side) => this.#data[side].model.steps !== null);
  }

  /** Show these memory spaces of an account. */
  show(account: string, spaces: BySide<readonly number[]>): void {
    for (const side of SIDES) {
      const [space] = spaces[side];
      this.#maps[side].hidden = space === undefined;
      this.#absent[side].hidden = space !== undefined;
      fill(this.#absent[side], `${side.toUpperCase()} has nothing in ${plain(accountTitle(account), 40)}.`);
      if (space !== undefined) this.#pages[side].store.set({ space });
    }
  }

  goTo(side: Side, step: number): void {
    this.#pages[side].store.set({ step });
  }

  /** Make buffers stand out until others are chosen; null for those without a partner. */
  highlight(chosen: Chosen | null): void {
    this.#chosen = chosen;
    this.#schedule();
  }

  /** Make buffers stand out while the reader points at them. */
  point(pointed: Chosen | null): void {
    if (this.#data.a.buffers.length + this.#data.b.buffers.length > MOST_TO_FOLLOW) return;
    this.#pointed = pointed;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#mark();
      for (const side of SIDES) this.#repaint[side]();
    });
  }

  #mark(): void {
    const chosen = this.#pointed ?? this.#chosen;
    for (const side of SIDES) {
      const rows = chosen ? chosen[side] : this.#alone[side];
      const marked = this.#marked[side].fill(0);
      for (const row of rows) if (row >= 0) marked[row] = 1;
      const n = rows.reduce((sum, row) => sum + Number(row >= 0), 0);
      const what = chosen ? " of this change" : side === "a" ? " that B does not have" : " that A does not have";
      fill(this.#captions[side], `${n ? count(n, "buffer") : "no buffer"}${what}`);
    }
    this.#all.hidden = !this.#chosen;
    const words = chosen ? `Highlighted: ${plain(chosen.title, 100)}` : "Highlighted: buffers that the other side does not have";
    if (this.#words.textContent !== words) this.#words.textContent = words;
  }
}
