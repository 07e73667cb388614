/** A program with its columns decoded. `decode.ts` makes it from the model. */

import type { Program } from "./model.js";

/** Numbers that index tables, sizes or steps. Sizes above 2^31 need doubles. */
export type Numbers = Int32Array | Float64Array;

export interface ProgramData {
  readonly model: Program;
  /** Bytes in use at every step of each memory space. */
  readonly usage: readonly Float64Array[];
  readonly phases: { names: readonly string[]; phase: Int32Array; first: Int32Array; last: Int32Array };
  readonly allocations: {
    allocation: Numbers;
    space: Int32Array;
    size: Float64Array;
    category: Int32Array;
    categoryNames: readonly string[];
    label: readonly string[];
  };
  readonly instructions: { name: readonly string[]; opcode: Int32Array; opcodeNames: readonly string[] };
  readonly buffers: BufferColumns;
  /** Rows of `uses` of buffer i are begin[i] to begin[i + 1]. */
  readonly uses: { begin: Int32Array; instruction: Int32Array; step: Int32Array };
  readonly aliases: { begin: Int32Array; instruction: Int32Array; shapeIndex: Int32Array; indexNames: readonly string[] };
  readonly scopes: { name: readonly string[]; parent: Int32Array };
  readonly schedule: Int32Array;
}

export interface BufferColumns {
  readonly length: number;
  readonly valueId: Numbers;
  readonly instruction: Int32Array;
  readonly shapeIndex: Int32Array;
  readonly indexNames: readonly string[];
  readonly allocation: Int32Array;
  readonly offset: Float64Array;
  readonly size: Float64Array;
  readonly unpadded: Float64Array;
  readonly start: Int32Array;
  readonly end: Int32Array;
  readonly shape: Int32Array;
  readonly shapeNames: readonly string[];
  readonly opName: Int32Array;
  readonly opNames: readonly string[];
  readonly source: Int32Array;
  readonly sourceNames: readonly string[];
  readonly scope: Int32Array;
  readonly origin: Int32Array;
  readonly originNames: readonly string[];
  readonly originInstruction: Int32Array;
  readonly category: Int32Array;
  readonly categoryNames: readonly string[];
  readonly phase: Int32Array;
  readonly phaseNames: readonly string[];
  readonly kind: Int32Array;
  readonly kindNames: readonly string[];
  readonly layer: Int32Array;
  readonly layerNames: readonly string[];
  readonly layerIndex: Int32Array;
  readonly iterations: Int32Array;
  readonly saving: Float64Array;
}
