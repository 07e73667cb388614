/** Buffers that the reader has searched for. */

import type { ProgramData } from "./data.js";
import { bufferName, scopeOfBuffer, scopePath } from "./names.js";
import { categoryName } from "../parts/wording.js";

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

/** Whether a text in lower case is part of what the table shows of a buffer, or of its op_name. */
function search(data: ProgramData, query: string): (buffer: number) => boolean {
  const contains = (text: string): boolean => text.toLowerCase().includes(query);
  const { buffers: b, allocations, instructions, scopes } = data;
  const columns: readonly (readonly [Int32Array, readonly boolean[]])[] = [
    [b.instruction, instructions.name.map(contains)],
    [b.shape, b.shapeNames.map(contains)],
    [b.opName, b.opNames.map(contains)],
    [b.source, b.sourceNames.map(contains)],
    [b.scope, scopes.name.map((_, row) => contains(scopePath(data, row)))],
    [b.category, b.categoryNames.map((category) => contains(categoryName(category)))],
    [b.kind, b.kindNames.map(contains)],
    [b.phase, b.phaseNames.map(contains)],
    [b.allocation, allocations.label.map(contains)],
  ];
  const some = columns.filter(([, matches]) => matches.includes(true));
  const hasIndex = query.includes("{");
  const hasLayer = /\d/.test(query) && b.layerNames.length > 0;
  const inLayer = rememberedBy(
    (i) => `${b.scope[i]} ${b.layer[i]} ${b.layerIndex[i]}`,
    (i) => contains(scopeOfBuffer(data, i)),
  );
  return (i) =>
    some.some(([column, matches]) => matches[column[i]!] === true) ||
    (hasIndex && contains(bufferName(data, i))) ||
    (hasLayer && b.layerIndex[i]! >= 0 && inLayer(i));
}

/** A function of buffers that is evaluated once for those with the same key. */
function rememberedBy(key: (buffer: number) => string, evaluate: (buffer: number) => boolean): (buffer: number) => boolean {
  const known = new Map<string, boolean>();
  return (buffer) => {
    const k = key(buffer);
    const found = known.get(k) ?? evaluate(buffer);
    known.set(k, found);
    return found;
  };
}
