/** What is known about the selected buffer. */

import { goTo } from "../parts/actions.js";
import type { ProgramData } from "../data/data.js";
import { type Child, fill, h, name } from "../parts/dom.js";
import { count, exactSize, number, size } from "../parts/format.js";
import { button, sentence } from "../parts/frame.js";
import { lifeBar } from "./life_bar.js";
import { occupiedRange } from "../data/live.js";
import { bufferName, scopePath } from "../data/names.js";
import { largestAtPeak, select } from "../parts/selection.js";
import { neighboursOf } from "../data/sharing.js";
import type { Store } from "../data/store.js";
import { lastUse, type Use, usesOf } from "../data/uses.js";
import type { View } from "../parts/view.js";
import { labelOf, originOf, paddingNote, peakNote, plainShape, savingNote, whatOf } from "../parts/wording.js";

/** Users, aliases and neighbours that are listed at first. */
const FEW = 6;
const MANY = 500;
const MAX_NAME = 400;

export const detailView: View = (host, data, { store }) => {
  const detail = new Detail(data, store);
  const body = h("div", { class: "detail" });
  host.append(body);
  const draw = (): void => void fill(body, ...(store.state.buffer < 0 ? detail.empty() : detail.of(store.state.buffer)));
  store.on(["buffer"], draw);
  store.on(["space"], () => store.state.buffer < 0 && draw());
  draw();
};

class Detail {
  readonly #data: ProgramData;
  readonly #store: Store;

