/** The published numbers of the program side by side, and why they differ. */

import { fill, h, name, plain } from "./dom.js";
import { exactSize, number, signedSize, size } from "./format.js";
import { sentence, type PlainView } from "./frame.js";
import type { Explanation } from "./model.js";

export const explainView: PlainView = (host, model) => {
  if (model.explain.length === 0) {
    host.append(sentence("The dump contains no numbers to compare."));
    return;
  }
  const groups = new Map<string, Explanation[]>();
  for (const e of model.explain) {
    const group = e.memory_space ?? "all memory spaces together";
    groups.set(group, [...(groups.get(group) ?? []), e]);
  }
  const head = ["Number", "Bytes", "Difference", "Why"].map((text, i) =>
    h("th", { scope: "col", class: i === 1 || i === 2 ? "number" : null }, text),
  );
  const bodies = [...groups].map(([title, rows]) =>
    h("tbody", {}, h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: 4 }, name(title))), ...rows.map(row)),
  );
  host.append(h("div", { class: "scroll" }, h("table", { class: "explain-table" }, h("thead", {}, h("tr", {}, ...head)), ...bodies)));
};

function row(e: Explanation): HTMLElement {
  const why = h("td", { class: "why" });
  const step = e.step === null ? "" : `Step ${number(e.step)}. `;
  const causes = e.causes.map((c) => h("li", {}, h("span", { class: "number" }, signedSize(c.bytes)), plain(c.cause, 200)));
  fill(why, h("p", {}, step + plain(e.definition, 500)), causes.length ? h("ul", {}, ...causes) : null);
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name(e.name), e.basis ? h("span", { class: "basis muted" }, plain(e.basis, 80)) : null),
    h("td", { class: "number", title: e.bytes === null ? null : exactSize(e.bytes) }, size(e.bytes)),
    h("td", { class: "number muted" }, e.difference === null ? "" : e.difference === 0 ? "same" : signedSize(e.difference)),
    why,
  );
}
