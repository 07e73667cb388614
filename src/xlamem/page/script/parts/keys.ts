/** The keyboard, and the dialog that lists its keys. */

import { centre, goBy, goTo, goToPeak, goToPlateau, nextSpace, showAllSteps, zoomBy } from "./actions.js";
import type { ProgramData } from "../data/data.js";
import { h } from "./dom.js";
import { button } from "./frame.js";
import { COLOR_BY, isKnown, shownColor } from "./palette.js";
import type { Store } from "../data/store.js";
import { switchTheme } from "./theme.js";

type Action = (store: Store, data: ProgramData) => void;

const ACTIONS: Readonly<Record<string, Action>> = {
  ArrowLeft: (store, data) => goTo(store, data, store.state.step - 1),
  ArrowRight: (store, data) => goTo(store, data, store.state.step + 1),
  "shift ArrowLeft": (store, data) => goBy(store, data, -0.1),
  "shift ArrowRight": (store, data) => goBy(store, data, 0.1),
  p: goToPeak,
  "[": (store, data) => goToPlateau(store, data, -1),
  "]": (store, data) => goToPlateau(store, data, 1),
  "+": (store, data) => zoomBy(store, data, 0.5, centre(store)),
  "=": (store, data) => zoomBy(store, data, 0.5, centre(store)),
  "-": (store, data) => zoomBy(store, data, 2, centre(store)),
  "0": showAllSteps,
  s: nextSpace,
  c: nextColour,
  "/": search,
  Escape: clear,
};
const HELP: readonly (readonly [string, string])[] = [
  ["\u2190 \u2192", "previous, next step"],
  ["Shift \u2190 \u2192", "a tenth of the visible steps"],
  ["p", "peak of the memory space"],
  ["[ ]", "previous, next plateau"],
  ["+ \u2212 0", "zoom in, zoom out, all steps"],
  ["s", "next memory space"],
  ["c", "next colours of the address map"],
  ["/", "search buffers"],
  ["Esc", "clear the selection, the scope, then the search"],
  ["d", "light or dark"],
  ["?", "this help"],
];
const MOUSE: readonly (readonly [string, string])[] = [
  ["Click", "select a step, or a buffer in the map"],
  ["Drag", "zoom to what is marked; move the zoomed map"],
  ["Wheel", "zoom around the pointer"],
  ["Click left of the map", "zoom to these allocations"],
  ["Alt wheel", "zoom the addresses of the map"],
  ["Shift drag", "move along the steps"],
  ["Double click", "all steps"],
];

/** Handle keys that no view has handled. `current` gives the program that is shown. */
export function listenToKeys(store: Store, current: () => ProgramData | undefined): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    if (event.key === "?") showHelp();
    else if (event.key === "d") switchTheme();
    else {
      const data = current();
      const action = ACTIONS[`${event.shiftKey && event.key.startsWith("Arrow") ? "shift " : ""}${event.key}`];
      if (!data || !action || document.querySelector("dialog[open]")) return;
      action(store, data);
    }
    event.preventDefault();
  });
}

function isTyping({ key, target }: KeyboardEvent): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (key === "Escape" && target instanceof HTMLInputElement) {
    const isFilled = target.value !== "";
    if (isFilled) {
      target.value = ""; // browsers would clear it without "input" after "blur", or not at all
      target.dispatchEvent(new Event("input"));
    }
    target.blur();
    return isFilled;
  }
  return target.matches('input:not([type="checkbox"]), textarea, select') || target.isContentEditable;
}

/** Go to the search box. That of the table of programs is hidden while one of them is shown. */
function search(): void {
  const boxes = Array.from(document.querySelectorAll<HTMLInputElement>('input[type="search"]'));
  boxes.find((box) => box.offsetParent !== null)?.focus();
}

/** Colours by which nothing differs are left out, as in the legend. */
function nextColour(store: Store, data: ProgramData): void {
  const names = COLOR_BY.map(([value]) => value).filter((by) => isKnown(data, by));
  const next = names.indexOf(shownColor(data, store.state.colorBy)) + 1;
  store.set({ colorBy: names[next % names.length]! });
}

function clear(store: Store): void {
  const { buffer, scope } = store.state;
  if (buffer >= 0) store.set({ buffer: -1 });
  else if (scope > 0) store.set({ scope: 0 });
  else store.set({ query: "" });
}

// -- help -------------------------------------------------------------------------------------------------

const dialog = h("dialog", { class: "help", "aria-labelledby": "help-title" });

/** Put the dialog into the page. */
export function addHelp(): void {
  dialog.append(
    h("h2", { id: "help-title" }, "Keyboard and mouse"),
    h("div", { class: "help-columns" }, list(HELP, "kbd"), list(MOUSE, "span")),
    button("Close", () => dialog.close(), { autofocus: true }),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
}

export function showHelp(): void {
  if (!dialog.open) dialog.showModal();
}

function list(rows: readonly (readonly [string, string])[], tag: "kbd" | "span"): HTMLElement {
  const items = rows.flatMap(([keys, meaning]) => [h("dt", {}, h(tag, {}, keys)), h("dd", {}, meaning)]);
  return h("dl", {}, ...items);
}