  constructor(data: ProgramData, store: Store) {
    [this.#data, this.#store] = [data, store];
  }

  /** How to select a buffer, and the one that is worth to be looked at. */
  empty(): Child[] {
    const largest = largestAtPeak(this.#data, this.#store.state.space);
    const hint = sentence("Select a buffer in the map or in the table.");
    if (largest < 0) return [hint];
    const bytes = size(this.#data.buffers.size[largest]!);
    return [hint, h("p", { class: "suggestion" }, `The largest at the peak, ${bytes}: `, this.#buffer(largest))];
  }

  of(buffer: number): Child[] {
    const { buffers } = this.#data;
    return [
      this.#title(buffer),
      lifeBar(this.#data, this.#store, buffer),
      h("dl", {}, ...this.#facts(buffer).flatMap(([term, ...facts]) => [h("dt", {}, term), h("dd", {}, ...facts)])),
      ...this.#lists(buffer),
      h("p", { class: "value-id muted" }, `Value ${buffers.valueId[buffer]} of the dump`),
    ];
  }

  #title(buffer: number): HTMLElement {
    const { size: bytes, shape, shapeNames } = this.#data.buffers;
    const plain = plainShape(shapeNames[shape[buffer]!] ?? "");
    const amount = h("span", { class: "detail-size", title: exactSize(bytes[buffer]!) }, size(bytes[buffer]!));
    const clear = { class: "close", "aria-label": "Clear the selection", title: "Clear the selection (Esc)" };
    return h(
      "div",
      { class: "detail-title" },
      h("h3", {}, code(bufferName(this.#data, buffer))),
      h("p", {}, amount, code(plain)),
      button("\u00d7", () => this.#store.set({ buffer: -1 }), clear),
    );
  }

  // -- facts -----------------------------------------------------------------------------------------------

  #facts(buffer: number): [string, ...Child[]][] {
    const { buffers: b } = this.#data;
    const facts: [string, ...Child[]][] = [
      ["What", h("div", {}, whatOf(this.#data, buffer)), this.#iterations(buffer)],
      ["Model name", code(b.opNames[b.opName[buffer]!] ?? "")],
      ["Scope", this.#scope(b.scope[buffer]!)],
      ["Source", code(b.sourceNames[b.source[buffer]!] ?? "")],
      ["Origin", this.#origin(buffer)],
      ["Life", ...this.#life(buffer)],
      ["Saving", savingNote(this.#data, buffer)],
      ["Size", exactSize(b.size[buffer]!)],
      ["Padding", paddingNote(this.#data, buffer)],
      ["Shape", code(b.shapeNames[b.shape[buffer]!] ?? "")],
      ["Place", ...this.#place(buffer)],
    ];
    return facts.filter(([, ...children]) => children.some((child) => child !== null && child !== ""));
  }

  #iterations(buffer: number): Child {
    const iterations = this.#data.buffers.iterations[buffer]!;
    return iterations > 0 ? h("div", {}, `A slice for each of ${count(iterations, "iteration")}`) : null;
  }

  #scope(scope: number): Child {
    if (scope <= 0) return null;
    return button(name(scopePath(this.#data, scope), MAX_NAME), () => this.#store.set({ scope }), { class: "link" });
  }

  #origin(buffer: number): Child {
    const [before, after] = originOf(this.#data, buffer);
    const source = this.#data.buffers.originInstruction[buffer]!;
    if (after && source < 0) return null; // this file leaves its name out
    return h("span", {}, before, ...(after ? [this.#instruction(source), after] : []));
  }

  #life(buffer: number): Child[] {
    const [first, last] = occupiedRange(this.#data, buffer);
    if (this.#data.buffers.start[buffer]! < 0) return ["It has no live range."];
    const steps = this.#data.model.steps ?? 1;
    const length = `, ${count(last + 1 - first, "step")}`;
    const range = ["Steps ", this.#step(first), " to ", this.#step(last), length];
    return [h("div", {}, ...range), this.#end(buffer, last, steps), h("div", {}, peakNote(this.#data, buffer))];
  }

  /** What keeps the buffer alive. */
  #end(buffer: number, last: number, steps: number): Child {
    const { category, categoryNames } = this.#data.buffers;
    const use = lastUse(this.#data, buffer);
    if (last >= steps - 1) {
      const isTemporary = (categoryNames[category[buffer]!] ?? "").startsWith("temp");
      return h("div", {}, isTemporary ? "Live to the end" : "Kept to the end as a parameter or output");
    }
    if (!use) return null;
    const kept = use.step < last ? [", kept until step ", this.#step(last)] : [];
    return h("div", {}, "Kept alive by ", this.#instruction(use.instruction), " at step ", this.#step(use.step), ...kept);
  }

  #place(buffer: number): Child[] {
    const { allocations, buffers, model } = this.#data;
    const row = buffers.allocation[buffer]!;
    const space = model.spaces[allocations.space[row]!]?.memory_space ?? "";
    const label = allocations.label[row]!;
    return [
      h("div", {}, name(label, MAX_NAME), ` of ${size(allocations.size[row]!)} in ${space}`),
      h("div", {}, `Allocation ${allocations.allocation[row]}, offset ${number(buffers.offset[buffer]!)}`),
    ];
  }

  // -- lists -----------------------------------------------------------------------------------------------

  #lists(buffer: number): Child[] {
    const { aliases } = this.#data;
    const { sharing, before, after } = neighboursOf(this.#data, buffer);
    const [from, to] = [aliases.begin[buffer]!, aliases.begin[buffer + 1]!];
    const positions = Array.from({ length: to - from }, (_, i) => from + i);
    return [
      list("Read by", usesOf(this.#data, buffer), (use) => this.#use(use)),
      list("Also at", positions, (row) => this.#position(row)),
      list("Shares bytes with", sharing, (row) => this.#mate(row)),
      list("Before it at these bytes", before, (row) => this.#mate(row)),
      list("After it at these bytes", after, (row) => this.#mate(row)),
    ];
  }

  #use({ instruction, step }: Use): Child[] {
    return [h("span", { class: "step" }, step < 0 ? "" : this.#step(step)), this.#instruction(instruction)];
  }

  #position(row: number): Child[] {
    const { instruction, shapeIndex, indexNames } = this.#data.aliases;
    const index = indexNames[shapeIndex[row]!] ?? "";
    return [this.#instruction(instruction[row]!, index === "{}" ? "" : index)];
  }

  #mate(buffer: number): Child[] {
    const [first, last] = occupiedRange(this.#data, buffer);
    return [h("span", { class: "step" }, this.#step(first), "\u2013", this.#step(last)), this.#buffer(buffer)];
  }

  // -- links -----------------------------------------------------------------------------------------------

  #step(step: number): Child {
    const attributes = { class: "link", title: `Go to step ${number(step)}` };
    return button(number(step), () => goTo(this.#store, this.#data, step), attributes);
  }

  #buffer(buffer: number): Child {
    const label = name(labelOf(this.#data, buffer), MAX_NAME, { class: "code" });
    return button(label, () => select(this.#store, this.#data, buffer), { class: "link" });
  }

  /** The name of an instruction, which selects what it defines, if it defines a buffer. */
  #instruction(instruction: number, index = ""): Child {
    const defined = this.#data.buffers.instruction.indexOf(instruction);
    const label = name(`${this.#data.instructions.name[instruction] ?? "?"}${index}`, MAX_NAME, { class: "code" });
    if (defined < 0 || defined === this.#store.state.buffer) return label;
    return button(label, () => select(this.#store, this.#data, defined), { class: "link" });
  }
}

function code(text: string): Child {
  return text ? name(text, MAX_NAME, { class: "code" }) : null;
}

/** A list that shows a few items at first; null without items. */
function list<T>(title: string, items: readonly T[], cells: (item: T) => Child[]): Child {
  if (items.length === 0) return null;
  const rows = h("ul", {});
  const item = (it: T): HTMLElement => h("li", {}, ...cells(it));
  rows.append(...items.slice(0, FEW).map(item));
  const more = items.length - FEW;
  const all = button(`${number(more)} more`, () => {
    all.remove();
    rows.append(...items.slice(FEW, MANY).map(item));
    if (items.length > MANY) rows.append(h("li", { class: "muted" }, `and ${number(items.length - MANY)} more`));
  }, { class: "link" }); // prettier-ignore
  const heading = h("h4", {}, title, h("span", { class: "muted" }, ` ${number(items.length)}`));
  return h("div", { class: "detail-list" }, heading, rows, more > 0 ? all : null);
}
