/** Where the scopes of an icicle lie: each as wide as its share of the bytes, above the scopes within it. */

import type { ProgramData } from "../data/data.js";
import { joinScopes } from "../data/names.js";
import type { Rollup } from "../data/rollup.js";

/** A block of the icicle, in pixels from the left and in rows from the top. */
export interface Block {
  /** Row of scopes: the outermost and the innermost of scopes that contain nothing but each other. */
  readonly scope: number;
  readonly innermost: number;
  /** Names of these scopes. */
  readonly label: string;
  readonly bytes: number;
  readonly left: number;
  readonly width: number;
  readonly row: number;
  /** Number of scopes that are too narrow to be blocks of their own; 0 for a scope. */
  readonly merged: number;
}

/** Narrower scopes are merged. */
const MIN_WIDTH = 3;
/** Deeper scopes are shown when one of their parents is selected. */
const MAX_ROWS = 9;

/** The blocks of a scope and of those within it, row by row. */
export function icicle(data: ProgramData, rollup: Rollup, scope: number, width: number): Block[] {
  const perByte = width / rollup.bytes[scope]!;
  const blocks: Block[] = [];
  if (!Number.isFinite(perByte)) return blocks;
  let row: Block[] = [blockOf(data, rollup, scope, 0, 0, perByte)];
  while (row.length > 0 && row[0]!.row < MAX_ROWS) {
    blocks.push(...row);
    row = row.flatMap((block) => (block.merged ? [] : within(data, rollup, block, perByte)));
  }
  return blocks;
}

function within(data: ProgramData, rollup: Rollup, parent: Block, perByte: number): Block[] {
  const blocks: Block[] = [];
  const children = rollup.children[parent.innermost]!;
  let { left } = parent;
  let i = 0;
  for (; i < children.length && rollup.bytes[children[i]!]! * perByte >= MIN_WIDTH; i++) {
    const block = blockOf(data, rollup, children[i]!, parent.row + 1, left, perByte);
    blocks.push(block);
    left += block.width;
  }
  const rest = children.slice(i);
  const bytes = rest.reduce((sum, scope) => sum + rollup.bytes[scope]!, 0);
  if (bytes * perByte >= MIN_WIDTH) {
    const merged = { scope: -1, innermost: -1, label: `${rest.length} others`, bytes, left, width: bytes * perByte };
    blocks.push({ ...merged, row: parent.row + 1, merged: rest.length });
  }
  return blocks;
}

function blockOf(data: ProgramData, rollup: Rollup, scope: number, row: number, left: number, perByte: number): Block {
  const bytes = rollup.bytes[scope]!;
  let label = data.scopes.name[scope]!;
  let innermost = scope;
  for (let only = onlyChild(rollup, scope); only >= 0 && scope > 0; only = onlyChild(rollup, only)) {
    label = joinScopes(label, data.scopes.name[only]!);
    innermost = only;
  }
  return { scope, innermost, label, bytes, left, width: bytes * perByte, row, merged: 0 };
}

/** The scope that has all bytes of another, or -1. */
function onlyChild({ bytes, children }: Rollup, scope: number): number {
  const first = children[scope]![0];
  return first !== undefined && bytes[first] === bytes[scope] ? first : -1;
}
