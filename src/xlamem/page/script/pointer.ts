/** A thin line at the pointer's step across the timeline and the map, with the step and its bytes. */

import type { ProgramData } from "./data.js";
import { fill, h } from "./dom.js";
import { number, size } from "./format.js";
import { GUTTER, MARGIN, stepAt, xOfStep } from "./layout.js";
import type { Store } from "./store.js";

/** `hosts` are the views that share the steps; they lie below each other in `frame`. */
export function addPointerLine(frame: HTMLElement, hosts: readonly HTMLElement[], data: ProgramData, store: Store): void {
  if (data.model.steps === null) return;
  const label = h("span", { class: "pointer-label" });
  const line = h("div", { class: "pointer-line", hidden: true, "aria-hidden": "true" }, label);
  frame.append(line);
  const move = (event: PointerEvent) => {
    const box = frame.getBoundingClientRect();
    const x = event.clientX - box.left;
    line.hidden = event.pointerType === "touch" || x < GUTTER || x > box.width - MARGIN;
    if (line.hidden) return;
    const { range, space } = store.state;
    const step = Math.max(range[0], Math.min(range[1], stepAt(x, range, box.width)));
    fill(label, `${number(step)}: ${size(data.usage[space]?.[step] ?? 0)}`);
    line.style.left = `${xOfStep(step + 0.5, range, box.width)}px`;
    line.classList.toggle("flipped", x > box.width / 2);
  };
  for (const host of hosts) {
    host.addEventListener("pointermove", (event) => {
      line.style.top = `${hosts[0]!.offsetTop}px`;
      move(event);
    });
    host.addEventListener("pointerleave", () => (line.hidden = true));
  }
}
