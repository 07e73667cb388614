/** The bill of an account as one bar, and as a table whose lines open. */

import { fill, h, name, newId, plain, prose } from "../parts/dom.js";
import { exactSize, number, percent, size } from "../parts/format.js";
import { button, choice, sentence, type PlainView } from "../parts/frame.js";
import type { Account, BillLine, Program } from "../data/model.js";
import type { Store } from "../data/store.js";

/** CSS classes of the lines, which have their own colours and patterns. */
const KNOWN = ["parameters", "donated", "outputs", "constants", "temporaries", "alignment", "another_step", "packing"];

export const billView: PlainView = (host, model, { store }) => {
  if (model.bill.length === 0) {
    host.append(sentence("The dump lists no allocations, so there is no bill."));
    return;
  }
  const body = h("div", { class: "bill" });
  const when = h("p", { class: "bill-step" });
  const names = model.bill.map(accountName);
  const show = (i: number) => {
    accounts.press(i);
    fill(when, where(model, model.bill[i]!, store));
    fill(body, ...account(model.bill[i]!));
  };
  const accounts = choice("Account", names, show);
  host.append(h("div", { class: "bar" }, names.length > 1 ? accounts.element : null, when), body);
  show(0);
};

function accountName({ account, page }: Account): string {
  return account === "device_total" ? "Device" : plain(page ? `${account} page ${page}` : account, 40);
}

function account(bill: Account): HTMLElement[] {
  const rows = bill.lines.map((line) => lineRows(line, bill.total));
  const segments = bill.lines.map((line, i) => segment(line, bill, () => rows[i]!.toggle()));
  return [
    h("div", { class: "bill-bar", role: "group", "aria-label": "The bill as a bar" }, ...segments),
    h(
      "table",
      { class: "bill-table" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "Line"),
          h("th", { scope: "col", class: "number" }, "Bytes"),
          h("th", { scope: "col", class: "number" }, "Share"),
          h("th", { scope: "col" }, "What it is"),
        ),
      ),
      ...rows.filter((_, i) => bill.lines[i]!.in_use).map((row) => row.element),
      bill.step === null ? null : sum("in use", bill.in_use, bill.total),
      ...rows.filter((_, i) => !bill.lines[i]!.in_use).map((row) => row.element),
      sum(bill.account === "device_total" ? "must fit" : "reserved", bill.total, bill.total),
    ),
  ];
}

/** The step of the account, as a button that shows it in the timeline. */
function where(model: Program, { account, page, step }: Account, store: Store): Node {
  if (step === null) return document.createTextNode("Without live ranges, temporaries are not divided.");
  const space = model.spaces.findIndex((s) => s.memory_space === account && s.page === page);
  const show = () => {
    store.set({ step, range: [0, (model.steps ?? 1) - 1], space: Math.max(0, space) }); // the main memory for the device
    document.getElementById("time")?.scrollIntoView();
  };
  return button(`At step ${number(step)}, its peak`, show, { class: "link", title: "Show this step in the timeline" });
}

function segment(line: BillLine, bill: Account, click: () => void): HTMLElement {
  const text = `${plain(line.label, 60)}: ${exactSize(line.bytes)}, ${percent(line.bytes, bill.total)}`;
  const label = h("span", { class: "segment-label" }, plain(line.label, 60));
  const element = button(label, click, { class: `segment ${pattern(line)}`, title: text, "aria-label": text });
  element.style.flexGrow = String(line.bytes / Math.max(1, bill.total));
  return element;
}

function pattern({ line, in_use }: BillLine): string {
  return KNOWN.includes(line) ? `line-${line}` : in_use ? "line-temporaries" : "line-packing";
}

/** The row of a line and, hidden until it is opened, of its parts. */
function lineRows(line: BillLine, total: number): { element: HTMLElement; toggle: () => void } {
  const isDivided = line.parts.length > 1 || line.parts.some((part) => part.note);
  const parts = isDivided ? [...line.parts].sort((a, b) => b.bytes - a.bytes) : [];
  const ids = parts.map(() => newId("part"));
  const mark = h("span", { class: `swatch ${pattern(line)}`, "aria-hidden": "true" });
  const label = h("span", {}, name(line.label, 60));
  const opener = parts.length
    ? button(label, () => toggle(), { class: "opener", "aria-expanded": "false", "aria-controls": ids.join(" ") })
    : label;
  const row = h("tr", {}, h("th", { scope: "row" }, mark, opener), ...figures(line.bytes, total), note(line.note));
  const hidden = parts.map((part, i) =>
    h(
      "tr",
      { class: "part", id: ids[i] },
      h("th", { scope: "row" }, name(part.label, 80)),
      ...figures(part.bytes, total),
      note(part.note),
    ),
  );
  const element = h("tbody", { class: "closed" }, row, ...hidden);
  const toggle = () => {
    if (parts.length === 0) return;
    const closed = element.classList.toggle("closed");
    (opener as HTMLElement).setAttribute("aria-expanded", String(!closed));
  };
  return { element, toggle };
}

function figures(bytes: number, total: number): HTMLElement[] {
  return [
    h("td", { class: "number", title: exactSize(bytes) }, size(bytes)),
    h("td", { class: "number muted" }, percent(bytes, total)),
  ];
}

function note(text: string): HTMLElement {
  return h("td", { class: "muted note-cell" }, ...prose(text));
}

function sum(label: string, bytes: number, total: number): HTMLElement {
  return h("tbody", { class: "sum" }, h("tr", {}, h("th", { scope: "row" }, label), ...figures(bytes, total), h("td")));
}
