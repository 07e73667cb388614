/** Decode the columns of a program: base64 -> zlib -> byte planes -> typed arrays. */

import type { ProgramData } from "./data.js";
import type { IntColumn, Program, TextColumn } from "./model.js";

const TOO_OLD =
  "This browser is too old to show the timeline and the buffers. They need Chrome 103, Firefox 113, Safari 16.4 or a later version.";
const DAMAGED = "The data of this page is damaged, so the timeline and the buffers cannot be shown. Write the report again.";

/** Decode all columns at the same time. Throws an Error whose message is a sentence for the page. */
export async function decode(model: Program): Promise<ProgramData> {
  if (typeof DecompressionStream === "undefined") throw new Error(TOO_OLD);
  try {
    return await decoded(model);
  } catch (cause) {
    throw new Error(DAMAGED, { cause });
  }
}

async function decoded(model: Program): Promise<ProgramData> {
  const [usage, phases, allocations, instructions, buffers, uses, aliases, scopes, schedule] = await Promise.all([
    Promise.all(model.spaces.map((space) => doubles(space.usage))),
    phasesOf(model),
    allocationsOf(model),
    instructionsOf(model),
    buffersOf(model),
    usesOf(model),
    aliasesOf(model),
    scopesOf(model),
    ints(model.schedule),
  ]);
  return { model, usage, phases, allocations, instructions, buffers, uses, aliases, scopes, schedule };
}

async function phasesOf({ phases }: Program): Promise<ProgramData["phases"]> {
  const [phase, first, last] = await Promise.all([
    ints(phases.phase),
    ints(phases.first_step),
    ints(phases.last_step),
  ]);
  return { names: phases.names, phase, first, last };
}

async function allocationsOf({ allocations }: Program): Promise<ProgramData["allocations"]> {
  const [allocation, space, size, category, label] = await Promise.all([
    doubles(allocations.allocation),
    ints(allocations.space),
    doubles(allocations.size),
    ints(allocations.category),
    texts(allocations.label),
  ]);
  return { allocation, space, size, category, categoryNames: allocations.category_names, label };
}

async function instructionsOf({ instructions }: Program): Promise<ProgramData["instructions"]> {
  const [name, opcode] = await Promise.all([texts(instructions.name), ints(instructions.opcode)]);
  return { name, opcode, opcodeNames: instructions.opcode_names };
}

async function buffersOf({ buffers: b }: Program): Promise<ProgramData["buffers"]> {
  const [valueId, offset, size, unpadded, saving] = await Promise.all(
    [b.value_id, b.offset, b.size, b.unpadded, b.saving].map(doubles) as FiveOf<Float64Array>,
  );
  const [instruction, shapeIndex, allocation, start, end] = await Promise.all(
    [b.instruction, b.shape_index, b.allocation, b.start, b.end].map(ints) as FiveOf<Int32Array>,
  );
  const [shape, opName, source, scope, origin] = await Promise.all(
    [b.shape, b.op_name, b.source, b.scope, b.origin].map(ints) as FiveOf<Int32Array>,
  );
  const [originInstruction, category, phase, kind, layer] = await Promise.all(
    [b.origin_instruction, b.category, b.phase, b.kind, b.layer].map(ints) as FiveOf<Int32Array>,
  );
  const [layerIndex, iterations] = await Promise.all([ints(b.layer_index), ints(b.iterations)]);
  const [indexNames, shapeNames, opNames, sourceNames] = await Promise.all([
    texts(b.shape_index_names),
    texts(b.shape_names),
    texts(b.op_name_names),
    texts(b.source_names),
  ]);
  return {
    length: b.value_id.length, valueId, instruction, shapeIndex, indexNames, allocation, offset, size, unpadded, start,
    end, shape, shapeNames, opName, opNames, source, sourceNames, scope, origin, originNames: b.origin_names,
    originInstruction, category, categoryNames: b.category_names, phase, phaseNames: b.phase_names, kind,
    kindNames: b.kind_names, layer, layerNames: b.layer_names, layerIndex, iterations, saving,
  };
}

type FiveOf<T> = [Promise<T>, Promise<T>, Promise<T>, Promise<T>, Promise<T>];

async function usesOf({ uses, buffers }: Program): Promise<ProgramData["uses"]> {
  const [buffer, instruction, step] = await Promise.all([ints(uses.buffer), ints(uses.instruction), ints(uses.step)]);
  return { begin: begins(buffer, buffers.value_id.length), instruction, step };
}

