/** Fewer points for a line that looks the same. */

/**
 * Points of the steps first to last: at most `most`, with the lowest and the highest value of each group of steps.
 *
 * One more point at the end of the last step ends the line.
 */
export function decimated(values: Float64Array, first: number, last: number, most: number): [Float64Array, Float64Array] {
  const n = last + 1 - first;
  const group = Math.max(1, Math.ceil((2 * n) / most));
  const x = new Float64Array(Math.min(n, 2 * Math.ceil(n / group)) + 1);
  const y = new Float64Array(x.length);
  let size = 0;
  const add = (step: number) => {
    x[size] = step;
    y[size++] = values[step]!;
  };
  for (let start = first; start <= last; start += group) {
    const [low, high] = extremes(values, start, Math.min(last + 1, start + group));
    add(Math.min(low, high));
    if (low !== high) add(Math.max(low, high));
  }
  x[size] = last + 1;
  y[size++] = values[last]!;
  return [x.subarray(0, size), y.subarray(0, size)];
}

function extremes(values: Float64Array, start: number, end: number): [number, number] {
  let low = start;
  let high = start;
  for (let i = start + 1; i < end; i++) {
    if (values[i]! < values[low]!) low = i;
    else if (values[i]! > values[high]!) high = i;
  }
  return [low, high];
}

/** Highest value of each of `n` equal parts. */
export function envelope(values: Float64Array, n: number): Float64Array {
  const result = new Float64Array(Math.min(n, values.length));
  for (let i = 0; i < result.length; i++) {
    const start = Math.floor((i * values.length) / result.length);
    const end = Math.max(start + 1, Math.floor(((i + 1) * values.length) / result.length));
    result[i] = values[extremes(values, start, end)[1]]!;
  }
  return result;
}
