/**
 * Draw rectangles of step x address into an array of pixels.
 *
 * A pixel gets the rectangle that covers its row at the centre; a rectangle gets every column that it touches. So an
 * address is shown exactly as far as pixels allow, and short lives are not lost. A million rectangles need no levels of
 * detail: most of them cover no pixel, and all others together little more than the picture.
 */

/** Rectangles by first step. Each fills the steps [start, end] and the addresses [bottom, top). */
export interface Rectangles {
  readonly length: number;
  readonly start: Int32Array;
  readonly end: Int32Array;
  readonly bottom: Float64Array;
  readonly top: Float64Array;
  readonly blocks: readonly Block[];
}

/** Bounds of consecutive rectangles. */
interface Block {
  readonly from: number;
  readonly to: number;
  readonly start: number;
  readonly end: number;
  readonly bottom: number;
  readonly top: number;
}

/** What a picture of width x height pixels shows: steps and addresses of its edges. The highest address is on top. */
export interface Viewport {
  readonly width: number;
  readonly height: number;
  readonly left: number;
  readonly right: number;
  readonly bottom: number;
  readonly top: number;
}

/** Size in pixels. */
interface Room {
  readonly width: number;
  readonly height: number;
}

const BLOCK = 4096;
/** Boxes at least this wide and high get an edge on their left and on their top. */
const MIN_EDGED = 5;

/** Group rectangles, which must be in order of their first step, for skipping. */
export function rectangles(start: Int32Array, end: Int32Array, bottom: Float64Array, top: Float64Array): Rectangles {
  const blocks: Block[] = [];
  for (let from = 0; from < start.length; from += BLOCK) {
    const to = Math.min(from + BLOCK, start.length);
    blocks.push({
      from,
      to,
      start: start[from]!,
      end: end.subarray(from, to).reduce((a, b) => Math.max(a, b), -1),
      bottom: bottom.subarray(from, to).reduce((a, b) => Math.min(a, b), Infinity),
      top: top.subarray(from, to).reduce((a, b) => Math.max(a, b), 0),
    });
  }
  return { length: start.length, start, end, bottom, top, blocks };
}

/**
 * Write the row + 1 of the rectangle of each pixel, 0 for none, negative on the edges of large boxes.
 *
 * Returns the rows of the boxes that are at least `room` wide and high.
 */
export function rasterise(shapes: Rectangles, view: Viewport, pixels: Int32Array, room: Room): number[] {
  const { width, height } = view;
  const { start, end, bottom, top } = shapes;
  const columns = width / (view.right - view.left);
  const rows = height / (view.top - view.bottom);
  const roomy: number[] = [];
  pixels.fill(0);
  for (const block of shapes.blocks) {
    if (block.start >= view.right) break;
    if (block.end + 1 <= view.left || block.top <= view.bottom || block.bottom >= view.top) continue;
    for (let i = block.from; i < block.to; i++) {
      // A row is covered if its centre is: 0.5 below its upper edge.
      const y0 = Math.max(0, Math.ceil((view.top - top[i]!) * rows - 0.5));
      const y1 = Math.min(height, Math.ceil((view.top - bottom[i]!) * rows - 0.5));
      if (y0 >= y1) continue;
      const x0 = Math.max(0, Math.floor((start[i]! - view.left) * columns));
      const x1 = Math.min(width, Math.max(Math.ceil((end[i]! + 1 - view.left) * columns), x0 + 1));
      if (x0 >= x1 || end[i]! + 1 <= view.left) continue;
      paint(pixels, width, x0, x1, y0, y1, i + 1);
      if (x1 - x0 >= room.width && y1 - y0 >= room.height) roomy.push(i);
    }
  }
  return roomy;
}

function paint(pixels: Int32Array, width: number, x0: number, x1: number, y0: number, y1: number, id: number): void {
  const edged = x1 - x0 >= MIN_EDGED && y1 - y0 >= MIN_EDGED;
  for (let y = y0; y < y1; y++) {
    const row = y * width;
    if (x1 - x0 === 1) pixels[row + x0] = id;
    else pixels.fill(edged && y === y0 ? -id : id, row + x0, row + x1);
    if (edged) pixels[row + x0] = -id;
  }
}
