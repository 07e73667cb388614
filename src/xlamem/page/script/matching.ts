/** Buffers that the reader has searched for. */

import type { ProgramData } from "./data.js";
import { bufferName } from "./names.js";

/** Whether each buffer is in the selected scope and matches the query; null if all do. */
export function matching(data: ProgramData, query: string, scope: number): Uint8Array | null {
  const known = latest.get(data);
  if (known && known.query === query && known.scope === scope) return known.mask;
  const mask = matches(data, query.trim().toLowerCase(), scope);
  latest.set(data, { query, scope, mask });
  return mask;
}

interface Search {
  readonly query: string;
  readonly scope: number;
  readonly mask: Uint8Array | null;
}

const latest = new WeakMap<ProgramData, Search>();

function matches(data: ProgramData, query: string, scope: number): Uint8Array | null {
  if (!query && scope <= 0) return null;
  const inScope = scope > 0 ? scopesWithin(data, scope) : null;
  const mask = new Uint8Array(data.buffers.length);
  const matchesQuery = query ? search(data, query) : () => true;
  data.buffers.scope.forEach((row, i) => {
    mask[i] = Number((!inScope || inScope[row] === 1) && matchesQuery(i));
  });
  return mask;
}

/** Whether each scope is this one or within it. Parents come before their children. */
function scopesWithin({ scopes: { parent } }: ProgramData, scope: number): Uint8Array {
  const within = new Uint8Array(parent.length);
  within[scope] = 1;
  for (let i = scope + 1; i < parent.length; i++) within[i] = within[parent[i]!]!;
  return within;
}

/** Whether the name, shape, op_name, source or allocation of a buffer contains a text in lower case. */
function search(data: ProgramData, query: string): (buffer: number) => boolean {
  const contains = (text: string): boolean => text.toLowerCase().includes(query);
  const { buffers, allocations, instructions } = data;
  const [shapes, opNames, sources] = [buffers.shapeNames, buffers.opNames, buffers.sourceNames].map((names) => names.map(contains));
  const labels = allocations.label.map(contains);
  const names = instructions.name.map(contains);
  const hasIndex = query.includes("{");
  return (i) =>
    names[buffers.instruction[i]!] ||
    shapes![buffers.shape[i]!] ||
    opNames![buffers.opName[i]!] ||
    sources![buffers.source[i]!] ||
    labels[buffers.allocation[i]!] ||
    (hasIndex && contains(bufferName(data, i)));
}
