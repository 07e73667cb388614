/** Select buffers. */

import { goTo } from "./actions.js";
import type { ProgramData } from "../data/data.js";
import { isLiveAt, liveSet, occupiedRange } from "../data/live.js";
import type { Store } from "../data/store.js";

/** Select a buffer. If it is not live at the selected step, select the step of its life nearest to `step` too. */
export function select(store: Store, data: ProgramData, buffer: number, step = store.state.step): void {
  const [first, last] = occupiedRange(data, buffer);
  const stays = first > last || isLiveAt(data, buffer, store.state.step);
  store.set({ buffer, space: data.allocations.space[data.buffers.allocation[buffer]!]! });
  if (!stays) goTo(store, data, Math.max(first, Math.min(last, step)));
}

/** The largest buffer that is live at the peak of a memory space; -1 for none. */
export function largestAtPeak(data: ProgramData, space: number): number {
  const step = data.model.spaces[space]?.first_step;
  if (step == null) return -1;
  const { nLive, buffer, bytes } = liveSet(data, space, step);
  let largest = -1;
  for (let i = 0; i < nLive; i++) if (largest < 0 || bytes[i]! > bytes[largest]!) largest = i;
  return largest < 0 ? -1 : buffer[largest]!;
}
