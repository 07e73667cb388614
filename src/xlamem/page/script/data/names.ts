/** Names of buffers and scopes, and what they name. */

import type { ProgramData } from "./data.js";

/**
 * `fusion.12{0}`: the instruction that defines the buffer and the index in its shape; `fusion.12` for an array. If the
 * file leaves the name out, `value 1234`.
 */
export function bufferName({ buffers, instructions }: ProgramData, row: number): string {
  const { instruction, shapeIndex, indexNames, valueId } = buffers;
  const defines = instructions.name[instruction[row]!];
  const index = indexNames[shapeIndex[row]!] ?? "";
  return defines ? `${defines}${index === "{}" ? "" : index}` : `value ${valueId[row]}`;
}

/** Whether the buffer has a name that no other buffer has. */
export function isOnlyBuffer({ buffers: { instruction, shapeIndex }, instructions }: ProgramData, row: number): boolean {
  if (!instructions.name[instruction[row]!]) return false;
  let found = 0;
  for (let i = 0; i < instruction.length; i++) {
    if (instruction[i] === instruction[row] && shapeIndex[i] === shapeIndex[row]) found += 1;
  }
  return found === 1;
}

/** Row of the first buffer with a name, or with an id of a value; -1 without one. */
export function findBuffer(data: ProgramData, text: string): number {
  if (!text) return -1;
  if (/^\d{1,15}$/.test(text)) return data.buffers.valueId.indexOf(Number(text));
  const wanted = text.replace(/\{\}$/, "");
  const instruction = data.instructions.name.indexOf(wanted.replace(/\{[\d,]*\}$/, ""));
  if (instruction < 0) return -1;
  for (let row = data.buffers.instruction.indexOf(instruction); row >= 0; ) {
    if (bufferName(data, row) === wanted) return row;
    row = data.buffers.instruction.indexOf(instruction, row + 1);
  }
  return -1;
}

/** The names of a scope's parents and its own: `layer_0/mlp`, but `params['w']`. */
export function scopePath({ scopes: { name, parent } }: ProgramData, row: number): string {
  let path = "";
  for (let i = row; i > 0; i = parent[i]!) path = path ? joinScopes(name[i]!, path) : name[i]!;
  return path;
}

/** The scope of a buffer with its own layer: `layer_47/mlp`; empty without one. */
export function scopeOfBuffer(data: ProgramData, row: number): string {
  const { scope, layer, layerNames, layerIndex } = data.buffers;
  const path = scopePath(data, scope[row]!);
  const folded = layerNames[layer[row]!];
  const index = layerIndex[row]!;
  return folded === undefined || index < 0 ? path : path.replace(folded, () => folded.replace("*", String(index)));
}

/** The path of a scope within another, as in the terminal. */
export function joinScopes(outer: string, inner: string): string {
  if (outer.endsWith("(no scope)")) return `${outer} ${inner}`;
  return /^[[.]/.test(inner) ? `${outer}${inner}` : `${outer}/${inner}`;
}

/** Row of the scope with a path; 0, the root, without one. */
export function findScope(data: ProgramData, path: string): number {
  if (!path) return 0;
  for (let row = 1; row < data.scopes.name.length; row++) {
    if (path.endsWith(data.scopes.name[row]!) && scopePath(data, row) === path) return row;
  }
  return 0;
}
