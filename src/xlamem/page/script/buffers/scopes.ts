/** The scopes of what is in use at the step, as an icicle. */

import type { ProgramData } from "../data/data.js";
import { fill, h, name, onWidth, plain } from "../parts/dom.js";
import { count, number, percent, size } from "../parts/format.js";
import { button, sentence } from "../parts/frame.js";
import { type Block, icicle } from "./icicle.js";
import { scopePath } from "../data/names.js";
import { phaseVariable } from "../parts/palette.js";
import { rollUp, type Rollup } from "../data/rollup.js";
import type { Store } from "../data/store.js";
import { Tooltip } from "../parts/tooltip.js";
import type { View } from "../parts/view.js";

/** Height of a row in pixels. */
const ROW = 28;
/** Blocks at least this wide show their name, and their bytes too, in pixels. */
const NAMED = 26;
const ROOMY = 150;

export const scopesView: View = (host, data, { store }) => void new Scopes(host, data, store);

class Scopes {
  readonly #data: ProgramData;
  readonly #store: Store;
  readonly #path = h("nav", { class: "crumbs", "aria-label": "Selected scope" });
  readonly #tree = h("div", { class: "icicle", role: "tree", "aria-label": "Scopes by bytes in use" });
  readonly #nothing = h("div", {});
  readonly #tooltip: Tooltip;
  readonly #hasPhases: boolean;
  #rollup: Rollup;
  #blocks: Block[] = [];
  #width = 0;

