/** Colours of phases, layers, kinds and categories. They come from CSS variables, which differ between light and dark. */

import type { BufferColumns, ProgramData } from "../data/data.js";
import type { ColorBy } from "../data/store.js";

/** What a colour stands for. */
export interface LegendItem {
  readonly key: string;
  readonly label: string;
  /** Position on the scale of layers from 0 to 1, or a CSS variable. */
  readonly color: number | string;
}

/** The legend, and the item of each buffer. */
export interface Coding {
  readonly items: readonly LegendItem[];
  /** Index of items of each buffer. */
  readonly code: Uint16Array;
}

export type Rgb = readonly [number, number, number];

export const COLOR_BY: readonly (readonly [ColorBy, string])[] = [
  ["phase", "Phase"],
  ["layer", "Layer"],
  ["kind", "Kind"],
  ["category", "Category"],
];

const UNKNOWN = "--p-unknown";
const PHASES = ["forward", "backward", "recompute", "optimizer"];
const CATEGORIES: Readonly<Record<string, string>> = {
  parameter: "parameters",
  donated: "donated",
  constant: "constants",
  live_out: "outputs",
  temp: "temporaries",
  temp_in_output: "temporaries in outputs",
};
const KINDS = [
  "parameter", "optimizer state", "gradient", "activation", "residual of a scan", "collective", "copy between memories",
  "tuple table", "scratch",
]; // prettier-ignore
/** If there are more layers, neighbours share a colour. */
const MAX_LAYER_COLORS = 96;

/** CSS variable of a phase. */
export function phaseVariable(phase: string): string {
  return PHASES.includes(phase) ? `--p-${phase}` : UNKNOWN;
}

/** CSS variable of a category of allocations or buffers. */
function categoryVariable(category: string): string {
  return category in CATEGORIES ? `--c-${category.replaceAll("_", "-")}` : UNKNOWN;
}

/** What a category is called, in the plural. */
export function categoryLabel(category: string): string {
  return CATEGORIES[category] ?? category;
}

const codings = new WeakMap<ProgramData, Map<ColorBy, Coding>>();

/** The legend of a program. Items without buffers are left out, "not known" is last. */
export function codingOf(data: ProgramData, by: ColorBy): Coding {
  let known = codings.get(data);
  if (!known) codings.set(data, (known = new Map()));
  let coding = known.get(by);
  if (!coding) known.set(by, (coding = by === "layer" ? layers(data.buffers) : named(data.buffers, by)));
  return coding;
}

/** Whether something is known by which colours could differ. */
export function isKnown({ buffers }: ProgramData, by: ColorBy): boolean {
  return by === "category" || columnOf(buffers, by).some((code) => code >= 0);
}

/** What the colours show: what the reader has chosen, or categories if nothing is known of it. */
export function shownColor(data: ProgramData, chosen: ColorBy): ColorBy {
  return isKnown(data, chosen) ? chosen : "category";
}

function columnOf(buffers: BufferColumns, by: ColorBy): Int32Array {
  return { phase: buffers.phase, layer: buffers.layerIndex, kind: buffers.kind, category: buffers.category }[by];
}

function named(buffers: BufferColumns, by: Exclude<ColorBy, "layer">): Coding {
  const names = { phase: buffers.phaseNames, kind: buffers.kindNames, category: buffers.categoryNames }[by];
  const label = (name: string): string => (by === "category" ? categoryLabel(name) : name);
  const items = names.map((name) => ({ key: name, label: label(name), color: variable(by, name) }));
  return coded(columnOf(buffers, by), [...items, { key: "", label: "not known", color: UNKNOWN }], 1);
}

function variable(by: ColorBy, name: string): string {
  if (by === "phase") return phaseVariable(name);
  if (by === "category") return categoryVariable(name);
  const kind = KINDS.indexOf(name);
  return kind < 0 ? UNKNOWN : `--k-${kind + 1}`;
}

function layers({ layerIndex }: BufferColumns): Coding {
  const n = layerIndex.reduce((a, b) => Math.max(a, b), -1) + 1;
  const together = Math.ceil(n / MAX_LAYER_COLORS);
  const count = n && Math.ceil(n / together);
  const items: LegendItem[] = Array.from({ length: count }, (_, i) => {
    const [first, last] = [i * together, Math.min(n, (i + 1) * together) - 1];
    const label = first === last ? `layer ${first}` : `layers ${first} to ${last}`;
    return { key: String(i), label, color: count > 1 ? i / (count - 1) : 0.5 };
  });
  items.push({ key: "", label: "no layer", color: UNKNOWN });
  return coded(layerIndex, items, Math.max(1, together));
}

/** Code a column whose integers belong to an item each, or several to one. The last item is for -1. */
function coded(column: Int32Array, items: readonly LegendItem[], together: number): Coding {
  const used = new Uint8Array(items.length);
  const code = new Uint16Array(column.length);
  for (let i = 0; i < column.length; i++) {
    const value = column[i]!;
    used[(code[i] = value < 0 ? items.length - 1 : Math.floor(value / together))] = 1;
  }
  const position = new Uint16Array(items.length);
  let n = 0;
  items.forEach((_, i) => (position[i] = used[i] ? n++ : 0));
  for (let i = 0; i < code.length; i++) code[i] = position[code[i]!]!;
  return { items: items.filter((_, i) => used[i]), code };
}

// -- colours of the theme ---------------------------------------------------------------------------------

const SCALE = ["--layer-1", "--layer-2", "--layer-3", "--layer-4", "--layer-5"];

/** The colours of the theme, read once. */
export class Theme {
  readonly #style = getComputedStyle(document.documentElement);
  readonly #known = new Map<string, Rgb>();

  /** A CSS variable that is a colour of six hexadecimal digits. */
  rgb(variable: string): Rgb {
    let color = this.#known.get(variable);
    if (!color) this.#known.set(variable, (color = parsed(this.#style.getPropertyValue(variable))));
    return color;
  }

  of({ color }: LegendItem): Rgb {
    if (typeof color === "string") return this.rgb(color);
    const position = color * (SCALE.length - 1);
    const below = Math.min(Math.floor(position), SCALE.length - 2);
    return mixed(this.rgb(SCALE[below]!), this.rgb(SCALE[below + 1]!), position - below);
  }
}

function parsed(text: string): Rgb {
  const hex = text.trim().replace("#", "");
  const long = hex.length === 3 ? hex.replace(/./g, "$&$&") : hex;
  return [0, 2, 4].map((i) => parseInt(long.slice(i, i + 2), 16) || 0) as unknown as Rgb;
}

/** A colour between two others: the first at 0, the second at 1. */
export function mixed(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i]! + (b[i]! - a[i]!) * share)) as unknown as Rgb;
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r}, ${g}, ${b})`;
}

/** Whether dark text is more legible than light text on this colour. */
export function isLight([r, g, b]: Rgb): boolean {
  return 0.299 * r + 0.587 * g + 0.114 * b > 128;
}

/** Call whenever light changes to dark or back; for an element only as long as it is in the page. */
export function onTheme(listener: () => void, element: Element = document.documentElement): void {
  const observer = new MutationObserver(() => (element.isConnected ? listener() : observer.disconnect()));
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
}
