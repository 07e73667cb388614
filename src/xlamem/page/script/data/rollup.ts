/** Bytes in use at a step by scope. */

import type { ProgramData } from "./data.js";
import { type LiveSet, liveSet } from "./live.js";

/** Bytes of each scope with those within it. */
export interface Rollup {
  readonly bytes: Float64Array;
  /** Bytes of each scope by phase: `nPhases` numbers for each, the last of which is for no phase. */
  readonly byPhase: Float64Array;
  readonly nPhases: number;
  readonly children: readonly (readonly number[])[];
}

/** What is in use in a memory space, by scope. Bytes of buffers without a scope are those of the root. */
export function rollUp(data: ProgramData, space: number, step: number): Rollup {
  const { parent } = data.scopes;
  const nPhases = data.buffers.phaseNames.length + 1;
  const bytes = new Float64Array(parent.length);
  const byPhase = new Float64Array(parent.length * nPhases);
  const live = liveSet(data, space, step);
  for (let i = 0; i < live.length; i++) {
    const scope = scopeOf(data, live, i);
    bytes[scope]! += live.bytes[i]!;
    byPhase[scope * nPhases + phaseOf(data, live, i, nPhases)]! += live.bytes[i]!;
  }
  const children: number[][] = Array.from(parent, () => []);
  for (let scope = parent.length - 1; scope > 0; scope--) {
    const above = parent[scope]!;
    bytes[above]! += bytes[scope]!;
    for (let phase = 0; phase < nPhases; phase++) byPhase[above * nPhases + phase]! += byPhase[scope * nPhases + phase]!;
    if (bytes[scope]! > 0) children[above]!.push(scope);
  }
  for (const scopes of children) scopes.sort((a, b) => bytes[b]! - bytes[a]! || a - b);
  return { bytes, byPhase, nPhases, children };
}

function scopeOf({ buffers }: ProgramData, live: LiveSet, i: number): number {
  const buffer = live.buffer[i]!;
  return buffer < 0 ? 0 : Math.max(0, buffers.scope[buffer]!);
}

function phaseOf({ buffers }: ProgramData, live: LiveSet, i: number, nPhases: number): number {
  const buffer = live.buffer[i]!;
  const phase = buffer < 0 ? -1 : buffers.phase[buffer]!;
  return phase < 0 ? nPhases - 1 : phase;
}