  constructor(host: HTMLElement, data: ProgramData, store: Store) {
    [this.#data, this.#store] = [data, store];
    this.#hasPhases = data.buffers.phase.some((phase) => phase >= 0);
    host.append(this.#path, this.#tree, this.#nothing);
    this.#tooltip = new Tooltip(host);
    this.#rollup = this.#rolledUp();
    onWidth(this.#tree, (width) => {
      this.#width = width;
      this.#draw();
    });
    store.on(["space", "step"], () => {
      this.#rollup = this.#rolledUp();
      this.#draw();
    });
    store.on(["scope", "buffer"], () => this.#draw());
    this.#tree.addEventListener("keydown", (event) => this.#onKey(event));
  }

  #rolledUp(): Rollup {
    const { space, step } = this.#store.state;
    return rollUp(this.#data, space, step);
  }

  #draw(): void {
    const { scope, step } = this.#store.state;
    const focused = this.#blocks[this.#elements().indexOf(document.activeElement as HTMLElement)];
    this.#tooltip.hide();
    fill(this.#path, ...this.#crumbs(scope));
    this.#blocks = icicle(this.#data, this.#rollup, scope, this.#width);
    const elements = this.#blocks.map((block) => this.#element(block));
    fill(this.#tree, ...elements);
    const nothing = scope > 0 ? `Nothing of this scope is in use at step ${number(step)}.` : "Nothing is in use.";
    this.#tree.hidden = elements.length === 0;
    fill(this.#nothing, elements.length > 0 ? null : sentence(nothing));
    const rows = this.#blocks.reduce((rows, block) => Math.max(rows, block.row + 1), 1);
    this.#tree.style.height = `${rows * ROW}px`;
    const again = focused ? this.#blocks.findIndex((block) => block.scope === focused.scope && !block.merged) : -1;
    elements[Math.max(0, again)]?.setAttribute("tabindex", "0");
    if (focused) elements[Math.max(0, again)]?.focus();
  }

  #elements(): HTMLElement[] {
    return Array.from(this.#tree.children) as HTMLElement[];
  }

  /** The scopes that contain the selected one, as buttons. */
  #crumbs(scope: number): Node[] {
    const { name: names, parent } = this.#data.scopes;
    const crumbs: Node[] = [];
    for (let row = scope; row > 0; row = parent[row]!) {
      const label = name(names[row]!, 60);
      const crumb = row === scope ? h("span", { "aria-current": "true" }, label) : button(label, () => this.#select(row));
      crumbs.unshift(h("span", { class: "separator", "aria-hidden": "true" }, "\u203a"), crumb);
    }
    const all = this.#all;
    crumbs.unshift(scope > 0 ? button(all, () => this.#select(0)) : h("span", { "aria-current": "true" }, all));
    const bytes = this.#rollup.bytes[scope]!;
    const share = scope > 0 ? `, ${this.#shareOf(bytes)}` : this.#data.model.steps === null ? "" : " in use";
    return [...crumbs, h("span", { class: "muted" }, `${size(bytes)}${share}`)];
  }

  #shareOf(bytes: number): string {
    const whole = this.#data.model.steps === null ? "all" : "what is in use";
    return `${percent(bytes, this.#rollup.bytes[0]!)} of ${whole}`;
  }

  #select(scope: number): void {
    this.#store.set({ scope });
  }

  // -- blocks ----------------------------------------------------------------------------------------------

  #element(block: Block): HTMLElement {
    const label = this.#label(block);
    const texts = block.width < NAMED ? [] : [
      block.merged ? h("span", { class: "name" }, label) : name(label, 200, { title: null }),
      " ",
      block.width < ROOMY ? null : h("span", { class: "bytes" }, size(block.bytes)),
    ]; // prettier-ignore
    const states = [block.merged ? "merged" : "", this.#isSelected(block) ? "selected" : ""];
    const element = h("div", {
      class: ["block", `depth-${Math.min(3, block.row)}`, ...states].join(" ").trim(),
      role: "treeitem",
      tabindex: -1,
      "aria-level": block.row + 1,
      "aria-label": `${plain(label, 200)} ${size(block.bytes)}, ${this.#share(block)}`,
    }, ...texts, this.#phases(block)); // prettier-ignore
    element.style.left = `${block.left}px`;
    element.style.width = `${Math.max(1, block.width - 1)}px`;
    element.style.top = `${block.row * ROW}px`;
    if (!block.merged) element.addEventListener("click", () => this.#open(block));
    element.addEventListener("pointermove", (event) => this.#explain(event, block));
    element.addEventListener("pointerleave", () => this.#tooltip.hide());
    return element;
  }

  #label(block: Block): string {
    return block.scope === 0 ? this.#all : block.label;
  }

  /** The name of the root. */
  get #all(): string {
    return this.#data.model.scopes.functions ? "All functions" : "All scopes";
  }

  #share(block: Block): string {
    return this.#shareOf(block.bytes);
  }

  /** Whether the selected buffer is in this scope, and in none of those within it that are shown. */
  #isSelected(block: Block): boolean {
    const { buffer } = this.#store.state;
    if (buffer < 0 || block.scope <= 0) return false;
    const shown = new Set(this.#blocks.map(({ innermost }) => innermost));
    let scope = this.#data.buffers.scope[buffer]!;
    while (scope > 0 && !shown.has(scope)) scope = this.#data.scopes.parent[scope]!;
    return scope === block.innermost;
  }

  /** A line whose colours show the phases of the bytes. */
  #phases({ innermost, bytes, merged }: Block): HTMLElement | null {
    if (!this.#hasPhases || merged) return null;
    const { byPhase, nPhases } = this.#rollup;
    const names = this.#data.buffers.phaseNames;
    let end = 0;
    const stops = Array.from({ length: nPhases }, (_, phase) => {
      const start = end;
      end += (100 * byPhase[innermost * nPhases + phase]!) / bytes;
      return `var(${phaseVariable(names[phase] ?? "")}) ${start}% ${end}%`;
    });
    const line = h("span", { class: "phases" });
    line.style.backgroundImage = `linear-gradient(90deg, ${stops.join(", ")})`;
    return line;
  }

  /** Show only this scope, or its parent if it is the one that is shown. */
  #open(block: Block): void {
    const isTop = block.row === 0;
    this.#select(isTop ? Math.max(0, this.#data.scopes.parent[block.scope]!) : block.scope);
  }

  #explain(event: PointerEvent, block: Block): void {
    const path = block.scope > 0 ? scopePath(this.#data, block.innermost) : this.#label(block);
    this.#tooltip.show(
      event.clientX,
      event.clientY,
      h("div", {}, block.merged ? count(block.merged, "smaller scope") : name(path, 200)),
      h("div", { class: "muted" }, `${size(block.bytes)}, ${this.#share(block)}`),
    );
  }

  // -- keyboard ----------------------------------------------------------------------------------------------

  #onKey(event: KeyboardEvent): void {
    const elements = this.#elements();
    const at = elements.indexOf(event.target as HTMLElement);
    const block = this.#blocks[at];
    if (!block || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") elements[at]!.click();
    else if (event.key === "Backspace") this.#open(this.#blocks[0]!);
    else if (!event.key.startsWith("Arrow")) return;
    else this.#focus(elements, at, this.#neighbour(block, event.key));
    event.preventDefault();
  }

  #focus(elements: readonly HTMLElement[], from: number, to: number): void {
    if (to < 0) return;
    elements[from]!.setAttribute("tabindex", "-1");
    elements[to]!.setAttribute("tabindex", "0");
    elements[to]!.focus();
  }

  #neighbour(block: Block, key: string): number {
    const at = this.#blocks.indexOf(block);
    const overlaps = (row: number) => ({ row: its, left, width }: Block): boolean =>
      its === row && left < block.left + block.width && left + width > block.left;
    if (key === "ArrowUp") return this.#blocks.findIndex(overlaps(block.row - 1));
    if (key === "ArrowDown") return this.#blocks.findIndex(overlaps(block.row + 1));
    const next = at + (key === "ArrowLeft" ? -1 : 1);
    return this.#blocks[next]?.row === block.row ? next : -1;
  }
}
