/** The line of bytes in use, drawn by uPlot with our axes, bands and marks. */

import { css, font } from "../parts/canvas.js";
import { decimated } from "./decimate.js";
import { number, shortSize } from "../parts/format.js";
import { GUTTER, MARGIN } from "../parts/layout.js";
import { drawBands, drawMarks, STRIP, type Marks } from "./marks.js";
import { Theme } from "../parts/palette.js";
import uPlot from "../vendor/uPlot.esm.js";

const MOST_POINTS = 20_000;
/** Half the width of a character of a label in CSS pixels, at most. */
const LABEL = 4;
const FILL_OPACITY = 0.22;
const POWERS_OF_TWO = Array.from({ length: 62 }, (_, i) => 2 ** i);
const STEPS = Array.from({ length: 13 }, (_, i) => [1, 2, 5].map((digit) => digit * 10 ** i)).flat();

export interface Chart {
  readonly over: HTMLElement;
  /** Draw again with other data or another range. */
  update(usage: Float64Array, marks: Marks): void;
  /** Draw again with other marks or colours. */
  redraw(marks: Marks): void;
  resize(width: number, height: number): void;
}

export function chart(host: HTMLElement, width: number, height: number, usage: Float64Array, marks: Marks): Chart {
  let theme = new Theme();
  let shown = marks;
  const points = (values: Float64Array) => {
    const [first, last] = shown.range;
    return decimated(values, first, last, Math.min(MOST_POINTS, 4 * Math.max(100, u?.width ?? width)));
  };
  let u: uPlot | undefined;
  const color = (variable: string) => () => css(theme.rgb(variable));
  const axis: uPlot.Axis = {
    font: font(12),
    stroke: color("--muted"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
    border: { show: false },
    gap: 8,
  };
  u = new uPlot(
    {
      width,
      height,
      padding: [marks.phases.phase.length > 0 ? STRIP + 10 : 10, MARGIN, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      select: { show: false, left: 0, top: 0, width: 0, height: 0 },
      scales: {
        x: { time: false, range: () => [shown.range[0], shown.range[1] + 1] },
        y: { range: () => [0, shown.top] },
      },
      axes: [
        { ...axis, size: 28, space: 72, incrs: STEPS, grid: { show: false }, splits: centred, values: stepLabels },
        { ...axis, size: GUTTER, space: 36, incrs: POWERS_OF_TWO, values: (_, splits) => splits.map(shortSize) },
      ],
      series: [
        {},
        {
          stroke: color("--usage"),
          fill: () => css(theme.rgb("--usage"), FILL_OPACITY),
          width: 1.25,
          points: { show: false },
          paths: uPlot.paths.stepped!({ align: 1 }),
        },
      ],
      hooks: {
        drawClear: [(self) => drawBands(self, theme, shown)],
        draw: [(self) => drawMarks(self, theme, shown)],
      },
    },
    points(usage),
    host,
  );
  const plot = u;
  return {
    over: plot.over,
    update(values, next) {
      shown = next;
      plot.setData(points(values));
    },
    redraw(next) {
      theme = new Theme();
      shown = next;
      plot.redraw(true, true);
    },
    resize: (w, h) => plot.setSize({ width: w, height: h }),
  };
}

/** Whole steps; a label stands below the centre of its step. */
function centred(_: uPlot, __: number, min: number, max: number, increment: number): number[] {
  const splits: number[] = [];
  for (let s = Math.ceil(min / increment) * increment; s < max; s += increment) splits.push(s + 0.5);
  return splits;
}

/** A label that would not fit at the right end is left out. */
function stepLabels(u: uPlot, splits: number[]): string[] {
  const right = u.bbox.width / devicePixelRatio + MARGIN;
  return splits.map((split) => {
    const label = number(Math.floor(split));
    return u.valToPos(split, "x") + LABEL * label.length > right ? "" : label;
  });
}
