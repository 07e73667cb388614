/** What colours stand for: choose what they show, read bytes at the step, highlight one of them. */

import type { ProgramData } from "../data/data.js";
import { type Child, fill, h } from "../parts/dom.js";
import { size } from "../parts/format.js";
import { choice } from "../parts/frame.js";
import { liveSet } from "../data/live.js";
import { codingOf, COLOR_BY, css, isKnown, type LegendItem, shownColor, Theme } from "../parts/palette.js";
import type { Store } from "../data/store.js";

/** More layers than this become a strip of colours without texts. */
const MAX_TEXTS = 12;

export interface Legend {
  /** Show it anew, after a change of the state or of the theme. */
  update(): void;
  /** Index of the highlighted item, -1 for none. */
  highlighted(): number;
}

/** Add a switch and a legend. `onHighlight` is called when the reader highlights an item, or none; it calls `update`. */
export function legend(host: HTMLElement, data: ProgramData, store: Store, onHighlight: () => void): Legend {
  let highlighted = -1;
  let shownBy = shownColor(data, store.state.colorBy);
  const choices = COLOR_BY.filter(([by]) => isKnown(data, by));
  const switches = choice("Colour by", choices.map(([, title]) => title), (i) => store.set({ colorBy: choices[i]![0] }));
  const items = h("ul", { class: "legend" });
  host.append(switches.element, items);
  const toggle = (item: number): void => {
    highlighted = highlighted === item ? -1 : item;
    onHighlight();
  };
  const update = (): void => {
    const { space, step } = store.state;
    const colorBy = shownColor(data, store.state.colorBy);
    if (colorBy !== shownBy) highlighted = -1;
    shownBy = colorBy;
    switches.press(choices.findIndex(([by]) => by === colorBy));
    const coding = codingOf(data, colorBy);
    const bytes = bytesOf(data, coding.code, coding.items.length, space, step);
    const focused = Array.from(items.querySelectorAll("button")).indexOf(document.activeElement as HTMLButtonElement);
    fill(items, ...entries({ items: coding.items, bytes, highlighted, toggle }));
    if (focused >= 0) items.querySelectorAll("button")[focused]?.focus();
  };
  update();
  return { update, highlighted: () => highlighted };
}

/** Bytes in use at a step of each item. What no live buffer covers is that of the one that stands for the allocation. */
function bytesOf(data: ProgramData, code: Uint16Array, n: number, space: number, step: number): Float64Array {
  const bytes = new Float64Array(n);
  const live = liveSet(data, space, step);
  for (let i = 0; i < live.length; i++) {
    const buffer = live.buffer[i]!;
    if (buffer >= 0) bytes[code[buffer]!]! += live.bytes[i]!;
  }
  return bytes;
}

interface Entries {
  readonly items: readonly LegendItem[];
  readonly bytes: Float64Array;
  readonly highlighted: number;
  readonly toggle: (item: number) => void;
}

function entries(all: Entries): HTMLElement[] {
  const theme = new Theme();
  const { items, bytes, highlighted } = all;
  const scale = items.flatMap((item, i) => (typeof item.color === "number" ? [i] : []));
  const isStrip = scale.length > MAX_TEXTS;
  const single = items.flatMap((item, i) => (isStrip && typeof item.color === "number" ? [] : [i]));
  const entry = (i: number): HTMLElement => {
    const texts = [h("span", {}, items[i]!.label), h("span", { class: "bytes" }, size(bytes[i]!))];
    return h("li", {}, entryButton(all, theme, i, texts));
  };
  if (!isStrip) return single.map(entry);
  const last = items[scale.at(-1)!]!.label;
  const chosen = scale.includes(highlighted) ? `${items[highlighted]!.label}: ${size(bytes[highlighted]!)}` : last;
  const row = h("li", { class: "scale" }, items[scale[0]!]!.label, strip(all, theme, scale), chosen);
  return [row, ...single.map(entry)];
}

function entryButton(all: Entries, theme: Theme, i: number, texts: Child[]): HTMLButtonElement {
  const { items, bytes, highlighted, toggle } = all;
  const label = `${items[i]!.label}: ${size(bytes[i]!)} at the step`;
  const swatch = h("span", { class: "swatch" });
  swatch.style.backgroundColor = css(theme.of(items[i]!));
  const named = texts.length > 0 ? {} : { "aria-label": label };
  const attributes = { type: "button", title: label, "aria-pressed": String(highlighted === i), ...named };
  return h("button", { ...attributes, on: { click: () => toggle(i) } }, swatch, ...texts);
}

/** One button for each layer. The arrow keys move between them. */
function strip(all: Entries, theme: Theme, scale: readonly number[]): HTMLElement {
  const buttons = scale.map((i) => entryButton(all, theme, i, []));
  const current = Math.max(0, scale.indexOf(all.highlighted));
  buttons.forEach((one, i) => (one.tabIndex = i === current ? 0 : -1));
  const element = h("span", { class: "strip" }, ...buttons);
  element.addEventListener("keydown", (event) => {
    const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    const next = buttons[buttons.indexOf(event.target as HTMLButtonElement) + by];
    if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    next?.focus();
  });
  return element;
}
