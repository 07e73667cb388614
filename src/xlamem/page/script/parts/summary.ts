/** What a buffer is, in a few lines. */

import type { ProgramData } from "../data/data.js";
import { h, name } from "./dom.js";
import { count, number, shortenPath, size } from "./format.js";
import { bufferName } from "../data/names.js";
import { modelName, plainShape } from "./wording.js";

const MAX_NAME = 70;

/** Name, bytes, shape, instruction and life of a buffer, for a tooltip. */
export function summary(data: ProgramData, buffer: number): HTMLElement[] {
  const { size: bytes, shape, shapeNames } = data.buffers;
  const shapeName = plainShape(shapeNames[shape[buffer]!] ?? "");
  const [title, instruction] = [modelName(data, buffer), bufferName(data, buffer)];
  return [
    h("div", {}, name(shortenPath(title, MAX_NAME), MAX_NAME)),
    h("div", {}, size(bytes[buffer]!), shapeName ? " \u00b7 " : "", shapeName ? name(shapeName, 60) : ""),
    ...(title === instruction ? [] : [h("div", { class: "muted" }, name(instruction, MAX_NAME))]),
    h("div", { class: "muted" }, lifeOf(data, buffer)),
  ];
}

/** `steps 120 to 340 (221 steps)` */
function lifeOf({ buffers: { start, end } }: ProgramData, buffer: number): string {
  const [first, last] = [start[buffer]!, end[buffer]!];
  if (first < 0) return "no live range";
  return first === last ? `step ${number(first)}` : `steps ${number(first)} to ${number(last)} (${count(last + 1 - first, "step")})`;
}
