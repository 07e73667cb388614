/** What would lower the memory that must fit, and by how much. */

import { h, name, plain, prose } from "../parts/dom.js";
import { exactSize, size } from "../parts/format.js";
import { button, sentence, type PlainView } from "../parts/frame.js";
import type { Advice } from "../data/model.js";
import { select } from "../parts/selection.js";
import type { Page } from "../parts/view.js";

export const adviceView: PlainView = (host, model, page) => {
  if (model.advice.length === 0) {
    host.append(sentence("Nothing is known that would lower it."));
    return;
  }
  const most = Math.max(1, ...model.advice.map((advice) => advice.upper));
  const rows = model.advice.map((advice) => row(advice, most, () => show(page, advice.buffer)));
  host.append(h("ol", { class: "advice" }, ...rows));
};

/** Select a buffer once the program is decoded, and show it in the map. */
function show({ programs, store }: Page, buffer: number): void {
  const data = programs[store.state.program];
  if (!data) return;
  select(store, data, buffer);
  document.getElementById("time")?.scrollIntoView();
}

function row(advice: Advice, most: number, select: () => void): HTMLElement {
  const place = [advice.subject, advice.source].filter((text) => text !== "");
  return h(
    "li",
    {},
    h("div", { class: "advice-bytes" }, h("span", { title: title(advice) }, range(advice)), bar(advice, most)),
    h(
      "div",
      { class: "advice-words" },
      h("p", {}, ...prose(advice.action)),
      h(
        "p",
        { class: "muted" },
        h("span", { class: "label" }, `${plain(advice.kind, 40)}, ${plain(advice.confidence, 40)}`),
        ...place.map((text) => name(text, 100)),
        advice.buffer >= 0 ? button("Show the largest buffer", select, { class: "link" }) : null,
      ),
    ),
  );
}

/** A lower bound of 0 or less is no promise; the title has it. */
function range({ lower, upper }: Advice): string {
  if (lower === upper) return size(upper);
  return lower > 0 ? `${size(lower)} to ${size(upper)}` : `up to ${size(upper)}`;
}

function title({ lower, upper }: Advice): string {
  return `Lowers what must fit by at least ${exactSize(lower)} and at most ${exactSize(upper)}`;
}

/** The sure part filled, the possible part in outline. */
function bar({ lower, upper }: Advice, most: number): HTMLElement {
  const sure = h("span", { class: "sure" });
  const possible = h("span", { class: "possible" });
  sure.style.width = `${(100 * Math.max(0, lower)) / most}%`;
  possible.style.width = `${(100 * Math.max(0, upper - Math.max(0, lower))) / most}%`;
  return h("span", { class: "advice-bar", "aria-hidden": "true" }, sure, possible);
}
