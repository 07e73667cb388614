/** What buttons and keys do with the selected step and the visible range. */

import type { ProgramData } from "../data/data.js";
import { panned, zoomed } from "./layout.js";
import type { Store } from "../data/store.js";

/** Select a step, and move the visible range if it does not contain the step. */
export function goTo(store: Store, data: ProgramData, step: number): void {
  const n = data.model.steps ?? 0;
  if (n === 0) return;
  const target = Math.max(0, Math.min(n - 1, step));
  const [first, last] = store.state.range;
  const outside = target < first || target > last;
  const range = outside ? panned([first, last], target - (first + last) / 2, n) : store.state.range;
  store.set({ step: target, range });
}

/** Select a step that is a share of the visible range away. */
export function goBy(store: Store, data: ProgramData, share: number): void {
  const [first, last] = store.state.range;
  const by = Math.sign(share) * Math.max(1, Math.round(Math.abs(share) * (last + 1 - first)));
  goTo(store, data, store.state.step + by);
}

/** Select the first step of the peak of the selected memory space. */
export function goToPeak(store: Store, data: ProgramData): void {
  const step = data.model.spaces[store.state.space]?.first_step;
  if (step != null) goTo(store, data, step);
}

/** Select the first step of the next (1) or previous (-1) plateau of the selected memory space. */
export function goToPlateau(store: Store, data: ProgramData, direction: 1 | -1): void {
  const steps = (data.model.spaces[store.state.space]?.plateaus ?? []).map((plateau) => plateau.first_step);
  const ahead = steps.filter((step) => (step - store.state.step) * direction > 0);
  if (ahead.length > 0) goTo(store, data, direction * Math.min(...ahead.map((step) => step * direction)));
}

/** Show more steps (factor above 1) or fewer, around a step. */
export function zoomBy(store: Store, data: ProgramData, factor: number, around: number): void {
  if (data.model.steps) store.set({ range: zoomed(store.state.range, around, factor, data.model.steps) });
}

/** The selected step if it is visible, else the middle of the visible range. */
export function centre({ state: { step, range } }: Store): number {
  return step >= range[0] && step <= range[1] ? step : Math.floor((range[0] + range[1]) / 2);
}

/** Moves the visible range by small shares of itself. What is less than a step is kept for the next movement. */
export class Panning {
  #rest = 0;

  /** Move by a share of the visible steps; false if the range is at its end. */
  by(store: Store, data: ProgramData, share: number): boolean {
    const { range } = store.state;
    this.#rest += share * (range[1] + 1 - range[0]);
    const steps = Math.trunc(this.#rest);
    this.#rest -= steps;
    store.set({ range: panned(range, steps, data.model.steps ?? 0) });
    return steps === 0 || store.state.range !== range;
  }
}

export function showAllSteps(store: Store, data: ProgramData): void {
  store.set({ range: allSteps(data) });
}

export function allSteps(data: ProgramData): readonly [number, number] {
  return [0, Math.max(0, (data.model.steps ?? 1) - 1)];
}

export function nextSpace(store: Store, data: ProgramData): void {
  store.set({ space: (store.state.space + 1) % Math.max(1, data.model.spaces.length) });
}
