/** What the timeline shows besides its line: bands of phases, levels, plateaus, and the selected step. */

import { css, line, scaledFont, text } from "../parts/canvas.js";
import type { ProgramData } from "../data/data.js";
import { shortSize } from "../parts/format.js";
import { phaseVariable, type Theme } from "../parts/palette.js";
import type uPlot from "../vendor/uPlot.esm.js";

/** Height of the strip of phases above the plot in CSS pixels. */
export const STRIP = 16;
/** Where there are more runs of phases than one in this many CSS pixels, only the prevailing phase is shown. */
const RUN = 6;
const BAND_OPACITY = 0.14;
const FIXED_OPACITY = 0.3;

export interface Level {
  readonly label: string;
  readonly bytes: number;
  readonly dash: readonly number[];
  readonly variable: string;
}

export interface Marks {
  readonly range: readonly [number, number];
  /** Bytes at the top of the plot. */
  readonly top: number;
  readonly phases: ProgramData["phases"];
  /** Bytes in use at every step, and what they are. */
  readonly fixed: number;
  readonly fixedLabel: string;
  readonly levels: readonly Level[];
  /** The highest first. */
  readonly plateaus: readonly { first_step: number; last_step: number; bytes: number }[];
  readonly step: number;
  /** Bytes in use at the selected step. */
  readonly bytes: number;
}

// -- behind the line ----------------------------------------------------------------------------------

export function drawBands(u: uPlot, theme: Theme, marks: Marks): void {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio;
  const stripTop = bbox.top - (STRIP + 4) * ratio;
  ctx.save();
  ctx.font = scaledFont(11);
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  eachRun(u, marks, (phase, left, right) => {
    const name = marks.phases.names[phase] ?? "";
    const color = theme.rgb(phaseVariable(name));
    ctx.fillStyle = css(color, BAND_OPACITY);
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.fillStyle = css(color);
    ctx.fillRect(left, stripTop, right - left, STRIP * ratio);
    if (ctx.measureText(name).width + 12 * ratio < right - left) {
      ctx.fillStyle = css(theme.rgb("--on-color"));
      ctx.fillText(name, left + 6 * ratio, stripTop + (STRIP / 2 + 0.5) * ratio);
    }
  });
  drawFixed(u, theme, marks);
  ctx.restore();
}

/** Call for the visible runs of phases with their edges in pixels; where they are narrow, for those of `prevailing`. */
function eachRun(u: uPlot, marks: Marks, draw: (phase: number, left: number, right: number) => void): void {
  const { phases: { first, last, phase }, range } = marks;
  const begin = firstAfter(last, range[0]);
  const end = firstAfter(first, range[1] + 1);
  const isNarrow = (end - begin) * RUN * devicePixelRatio > u.bbox.width;
  const runs = isNarrow ? prevailing(marks, begin, end, Math.floor(u.bbox.width / (RUN * devicePixelRatio))) : null;
  for (let i = runs ? 0 : begin; i < (runs ? runs.length : end); i++) {
    const run = runs ? runs[i]! : { phase: phase[i]!, first: first[i]!, last: last[i]! };
    const left = Math.round(x(u, Math.max(range[0], run.first)));
    const right = Math.round(x(u, Math.min(range[1], run.last) + 1));
    draw(run.phase, left, Math.max(right, left + 1));
  }
}

interface Run {
  phase: number;
  first: number;
  last: number;
}

/** Runs of `n` equal parts of the range, each of which has the phase that most of its steps have. */
function prevailing({ phases, range }: Marks, begin: number, end: number, n: number): Run[] {
  const steps = (range[1] + 1 - range[0]) / n;
  const counts = Array.from({ length: n }, () => new Float64Array(phases.names.length));
  for (let i = begin; i < end; i++) {
    const [from, to] = [Math.max(range[0], phases.first[i]!), Math.min(range[1], phases.last[i]!) + 1];
    for (let part = Math.floor((from - range[0]) / steps); part < n && range[0] + part * steps < to; part++) {
      const left = range[0] + part * steps;
      counts[part]![phases.phase[i]!]! += Math.min(to, left + steps) - Math.max(from, left);
    }
  }
  const runs: Run[] = [];
  counts.forEach((count, part) => {
    const most = count.indexOf(Math.max(...count));
    const [first, last] = [range[0] + part * steps, range[0] + (part + 1) * steps - 1];
    const before = runs.at(-1);
    if (!count[most]) return;
    if (before?.phase === most && Math.abs(before.last + 1 - first) < 0.5 * steps) before.last = last;
    else runs.push({ phase: most, first, last });
  });
  return runs;
}

