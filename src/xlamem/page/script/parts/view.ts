/** What every view gets. */

import type { ProgramData } from "../data/data.js";
import type { Report } from "../data/model.js";
import type { Store } from "../data/store.js";

export interface Page {
  readonly report: Report;
  /** Decoded programs by row; undefined until they are opened. */
  readonly programs: readonly (ProgramData | undefined)[];
  readonly store: Store;
}

/** Draw into an element, and again whenever the state changes. */
export type View = (host: HTMLElement, data: ProgramData, page: Page) => void;
