/**
 * What is in use at a step: the same rows and bytes as `xlamem.live_set`.
 *
 * Bytes that several live values share are charged to the one with the lowest id. Fixed allocations, which are all but
 * the temporary ones, are in use whole at every step; what no live value covers is a row of its own.
 */

import type { ProgramData } from "./data.js";
import { orderOf } from "./sorting.js";

export interface LiveSet {
  readonly space: number;
  readonly step: number;
  readonly length: number;
  /** Rows before it are live values, by allocation and offset. The others are the rest of fixed allocations. */
  readonly nLive: number;
  /** Row of buffers: the live value, or the one that stands for the allocation (-1 if it has none). */
  readonly buffer: Int32Array;
  /** Row of allocations. */
  readonly allocation: Int32Array;
  readonly bytes: Float64Array;
  /** Bytes that no other live value covers. */
  readonly exclusive: Float64Array;
  readonly total: number;
}

/** The buffers of a memory space by address. */
interface Placed {
  readonly row: Int32Array;
  /** First and last step at which each occupies its bytes; the first is after all steps for never. */
  readonly start: Int32Array;
  readonly end: Int32Array;
  /** Rows of the allocations that are in use whole. */
  readonly fixed: readonly number[];
  /** Row of buffers that stands for each of the program's allocations. */
  readonly representative: Int32Array;
}

type Range = readonly [number, number];

const NEVER: Range = [2 ** 31 - 1, -1];
/** Without live ranges, there is one step. */
const ALWAYS: Range = [0, 0];
const placed = new WeakMap<ProgramData, Map<number, Placed>>();
const latest = new WeakMap<ProgramData, LiveSet[]>();
const KEPT = 4;

/** What is in use at a step in a memory space (a row of spaces). The last few results are kept. */
export function liveSet(data: ProgramData, space: number, step: number): LiveSet {
  const kept = latest.get(data) ?? [];
  const known = kept.find((set) => set.space === space && set.step === step);
  if (known) return known;
  const set = charged(data, placedIn(data, space), space, step);
  latest.set(data, [set, ...kept.slice(0, KEPT - 1)]);
  return set;
}

/** Whether a buffer occupies its bytes at a step. */
export function isLiveAt(data: ProgramData, buffer: number, step: number): boolean {
  const [first, last] = occupiedRange(data, buffer);
  return first <= step && step <= last;
}

/** First and last step at which a buffer occupies its bytes; the first is after the last for never. */
export function occupiedRange(data: ProgramData, buffer: number): Range {
  const { start, end, allocation } = data.buffers;
  if (data.model.steps === null && isArena(data, allocation[buffer]!)) return ALWAYS;
  return start[buffer]! < 0 ? NEVER : [start[buffer]!, end[buffer]!];
}

/** Whether only the live values of an allocation are in use: it is for temporaries. */
export function isArena({ allocations }: ProgramData, allocation: number): boolean {
  return allocations.categoryNames[allocations.category[allocation]!] === "temp";
}

function placedIn(data: ProgramData, space: number): Placed {
  let spaces = placed.get(data);
  if (!spaces) placed.set(data, (spaces = new Map()));
  let found = spaces.get(space);
  if (!found) spaces.set(space, (found = place(data, space)));
  return found;
}

function place(data: ProgramData, space: number): Placed {
  const { allocation, offset, length } = data.buffers;
  const spaceOf = data.allocations.space;
  const unordered = new Int32Array(length);
  let n = 0;
  for (let i = 0; i < length; i++) if (spaceOf[allocation[i]!] === space) unordered[n++] = i;
  const byOffset = sortedBy(offset, unordered.subarray(0, n));
  const row = sortedBy(allocation, byOffset);
  const start = new Int32Array(n);
  const end = new Int32Array(n);
  for (let i = 0; i < n; i++) [start[i], end[i]] = occupiedRange(data, row[i]!) as [number, number];
  const fixed: number[] = [];
  spaceOf.forEach((s, i) => s === space && !isArena(data, i) && fixed.push(i));
  return { row, start, end, fixed, representative: representatives(data) };
}

/** These rows in the order of a column; equal ones keep their order. */
function sortedBy(column: Int32Array | Float64Array, rows: Int32Array): Int32Array {
  const keys = new Float64Array(rows.length);
  for (let i = 0; i < rows.length; i++) keys[i] = column[rows[i]!]!;
  return orderOf(keys).map((i) => rows[i]!);
}

/** The buffer that stands for each fixed allocation: the only one whose saving is known. */
function representatives({ buffers, allocations }: ProgramData): Int32Array {
  const found = new Int32Array(allocations.space.length).fill(-1);
  buffers.saving.forEach((saving, row) => {
    if (saving >= 0) found[buffers.allocation[row]!] = row;
  });
  return found;
}

