/**
 * A common axis for the steps of two programs, A and B.
 *
 * Steps with matching instructions are at the same place. Between two of them, both sides are stretched to the length of
 * the longer one; where a side has no step at all, it has a gap.
 */

export type Side = "a" | "b";
export const SIDES: readonly Side[] = ["a", "b"];

/** Where a coordinate is on a side. */
export interface Place {
  readonly step: number;
  /** Whether the side has no step there; `step` is then the last one before. */
  readonly gap: boolean;
}

/** Pieces in which both sides are linear, in order. Piece i reaches from its coordinate to that of piece i + 1. */
interface Pieces {
  readonly at: Float64Array;
  readonly a: Float64Array;
  readonly b: Float64Array;
  readonly matched: Uint8Array;
}

export class Warp {
  readonly #pieces: Pieces;
  /** Length of the axis; a coordinate of a matched run grows by 1 for each step. */
  readonly length: number;

  /** `steps` are matched steps, both ascending; `n` are the numbers of steps. */
  constructor(steps: Readonly<Record<Side, Int32Array>>, n: Readonly<Record<Side, number>>) {
    const at: number[] = [];
    const rows = { a: [] as number[], b: [] as number[] };
    const matched: number[] = [];
    let [u, a, b] = [0, 0, 0];
    const add = (toA: number, toB: number, isMatch: boolean) => {
      if (toA === a && toB === b) return;
      at.push(u);
      rows.a.push(a);
      rows.b.push(b);
      matched.push(Number(isMatch));
      u += Math.max(toA - a, toB - b);
      [a, b] = [toA, toB];
    };
    for (let i = 0; i < steps.a.length; ) {
      add(steps.a[i]!, steps.b[i]!, false);
      let j = i + 1;
      while (j < steps.a.length && steps.a[j]! - a === j - i && steps.b[j]! - b === j - i) j++;
      add(a + (j - i), b + (j - i), true);
      i = j;
    }
    add(n.a, n.b, false);
    this.length = u;
    this.#pieces = {
      at: Float64Array.from([...at, u]),
      a: Float64Array.from([...rows.a, a]),
      b: Float64Array.from([...rows.b, b]),
      matched: Uint8Array.from(matched),
    };
  }

  /** What is at a coordinate of the axis. */
  place(side: Side, u: number): Place {
    const { at, matched } = this.#pieces;
    const steps = this.#pieces[side];
    const i = Math.max(0, Math.min(matched.length - 1, lastAtMost(at, u)));
    const [from, to] = [steps[i] ?? 0, steps[i + 1] ?? 0];
    const share = Math.max(0, Math.min(1, (u - at[i]!) / (at[i + 1]! - at[i]! || 1)));
    const step = Math.min(to - 1, Math.floor(from + share * (to - from) + 1e-6));
    return { step: Math.max(0, step), gap: from === to };
  }

  /** Coordinate of the beginning of a step; that of the end for the number of steps. */
  coordinate(side: Side, step: number): number {
    const { at } = this.#pieces;
    const steps = this.#pieces[side];
    // The last piece that begins at or before the step, and is no gap of this side unless it is the end.
    const i = Math.min(this.#pieces.matched.length - 1, lastAtMost(steps, step));
    if (i < 0) return 0;
    const [from, to] = [steps[i]!, steps[i + 1]!];
    return to === from ? at[i + 1]! : at[i]! + ((step - from) / (to - from)) * (at[i + 1]! - at[i]!);
  }

  /** Call for the pieces between two coordinates that have a gap or unmatched steps of a side. */
  eachUnmatched(side: Side, first: number, last: number, call: (from: number, to: number, gap: boolean) => void): void {
    const { at, matched } = this.#pieces;
    const steps = this.#pieces[side];
    for (let i = Math.max(0, lastAtMost(at, first)); i < matched.length && at[i]! < last; i++) {
      if (!matched[i]) call(Math.max(first, at[i]!), Math.min(last, at[i + 1]!), steps[i] === steps[i + 1]);
    }
  }
}

/** Index of the last of these ascending numbers that is at most `limit`; -1 without one. */
function lastAtMost(ascending: Float64Array, limit: number): number {
  let [low, high] = [0, ascending.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle]! <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
