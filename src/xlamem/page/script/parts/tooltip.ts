/** A note beside the pointer. What it says is also shown for the selected buffer or scope, so it is hidden from readers. */

import { type Child, fill, h } from "./dom.js";

const DISTANCE = 14;
const MARGIN = 8;

export class Tooltip {
  readonly #element = h("div", { class: "tooltip", "aria-hidden": "true", hidden: true });

  constructor(host: Element) {
    host.append(this.#element);
  }

  /** Show it beside a point of the window, within the window. */
  show(x: number, y: number, ...children: Child[]): void {
    const tip = fill(this.#element, ...children);
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const right = x + DISTANCE + width > innerWidth - MARGIN;
    const below = y + DISTANCE + height > innerHeight - MARGIN;
    const left = right ? x - DISTANCE - width : x + DISTANCE;
    const top = below ? y - DISTANCE - height : y + DISTANCE;
    tip.style.left = `${Math.max(MARGIN, Math.min(left, innerWidth - MARGIN - width))}px`;
    tip.style.top = `${Math.max(MARGIN, top)}px`;
  }

  hide(): void {
    this.#element.hidden = true;
  }
}
