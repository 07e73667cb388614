/** The address map: steps to the right, addresses upwards, one rectangle for each buffer. */

import { Panning, showAllSteps, zoomBy } from "../parts/actions.js";
import type { ProgramData } from "../data/data.js";
import { fill, h, onWidth, plain } from "../parts/dom.js";
import { count, number, size } from "../parts/format.js";
import { button, sentence } from "../parts/frame.js";
import { GUTTER, panned, stepAt } from "../parts/layout.js";
import { type Legend, legend } from "./legend.js";
import { type Axis, type Gestures, listen } from "./map_gestures.js";
import { MapPicture } from "./map_picture.js";
import { matching } from "../data/matching.js";
import { codingOf, onTheme, shownColor } from "../parts/palette.js";
import { select } from "../parts/selection.js";
import { neighboursOf } from "../data/sharing.js";
import { type Stack, stackOf } from "./stack.js";
import type { State } from "../data/store.js";
import { summary } from "../parts/summary.js";
import { Tooltip } from "../parts/tooltip.js";
import type { Page, View } from "../parts/view.js";

export interface MapOptions {
  /** 1 for each buffer that stands out; the others are pale. */
  readonly highlight?: Uint8Array;
  /** In CSS pixels. */
  readonly height?: number;
  /** Whether the switch of colours and the legend are shown; they are by default. */
  readonly controls?: boolean;
}

/** Height of the map, and from which width on it has that height, in CSS pixels. */
const HEIGHT = 420;
const LOW = 320;
const WIDE = 700;
/** Zooming shows at least this many bytes. */
const MIN_BYTES = 512;

type Interval = readonly [number, number];

export const mapView: View = (host, data, page) => void addressMap(host, data, page);

/** Draw the address map of the selected memory space. The result draws it anew, after a change of `highlight`. */
export function addressMap(host: HTMLElement, data: ProgramData, page: Page, options: MapOptions = {}): () => void {
  if (data.model.steps === null) {
    host.append(sentence("This dump has no live ranges, so its buffers have no steps."));
    return () => undefined;
  }
  const map = new AddressMap(host, data, page, options);
  return () => map.repaint();
}

class AddressMap implements Gestures {
  readonly #data: ProgramData;
  readonly #page: Page;
  readonly #highlight: Uint8Array | undefined;
  readonly #picture: MapPicture;
  readonly #tooltip: Tooltip;
  readonly #zoomed: HTMLElement;
  readonly #legend: Legend | null;
  #stack: Stack;
  /** Visible addresses. */
  #bytes: Interval;
  #hovered = -1;
  #grabbed: { range: Interval; bytes: Interval };
  readonly #panning = new Panning();
  #frame = 0;

