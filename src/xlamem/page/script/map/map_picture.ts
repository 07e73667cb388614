/** The canvases of the address map. */

import type { ProgramData } from "../data/data.js";
import { h } from "../parts/dom.js";
import { GUTTER, MARGIN } from "../parts/layout.js";
import { occupiedRange } from "../data/live.js";
import { drawGutter, drawNames, type Ink, LINE, MIN_NAME_WIDTH, type NameBox } from "./map_labels.js";
import type { Coding } from "../parts/palette.js";
import { css, Theme } from "../parts/palette.js";
import { rasterise, type Viewport } from "./raster.js";
import { colorsOf, type RowTones, rowTones, shade, tonesOf } from "./shade.js";
import type { Stack } from "./stack.js";

/** A pointer this far from a buffer still hits it, in CSS pixels. */
const REACH = 3;
/** The selected buffer is shown at least this large, in CSS pixels. */
const MIN_OUTLINE = 3;

/** What lies above the picture. */
export interface Marks {
  readonly step: number;
  readonly selected: number;
  /** Buffers that share bytes with the selected one. */
  readonly sharing: readonly number[];
  readonly hovered: number;
}

/** A region of steps and addresses. */
type Region = Pick<Viewport, "left" | "right" | "bottom" | "top">;

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export class MapPicture {
  readonly element: HTMLElement;
  readonly base = h("canvas", { class: "base" });
  readonly overlay = h("canvas", { class: "overlay", "aria-hidden": "true" });
  readonly #data: ProgramData;
  #stack: Stack;
  #theme = new Theme();
  #region: Region = { left: 0, right: 1, bottom: 0, top: 1 };
  #width = 0;
  #height = 0;
  #ratio = 1;
  #ids = new Int32Array(0);
  #image: ImageData | null = null;
  #named: readonly number[] = [];
  #rows: RowTones | null = null;
  #tones: Uint16Array = new Uint16Array(0);
  #colors: Uint32Array = new Uint32Array(0);
  #coding: Coding | null = null;

  constructor(data: ProgramData, stack: Stack) {
    this.#data = data;
    this.#stack = stack;
    this.element = h("div", { class: "map-frame" }, this.base, this.overlay);
  }

  set stack(stack: Stack) {
    this.#stack = stack;
  }

  /** With the gutter, in CSS pixels. */
  get width(): number {
    return this.#width;
  }

  get plotWidth(): number {
    return this.#width - GUTTER - MARGIN;
  }

  get height(): number {
    return this.#height;
  }

  resize(width: number, height: number): void {
    this.#width = width;
    this.#height = height;
    this.#ratio = devicePixelRatio || 1;
    for (const canvas of [this.base, this.overlay]) {
      canvas.width = Math.round(width * this.#ratio);
      canvas.height = Math.round(height * this.#ratio);
    }
    this.element.style.height = `${height}px`;
    const [columns, rows] = [Math.max(1, Math.floor(this.plotWidth * this.#ratio)), this.base.height];
    this.#ids = new Int32Array(columns * rows);
    this.#image = new ImageData(columns, rows);
  }

  /** Choose the colours. What is pale is not highlighted. */
  paint(coding: Coding, isPale: (buffer: number, item: number) => boolean): void {
    this.#theme = new Theme();
    this.#coding = coding;
    this.#colors = colorsOf(coding, this.#theme);
    this.#tones = tonesOf(this.#stack, coding, isPale);
  }

  /** Show a region. */
  show(region: Region): void {
    if (!this.#image) return;
    this.#region = region;
    const view = { ...region, width: this.#image.width, height: this.#image.height };
    const room = { width: MIN_NAME_WIDTH * this.#ratio, height: LINE * this.#ratio };
    this.#named = rasterise(this.#stack.shapes, view, this.#ids, room);
    this.#rows = rowTones(this.#stack, view, this.#theme, this.#ratio);
    this.draw();
  }

  /** Draw the region that is shown, with the colours last chosen. */
  draw(): void {
    if (!this.#image || !this.#rows) return;
    shade(this.#ids, this.#tones, this.#colors, this.#rows, new Uint32Array(this.#image.data.buffer));
    const c = this.#context(this.base);
    c.putImageData(this.#image, Math.round(GUTTER * this.#ratio), 0);
    const ink = this.#ink();
    drawGutter(c, this.#data, this.#stack, { ...this.#region, width: this.plotWidth, height: this.#height }, ink);
    drawNames(c, this.#data, this.#nameBoxes(), ink);
  }

  #context(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
    const c = canvas.getContext("2d")!;
    c.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    c.clearRect(0, 0, this.#width, this.#height);
    return c;
  }

  #ink(): Ink {
    const style = getComputedStyle(this.element);
    const value = (name: string): string => style.getPropertyValue(name).trim();
    return {
      text: value("--ink"),
      muted: value("--muted"),
      line: value("--line-strong"),
      accent: value("--accent"),
      mono: value("--mono"),
      sans: style.fontFamily,
    };
  }

  #nameBoxes(): NameBox[] {
    const { shapes, buffer } = this.#stack;
    return this.#named.map((i) => {
      const { x, y, width, height } = this.#box(shapes.start[i]!, shapes.end[i]!, shapes.bottom[i]!, shapes.top[i]!);
      const [left, top] = [Math.max(GUTTER, x), Math.max(0, y)];
      const [right, bottom] = [Math.min(GUTTER + this.plotWidth, x + width), Math.min(this.#height, y + height)];
      const color = this.#theme.of(this.#coding!.items[this.#coding!.code[buffer[i]!]!]!);
      return { buffer: buffer[i]!, left, right, top, bottom, color };
    });
  }

  /** Where steps and addresses lie, in CSS pixels; also outside of the picture. */
  #box(start: number, end: number, bottom: number, top: number): Box {
    const region = this.#region;
    const [columns, rows] = [this.plotWidth / (region.right - region.left), this.#height / (region.top - region.bottom)];
    return {
      x: GUTTER + (start - region.left) * columns,
      y: (region.top - top) * rows,
      width: (end + 1 - start) * columns,
      height: (top - bottom) * rows,
    };
  }

  /** Row of buffers at a point in CSS pixels, or near it; -1 for none. */
  bufferAt(x: number, y: number): number {
    if (!this.#image) return -1;
    const { width, height } = this.#image;
    const [px, py] = [Math.floor((x - GUTTER) * this.#ratio), Math.floor(y * this.#ratio)];
    const reach = Math.round(REACH * this.#ratio);
    let [best, distance] = [0, Infinity];
    for (let qy = Math.max(0, py - reach); qy <= Math.min(height - 1, py + reach); qy++) {
      for (let qx = Math.max(0, px - reach); qx <= Math.min(width - 1, px + reach); qx++) {
        const id = Math.abs(this.#ids[qy * width + qx]!);
        const away = Math.hypot(qx - px, qy - py);
        if (id && away < distance) [best, distance] = [id, away];
      }
    }
    return best ? this.#stack.buffer[best - 1]! : -1;
  }

  /** Draw the cursor and the outlines. */
  mark({ step, selected, sharing, hovered }: Marks): void {
    if (!this.#coding) return;
    const c = this.#context(this.overlay);
    const ink = this.#ink();
    c.save();
    c.beginPath();
    c.rect(GUTTER, 0, this.plotWidth, this.#height);
    c.clip();
    this.#cursor(c, step, ink.accent);
    c.setLineDash([3, 2]);
    for (const buffer of sharing) this.#outline(c, buffer, ink.text, 1);
    c.setLineDash([]);
    if (hovered >= 0 && hovered !== selected) this.#outline(c, hovered, ink.text, 1);
    if (selected >= 0) this.#outline(c, selected, ink.text, 1.5);
    c.restore();
  }

  #cursor(c: CanvasRenderingContext2D, step: number, color: string): void {
    const { x, width } = this.#box(step, step, 0, 0);
    c.fillStyle = color;
    c.fillRect(Math.round(x + width / 2), 0, 1, this.#height);
  }

  /** Lines around a buffer. If it is too small, it is drawn larger. */
  #outline(c: CanvasRenderingContext2D, buffer: number, color: string, width: number): void {
    const box = this.#boxOf(buffer);
    if (!box) return;
    const [w, h] = [Math.max(MIN_OUTLINE, box.width), Math.max(MIN_OUTLINE, box.height)];
    const [x, y] = [box.x - (w - box.width) / 2, box.y - (h - box.height) / 2];
    if (h > box.height || w > box.width) {
      c.fillStyle = css(this.#theme.of(this.#coding!.items[this.#coding!.code[buffer]!]!));
      c.fillRect(x, y, w, h);
    }
    c.lineWidth = width;
    c.strokeStyle = color;
    c.strokeRect(x - width / 2, y - width / 2, w + width, h + width);
  }

  #boxOf(buffer: number): Box | null {
    const { buffers } = this.#data;
    const base = this.#stack.base[buffers.allocation[buffer]!]!;
    const [start, end] = occupiedRange(this.#data, buffer);
    if (base < 0 || start > end) return null;
    const bottom = base + buffers.offset[buffer]!;
    return this.#box(start, end, bottom, bottom + buffers.size[buffer]!);
  }
}
