/** Colour the pixels of `rasterise`. */

import type { Coding } from "../parts/palette.js";
import { mixed, type Rgb, type Theme } from "../parts/palette.js";
import type { Viewport } from "./raster.js";
import type { Stack } from "./stack.js";

/** Tones of an item of the legend: as it is, its edge, and both for what is not highlighted. */
const TONES = 4;
const PALE = 2;
const EDGE_SHARE = 0.55;
const PALE_SHARE = 0.78;
/** Distance of the lines that mark what is free, in CSS pixels. */
const HATCH = 6;
/** Bands of at least this many pixels get an edge. */
const MIN_EDGED_BAND = 3;

/** Tone of each rectangle of a stack: 4 x its item of the legend, + 2 if it is not highlighted. */
export function tonesOf(stack: Stack, coding: Coding, isPale: (buffer: number, item: number) => boolean): Uint16Array {
  return Uint16Array.from(stack.buffer, (buffer) => {
    const item = coding.code[buffer]!;
    return TONES * item + (isPale(buffer, item) ? PALE : 0);
  });
}

/** The colours of the tones as pixels of ImageData. */
export function colorsOf(coding: Coding, theme: Theme): Uint32Array {
  const hole = theme.rgb("--map-hole");
  const edge = theme.rgb("--map-edge");
  return Uint32Array.from(
    coding.items.flatMap((item) => {
      const color = theme.of(item);
      const pale = mixed(color, hole, PALE_SHARE);
      return [color, mixed(color, edge, EDGE_SHARE), pale, mixed(pale, edge, EDGE_SHARE)].map(pixel);
    }),
  );
}

/** A pixel of ImageData on a little-endian machine, which all machines with browsers are. */
function pixel([r, g, b]: Rgb): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** Write the colour of each pixel. */
export function shade(ids: Int32Array, tones: Uint16Array, colors: Uint32Array, rows: RowTones, out: Uint32Array): void {
  const { width, height, hatch, plain, lines } = rows;
  for (let y = 0, at = 0; y < height; y++) {
    const [ground, line] = [plain[y]!, lines[y]!];
    for (let x = 0; x < width; x++, at++) {
      const id = ids[at]!;
      if (id > 0) out[at] = colors[tones[id - 1]!]!;
      else if (id < 0) out[at] = colors[tones[-id - 1]! + 1]!;
      else out[at] = (x + y) % hatch === 0 ? line : ground;
    }
  }
}

/** What each row of pixels shows where no buffer is. */
export interface RowTones {
  readonly width: number;
  readonly height: number;
  readonly hatch: number;
  readonly plain: Uint32Array;
  /** Colour of the hatch. */
  readonly lines: Uint32Array;
}

/** Bands of fixed allocations are plain, arenas hatched. `ratio` is device pixels per CSS pixel. */
export function rowTones(stack: Stack, view: Viewport, theme: Theme, ratio: number): RowTones {
  const { width, height } = view;
  const tone = (name: string): number => pixel(theme.rgb(name));
  const [hole, texture, fixed, edge] = ["--map-hole", "--map-texture", "--map-fixed", "--map-edge"].map(tone);
  const plain = new Uint32Array(height).fill(tone("--map-outside"));
  const lines = plain.slice();
  const rows = height / (view.top - view.bottom);
  for (const band of stack.bands) {
    const y0 = Math.max(0, Math.ceil((view.top - band.top) * rows - 0.5));
    const y1 = Math.min(height, Math.ceil((view.top - band.bottom) * rows - 0.5));
    if (y0 >= y1) continue;
    const isArena = band.category === "temp";
    plain.fill(isArena ? hole! : fixed!, y0, y1);
    lines.fill(isArena ? texture! : fixed!, y0, y1);
    if (y1 - y0 >= MIN_EDGED_BAND) plain[y0] = lines[y0] = edge!;
  }
  return { width, height, hatch: Math.round(HATCH * ratio), plain, lines };
}
