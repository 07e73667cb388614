/** The sections of a program's page, in order. */

import { adviceView } from "./advice.js";
import { billView } from "./bill.js";
import { diagnosticsView } from "./diagnostics.js";
import { h } from "../parts/dom.js";
import { explainView } from "./explain.js";
import { section, type Section } from "../parts/frame.js";
import type { Program } from "../data/model.js";
import { verdictView } from "./verdict.js";
import type { Page } from "../parts/view.js";

/** Where the views that need columns are drawn once these are decoded. */
export interface Hosts {
  /** Contains the timeline and the map, which share the steps. */
  readonly time: HTMLElement;
  readonly timeline: HTMLElement;
  readonly map: HTMLElement;
  readonly scopes: HTMLElement;
  readonly buffers: HTMLElement;
  readonly detail: HTMLElement;
}

/** The page of a program, with all sections drawn that need no columns. */
export function sections(model: Program, page: Page): { elements: HTMLElement[]; hosts: Hosts } {
  const verdict = section("verdict", "What must fit", "");
  const bill = section("bill", "The bill", "Why so much must fit. The lines add up to the byte.");
  const advice = section("advice", "What to do", "Bytes are by how much the memory that must fit would be lower. They do not add up.");
  const explain = section("explain", "Published numbers", "What other tools say of the same program, and why it differs.");
  const diagnostics = section("diagnostics", "The dump", "What was not understood in it, and what this file leaves out.");
  const draw = (view: typeof verdictView, { host }: Section) => view(host, model, page);
  draw(verdictView, verdict);
  draw(billView, bill);
  draw(adviceView, advice);
  draw(explainView, explain);
  draw(diagnosticsView, diagnostics);
  const { elements, hosts } = explorer(model);
  const after = [explain, diagnostics].map((s) => s.element);
  if (model.spaces.length === 0) return { elements: [verdict.element, bill.element, ...after], hosts };
  return { elements: [verdict.element, bill.element, ...elements, advice.element, ...after], hosts };
}

/** Without live ranges, the memory is that of all buffers. */
function explorer(model: Program): { elements: HTMLElement[]; hosts: Hosts } {
  const time = section("time", "Memory over time", "Bytes in use at each step of the schedule, and below where they lie.");
  const timeline = h("div", { class: "timeline" }, h("p", { class: "sentence loading" }, "Reading the columns …"));
  const map = h("div", { class: "map" });
  time.host.append(timeline, map);
  const hasSteps = model.steps !== null;
  const [title, by] = model.scopes.functions ? ["Functions", "function, since op_names have no modules"] : ["Scopes", "named scope, with layers folded"];
  const scopes = section("scopes", title, `${hasSteps ? "What is in use at the selected step" : "All buffers"} by ${by}.`);
  const buffers = section("buffers", "Buffers", hasSteps ? "What is in use at the selected step." : "All buffers of the memory space. Bytes that several share count once.");
  const detail = section("detail", "Buffer", "");
  const columns = h("div", { class: "columns" }, h("div", { class: "main-column" }, scopes.element, buffers.element), detail.element);
  const hosts = { time: time.host, timeline, map, scopes: scopes.host, buffers: buffers.host, detail: detail.host };
  return { elements: [time.element, columns], hosts };
}
