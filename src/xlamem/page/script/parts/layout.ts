/** The horizontal axis that the timeline and the address map share. */

/** Width left of both in CSS pixels, for the vertical axis. */
export const GUTTER = 76;
/** Width right of both. */
export const MARGIN = 12;

type Range = readonly [number, number];

/** A step fills the interval from itself to the next, so a range of n steps has the width n. */
export function xOfStep(step: number, [first, last]: Range, width: number): number {
  return GUTTER + ((step - first) / (last + 1 - first)) * (width - GUTTER - MARGIN);
}

/** Step at an x coordinate, at most one step outside of the range. */
export function stepAt(x: number, [first, last]: Range, width: number): number {
  const step = first + ((x - GUTTER) / (width - GUTTER - MARGIN)) * (last + 1 - first);
  return Math.max(first - 1, Math.min(last + 1, Math.floor(step)));
}

/** The range zoomed by a factor around a step; its steps are whole and within the n steps of the program. */
export function zoomed([first, last]: Range, around: number, factor: number, n: number): Range {
  const wanted = (last + 1 - first) * factor;
  const width = Math.max(1, Math.min(n, factor > 1 ? Math.ceil(wanted) : Math.floor(wanted)));
  const share = (around + 0.5 - first) / (last + 1 - first);
  return moved(Math.round(around + 0.5 - share * width), width, n);
}

/** The range moved by a number of steps, within the n steps of the program. */
export function panned([first, last]: Range, by: number, n: number): Range {
  return moved(first + Math.round(by), last + 1 - first, n);
}

function moved(first: number, width: number, n: number): Range {
  const start = Math.max(0, Math.min(n - width, first));
  return [start, start + width - 1];
}