/** Index of the first of these ascending numbers that is at least `least`. */
function firstAfter(ascending: Int32Array, least: number): number {
  let [low, high] = [0, ascending.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle]! < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

// -- in front of the line -------------------------------------------------------------------------------

export function drawMarks(u: uPlot, theme: Theme, marks: Marks): void {
  const { ctx } = u;
  ctx.save();
  drawLevels(u, theme, marks);
  drawPlateaus(u, theme, marks);
  drawStep(u, theme, marks);
  ctx.restore();
}

/** What is in use at every step, as an area below the line. */
function drawFixed(u: uPlot, theme: Theme, { fixed }: Marks): void {
  if (fixed <= 0) return;
  const { ctx, bbox } = u;
  const top = Math.round(y(u, fixed));
  ctx.fillStyle = css(theme.rgb("--usage"), FIXED_OPACITY);
  ctx.fillRect(bbox.left, top, bbox.width, bbox.top + bbox.height - top);
}

function drawLevels(u: uPlot, theme: Theme, { levels, fixed, fixedLabel }: Marks): void {
  const { ctx, bbox } = u;
  const right = bbox.left + bbox.width;
  let above = -Infinity;
  for (const { label, bytes, dash, variable } of levels) {
    const top = Math.round(y(u, bytes)) + 0.5;
    line(ctx, theme, variable, dash, bbox.left, top, right, top);
    const room = top - above > 16 * devicePixelRatio;
    text(ctx, theme, variable, `${label} ${shortSize(bytes)}`, right - 4 * devicePixelRatio, top, {
      align: "right",
      above: room,
      halo: true,
    });
    above = top + (room ? 0 : 14 * devicePixelRatio);
  }
  const top = Math.round(y(u, fixed)) + 0.5;
  if (fixed <= 0) return;
  line(ctx, theme, "--usage", [], bbox.left, top, right, top);
  const room = bbox.top + bbox.height - top > 18 * devicePixelRatio;
  if (!room) return;
  const options = { align: "left", above: false, halo: false } as const;
  const margin = 6 * devicePixelRatio;
  ctx.font = scaledFont(11);
  const label = [`${fixedLabel} ${shortSize(fixed)}`, shortSize(fixed)].find((it) => ctx.measureText(it).width + 2 * margin < bbox.width);
  if (label) text(ctx, theme, "--ink", label, bbox.left + margin, top, options);
}

/** A triangle on each plateau, where there is room; that of the peak is filled. */
function drawPlateaus(u: uPlot, theme: Theme, { plateaus, range }: Marks): void {
  const { ctx } = u;
  const half = 4 * devicePixelRatio;
  ctx.strokeStyle = ctx.fillStyle = css(theme.rgb("--ink"));
  ctx.lineWidth = devicePixelRatio;
  const drawn: number[] = [];
  plateaus.forEach(({ first_step, last_step, bytes }, i) => {
    if (last_step < range[0] || first_step > range[1]) return;
    const centre = x(u, (Math.max(first_step, range[0]) + Math.min(last_step, range[1]) + 1) / 2);
    if (drawn.some((other) => Math.abs(other - centre) < 2 * half)) return;
    drawn.push(centre);
    const tip = y(u, bytes) - 2 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(centre, tip);
    ctx.lineTo(centre - half, tip - 1.5 * half);
    ctx.lineTo(centre + half, tip - 1.5 * half);
    ctx.closePath();
    if (i === 0) ctx.fill();
    ctx.stroke();
  });
}

function drawStep(u: uPlot, theme: Theme, { step, bytes, range }: Marks): void {
  if (step < range[0] || step > range[1]) return;
  const { ctx, bbox } = u;
  const centre = Math.round(x(u, step + 0.5)) + 0.5;
  line(ctx, theme, "--accent", [], centre, bbox.top, centre, bbox.top + bbox.height);
  ctx.beginPath();
  ctx.arc(centre, y(u, bytes), 3.5 * devicePixelRatio, 0, 2 * Math.PI);
  ctx.fillStyle = css(theme.rgb("--accent"));
  ctx.fill();
}

// -- drawing ----------------------------------------------------------------------------------------------

function x(u: uPlot, step: number): number {
  return u.valToPos(step, "x", true);
}

function y(u: uPlot, bytes: number): number {
  return u.valToPos(bytes, "y", true);
}
