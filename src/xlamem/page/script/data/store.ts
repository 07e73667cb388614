/** What is selected. All views draw from this state and change it; the address of the page contains it. */

export type ColorBy = "phase" | "layer" | "kind" | "category";

export interface State {
  /** Row of the programs of the report. */
  program: number;
  /** Row of the program's memory spaces. */
  space: number;
  step: number;
  /** Row of buffers, -1 for none. */
  buffer: number;
  /** Row of scopes, 0 for all. */
  scope: number;
  /** First and last visible step. */
  range: readonly [number, number];
  colorBy: ColorBy;
  /** Text that selects buffers. */
  query: string;
}

export type Key = keyof State;
type Listener = (state: State, changed: ReadonlySet<Key>) => void;

export class Store {
  #state: State;
  readonly #listeners: { keys: readonly Key[]; listener: Listener }[] = [];
  #pending = new Set<Key>();

  constructor(state: State) {
    this.#state = state;
  }

  get state(): State {
    return this.#state;
  }

  /** Change some of the state. Views redraw in the next frame. */
  set(change: Partial<State>): void {
    const keys = (Object.keys(change) as Key[]).filter((key) => !same(this.#state[key], change[key]));
    if (keys.length === 0) return;
    this.#state = { ...this.#state, ...change };
    if (this.#pending.size === 0) requestAnimationFrame(() => this.#notify());
    for (const key of keys) this.#pending.add(key);
  }

  /** Call a view when one of these keys changes. */
  on(keys: readonly Key[], listener: Listener): void {
    this.#listeners.push({ keys, listener });
  }

  /** A mark for `release`. */
  mark(): number {
    return this.#listeners.length;
  }

  /** Forget the views that have registered since a mark. */
  release(mark: number): void {
    this.#listeners.length = mark;
  }

  #notify(): void {
    const changed = this.#pending;
    this.#pending = new Set();
    for (let i = 0; i < this.#listeners.length; i++) {
      const { keys, listener } = this.#listeners[i]!; // a listener may release those after it
      if (keys.some((key) => changed.has(key))) listener(this.#state, changed);
    }
  }
}

function same(a: unknown, b: unknown): boolean {
  return Array.isArray(a) && Array.isArray(b) ? a.every((x, i) => x === b[i]) : a === b;
}
