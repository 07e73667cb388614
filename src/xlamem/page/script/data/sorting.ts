/** Sort whole columns of integers. */

const DIGIT = 16;
const DIGITS = 1 << DIGIT;
/** Up to this many integers, comparing them is faster than counting their digits. */
const FEW = 4096;

/** The order of these integers, smallest first; equal ones keep their order. They and their differences are below 2^53. */
export function orderOf(keys: ArrayLike<number>): Int32Array {
  const n = keys.length;
  let order = Int32Array.from({ length: n }, (_, i) => i);
  if (n <= FEW) return order.sort((a, b) => keys[a]! - keys[b]!);
  let smallest = Infinity;
  let largest = -Infinity;
  for (let i = 0; i < n; i++) {
    const key = keys[i]!;
    if (key < smallest) smallest = key;
    if (key > largest) largest = key;
  }
  let next = new Int32Array(n);
  const count = new Uint32Array(DIGITS);
  for (let divisor = 1; divisor <= largest - smallest; divisor *= DIGITS) {
    count.fill(0);
    for (let i = 0; i < n; i++) count[digit(keys[i]! - smallest, divisor)]!++;
    for (let d = 0, before = 0; d < DIGITS; d++) {
      const here = count[d]!;
      count[d] = before;
      before += here;
    }
    for (let i = 0; i < n; i++) {
      const row = order[i]!;
      next[count[digit(keys[row]! - smallest, divisor)]!++] = row;
    }
    [order, next] = [next, order];
  }
  return order;
}

function digit(key: number, divisor: number): number {
  return Math.floor(key / divisor) & (DIGITS - 1);
}

/** Rank of each of these texts: the position of the first equal one in sorted order. */
export function ranksOf(texts: readonly string[]): Int32Array {
  const sorted = texts.map((_, i) => i).sort((a, b) => (texts[a]! < texts[b]! ? -1 : texts[a]! > texts[b]! ? 1 : 0));
  const ranks = new Int32Array(texts.length);
  let rank = 0;
  sorted.forEach((row, i) => {
    if (i > 0 && texts[row] !== texts[sorted[i - 1]!]) rank = i;
    ranks[row] = rank;
  });
  return ranks;
}
