/** One of two aligned timelines: a line over the common axis, drawn on a canvas. */

import { css, line, scaledFont, text } from "../parts/canvas.js";
import { h } from "../parts/dom.js";
import { number, shortSize } from "../parts/format.js";
import { GUTTER, MARGIN } from "../parts/layout.js";
import { Theme } from "../parts/palette.js";
import type { Side, Warp } from "../data/warp.js";

/** Space above the plot, for the mark of the peak, and below, for steps, in CSS pixels. */
const ABOVE = 18;
const BELOW = 24;
/** Height of the strip that shows steps without a match. */
const STRIP = 5;
const HATCH = 7;
/** Narrower gaps are not shown. */
const MIN_GAP = 4;
const MIN_LABEL = 72;
const TICKS = 4;

export interface Curve {
  readonly usage: Float64Array;
  readonly peak: number;
  /** Bytes at the top of the plot. */
  readonly top: number;
}

/** Per column of device pixels: the share of it without a step, and with steps that have no match. */
interface Shares {
  readonly gap: Float32Array;
  readonly only: Float32Array;
}

export class AlignedPlot {
  readonly canvas = h("canvas", { class: "aligned-plot" });
  readonly #side: Side;
  readonly #warp: Warp;
  curve: Curve = { usage: new Float64Array(0), peak: 0, top: 1 };
  #theme = new Theme();
  #range: readonly [number, number] = [0, 1];

  constructor(side: Side, warp: Warp) {
    [this.#side, this.#warp] = [side, warp];
  }

  resize(width: number, height: number): void {
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * devicePixelRatio);
    this.canvas.height = Math.round(height * devicePixelRatio);
  }

  draw(range: readonly [number, number]): void {
    this.#theme = new Theme();
    this.#range = range;
    const ctx = this.canvas.getContext("2d")!;
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const shares = this.#shares();
    forgetNarrow(shares.gap, MIN_GAP * devicePixelRatio);
    this.#drawGaps(ctx, shares);
    this.#drawAxis(ctx);
    this.#drawCurve(ctx, shares);
    this.#drawStrip(ctx, shares);
    this.#drawSteps(ctx);
    this.#drawPeak(ctx);
  }

  // -- geometry, in device pixels ------------------------------------------------------------------------

