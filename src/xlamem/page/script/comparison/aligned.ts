/** What is in use over the steps of A and of B, one above the other, with matching instructions at the same place. */

import { AlignedPlot, type Curve } from "./aligned_plot.js";
import type { ProgramData } from "../data/data.js";
import { fill, h, name, onWidth } from "../parts/dom.js";
import { exactSize, number, size } from "../parts/format.js";
import { button, sentence } from "../parts/frame.js";
import { addGestures } from "../parts/gestures.js";
import { GUTTER, MARGIN } from "../parts/layout.js";
import { onTheme } from "../parts/palette.js";
import { type Side, SIDES, type Warp } from "../data/warp.js";

/** Zooming shows at least this many steps. */
const LEAST = 8;
const ZOOM = 1.5;

export interface Series {
  /** Bytes in use at every step. */
  readonly usage: Float64Array;
  /** First step of the peak. */
  readonly peak: number;
}

type Range = readonly [number, number];

export class Aligned {
  readonly #host: HTMLElement;
  readonly #data: Readonly<Record<Side, ProgramData>>;
  readonly #warp: Warp;
  readonly #onStep: (side: Side, step: number) => void;
  readonly #plots: Record<Side, AlignedPlot>;
  readonly #words: Record<Side, HTMLElement>;
  readonly #cursor = h("div", { class: "cursor" });
  readonly #area: HTMLElement;
  #series: Record<Side, Series> | undefined;
  #range: Range;
  /** Selected coordinate. */
  #selected = 0;
  #width = 0;

