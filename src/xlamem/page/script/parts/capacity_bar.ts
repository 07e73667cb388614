/** Bars of what programs need, on one axis, against what is available. */

import { svg } from "./dom.js";
import { size } from "./format.js";
import type { Directory } from "../data/model.js";

type Row = Directory["rows"][number];

/** With a capacity, the axis reaches this much further. Longer bars are cut. */
const BEYOND = 1.25;

export interface BarScale {
  /** Bytes at the end of the axis. */
  readonly high: number;
  readonly available: number | null;
}

export function scaleOf(rows: readonly Row[]): BarScale {
  const available = rows.find((row) => row.available !== null)?.available ?? null;
  const largest = rows.reduce((most, row) => Math.max(most, row.must_fit ?? 0), 1);
  return { available, high: available !== null && available > 0 ? Math.max(1, Math.min(largest, BEYOND * available), available) : largest };
}

/** The bar of a program. */
export function capacityBar(bytes: number, available: number | null, fits: boolean | null, { high }: BarScale): SVGElement {
  const isCut = bytes > high;
  const within = Math.min(bytes, high, available === null ? bytes : Math.max(0, available));
  const over = Math.min(bytes, high) - within;
  const kind = fits === false ? "over" : fits === true ? "within" : "unknown";
  return svg(
    "svg",
    { class: `bar capacity ${kind}`, "aria-hidden": "true" },
    svg("rect", { class: "needed", x: "0", y: "30%", width: percent(Math.max(within, 0.001 * high), high), height: "40%" }),
    over > 0 ? svg("rect", { class: "excess", x: percent(within, high), y: "30%", width: percent(over, high), height: "40%" }) : null,
    isCut ? svg("svg", { class: "cut", x: "94%", y: "0", width: "14", height: "100%", viewBox: "0 0 14 40", preserveAspectRatio: "none" }, svg("path", { d: "M9 0 L3 13 L9 27 L3 40" })) : null,
    available === null ? null : svg("line", { class: "limit", x1: percent(available, high), x2: percent(available, high), y1: "0", y2: "100%" }),
  );
}

/** The axis above the bars: what is available, or the largest. */
export function barHead({ high, available }: BarScale): SVGElement {
  const at = available ?? high;
  const x = (100 * at) / high;
  const anchor = x > 60 ? "end" : "start";
  return svg(
    "svg",
    { class: "axis", "aria-hidden": "true" },
    svg("text", { x: "0", y: "12" }, "0"),
    svg("text", { x: `${x}%`, y: "12", "text-anchor": anchor }, available === null ? size(at) : `available ${size(at)}`),
    svg("line", { x1: `${x}%`, x2: `${x}%`, y1: "17", y2: "24" }),
  );
}

function percent(bytes: number, high: number): string {
  return `${Math.max(0, Math.min(100, (100 * bytes) / high))}%`;
}