  get #left(): number {
    return Math.round(GUTTER * devicePixelRatio);
  }

  get #width(): number {
    return Math.max(1, this.canvas.width - this.#left - Math.round(MARGIN * devicePixelRatio));
  }

  get #bottom(): number {
    return this.canvas.height - BELOW * devicePixelRatio;
  }

  #x(u: number): number {
    return this.#left + ((u - this.#range[0]) / (this.#range[1] - this.#range[0])) * this.#width;
  }

  #y(bytes: number): number {
    const above = ABOVE * devicePixelRatio;
    return this.#bottom - (bytes / this.curve.top) * (this.#bottom - above);
  }

  /** Coordinate of the left edge of a column. */
  #u(column: number): number {
    return this.#range[0] + (column / this.#width) * (this.#range[1] - this.#range[0]);
  }

  #shares(): Shares {
    const gap = new Float32Array(this.#width + 1);
    const only = new Float32Array(this.#width + 1);
    this.#warp.eachUnmatched(this.#side, ...this.#range, (from, to, isGap) => {
      const [x0, x1] = [this.#x(from) - this.#left, this.#x(to) - this.#left];
      const target = isGap ? gap : only;
      for (let x = Math.floor(x0); x < x1; x++) target[x]! += Math.min(x + 1, x1) - Math.max(x, x0);
    });
    return { gap, only };
  }

  // -- drawing -------------------------------------------------------------------------------------------

  #drawGaps(ctx: CanvasRenderingContext2D, { gap }: Shares): void {
    const top = this.#y(this.curve.top);
    ctx.strokeStyle = css(this.#theme.rgb("--line"));
    ctx.lineWidth = devicePixelRatio;
    runs(gap, (share) => share > 0.5, (from, to) => {
      ctx.save();
      ctx.beginPath();
      ctx.rect(this.#left + from, top, to - from, this.#bottom - top);
      ctx.clip();
      ctx.beginPath();
      const distance = HATCH * devicePixelRatio;
      const height = this.#bottom - top;
      const first = Math.floor((this.#left + from) / distance) * distance - height;
      for (let x = first; x < this.#left + to; x += distance) {
        ctx.moveTo(x, this.#bottom);
        ctx.lineTo(x + height, top);
      }
      ctx.stroke();
      ctx.restore();
    });
  }

  #drawAxis(ctx: CanvasRenderingContext2D): void {
    const step = 2 ** Math.ceil(Math.log2(this.curve.top / TICKS || 1));
    ctx.font = scaledFont(12);
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (let bytes = 0; bytes <= this.curve.top; bytes += step) {
      const y = Math.round(this.#y(bytes)) + 0.5;
      line(ctx, this.#theme, "--line", [], this.#left, y, this.#left + this.#width, y);
      ctx.fillStyle = css(this.#theme.rgb("--muted"));
      ctx.fillText(shortSize(bytes), this.#left - 8 * devicePixelRatio, y);
    }
  }

  #drawCurve(ctx: CanvasRenderingContext2D, { gap }: Shares): void {
    const { usage } = this.curve;
    const path = new Path2D();
    const area = new Path2D();
    let drawn = false;
    for (let column = 0; column < this.#width; column++) {
      if (gap[column]! > 0.5) {
        drawn = false;
        continue;
      }
      const first = this.#warp.place(this.#side, this.#u(column)).step;
      const last = Math.max(first, this.#warp.place(this.#side, this.#u(column + 1) - 1e-6).step);
      let [low, high] = [Infinity, 0];
      for (let step = first; step <= last; step++) {
        low = Math.min(low, usage[step]!);
        high = Math.max(high, usage[step]!);
      }
      const x = this.#left + column;
      if (drawn) path.lineTo(x, this.#y(usage[first]!));
      else path.moveTo(x, this.#y(usage[first]!));
      path.lineTo(x, this.#y(low));
      path.lineTo(x, this.#y(high));
      path.lineTo(x, this.#y(usage[last]!));
      path.lineTo(x + 1, this.#y(usage[last]!));
      area.rect(x, this.#y(high), 1, this.#bottom - this.#y(high));
      drawn = true;
    }
    ctx.fillStyle = css(this.#theme.rgb("--usage"), 0.22);
    ctx.fill(area);
    ctx.strokeStyle = css(this.#theme.rgb("--usage"));
    ctx.lineWidth = 1.25 * devicePixelRatio;
    ctx.lineJoin = "round";
    ctx.stroke(path);
  }

  /** Mark where steps have no match, more strongly where more of them have none. */
  #drawStrip(ctx: CanvasRenderingContext2D, { only }: Shares): void {
    const color = this.#theme.rgb(this.#side === "a" ? "--only-a" : "--only-b");
    const height = STRIP * devicePixelRatio;
    for (let column = 0; column < this.#width; column++) {
      if (only[column]! <= 0) continue;
      ctx.fillStyle = css(color, 0.25 + 0.75 * Math.min(1, only[column]!));
      ctx.fillRect(this.#left + column, this.#bottom, 1, height);
    }
  }

  /** Labels of round steps that are far enough from each other. */
  #drawSteps(ctx: CanvasRenderingContext2D): void {
    const n = this.curve.usage.length;
    const [first, last] = this.#range.map((u) => this.#warp.place(this.#side, u).step) as [number, number];
    const wanted = (last - first) / Math.max(1, this.#width / (MIN_LABEL * devicePixelRatio));
    const increment = [1, 2, 5].map((digit) => digit * 10 ** Math.max(0, Math.floor(Math.log10(wanted || 1)))).find((s) => s >= wanted) ?? 10 ** Math.ceil(Math.log10(wanted));
    ctx.font = scaledFont(11);
    ctx.textAlign = "center";
    ctx.textBaseline = "bottom";
    ctx.fillStyle = css(this.#theme.rgb("--muted"));
    let free = this.#left - 20 * devicePixelRatio;
    for (let step = Math.ceil(first / increment) * increment; step <= Math.min(last, n - 1); step += increment) {
      const label = number(step);
      const x = this.#x(this.#warp.coordinate(this.#side, step) + 0.5);
      const half = ctx.measureText(label).width / 2;
      if (x - half < free || x + half > this.canvas.width) continue;
      ctx.fillText(label, x, this.canvas.height - 2 * devicePixelRatio);
      free = x + half + 14 * devicePixelRatio;
    }
  }

  #drawPeak(ctx: CanvasRenderingContext2D): void {
    const { usage, peak } = this.curve;
    const u = this.#warp.coordinate(this.#side, peak) + 0.5;
    if (u < this.#range[0] || u > this.#range[1]) return;
    const [x, y] = [this.#x(u), this.#y(usage[peak] ?? 0) - 2 * devicePixelRatio];
    const half = 4 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(x - half, y - 1.5 * half);
    ctx.lineTo(x + half, y - 1.5 * half);
    ctx.closePath();
    ctx.fillStyle = css(this.#theme.rgb("--ink"));
    ctx.fill();
    const label = `peak ${shortSize(usage[peak] ?? 0)} at step ${number(peak)}`;
    ctx.font = scaledFont(11);
    const width = ctx.measureText(label).width;
    const [first, last] = [this.#left, this.#left + this.#width - width];
    const wanted = x + 2 * half > last ? x - 2 * half - width : x + 2 * half;
    const left = Math.max(first, Math.min(last, wanted));
    // Without room beside the mark, the label is above it.
    text(ctx, this.#theme, "--ink", label, left, left === wanted ? y : y - 2 * half, { align: "left", above: true, halo: true });
  }
}

/** Set runs of gaps that are narrower than a number of columns to 0. */
function forgetNarrow(gap: Float32Array, least: number): void {
  runs(gap, (share) => share > 0.5, (from, to) => to - from < least && gap.fill(0, from, to));
}

/** Call for the runs of values that hold a condition. */
function runs(values: Float32Array, holds: (value: number) => boolean, call: (from: number, to: number) => void): void {
  let start = -1;
  for (let i = 0; i <= values.length; i++) {
    const inside = i < values.length && holds(values[i]!);
    if (inside && start < 0) start = i;
    if (!inside && start >= 0) {
      call(start, i);
      start = -1;
    }
  }
}
