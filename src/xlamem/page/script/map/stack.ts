/** The addresses of a memory space: its allocations in a stack, and in them its buffers as rectangles. */

import type { ProgramData } from "../data/data.js";
import { occupiedRange } from "../data/live.js";
import { rectangles, type Rectangles } from "./raster.js";
import { orderOf } from "../data/sorting.js";

/** An allocation in the stack. */
export interface Band {
  /** Row of allocations. */
  readonly allocation: number;
  readonly category: string;
  readonly bottom: number;
  readonly top: number;
}

export interface Stack {
  /** From the bottom to the top. */
  readonly bands: readonly Band[];
  /** Neighbours of one category. */
  readonly groups: readonly (readonly Band[])[];
  readonly total: number;
  readonly shapes: Rectangles;
  /** Row of buffers of each rectangle. */
  readonly buffer: Int32Array;
  /** Where each of the program's allocations begins; -1 in other spaces. */
  readonly base: Float64Array;
}

/** Fixed allocations at the bottom, arenas at the top. */
const ORDER = ["parameter", "donated", "constant", "live_out", "temp"];
const stacks = new WeakMap<ProgramData, Map<number, Stack>>();

/** The stack of a memory space (a row of spaces). */
export function stackOf(data: ProgramData, space: number): Stack {
  let known = stacks.get(data);
  if (!known) stacks.set(data, (known = new Map()));
  let stack = known.get(space);
  if (!stack) known.set(space, (stack = stacked(data, space)));
  return stack;
}

function stacked(data: ProgramData, space: number): Stack {
  const { size } = data.allocations;
  const base = new Float64Array(size.length).fill(-1);
  const bands: Band[] = [];
  let total = 0;
  for (const { allocation, category } of inOrder(data, space)) {
    base[allocation] = total;
    bands.push({ allocation, category, bottom: total, top: (total += size[allocation]!) });
  }
  return { bands, groups: grouped(bands), total, base, ...shapesOf(data, base) };
}

function grouped(bands: readonly Band[]): Band[][] {
  const groups: Band[][] = [];
  for (const band of bands) {
    const last = groups.at(-1);
    if (last && last[0]!.category === band.category) last.push(band);
    else groups.push([band]);
  }
  return groups;
}

/** The allocations by category, the largest of each first. */
function inOrder({ allocations }: ProgramData, space: number): { allocation: number; category: string; rank: number }[] {
  const { space: spaceOf, size, category, categoryNames } = allocations;
  const rows = Array.from(spaceOf.keys()).filter((i) => spaceOf[i] === space && size[i]! > 0);
  const ranked = rows.map((allocation) => {
    const name = categoryNames[category[allocation]!] ?? "";
    return { allocation, category: name, rank: ORDER.indexOf(name) };
  });
  return ranked.sort((a, b) => a.rank - b.rank || size[b.allocation]! - size[a.allocation]!);
}

function shapesOf(data: ProgramData, base: Float64Array): { shapes: Rectangles; buffer: Int32Array } {
  const { allocation, offset, size } = data.buffers;
  const buffer = byStart(data, base);
  const n = buffer.length;
  const [start, end] = [new Int32Array(n), new Int32Array(n)];
  const [bottom, top] = [new Float64Array(n), new Float64Array(n)];
  for (let i = 0; i < n; i++) {
    const row = buffer[i]!;
    const below = base[allocation[row]!]!;
    [start[i], end[i]] = occupiedRange(data, row) as [number, number];
    bottom[i] = below + offset[row]!;
    top[i] = below + Math.min(offset[row]! + size[row]!, data.allocations.size[allocation[row]!]!);
  }
  return { shapes: rectangles(start, end, bottom, top), buffer };
}

/** The buffers that occupy bytes of these allocations, by their first step. */
function byStart(data: ProgramData, base: Float64Array): Int32Array {
  const { allocation, length } = data.buffers;
  const rows: number[] = [];
  const starts: number[] = [];
  let ordered = true;
  for (let row = 0; row < length; row++) {
    if (base[allocation[row]!]! < 0) continue;
    const [start, end] = occupiedRange(data, row);
    if (start > end) continue;
    ordered &&= start >= (starts.at(-1) ?? 0);
    rows.push(row);
    starts.push(start);
  }
  return ordered ? Int32Array.from(rows) : orderOf(starts).map((i) => rows[i]!);
}
