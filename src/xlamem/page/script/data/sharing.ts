/** Buffers that lie at the same bytes: at the same steps, or before and after. */

import type { ProgramData } from "./data.js";
import { occupiedRange } from "./live.js";

export interface Neighbours {
  /** Those that share bytes with it at some step, the largest first. */
  readonly sharing: readonly number[];
  /** Those at its bytes that end last before it, and those that start first after it. */
  readonly before: readonly number[];
  readonly after: readonly number[];
}

const NONE: Neighbours = { sharing: [], before: [], after: [] };
const MAX_SHARING = 50;
const MAX_NEIGHBOURS = 3;
const latest = new WeakMap<ProgramData, { buffer: number; neighbours: Neighbours }>();

/** The neighbours of a buffer; none without live ranges. The last result is kept. */
export function neighboursOf(data: ProgramData, buffer: number): Neighbours {
  const known = latest.get(data);
  if (known?.buffer === buffer) return known.neighbours;
  const neighbours = data.model.steps === null ? NONE : found(data, buffer);
  latest.set(data, { buffer, neighbours });
  return neighbours;
}

function found(data: ProgramData, buffer: number): Neighbours {
  const { size } = data.buffers;
  const [first, last] = occupiedRange(data, buffer);
  const sharing: number[] = [];
  const before: number[] = [];
  const after: number[] = [];
  for (const other of atSameBytes(data, buffer)) {
    const [start, end] = occupiedRange(data, other);
    if (start > end) continue;
    if (end < first) before.push(other);
    else if (start > last) after.push(other);
    else sharing.push(other);
  }
  const endOf = (row: number): number => occupiedRange(data, row)[1];
  const startOf = (row: number): number => occupiedRange(data, row)[0];
  return {
    sharing: sharing.sort((a, b) => size[b]! - size[a]!).slice(0, MAX_SHARING),
    before: before.sort((a, b) => endOf(b) - endOf(a)).slice(0, MAX_NEIGHBOURS),
    after: after.sort((a, b) => startOf(a) - startOf(b)).slice(0, MAX_NEIGHBOURS),
  };
}

function atSameBytes({ buffers }: ProgramData, buffer: number): number[] {
  const { allocation, offset, size, length } = buffers;
  const [owner, bottom] = [allocation[buffer]!, offset[buffer]!];
  const top = bottom + size[buffer]!;
  const rows: number[] = [];
  for (let row = 0; row < length; row++) {
    if (allocation[row] !== owner || row === buffer) continue;
    if (offset[row]! < top && offset[row]! + size[row]! > bottom) rows.push(row);
  }
  return rows;
}