function charged(data: ProgramData, placed: Placed, space: number, step: number): LiveSet {
  const { row, start, end, fixed, representative } = placed;
  const live = liveRows(row, start, end, step);
  const owner = data.buffers.allocation;
  const charges = charge(data, live);
  const rest = data.allocations.size.slice();
  live.forEach((buffer, i) => (rest[owner[buffer]!]! -= charges.bytes[i]!));
  const reserved = fixed.filter((allocation) => rest[allocation]! > 0);
  const remaining = reserved.map((allocation) => rest[allocation]!);
  const bytes = joined(Float64Array, charges.bytes, remaining);
  return {
    space,
    step,
    length: bytes.length,
    nLive: live.length,
    buffer: joined(Int32Array, live, reserved.map((allocation) => representative[allocation]!)),
    allocation: joined(Int32Array, live.map((buffer) => owner[buffer]!), reserved),
    bytes,
    exclusive: joined(Float64Array, charges.exclusive, remaining),
    total: bytes.reduce((sum, b) => sum + b, 0),
  };
}

function liveRows(row: Int32Array, start: Int32Array, end: Int32Array, step: number): Int32Array {
  const live: number[] = [];
  for (let i = 0; i < row.length; i++) if (start[i]! <= step && step <= end[i]!) live.push(row[i]!);
  return Int32Array.from(live);
}

function joined<A extends Int32Array | Float64Array>(make: new (n: number) => A, a: A, b: readonly number[]): A {
  const both = new make(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

interface Charges {
  bytes: Float64Array;
  exclusive: Float64Array;
}

/** Charge bytes to these live buffers, which are in order of allocation and offset. */
function charge(data: ProgramData, live: Int32Array): Charges {
  const { allocation, offset } = data.buffers;
  const charges = { bytes: new Float64Array(live.length), exclusive: new Float64Array(live.length) };
  let from = 0;
  while (from < live.length) {
    const first = live[from]!;
    let to = from + 1;
    let end = endOf(data, first);
    // A run of buffers that touch each other in a chain.
    while (to < live.length && allocation[live[to]!] === allocation[first] && offset[live[to]!]! < end) {
      end = Math.max(end, endOf(data, live[to++]!));
    }
    if (to === from + 1) charges.bytes[from] = charges.exclusive[from] = end - offset[first]!;
    else chargeRun(data, live, from, to, charges);
    from = to;
  }
  return charges;
}

/** End of the bytes of a buffer that lie in its allocation. */
function endOf({ buffers, allocations }: ProgramData, buffer: number): number {
  const offset = buffers.offset[buffer]!;
  const end = Math.min(offset + buffers.size[buffer]!, allocations.size[buffers.allocation[buffer]!]!);
  return Math.max(offset, end);
}

/** Charge bytes to buffers that overlap: sweep over their bounds, with the lowest id of those that are open on top. */
function chargeRun(data: ProgramData, live: Int32Array, from: number, to: number, charges: Charges): void {
  const { bytes, exclusive } = charges;
  const { offset, valueId } = data.buffers;
  const rows = live.slice(from, to);
  const ends = Float64Array.from(rows, (buffer) => endOf(data, buffer));
  const byEnd = orderOf(ends);
  const byId = orderOf(rows.map((buffer) => valueId[buffer]!));
  const rank = new Int32Array(rows.length);
  byId.forEach((i, r) => (rank[i] = r));
  const open = new Heap();
  let [opened, closed] = [0, 0];
  let position = offset[rows[0]!]!;
  while (closed < rows.length) {
    const nextEnd = ends[byEnd[closed]!]!;
    const nextStart = opened < rows.length ? offset[rows[opened]!]! : Infinity;
    const next = Math.min(nextStart, nextEnd);
    while (open.size > 0 && ends[byId[open.top]!]! <= position) open.pop();
    if (next > position && open.size > 0) {
      const charged = from + byId[open.top]!;
      bytes[charged]! += next - position;
      if (opened - closed === 1) exclusive[charged]! += next - position;
    }
    position = next;
    // Buffers without bytes open and close at one position.
    if (nextStart <= nextEnd) open.push(rank[opened++]!);
    else closed++;
  }
}

/** The smallest of a changing set of numbers. */
class Heap {
  readonly #items: number[] = [];

  get size(): number {
    return this.#items.length;
  }

  get top(): number {
    return this.#items[0]!;
  }

  push(item: number): void {
    const items = this.#items;
    let i = items.push(item) - 1;
    while (i > 0 && items[(i - 1) >> 1]! > item) {
      items[i] = items[(i - 1) >> 1]!;
      i = (i - 1) >> 1;
    }
    items[i] = item;
  }

  pop(): void {
    const items = this.#items;
    const item = items.pop()!;
    if (items.length === 0) return;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && items[child + 1]! < items[child]!) child++;
      if (items[child]! >= item) break;
      items[i] = items[child]!;
      i = child;
    }
    items[i] = item;
  }
}
