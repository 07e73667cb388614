/** Click, drag, wheel and double click on an area whose horizontal axis is time. Coordinates are pixels from its left. */

import { h } from "./dom.js";

export interface Gestures {
  click(x: number): void;
  /** Show what lies between two coordinates. */
  zoomTo(left: number, right: number): void;
  /** Show more (factor above 1) or less, around a coordinate; false if nothing changes. */
  zoom(factor: number, x: number): boolean;
  pan(pixels: number): void;
  reset(): void;
}

const CLICK = 4;
const LINE = 16;

export function addGestures(area: HTMLElement, gestures: Gestures): void {
  addDrag(area, gestures);
  area.addEventListener("dblclick", () => gestures.reset());
  area.addEventListener(
    "wheel",
    (event) => {
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
      const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
      if (Math.abs(dx) > Math.abs(dy)) gestures.pan(dx * unit);
      else if (!gestures.zoom(1.002 ** (dy * unit), event.clientX - area.getBoundingClientRect().left)) return;
      event.preventDefault();
    },
    { passive: false },
  );
}

/** Drag selects what to zoom to; with shift, or by touch, it pans. */
function addDrag(area: HTMLElement, gestures: Gestures): void {
  const selection = h("div", { class: "selection" });
  let start: number | null = null;
  let last = 0;
  let pans = false;
  const end = () => {
    start = null;
    selection.remove();
  };
  const at = (event: PointerEvent) => event.clientX - area.getBoundingClientRect().left;
  area.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = last = at(event);
    pans = event.shiftKey || event.pointerType === "touch";
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const x = at(event);
    if (pans) gestures.pan(last - x);
    else if (Math.abs(x - start) > CLICK) draw(area, selection, start, x);
    last = x;
  });
  area.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [from, to] = [start, at(event)];
    end();
    if (Math.abs(to - from) <= CLICK) gestures.click(to);
    else if (!pans) gestures.zoomTo(Math.min(from, to), Math.max(from, to));
  });
  area.addEventListener("pointercancel", end);
}

function draw(area: HTMLElement, selection: HTMLElement, from: number, to: number): void {
  const [left, right] = [Math.min(from, to), Math.max(from, to)].map((x) => Math.max(0, Math.min(area.clientWidth, x)));
  selection.style.left = `${left}px`;
  selection.style.width = `${right! - left!}px`;
  if (!selection.parentNode) area.append(selection);
}
