/** The head of the page, and of each program if there are several. */

import { fill, h, name, type Child } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { button } from "../parts/frame.js";
import { showHelp } from "../parts/keys.js";
import type { Program, Report } from "../data/model.js";
import { switchTheme } from "../parts/theme.js";

export function headline(report: Report): HTMLElement {
  const only = report.kind === "program" ? report.programs[0] : undefined;
  return h(
    "header",
    { class: "page-header" },
    h("div", {}, h("h1", {}, name(report.title, 300)), only ? facts(only) : null),
    h(
      "div",
      { class: "tools" },
      button("Light / dark", switchTheme, { title: "Switch between light and dark (d)" }),
      button("Keys", showHelp, { title: "Keyboard (?)", "aria-haspopup": "dialog" }),
    ),
  );
}

/** The head of a program below a comparison or a directory. */
export function programHeader(model: Program, ...children: Child[]): HTMLElement {
  return h("header", { class: "program-header" }, h("div", {}, h("h2", {}, name(model.name, 300)), facts(model)), ...children);
}

/** `tpu · 21,235 steps · module 0 · path`. */
function facts(model: Program): HTMLElement {
  const texts = [
    model.platform ?? "platform not known",
    model.target,
    model.steps === null ? "no live ranges" : count(model.steps - 1, "step"),
    model.module_id === null ? null : `module ${model.module_id}`,
  ];
  const items = texts.filter((text) => text !== null).map((text) => h("span", {}, name(text)));
  return fill(h("p", { class: "facts" }), ...items, h("span", { class: "path" }, name(model.path, 160)));
}

/** What this file leaves out, and what made it. */
export function footer(report: Report): HTMLElement {
  return h("footer", {}, h("p", {}, `xlamem ${report.tool}. This file is complete in itself; it loads nothing from the network.`));
}
