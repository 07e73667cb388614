/** The instructions that read a buffer. */

import type { ProgramData } from "./data.js";

export interface Use {
  /** Row of instructions. */
  readonly instruction: number;
  /** -1 if it is not in the schedule. */
  readonly step: number;
}

/** The uses of a buffer by step. */
export function usesOf({ uses }: ProgramData, buffer: number): Use[] {
  const [from, to] = [uses.begin[buffer]!, uses.begin[buffer + 1]!];
  const found = Array.from({ length: to - from }, (_, i) => ({ instruction: uses.instruction[from + i]!, step: uses.step[from + i]! }));
  return found.sort((a, b) => a.step - b.step);
}

/** The use at the last step, which keeps the buffer alive. */
export function lastUse(data: ProgramData, buffer: number): Use | undefined {
  const last = usesOf(data, buffer).at(-1);
  return last && last.step >= 0 ? last : undefined;
}
