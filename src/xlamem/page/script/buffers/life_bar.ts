/** The life of a buffer among all steps, with its uses. */

import { goTo } from "../parts/actions.js";
import type { ProgramData } from "../data/data.js";
import { h, svg } from "../parts/dom.js";
import { count, number } from "../parts/format.js";
import type { Store } from "../data/store.js";
import { usesOf } from "../data/uses.js";

const WIDTH = 1000;
const HEIGHT = 24;
const BAR = 8;
/** More uses than this are not drawn. */
const MAX_USES = 1000;
/** Share of the width that a label needs. */
const ROOM = 0.12;

/** A picture of the life; null without a live range. */
export function lifeBar(data: ProgramData, store: Store, buffer: number): Element | null {
  const [first, last, steps] = [data.buffers.start[buffer]!, data.buffers.end[buffer]!, data.model.steps ?? 1];
  if (first < 0) return null;
  const x = (step: number): number => (WIDTH * step) / steps;
  const top = (HEIGHT - BAR) / 2;
  const uses = usesOf(data, buffer).filter(({ step }) => step >= 0);
  const peak = data.model.spaces[data.allocations.space[data.buffers.allocation[buffer]!]!]?.first_step;
  const read = uses.length > 0 || data.model.folded.length === 0 ? `, read ${count(uses.length, "time")}` : ""; // or left out
  const label = `Live from step ${number(first)} to ${number(last)} of ${number(steps - 1)}${read}`;
  const picture = svg(
    "svg",
    { class: "life-bar", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("rect", { class: "track", x: 0, y: top, width: WIDTH, height: BAR }),
    svg("rect", { class: "life", x: x(first), y: top, width: Math.max(3, x(last + 1) - x(first)), height: BAR }),
    ...uses.slice(-MAX_USES).map(({ step }) => tick("use", x(step + 0.5), top, top + BAR)),
    peak == null ? null : tick("peak", x(peak + 0.5), 0, HEIGHT),
  );
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    goTo(store, data, Math.floor(((event.clientX - box.left) / box.width) * steps));
  });
  return h("div", {}, picture, scale(steps, peak ?? null));
}

/** The first and the last step, and the peak between them. */
function scale(steps: number, peak: number | null): HTMLElement {
  const share = peak === null ? -1 : (peak + 0.5) / steps;
  const label = h("span", { class: "peak", hidden: share < 0 }, "peak");
  label.style.left = `${100 * Math.max(ROOM / 2, Math.min(1 - ROOM / 2, share))}%`;
  const first = h("span", {}, share >= 0 && share < ROOM ? "" : "0");
  const last = h("span", {}, share > 1 - 1.5 * ROOM ? "" : number(steps - 1));
  return h("div", { class: "life-scale muted" }, first, label, last);
}

function tick(kind: string, x: number, top: number, bottom: number): SVGElement {
  return svg("line", { class: kind, x1: x, x2: x, y1: top, y2: bottom, "vector-effect": "non-scaling-stroke" });
}
