/** Make elements. Texts become text nodes and attributes, never markup. */

import { oneLine, shorten } from "./format.js";

export type Child = Node | string | null;
type Attribute = string | number | boolean | null | undefined;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
/** `true` gives an attribute without a value; `false`, null and undefined give none. ARIA states need "true" or "false". */
export type Attributes = { [name: string]: Attribute | Handlers } & { on?: Handlers };

const SVG = "http://www.w3.org/2000/svg";
/** No element shows more of a name than this. The rest costs layout time only. */
const MAX_TITLE = 2000;

/** Make an HTML element. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled<E extends Element>(element: E, { on, ...attributes }: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [type, handler] of Object.entries(on ?? {})) element.addEventListener(type, handler as EventListener);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Replace what an element contains. */
export function fill<E extends Element>(element: E, ...children: Child[]): E {
  element.replaceChildren(...children.filter((child) => child !== null));
  return element;
}

/**
 * A name from a dump: control characters visible, text direction isolated, the middle left out if it is too long.
 * If it is shortened, the title has more of it.
 */
export function name(text: string, limit = 120, attributes: Attributes = {}): HTMLElement {
  const shown = oneLine(shorten(text, limit));
  const title = text.length > limit ? oneLine(shorten(text, MAX_TITLE)) : null;
  const { class: added, ...rest } = attributes;
  return h("bdi", { title, ...rest, class: added ? `name ${String(added)}` : "name" }, shown);
}

/** Text for `title` and other attributes: control characters visible, not too long. */
export function plain(text: string, limit = MAX_TITLE): string {
  return oneLine(shorten(text, limit));
}

/** A sentence, with what stands between backticks as code. */
export function prose(text: string, limit = 1000): Node[] {
  const parts = plain(text, limit).split("`");
  if (parts.length % 2 === 0) return [new Text(parts.join("`"))];
  return parts.map((part, i) => (i % 2 ? h("code", { dir: "auto" }, part) : new Text(part)));
}

let ids = 0;

/** An id that no other element has. */
export function newId(prefix: string): string {
  return `${prefix}-${++ids}`;
}

/** Call with the width in CSS pixels, now and whenever it changes. */
export function onWidth(element: Element, listener: (width: number) => void): void {
  let last = -1;
  const measure = () => {
    const width = Math.floor(element.clientWidth);
    if (width > 0 && width !== last) listener((last = width));
  };
  new ResizeObserver(measure).observe(element);
  // Printing does not wait for observers.
  addEventListener("beforeprint", measure);
}
