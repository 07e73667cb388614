/** Sections, buttons and sentences that all views share. */

import { h, type Child } from "./dom.js";
import type { Program } from "../data/model.js";
import type { Page } from "./view.js";

/** A view that needs no columns, so it is drawn at once. */
export type PlainView = (host: HTMLElement, model: Program, page: Page) => void;

export interface Section {
  readonly element: HTMLElement;
  readonly host: HTMLElement;
}

/** A section with a heading and a line that explains it. */
export function section(id: string, title: string, note: string): Section {
  const heading = `${id}-title`;
  const host = h("div", { class: "host" });
  const element = h(
    "section",
    { id, "aria-labelledby": heading },
    h("header", {}, h("h2", { id: heading }, title), note ? h("p", { class: "note" }, note) : null),
    host,
  );
  return { element, host };
}

export function button(label: Child, click: () => void, attributes: Record<string, string | boolean> = {}): HTMLButtonElement {
  return h("button", { type: "button", ...attributes, on: { click } }, label);
}

/** Buttons of which one is pressed. `press` shows another choice as pressed. */
export function choice(label: string, names: readonly string[], choose: (i: number) => void): { element: HTMLElement; press: (i: number) => void } {
  const buttons = names.map((text, i) => button(text, () => choose(i)));
  const press = (chosen: number) => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === chosen)));
  press(0);
  return { element: h("div", { class: "choice", role: "group", "aria-label": label }, ...buttons), press };
}

/** A sentence in place of a view that has nothing to show. */
export function sentence(text: string, bad = false): HTMLElement {
  return h("p", { class: bad ? "sentence bad" : "sentence", role: bad ? "alert" : null }, text);
}