  constructor(host: HTMLElement, data: ProgramData, page: Page, { highlight, height, controls = true }: MapOptions) {
    [this.#data, this.#page, this.#highlight] = [data, page, highlight];
    this.#stack = stackOf(data, page.store.state.space);
    this.#bytes = [0, this.#stack.total];
    this.#grabbed = { range: page.store.state.range, bytes: this.#bytes };
    this.#picture = new MapPicture(data, this.#stack);
    this.#zoomed = h("div", { class: "zoomed" });
    const below = h("div", { class: "map-controls" });
    host.append(this.#picture.element, below);
    this.#tooltip = new Tooltip(host);
    this.#legend = controls ? legend(below, data, page.store, () => this.repaint()) : null;
    below.append(this.#zoomed);
    listen(this.#picture.element, this);
    onTheme(() => this.repaint(), host);
    onWidth(host, (width) => {
      this.#picture.resize(width, height ?? (width < WIDE ? LOW : HEIGHT));
      this.repaint();
    });
    this.#listen();
  }

  #listen(): void {
    const { store } = this.#page;
    store.on(["space"], () => this.#changeSpace());
    store.on(["range"], () => this.#show());
    store.on(["scope", "query", "colorBy"], () => this.repaint());
    store.on(["step", "buffer"], () => this.#mark());
    store.on(["space", "step", "colorBy"], () => this.#legend?.update());
  }

  get #state(): State {
    return this.#page.store.state;
  }

  // -- drawing --------------------------------------------------------------------------------------------

  #changeSpace(): void {
    this.#stack = stackOf(this.#data, this.#state.space);
    this.#bytes = [0, this.#stack.total];
    this.#picture.stack = this.#stack;
    this.repaint();
  }

  repaint(): void {
    const { colorBy, query, scope } = this.#state;
    const mask = matching(this.#data, query, scope);
    const item = this.#legend?.highlighted() ?? -1;
    const isPale = (buffer: number, of: number): boolean =>
      (item >= 0 && of !== item) || mask?.[buffer] === 0 || this.#highlight?.[buffer] === 0;
    this.#picture.paint(codingOf(this.#data, shownColor(this.#data, colorBy)), isPale);
    this.#legend?.update();
    this.#show();
  }

  #show(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const [first, last] = this.#state.range;
    const [bottom, top] = this.#bytes;
    this.#picture.show({ left: first, right: last + 1, bottom, top });
    this.#picture.base.setAttribute("aria-label", this.#description());
    this.#showZoom();
    this.#mark();
  }

  /** What part is visible, and a way back. */
  #showZoom(): void {
    const [first, last] = this.#state.range;
    const bytes = Math.round(this.#bytes[1] - this.#bytes[0]);
    const shown = [
      bytes < this.#stack.total ? `${size(bytes)} of ${size(this.#stack.total)}` : "",
      this.#isWholeRange() ? "" : `steps ${number(first)} to ${number(last)}`,
    ];
    this.#zoomed.classList.toggle("idle", !this.canPan());
    this.#picture.element.classList.toggle("grabbable", this.canPan());
    fill(this.#zoomed, h("span", {}, shown.filter(Boolean).join(", ")), button("Show all", () => this.reset()));
  }

  #description(): string {
    const { range, colorBy, space } = this.#state;
    const { bands, total, buffer } = this.#stack;
    const where = this.#data.model.spaces[space]?.memory_space ?? "memory";
    const what = `${count(buffer.length, "buffer")} in ${count(bands.length, "allocation")} of ${size(total)}`;
    const steps = `steps ${number(range[0])} to ${number(range[1])}`;
    return `Address map of ${plain(where)}: ${what}, ${steps}, coloured by ${shownColor(this.#data, colorBy)}`;
  }

  #mark(): void {
    const { step, buffer: selected } = this.#state;
    const sharing = selected >= 0 ? neighboursOf(this.#data, selected).sharing : [];
    this.#picture.mark({ step, selected, sharing, hovered: this.#hovered });
  }

  // -- gestures -------------------------------------------------------------------------------------------

  zoom(axis: Axis, factor: number, x: number, y: number): boolean {
    return axis === "x" ? this.#zoomSteps(factor, x) : this.#zoomBytes(factor, y);
  }

  #zoomSteps(factor: number, x: number): boolean {
    const { store } = this.#page;
    const before = store.state.range;
    zoomBy(store, this.#data, factor, stepAt(x, before, this.#picture.width));
    return store.state.range !== before || !this.#isWholeRange();
  }

  #isWholeRange(): boolean {
    const [first, last] = this.#state.range;
    return last + 1 - first === this.#data.model.steps;
  }

  #zoomBytes(factor: number, y: number): boolean {
    const [bottom, top] = this.#bytes;
    const around = top - (y / this.#picture.height) * (top - bottom);
    const span = Math.min(this.#stack.total, Math.max(MIN_BYTES, (top - bottom) * factor));
    const share = (around - bottom) / (top - bottom);
    return this.#setBytes(around - share * span, span);
  }

  #setBytes(bottom: number, span: number): boolean {
    const { total } = this.#stack;
    const from = Math.max(0, Math.min(total - span, bottom));
    const before = this.#bytes;
    this.#bytes = [from, span >= total ? total : from + span];
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#show());
    return this.#bytes[0] !== before[0] || this.#bytes[1] !== before[1];
  }

  zoomTo(left: number, top: number, right: number, bottom: number): void {
    const { store } = this.#page;
    const { height } = this.#picture;
    const [low, high] = this.#bytes;
    const perPixel = (high - low) / height;
    store.set({ range: [this.#stepAt(left), this.#stepAt(right)] });
    this.#setBytes(high - bottom * perPixel, Math.max(MIN_BYTES, (bottom - top) * perPixel));
  }

  /** The visible step nearest to an x coordinate. */
  #stepAt(x: number): number {
    const [first, last] = this.#state.range;
    return Math.max(first, Math.min(last, stepAt(x, [first, last], this.#picture.width)));
  }

  canPan(): boolean {
    return !this.#isWholeRange() || this.#bytes[1] - this.#bytes[0] < this.#stack.total;
  }

  grab(): void {
    this.#grabbed = { range: this.#state.range, bytes: this.#bytes };
  }

  drag(dx: number, dy: number): void {
    const { range, bytes } = this.#grabbed;
    const steps = (dx / this.#picture.plotWidth) * (range[1] + 1 - range[0]);
    this.#page.store.set({ range: panned(range, -steps, this.#data.model.steps ?? 0) });
    const span = bytes[1] - bytes[0];
    if (dy) this.#setBytes(bytes[0] + (dy / this.#picture.height) * span, span);
  }

  pan(pixels: number): boolean {
    return !this.#isWholeRange() && this.#panning.by(this.#page.store, this.#data, pixels / this.#picture.plotWidth);
  }

  reset(): void {
    showAllSteps(this.#page.store, this.#data);
    this.#setBytes(0, this.#stack.total);
  }

  /** Show only the allocations of the category at a height, or all if that is what is shown. */
  #zoomToCategory(y: number): void {
    const [bottom, top] = this.#bytes;
    const address = top - (y / this.#picture.height) * (top - bottom);
    const group = this.#stack.groups.find((bands) => bands[0]!.bottom <= address && address < bands.at(-1)!.top);
    if (!group) return;
    const [from, to] = [group[0]!.bottom, group.at(-1)!.top];
    if (bottom === from && top === to) this.#setBytes(0, this.#stack.total);
    else this.#setBytes(from, to - from);
  }

  hover(event: PointerEvent, x: number, y: number): void {
    this.#picture.element.classList.toggle("over-names", x < GUTTER);
    this.#hovered = x >= GUTTER ? this.#picture.bufferAt(x, y) : -1;
    this.#mark();
    if (this.#hovered < 0) this.#tooltip.hide();
    else this.#tooltip.show(event.clientX, event.clientY, ...summary(this.#data, this.#hovered));
  }

  leave(): void {
    this.#tooltip.hide();
    if (this.#hovered < 0) return;
    this.#hovered = -1;
    this.#mark();
  }

  click(x: number, y: number): void {
    if (x < GUTTER) return this.#zoomToCategory(y);
    const { store } = this.#page;
    const step = this.#stepAt(x);
    const buffer = this.#picture.bufferAt(x, y);
    if (buffer < 0) store.set({ step });
    else select(store, this.#data, buffer, step);
  }
}
