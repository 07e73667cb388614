/** Names in the address map: of allocations in its left gutter, and of buffers in their boxes. */

import type { ProgramData } from "../data/data.js";
import { oneLine, shorten, size } from "../parts/format.js";
import { GUTTER } from "../parts/layout.js";
import { categoryLabel, isLight, type Rgb } from "../parts/palette.js";
import type { Viewport } from "./raster.js";
import type { Band, Stack } from "./stack.js";
import { modelName } from "../parts/wording.js";

/** Lines of text in CSS pixels. */
export const LINE = 13;
/** A buffer's name needs a box at least this wide. */
export const MIN_NAME_WIDTH = 44;
const PADDING = 8;
const TICK = 5;
const MAX_NAMES = 400;
const NAME_INSET = 4;
const MAX_NAME = 120;

/** Fonts and colours of the theme. */
export interface Ink {
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly accent: string;
  readonly sans: string;
  readonly mono: string;
}

interface Label {
  readonly text: string;
  readonly bytes: number;
  readonly top: number;
  readonly bottom: number;
}

/** Draw the names of allocations, or of their categories where there is no room, and ticks where those begin. */
export function drawGutter(c: CanvasRenderingContext2D, data: ProgramData, stack: Stack, view: Viewport, ink: Ink): void {
  const yOf = (address: number): number => ((view.top - address) / (view.top - view.bottom)) * view.height;
  const taken: [number, number][] = [];
  const labels = stack.groups.flatMap((group) => labelsOf(data, group, view, yOf));
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.strokeStyle = ink.line;
  c.lineWidth = 1;
  for (const label of labels) tick(c, label.top, view.height);
  for (const label of labels.sort((a, b) => b.bottom - b.top - (a.bottom - a.top))) {
    const lines = label.bottom - label.top >= 2.5 * LINE ? 2 : 1;
    const half = (lines * LINE) / 2;
    const middle = Math.max(half, Math.min(view.height - half, (label.top + label.bottom) / 2));
    if (taken.some(([top, bottom]) => middle - half < bottom && middle + half > top)) continue;
    taken.push([middle - half, middle + half]);
    write(c, label.text, middle - (lines - 1) * (LINE / 2), `11px ${ink.sans}`, ink.text);
    if (lines === 2) write(c, size(label.bytes), middle + LINE / 2, `10.5px ${ink.sans}`, ink.muted);
  }
}

function tick(c: CanvasRenderingContext2D, y: number, height: number): void {
  const at = Math.min(height - 0.5, Math.max(0.5, Math.round(y) + 0.5));
  c.beginPath();
  c.moveTo(GUTTER - TICK, at);
  c.lineTo(GUTTER, at);
  c.stroke();
}

function write(c: CanvasRenderingContext2D, text: string, y: number, font: string, color: string): void {
  c.font = font;
  c.fillStyle = color;
  c.fillText(fitting(c, text, GUTTER - PADDING - 2), GUTTER - PADDING, y);
}

/** The label of a group, or of each of its bands if most of what is visible has room for them. */
function labelsOf(data: ProgramData, group: readonly Band[], view: Viewport, yOf: (address: number) => number): Label[] {
  const [bottom, top] = [Math.max(view.bottom, group[0]!.bottom), Math.min(view.top, group.at(-1)!.top)];
  if (bottom >= top) return [];
  const shown = group.filter((band) => band.top > view.bottom && band.bottom < view.top);
  const visible = (band: Band): number => Math.min(view.top, band.top) - Math.max(view.bottom, band.bottom);
  const tall = shown.filter((band) => visible(band) * (view.height / (view.top - view.bottom)) >= LINE);
  const tallBytes = tall.reduce((sum, band) => sum + visible(band), 0);
  const label = (text: string, bytes: number, low: number, high: number): Label => ({
    text: oneLine(shorten(text, MAX_NAME)),
    bytes,
    top: Math.max(0, yOf(high)),
    bottom: Math.min(view.height, yOf(low)),
  });
  if (group.length === 1 || tallBytes * 2 > top - bottom) {
    return tall.map((band) => label(data.allocations.label[band.allocation]!, band.top - band.bottom, band.bottom, band.top));
  }
  const bytes = group.at(-1)!.top - group[0]!.bottom;
  return [label(categoryLabel(group[0]!.category), bytes, bottom, top)];
}

/** A box in CSS pixels for the name of a buffer. */
export interface NameBox {
  readonly buffer: number;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  readonly color: Rgb;
}

/** Draw the names of buffers into the largest of these boxes. */
export function drawNames(c: CanvasRenderingContext2D, data: ProgramData, boxes: NameBox[], ink: Ink): void {
  const area = (box: NameBox): number => (box.right - box.left) * (box.bottom - box.top);
  c.textAlign = "left";
  c.textBaseline = "middle";
  c.font = `11px ${ink.mono}`;
  for (const box of boxes.sort((a, b) => area(b) - area(a)).slice(0, MAX_NAMES)) {
    const text = oneLine(shorten(modelName(data, box.buffer), MAX_NAME));
    const middle = box.bottom - box.top > 3 * LINE ? box.top + LINE : (box.top + box.bottom) / 2;
    c.fillStyle = isLight(box.color) ? "#14181d" : "#f2f4f6";
    c.fillText(fitting(c, text, box.right - box.left - 2 * NAME_INSET), box.left + NAME_INSET, middle + 0.5);
  }
}

/** The text, shortened in its middle to a width; empty if nothing of it would be left. */
function fitting(c: CanvasRenderingContext2D, text: string, width: number): string {
  if (c.measureText(text).width <= width) return text;
  const perCharacter = c.measureText(text).width / text.length;
  for (let n = Math.min(text.length - 1, Math.ceil(width / perCharacter) + 2); n >= 3; n--) {
    const end = (n - 1) >> 1;
    const short = `${text.slice(0, n - 1 - end)}…${text.slice(text.length - end)}`;
    if (c.measureText(short).width <= width) return short;
  }
  return "";
}
