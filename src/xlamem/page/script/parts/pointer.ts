/** A thin line at the pointer's step across the timeline and the map, with the step and its bytes. */

import type { ProgramData } from "../data/data.js";
import { fill, h } from "./dom.js";
import { number, size } from "./format.js";
import { GUTTER, MARGIN, stepAt, xOfStep } from "./layout.js";
import type { Store } from "../data/store.js";

/** The plots share the steps and lie below each other in the frame, whose width they have. */
export function addPointerLine(frame: HTMLElement, plots: readonly HTMLElement[], data: ProgramData, store: Store): void {
  const label = h("span", { class: "pointer-label" });
  const line = h("div", { class: "pointer-line", hidden: true, "aria-hidden": "true" }, label);
  frame.append(line);
  const show = (clientX: number) => {
    const box = frame.getBoundingClientRect();
    const x = clientX - box.left;
    line.hidden = x < GUTTER || x > box.width - MARGIN;
    if (line.hidden) return;
    const { range, space } = store.state;
    const step = Math.max(range[0], Math.min(range[1], stepAt(x, range, box.width)));
    fill(label, `${number(step)}: ${size(data.usage[space]?.[step] ?? 0)}`);
    const [top, bottom] = [plots[0]!.getBoundingClientRect().top, plots.at(-1)!.getBoundingClientRect().bottom];
    line.style.top = `${top - box.top}px`;
    line.style.height = `${bottom - top}px`;
    line.style.left = `${xOfStep(step + 0.5, range, box.width)}px`;
    line.classList.toggle("flipped", x > box.width / 2);
  };
  for (const plot of plots) {
    plot.addEventListener("pointermove", (event) => event.pointerType !== "touch" && show(event.clientX));
    plot.addEventListener("pointerleave", () => (line.hidden = true));
  }
}
