/** The state in the address of the page: `#t=5112&buffer=fusion.12{0}&space=hbm&zoom=100-200`. Defaults are left out. */

import { allSteps } from "../parts/actions.js";
import type { ProgramData } from "./data.js";
import type { Program, Space } from "./model.js";
import { bufferName, findBuffer, findScope, isOnlyBuffer, scopePath } from "./names.js";
import type { ColorBy, State } from "./store.js";

const COLORS: readonly string[] = ["phase", "layer", "kind", "category"] satisfies ColorBy[];

/** The state in which a program is shown at first: the peak of its main memory. */
export function initial(program: number, model: Program | undefined): State {
  const last = Math.max(0, (model?.steps ?? 1) - 1);
  const step = model?.spaces[0]?.first_step ?? 0;
  return { program, space: 0, step, buffer: -1, scope: 0, range: [0, last], colorBy: "phase", query: "" };
}

/** The part of the address that needs no columns, and so can be read at once. */
export function programIn(hash: string, n: number): number | null {
  const row = wholeNumber(parameters(hash).get("program"));
  return row !== null && row < n ? row : null;
}

/** The state that an address describes. What it says wrongly is left as it is at first. */
export function stateIn(hash: string, program: number, data: ProgramData): State {
  const wanted = parameters(hash);
  const state = initial(program, data.model);
  const steps = data.model.steps ?? 0;
  const space = spaceNames(data.model.spaces).indexOf(wanted.get("space") ?? "");
  if (space >= 0) state.space = space;
  state.step = wholeNumber(wanted.get("t"), steps) ?? data.model.spaces[state.space]?.first_step ?? state.step;
  const [first, last] = (wanted.get("zoom") ?? "").split("-").map((text) => wholeNumber(text, steps));
  if (first != null && last != null && first <= last) state.range = [first, last];
  state.buffer = findBuffer(data, wanted.get("buffer") ?? "");
  state.scope = findScope(data, wanted.get("scope") ?? "");
  const color = wanted.get("color") ?? "";
  if (COLORS.includes(color)) state.colorBy = color as ColorBy;
  state.query = wanted.get("q") ?? "";
  return state;
}

/** The address that describes a state; empty for the state in which the page is shown at first. */
export function addressOf(state: State, data: ProgramData, first: number): string {
  const [low, high] = allSteps(data);
  const space = data.model.spaces[state.space];
  const parts: Record<string, string | number | false> = {
    program: state.program !== first && state.program,
    space: state.space > 0 && (spaceNames(data.model.spaces)[state.space] ?? ""),
    t: state.step !== (space?.first_step ?? 0) && state.step,
    buffer: state.buffer >= 0 && bufferId(data, state.buffer),
    scope: state.scope > 0 && scopePath(data, state.scope),
    zoom: (state.range[0] > low || state.range[1] < high) && state.range.join("-"),
    color: state.colorBy !== "phase" && state.colorBy,
    q: state.query !== "" && state.query,
  };
  const given = Object.entries(parts).flatMap(([key, value]) => (value === false ? [] : [[key, String(value)]]));
  const text = new URLSearchParams(given).toString().replace(/%(7B|7D|2F|2C|3A)/g, decodeURIComponent);
  return text && `#${text}`;
}

/** The name if no other buffer has it, else the id of the value. */
function bufferId(data: ProgramData, row: number): string {
  return isOnlyBuffer(data, row) ? bufferName(data, row) : String(data.buffers.valueId[row]);
}

/** `hbm`, or `host:1` for a second space of the same name. */
function spaceNames(spaces: readonly Space[]): string[] {
  const names = spaces.map((space) => space.memory_space);
  return names.map((name, i) => (names.indexOf(name) < i ? `${name}:${spaces[i]!.page}` : name));
}

function parameters(hash: string): URLSearchParams {
  return new URLSearchParams(hash.replace(/^#/, ""));
}

/** The number if the text is one below a limit, else null. */
function wholeNumber(text: string | null | undefined, limit = Infinity): number | null {
  if (!text || !/^\d{1,15}$/.test(text)) return null;
  const n = Number(text);
  return n < limit ? n : null;
}