  /** `onStep` is called when the reader selects a place. */
  constructor(host: HTMLElement, data: Readonly<Record<Side, ProgramData>>, warp: Warp, onStep: (side: Side, step: number) => void) {
    [this.#host, this.#data, this.#warp, this.#onStep] = [host, data, warp, onStep];
    this.#range = [0, warp.length];
    this.#plots = { a: new AlignedPlot("a", warp), b: new AlignedPlot("b", warp) };
    this.#words = { a: h("p", { class: "status" }), b: h("p", { class: "status" }) };
    this.#area = h("div", { class: "aligned-area", tabindex: "0", role: "group", "aria-label": "Timelines of A and B, aligned", "aria-keyshortcuts": "ArrowLeft ArrowRight + - 0 a b" }, this.#cursor);
    this.#build();
    onWidth(host, (width) => this.#resize(width));
    onTheme(() => this.#draw());
  }

  #build(): void {
    for (const side of SIDES) this.#area.append(h("div", { class: "aligned-side" }, this.#words[side], this.#plots[side].canvas));
    const keys = h(
      "div",
      { class: "controls", role: "group", "aria-label": "Aligned timelines" },
      ...SIDES.map((side) => button(`Peak of ${side.toUpperCase()}`, () => this.#selectPeak(side), { title: `Key in the plots: ${side}` })),
      button("\u2212", () => this.#zoom(ZOOM, this.#selected), { title: "Zoom out (key: -)", "aria-label": "Zoom out" }),
      button("+", () => this.#zoom(1 / ZOOM, this.#selected), { title: "Zoom in (key: +)", "aria-label": "Zoom in" }),
      button("All steps", () => this.#show([0, this.#warp.length]), { title: "Key: 0" }),
    );
    const swatch = (kind: string) => h("span", { class: `key ${kind}`, "aria-hidden": "true" });
    const legend = h(
      "div",
      { class: "timeline-legend" },
      h("span", { class: "legend-item" }, swatch("key-only-a"), "steps of A without a match here"),
      h("span", { class: "legend-item" }, swatch("key-only-b"), "steps of B without a match here"),
      h("span", { class: "legend-item" }, swatch("key-gap"), "no step on this side"),
      h("span", { class: "legend-item" }, swatch("key-plateau"), "the peak"),
    );
    this.#host.append(h("div", { class: "row" }, keys), this.#area, legend);
    this.#listen();
  }

  /** Show the curves of an account. */
  show(series: Record<Side, Series> | null): void {
    this.#area.hidden = !series;
    this.#host.querySelector(".sentence")?.remove();
    this.#series = series ?? undefined;
    if (!series) {
      this.#host.append(sentence("What is in use at each step is not known for both sides."));
      return;
    }
    const top = 1.15 * Math.max(1, ...SIDES.map((side) => series[side].usage[series[side].peak] ?? 0));
    for (const side of SIDES) this.#plots[side].curve = curveOf(series[side], top);
    const higher = SIDES.map((side) => series[side].usage[series[side].peak] ?? 0);
    this.#selectPeak(higher[0]! > higher[1]! ? "a" : "b");
    this.#draw();
  }

  // -- drawing -------------------------------------------------------------------------------------------

  #resize(width: number): void {
    this.#width = width;
    for (const side of SIDES) this.#plots[side].resize(width, width < 560 ? 132 : 168);
    this.#draw();
  }

  #draw(): void {
    if (!this.#width || !this.#series) return;
    for (const side of SIDES) this.#plots[side].draw(this.#range);
    this.#place(this.#selected);
  }

  /** Show the cursor and what is in use at a coordinate. */
  #place(u: number): void {
    const x = GUTTER + ((u - this.#range[0]) / (this.#range[1] - this.#range[0])) * this.#plotWidth;
    this.#cursor.hidden = x < GUTTER - 1 || x > GUTTER + this.#plotWidth + 1;
    this.#cursor.style.left = `${x}px`;
    for (const side of SIDES) fill(this.#words[side], ...this.#wordsOf(side, u));
  }

  #wordsOf(side: Side, u: number): Node[] {
    const { step, gap } = this.#warp.place(side, u);
    const bytes = this.#series![side].usage[step] ?? 0;
    const data = this.#data[side];
    const instruction = data.instructions.name[data.schedule[step] ?? -1];
    const title = h("strong", { class: `side side-${side}` }, side.toUpperCase());
    const at = h("span", {}, gap ? ` no step here, after step ${number(step)}: ` : ` step ${number(step)}: `);
    return [
      title,
      at,
      h("span", { title: exactSize(bytes) }, `${size(bytes)} in use`),
      ...(instruction && !gap ? [h("span", { class: "muted" }, " while ", name(instruction, 48), " runs")] : []),
    ];
  }

  // -- state ---------------------------------------------------------------------------------------------

  get #plotWidth(): number {
    return Math.max(1, this.#width - GUTTER - MARGIN);
  }

  #show([first, last]: Range): void {
    const width = Math.max(Math.min(LEAST, this.#warp.length), Math.min(this.#warp.length, last - first));
    const from = Math.max(0, Math.min(this.#warp.length - width, first));
    this.#range = [from, from + width];
    this.#draw();
  }

  #zoom(factor: number, around: number): boolean {
    const before = this.#range;
    const [first, last] = before;
    this.#show([around - (around - first) * factor, around + (last - around) * factor]);
    return this.#range[0] !== before[0] || this.#range[1] !== before[1];
  }

  #pan(by: number): void {
    this.#show([this.#range[0] + by, this.#range[1] + by]);
  }

  #select(u: number): void {
    this.#selected = Math.max(0, Math.min(this.#warp.length - 1e-3, u));
    if (this.#selected < this.#range[0] || this.#selected > this.#range[1]) this.#pan(this.#selected - (this.#range[0] + this.#range[1]) / 2);
    this.#place(this.#selected);
    for (const side of SIDES) this.#onStep(side, this.#warp.place(side, this.#selected).step);
  }

  #selectPeak(side: Side): void {
    this.#select(this.#warp.coordinate(side, this.#series?.[side].peak ?? 0) + 0.25);
  }

  // -- gestures ------------------------------------------------------------------------------------------

  #listen(): void {
    const over = this.#area;
    const at = (x: number) => this.#range[0] + ((x - GUTTER) / this.#plotWidth) * (this.#range[1] - this.#range[0]);
    addGestures(over, {
      click: (x) => this.#select(at(x)),
      zoomTo: (left, right) => this.#show([at(left), at(right)]),
      zoom: (factor, x) => this.#zoom(factor, at(x)),
      pan: (pixels) => this.#pan((pixels / this.#plotWidth) * (this.#range[1] - this.#range[0])),
      reset: () => this.#show([0, this.#warp.length]),
    });
    over.addEventListener("pointermove", (event) => {
      const x = event.clientX - over.getBoundingClientRect().left;
      if (this.#series && x >= GUTTER) this.#place(Math.max(0, Math.min(this.#warp.length - 1e-3, at(x))));
    });
    over.addEventListener("pointerleave", () => this.#series && this.#place(this.#selected));
    over.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event: KeyboardEvent): void {
    const width = this.#range[1] - this.#range[0];
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.#select(this.#selected - (event.shiftKey ? width / 10 : 1)),
      ArrowRight: () => this.#select(this.#selected + (event.shiftKey ? width / 10 : 1)),
      "+": () => this.#zoom(1 / ZOOM, this.#selected),
      "=": () => this.#zoom(1 / ZOOM, this.#selected),
      "-": () => this.#zoom(ZOOM, this.#selected),
      "0": () => this.#show([0, this.#warp.length]),
      a: () => this.#selectPeak("a"),
      b: () => this.#selectPeak("b"),
    };
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
    if (!action || !this.#series) return;
    action();
    event.preventDefault();
  }
}

function curveOf({ usage, peak }: Series, top: number): Curve {
  return { usage, peak, top };
}
