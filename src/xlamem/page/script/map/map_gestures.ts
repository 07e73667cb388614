/** Wheel, drag and pinch on a picture with two axes. Coordinates are CSS pixels from its upper left corner. */

import { h } from "../parts/dom.js";

export type Axis = "x" | "y";

export interface Gestures {
  /** Show less by a factor (below 1) or more, around a point; false if nothing changes. */
  zoom(axis: Axis, factor: number, x: number, y: number): boolean;
  /** Show only a box. */
  zoomTo(left: number, top: number, right: number, bottom: number): void;
  /** Whether a drag pans; else it selects what to zoom to. */
  canPan(): boolean;
  grab(): void;
  /** The picture has been dragged so far since `grab`. */
  drag(dx: number, dy: number): void;
  /** Move to the right by pixels; false if nothing changes. */
  pan(pixels: number): boolean;
  hover(event: PointerEvent, x: number, y: number): void;
  leave(): void;
  click(x: number, y: number): void;
  reset(): void;
}

const ZOOM_PER_PIXEL = 1.002;
const PIXELS_PER_LINE = 16;
/** A pointer that moves less than this clicks. */
const CLICK = 4;

type Point = readonly [number, number];

export function listen(element: HTMLElement, gestures: Gestures): void {
  element.addEventListener("wheel", (event) => wheel(event, gestures, at(element, event)), { passive: false });
  element.addEventListener("dblclick", () => gestures.reset());
  new Pointers(element, gestures);
}

function at(element: HTMLElement, event: MouseEvent): Point {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** The wheel zooms steps, with Ctrl or Alt addresses, and pans sideways. What changes nothing scrolls the page. */
function wheel(event: WheelEvent, gestures: Gestures, [x, y]: Point): void {
  const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? PIXELS_PER_LINE : 1;
  const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY * unit, 0] : [event.deltaX * unit, event.deltaY * unit];
  const axis = event.ctrlKey || event.altKey ? "y" : "x";
  const changes = Math.abs(dx) > Math.abs(dy) ? gestures.pan(dx) : gestures.zoom(axis, ZOOM_PER_PIXEL ** dy, x, y);
  if (changes || axis === "y") event.preventDefault();
}

class Pointers {
  readonly #element: HTMLElement;
  readonly #gestures: Gestures;
  readonly #selection = h("div", { class: "map-selection" });
  readonly #down = new Map<number, Point>();
  #origin: Point = [0, 0];
  #moved = false;
  #pans = false;

  constructor(element: HTMLElement, gestures: Gestures) {
    [this.#element, this.#gestures] = [element, gestures];
    element.addEventListener("pointerdown", (event) => this.#press(event));
    element.addEventListener("pointermove", (event) => this.#move(event));
    element.addEventListener("pointerup", (event) => this.#lift(event));
    element.addEventListener("pointercancel", (event) => this.#lift(event));
    element.addEventListener("pointerleave", () => gestures.leave());
  }

  #press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.#origin = at(this.#element, event);
    this.#down.set(event.pointerId, this.#origin);
    this.#moved = this.#down.size > 1;
    this.#pans = event.shiftKey || event.pointerType === "touch" || this.#gestures.canPan();
    this.#gestures.grab();
  }

  #move(event: PointerEvent): void {
    const [x, y] = at(this.#element, event);
    const before = this.#down.get(event.pointerId);
    if (!before) return this.#gestures.hover(event, x, y);
    const [dx, dy] = [x - this.#origin[0], y - this.#origin[1]];
    if (!this.#moved && Math.hypot(dx, dy) < CLICK) return;
    if (!this.#moved) this.#element.setPointerCapture(event.pointerId);
    this.#moved = true;
    this.#gestures.leave();
    if (this.#down.size > 1) this.#pinch(event.pointerId, before, [x, y]);
    else if (this.#pans) this.#gestures.drag(dx, dy);
    else this.#select(x, y);
    this.#down.set(event.pointerId, [x, y]);
  }

  #lift(event: PointerEvent): void {
    if (!this.#down.delete(event.pointerId)) return;
    const [x, y] = at(this.#element, event);
    const [left, top] = this.#origin;
    const selects = this.#selection.parentNode !== null;
    this.#selection.remove();
    for (const point of this.#down.values()) this.#origin = point;
    this.#gestures.grab();
    if (event.type !== "pointerup") return;
    if (!this.#moved) this.#gestures.click(x, y);
    else if (selects) this.#gestures.zoomTo(Math.min(left, x), Math.min(top, y), Math.max(left, x), Math.max(top, y));
  }

  #select(x: number, y: number): void {
    const { style } = this.#selection;
    const [left, top] = this.#origin;
    style.left = `${Math.min(left, x)}px`;
    style.top = `${Math.min(top, y)}px`;
    style.width = `${Math.abs(x - left)}px`;
    style.height = `${Math.abs(y - top)}px`;
    if (!this.#selection.parentNode) this.#element.append(this.#selection);
  }

  /** Zoom by how far one of two fingers has moved from the other. */
  #pinch(id: number, before: Point, now: Point): void {
    const other = [...this.#down].find(([key]) => key !== id)![1];
    const axis = Math.abs(before[0] - other[0]) >= Math.abs(before[1] - other[1]) ? 0 : 1;
    const [was, is] = [Math.abs(before[axis] - other[axis]), Math.abs(now[axis] - other[axis])];
    const [x, y] = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
    if (was > CLICK && is > CLICK) this.#gestures.zoom(axis ? "y" : "x", was / is, x, y);
  }
}
