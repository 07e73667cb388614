/** Select buffers. */

import type { ProgramData } from "./data.js";
import { isLiveAt, occupiedRange } from "./live.js";
import type { Store } from "./store.js";

/** Select a buffer. If it is not live at the selected step, select the step of its life nearest to `step` too. */
export function select(store: Store, data: ProgramData, buffer: number, step = store.state.step): void {
  const [first, last] = occupiedRange(data, buffer);
  const stays = first > last || isLiveAt(data, buffer, store.state.step);
  store.set({
    buffer,
    space: data.allocations.space[data.buffers.allocation[buffer]!]!,
    step: stays ? store.state.step : Math.max(first, Math.min(last, step)),
  });
}
