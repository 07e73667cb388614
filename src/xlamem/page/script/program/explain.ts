/** The published numbers of the program side by side, and why they differ. */

import { h, name, plain, prose } from "../parts/dom.js";
import { exactSize, number, signedSize, size } from "../parts/format.js";
import { button, sentence, type PlainView } from "../parts/frame.js";
import type { Explanation, Program } from "../data/model.js";

const TOGETHER = "all memory spaces together";
const JAX = "JAX's memory_analysis()";
const PREFIX = "jax.";

interface Group {
  readonly title: string;
  readonly open: boolean;
  readonly rows: Explanation[];
}

export const explainView: PlainView = (host, model) => {
  if (model.explain.length === 0) {
    host.append(sentence("The dump contains no numbers to compare."));
    return;
  }
  const head = ["Number", "Bytes", "Difference", "Why"].map((text, i) =>
    h("th", { scope: "col", class: i === 1 || i === 2 ? "number" : null }, text),
  );
  host.append(h("table", { class: "explain-table" }, h("thead", {}, h("tr", {}, ...head)), ...groups(model).map(body)));
};

/** By memory space; only those of the main memory, and of all spaces together, are open. */
function groups({ explain, spaces }: Program): Group[] {
  const found = new Map<string, Group>();
  for (const e of explain) {
    const title = e.name.startsWith(PREFIX) ? JAX : (e.memory_space ?? TOGETHER);
    const open = title === TOGETHER || title === spaces[0]?.memory_space;
    if (!found.has(title)) found.set(title, { title, open, rows: [] });
    found.get(title)!.rows.push(e);
  }
  return [...found.values()];
}

function body({ title, open, rows }: Group): HTMLElement {
  const opener = button(name(title), () => toggle(), { class: "opener", "aria-expanded": String(open) });
  const heading = h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: 4 }, opener));
  const element = h("tbody", { class: open ? null : "closed" }, heading, ...rows.map(row));
  const toggle = () => opener.setAttribute("aria-expanded", String(!element.classList.toggle("closed")));
  return element;
}

function row(e: Explanation): HTMLElement {
  const step = e.step === null ? null : h("span", { class: "muted" }, `, at step ${number(e.step)}`);
  const definition = e.definition === JAX ? [] : prose(e.definition);
  const causes = e.causes.map((c) => h("li", {}, h("span", { class: "number" }, signedSize(c.bytes)), h("span", {}, ...prose(c.cause))));
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name(e.name.replace(PREFIX, ""))),
    h("td", { class: "number", title: e.bytes === null ? null : exactSize(e.bytes) }, size(e.bytes)),
    h("td", { class: "number muted" }, e.difference === null ? "" : e.difference === 0 ? "same" : signedSize(e.difference)),
    h(
      "td",
      { class: "why" },
      step || definition.length ? h("p", {}, ...definition, step) : null,
      e.basis === "exact" || !e.basis ? null : h("p", { class: "muted" }, plain(e.basis, 100)),
      causes.length ? h("ul", {}, ...causes) : null,
    ),
  );
}
