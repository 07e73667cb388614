/** What colours stand for: choose what they show, read bytes at the step, highlight one of them. */

import type { ProgramData } from "./data.js";
import { fill, h } from "./dom.js";
import { size } from "./format.js";
import { choice } from "./frame.js";
import { liveSet } from "./live.js";
import { codingOf, COLOR_BY, css, type LegendItem, Theme } from "./palette.js";
import type { Store } from "./store.js";

/** More items than this become a strip of colours without texts. */
const MAX_TEXTS = 16;

export interface Legend {
  /** Show it anew, after a change of the state or of the theme. */
  update(): void;
  /** Index of the highlighted item, -1 for none. */
  highlighted(): number;
}

/** Add a switch and a legend. `onHighlight` is called when the reader highlights an item, or none. */
export function legend(host: HTMLElement, data: ProgramData, store: Store, onHighlight: () => void): Legend {
  let highlighted = -1;
  let shownBy = store.state.colorBy;
  const names = COLOR_BY.map(([, name]) => name);
  const switches = choice("Colour by", names, (i) => store.set({ colorBy: COLOR_BY[i]![0] }));
  const items = h("ul", { class: "legend" });
  host.append(switches.element, items);
  const toggle = (item: number): void => {
    highlighted = highlighted === item ? -1 : item;
    update();
    onHighlight();
  };
  const update = (): void => {
    const { colorBy, space, step } = store.state;
    if (colorBy !== shownBy) highlighted = -1;
    shownBy = colorBy;
    switches.press(COLOR_BY.findIndex(([by]) => by === colorBy));
    const coding = codingOf(data, colorBy);
    const bytes = bytesOf(data, coding.code, coding.items.length, space, step);
    const isStrip = coding.items.length > MAX_TEXTS;
    items.classList.toggle("strip", isStrip);
    fill(items, ...entries(coding.items, bytes, highlighted, isStrip, toggle));
  };
  update();
  return { update, highlighted: () => highlighted };
}

/** Bytes in use at a step of each item; what no live buffer covers counts for none. */
function bytesOf(data: ProgramData, code: Uint16Array, n: number, space: number, step: number): Float64Array {
  const bytes = new Float64Array(n);
  const live = liveSet(data, space, step);
  for (let i = 0; i < live.length; i++) {
    const buffer = live.buffer[i]!;
    if (buffer >= 0) bytes[code[buffer]!]! += live.bytes[i]!;
  }
  return bytes;
}

function entries(
  items: readonly LegendItem[],
  bytes: Float64Array,
  highlighted: number,
  isStrip: boolean,
  toggle: (item: number) => void,
): HTMLElement[] {
  const theme = new Theme();
  return items.map((item, i) => {
    const swatch = h("span", { class: "swatch" });
    swatch.style.backgroundColor = css(theme.of(item));
    const isScale = isStrip && typeof item.color === "number";
    const texts = isScale ? [] : [h("span", {}, item.label), h("span", { class: "bytes" }, size(bytes[i]!))];
    const label = `${item.label}: ${size(bytes[i]!)} at the step`;
    const pressed = String(highlighted === i);
    const button = h("button", { type: "button", title: label, "aria-label": label, "aria-pressed": pressed }, swatch, ...texts);
    button.addEventListener("click", () => toggle(i));
    return h("li", { class: isScale ? "scale" : null }, button);
  });
}