async function aliasesOf({ aliases, buffers }: Program): Promise<ProgramData["aliases"]> {
  const [buffer, instruction, shapeIndex, indexNames] = await Promise.all([
    ints(aliases.buffer),
    ints(aliases.instruction),
    ints(aliases.shape_index),
    texts(aliases.shape_index_names),
  ]);
  return { begin: begins(buffer, buffers.value_id.length), instruction, shapeIndex, indexNames };
}

async function scopesOf({ scopes }: Program): Promise<ProgramData["scopes"]> {
  const [name, parent] = await Promise.all([texts(scopes.name), ints(scopes.parent)]);
  return { name, parent };
}

/** Where the rows of each buffer begin, and at the end the number of rows. Rows are in order of buffers. */
function begins(buffer: Int32Array, n: number): Int32Array {
  const begin = new Int32Array(n + 1);
  for (const row of buffer) begin[row + 1]! += 1;
  for (let i = 0; i < n; i++) begin[i + 1]! += begin[i]!;
  return begin;
}

// -- columns -----------------------------------------------------------------------------------------

/** Decode integers below 2^31 in magnitude. */
export async function ints(column: IntColumn): Promise<Int32Array> {
  const planes = await planesOf(column);
  const result = new Int32Array(column.length);
  const n = column.length;
  if (column.width === 1) {
    for (let i = 0; i < n; i++) result[i] = unzigzag(planes[i]!);
  } else if (column.width === 2) {
    for (let i = 0; i < n; i++) result[i] = unzigzag(planes[i]! | (planes[n + i]! << 8));
  } else {
    const low = words(planes, column, 0);
    for (let i = 0; i < n; i++) result[i] = unzigzag(low[i]!);
  }
  if (column.delta) for (let i = 1; i < n; i++) result[i]! += result[i - 1]!;
  return result;
}

/** Decode integers below 2^53 in magnitude. */
export async function doubles(column: IntColumn): Promise<Float64Array> {
  const planes = await planesOf(column);
  const result = new Float64Array(column.length);
  const low = words(planes, column, 0);
  if (column.width <= 4) {
    for (let i = 0; i < low.length; i++) result[i] = unzigzag(low[i]!);
  } else {
    const high = words(planes, column, 4);
    for (let i = 0; i < low.length; i++) {
      const half = (high[i]! >>> 0) * 2 ** 31 + (low[i]! >>> 1);
      result[i] = low[i]! & 1 ? -half - 1 : half;
    }
  }
  if (column.delta) for (let i = 1; i < result.length; i++) result[i]! += result[i - 1]!;
  return result;
}

export async function texts(column: TextColumn): Promise<string[]> {
  if (column.length === 0) return [];
  const values = JSON.parse(await new Response(inflated(column.data)).text()) as string[];
  if (values.length !== column.length) throw new Error("wrong number of texts");
  return values;
}

/** 0, 1, 2, 3, … stand for 0, -1, 1, -2, … */
function unzigzag(code: number): number {
  return (code >>> 1) ^ -(code & 1);
}

/** Four planes, from the first one on, as 32-bit words. Planes that do not exist are 0. */
function words(planes: Uint8Array, { length, width }: IntColumn, first: number): Int32Array {
  const result = new Int32Array(length);
  for (let k = first; k < Math.min(width, first + 4); k++) {
    const shift = 8 * (k - first);
    const start = k * length;
    for (let i = 0; i < length; i++) result[i]! |= planes[start + i]! << shift;
  }
  return result;
}

/** The bytes of a column. Reading the parts of the stream into place takes half the time of collecting them first. */
async function planesOf({ data, length, width }: IntColumn): Promise<Uint8Array> {
  const planes = new Uint8Array(length * width);
  if (length === 0) return planes;
  const reader = inflated(data).getReader();
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    planes.set(part.value, size); // throws if there are too many
    size += part.value.length;
  }
  if (size !== planes.length) throw new Error("wrong number of bytes");
  return planes;
}

function inflated(base64: string): ReadableStream<Uint8Array<ArrayBuffer>> {
  const { writable, readable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // Reading reports the same errors.
  writer.write(fromBase64(base64)).catch(() => undefined);
  writer.close().catch(() => undefined);
  return readable;
}

type Decoder = { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const quick = (Uint8Array as Decoder).fromBase64;
  if (quick) return quick.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
