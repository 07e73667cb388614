/** Lines of the dump that were not understood, rules that do not hold, and what this file leaves out. */

import { h, name, plain } from "../parts/dom.js";
import { count, number } from "../parts/format.js";
import { sentence, type PlainView } from "../parts/frame.js";
import type { Diagnostic } from "../data/model.js";

export const diagnosticsView: PlainView = (host, { diagnostics, n_diagnostics, folded }) => {
  for (const text of folded) host.append(sentence(plain(text, 500)));
  if (n_diagnostics === 0) {
    host.append(sentence("Every line of the dump was understood, and its numbers agree with each other."));
    return;
  }
  const shown = diagnostics.length < n_diagnostics ? `The first ${number(diagnostics.length)} of ` : "";
  host.append(
    h("p", {}, `${shown}${count(n_diagnostics, "diagnostic")}.`),
    h("ul", { class: "diagnostics" }, ...diagnostics.map(item)),
  );
};

function item(d: Diagnostic): HTMLElement {
  const place = d.line !== null ? `line ${number(d.line)}` : d.offset !== null ? `byte ${number(d.offset)}` : "";
  return h(
    "li",
    {},
    h("p", {}, h("span", { class: "label" }, plain(d.severity, 20)), name(d.code), `: expected ${plain(d.wanted, 400)}`),
    h("p", { class: "muted" }, name(d.file, 100), place ? `, ${place}` : ""),
    d.excerpt ? h("pre", {}, name(d.excerpt, 400)) : null,
  );
}
