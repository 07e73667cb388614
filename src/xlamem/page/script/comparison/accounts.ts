/** The memory spaces of an account, and what is in use in them together. */

import type { ProgramData } from "../data/data.js";

const DEVICE_TOTAL = "device_total";

/** Rows of the memory spaces of an account; none if the program does not have them. */
export function spacesOf({ model }: ProgramData, account: string): number[] {
  const rows = [...model.spaces.keys()];
  if (account === DEVICE_TOTAL) return rows.filter((i) => model.spaces[i]!.in_device_memory);
  return rows.filter((i) => spaceName(model.spaces[i]!) === account);
}

function spaceName({ memory_space, page }: { memory_space: string; page: number }): string {
  return page ? `${memory_space} page ${page}` : memory_space;
}

/** Bytes in use at every step in these spaces; null if that is not known. */
export function usageOf(data: ProgramData, spaces: readonly number[]): Float64Array | null {
  const n = data.model.steps;
  if (n === null || spaces.some((i) => data.usage[i]!.length !== n)) return null;
  const total = new Float64Array(n);
  for (const i of spaces) data.usage[i]!.forEach((bytes, step) => (total[step]! += bytes));
  return total;
}

/** What an account is called. */
export function accountTitle(account: string): string {
  return account === DEVICE_TOTAL ? "Device memory" : account;
}
