/** The page of one program, and which program is shown. */

import { addressOf, initial, programIn, stateIn } from "../data/address.js";
import { buffersView } from "../buffers/buffers.js";
import type { ProgramData } from "../data/data.js";
import { decode } from "../data/decode.js";
import { detailView } from "../buffers/detail.js";
import { fill, h } from "../parts/dom.js";
import { choice, sentence } from "../parts/frame.js";
import { programHeader } from "./header.js";
import { mapView } from "../map/map.js";
import type { Program, Report } from "../data/model.js";
import { addPointerLine } from "../parts/pointer.js";
import { scopesView } from "../buffers/scopes.js";
import { type Hosts, sections } from "./sections.js";
import type { Key, State, Store } from "../data/store.js";
import { timelineView } from "../time/timeline.js";
import type { Page, View } from "../parts/view.js";

/** What a link selects. A change of it is a new entry in the browser's history, so that "back" undoes it. */
const SELECTED: readonly Key[] = ["program", "space", "buffer", "scope"];
const ADDRESS: readonly Key[] = ["program", "space", "step", "buffer", "scope", "range", "colorBy", "query"];

export class ProgramPage {
  readonly element = h("div", { class: "programs" });
  readonly page: Page;
  /** Settled when what stands above the program is drawn. */
  overview: Promise<void> = Promise.resolve();
  readonly #programs: (ProgramData | undefined)[] = [];
  /** Program that is shown at first. */
  readonly #first: number;
  readonly #decoding: Promise<ProgramData>[] = [];
  /** Program that is shown or being decoded. */
  #row = -1;
  /** Listeners of the shown program are those after it. */
  #mark = 0;
  /** Whether the state comes from the address. */
  #isRead = false;

  constructor(report: Report, store: Store, first: number) {
    this.page = { report, store, programs: this.#programs };
    this.#first = first;
  }

  /** The program that is shown; undefined until it is decoded. */
  get shown(): ProgramData | undefined {
    return this.#programs[this.page.store.state.program];
  }

  /** Show the program of the state, and follow the state and the address. */
  start(): void {
    const { store } = this.page;
    store.on(["program"], (state) => {
      if (state.program !== this.#row) this.#show(this.#initial(state.program));
    });
    store.on(ADDRESS, (_, changed) => this.#writeAddress(SELECTED.some((key) => changed.has(key))));
    addEventListener("hashchange", () => this.#readAddress());
    this.#mark = store.mark();
    this.#show(store.state, location.hash);
  }

  open(program: number): void {
    this.page.store.set({ program });
    this.element.scrollIntoView();
  }

  decodeAll(): Promise<ProgramData[]> {
    return Promise.all(this.page.report.programs.map((_, i) => this.#decoded(i)));
  }

  #decoded(i: number): Promise<ProgramData> {
    return (this.#decoding[i] ??= this.#decode(i));
  }

  async #decode(i: number): Promise<ProgramData> {
    await painted();
    return (this.#programs[i] = await decode(this.page.report.programs[i]!));
  }

  #initial(program: number): State {
    return initial(program, this.page.report.programs[program]);
  }

  #show(state: State, hash = ""): void {
    const { store, report } = this.page;
    this.#row = state.program;
    store.release(this.#mark);
    fill(this.element);
    const model = report.programs[state.program];
    if (!model) return this.#ready();
    store.set(state);
    const { elements, hosts } = sections(model, this.page);
    fill(this.element, this.#header(model, state.program), ...elements);
    this.#decoded(state.program).then(
      (data) => this.#draw(hosts, data, hash ? stateIn(hash, state.program, data) : null),
      (error: Error) => fill(hosts.timeline, sentence(error.message, true)),
    );
  }

  /** A head of its own where the page is not about this program alone. */
  #header(model: Program, program: number): HTMLElement | null {
    const { report, store } = this.page;
    if (report.kind === "program") return null;
    if (report.kind === "directory") return programHeader(model);
    const programs = choice("Program", ["A", "B"], (i) => store.set({ program: i }));
    programs.press(program);
    return programHeader(model, programs.element);
  }

  /** Everything is drawn that the address asks for. */
  #ready(): void {
    void this.overview.then(() => (document.documentElement.dataset["ready"] = "true"));
  }

  #draw(hosts: Hosts, data: ProgramData, state: State | null): void {
    const { store } = this.page;
    if (store.state.program !== this.#programs.indexOf(data)) return;
    if (state) this.#follow(state);
    if (data.model.spaces.length === 0) return this.#ready();
    const draw = (view: View, host: HTMLElement) => view(fill(host), data, this.page);
    draw(timelineView, hosts.timeline);
    if (data.model.steps !== null) draw(mapView, hosts.map);
    draw(scopesView, hosts.scopes);
    draw(buffersView, hosts.buffers);
    draw(detailView, hosts.detail);
    const plots = hosts.time.querySelectorAll<HTMLElement>(".plot, .map-frame");
    if (plots.length > 0) addPointerLine(hosts.time, [...plots], data, store);
    this.#ready();
  }

  #writeAddress(isSelection: boolean): void {
    const { state } = this.page.store;
    const data = this.shown;
    if (!data && state.program >= 0) return; // it is not decoded yet
    const address = data ? addressOf(state, data, this.#first) : "";
    const isNew = isSelection && !this.#isRead;
    if (address === location.hash) return;
    history[isNew ? "pushState" : "replaceState"](null, "", address || location.pathname + location.search);
  }

  /** Show the state of an address, which is no new entry in the browser's history. */
  #follow(state: State): void {
    this.#isRead = true;
    this.page.store.set(state);
    requestAnimationFrame(() => (this.#isRead = false)); // after that of the store
  }

  #readAddress(): void {
    const program = programIn(location.hash, this.page.report.programs.length) ?? this.#first;
    const data = this.#programs[program];
    if (data && program === this.#row) this.#follow(stateIn(location.hash, program, data));
    else this.#show(this.#initial(program), location.hash);
  }
}

/** What needs no columns is shown before these are decoded. Pages in the background are not painted. */
function painted(): Promise<void> {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, 200);
  });
}
