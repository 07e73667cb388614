/** Sentences about one buffer: the same as those of `xlamem buffer`. */

import type { ProgramData } from "../data/data.js";
import { exactSize, number, percent } from "./format.js";
import { occupiedRange } from "../data/live.js";
import { bufferName, joinScopes, scopeOfBuffer } from "../data/names.js";

const CATEGORIES: Readonly<Record<string, string>> = {
  live_out: "output",
  temp: "temporary",
  temp_in_output: "temporary in an output",
};
/** Categories of the program's parameters. */
const ARGUMENTS: readonly string[] = ["parameter", "donated"];

/** The name of a buffer; for an argument, that which people gave it: `params['w']`. */
export function labelOf(data: ProgramData, buffer: number): string {
  return argumentName(data, buffer) ?? bufferName(data, buffer);
}

/** What people call a buffer: the name of an argument, or the scope and operation that made it: `layer_47/mlp/dot_general`. */
export function modelName(data: ProgramData, buffer: number): string {
  const { opName, opNames } = data.buffers;
  const scope = scopeOfBuffer(data, buffer);
  const operation = /[^/]*$/.exec(opNames[opName[buffer]!] ?? "")![0];
  const isPart = !/^[\w-]+$/.test(operation) || scope.split("/").at(-1) === operation;
  return argumentName(data, buffer) ?? ((isPart || !scope ? scope : joinScopes(scope, operation)) || bufferName(data, buffer));
}

function argumentName(data: ProgramData, buffer: number): string | undefined {
  const { buffers, allocations } = data;
  const allocation = buffers.allocation[buffer]!;
  const isArgument = ARGUMENTS.includes(buffers.categoryNames[buffers.category[buffer]!]!);
  const isWhole = buffers.size[buffer] === allocations.size[allocation];
  return isArgument && isWhole && isParameter(data, buffer) ? allocations.label[allocation] : undefined;
}

/** Whether a parameter defines it: of the program, or of a computation within it. */
function isParameter({ buffers, instructions }: ProgramData, buffer: number): boolean {
  return instructions.opcodeNames[instructions.opcode[buffers.instruction[buffer]!]!] === "parameter";
}

/** What a buffer or an allocation of a category is called. */
export function categoryName(category: string): string {
  return CATEGORIES[category] ?? category;
}

/** What a buffer is: `activation, forward, layer 3`. */
export function whatOf({ buffers: b }: ProgramData, buffer: number): string {
  const category = b.categoryNames[b.category[buffer]!] ?? "";
  const layer = b.layerNames[b.layer[buffer]!];
  const index = b.layerIndex[buffer]!;
  const parts = [
    b.kindNames[b.kind[buffer]!],
    b.phaseNames[b.phase[buffer]!],
    layer === undefined ? undefined : layer.replace("*", index < 0 ? "*" : String(index)),
  ].filter((part) => part !== undefined);
  const name = categoryName(category);
  return parts.includes(name) ? parts.join(", ") : [name, ...parts].join(", ");
}

/** How its name was found, around the name of the instruction that has it, if that is another one. */
export function originOf(data: ProgramData, buffer: number): readonly [string, string] {
  const { buffers: b } = data;
  const isOther = b.originInstruction[buffer]! >= 0 && b.originInstruction[buffer] !== b.instruction[buffer];
  switch (b.originNames[b.origin[buffer]!]) {
    case "own":
      return ["Named by the instruction that defines it.", ""];
    case "argument":
      if (isOther) return ["Its bytes come from the argument ", "."];
      return [isParameter(data, buffer) ? "An argument of the program." : "Its bytes come from an argument of the program.", ""];
    case "operand":
      return ["The name is that of ", ", from which its bytes come."];
    case "slot":
      return ["The name is that of ", ", which writes to the same bytes."];
    case "hlo":
      return ["Its bytes are written by ", ", inside a fusion or loop."];
    case "user":
      return ["Its origin is unknown. The name is that of ", ", which reads it or what is computed from it."];
    default:
      return ["Its origin is unknown.", ""];
  }
}

/** Whether it is in use at the peak of its memory space. */
export function peakNote(data: ProgramData, buffer: number): string {
  const { allocations, buffers, model } = data;
  const peak = model.spaces[allocations.space[buffers.allocation[buffer]!]!]?.first_step;
  if (peak == null || buffers.start[buffer]! < 0) return "";
  const [first, last] = occupiedRange(data, buffer);
  return `${first <= peak && peak <= last ? "Live" : "Not live"} at the peak, step ${number(peak)}.`;
}

/** By how much the peak would be lower without it and what is updated in its place. */
export function savingNote({ allocations, buffers, model }: ProgramData, buffer: number): string {
  const saving = buffers.saving[buffer]!;
  const space = model.spaces[allocations.space[buffers.allocation[buffer]!]!]?.memory_space ?? "memory";
  if (saving < 0) return "";
  const change = saving ? `at most ${exactSize(saving)} lower` : "the same";
  return `Without the buffer, the peak of ${space} would be ${change}.`;
}

/** Bytes that the layout adds, with their share; empty if there are none, or if they are not known. */
export function paddingNote({ buffers }: ProgramData, buffer: number): string {
  const [bytes, unpadded] = [buffers.size[buffer]!, buffers.unpadded[buffer]!];
  const padding = unpadded < 0 ? 0 : bytes - unpadded;
  return padding > 0 ? `${exactSize(padding)}, ${percent(padding, bytes)} of it` : "";
}

/** A shape without its layout. */
export function plainShape(shape: string): string {
  let plain = "";
  let depth = 0;
  for (const character of shape) {
    if (character === "{") depth++;
    if (depth === 0) plain += character;
    if (character === "}") depth--;
  }
  return plain;
}
