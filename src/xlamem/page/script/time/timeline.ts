/** Bytes in use of the selected memory space over the steps. */

import { centre, goTo, goToPeak, goToPlateau, Panning, showAllSteps, zoomBy } from "../parts/actions.js";
import { chart } from "./chart.js";
import type { ProgramData } from "../data/data.js";
import { fill, h, name, onWidth, plain } from "../parts/dom.js";
import { exactSize, number, percent, size } from "../parts/format.js";
import { button, sentence } from "../parts/frame.js";
import { addGestures } from "../parts/gestures.js";
import { stepAt, zoomed } from "../parts/layout.js";
import type { Level, Marks } from "./marks.js";
import type { Device, Space } from "../data/model.js";
import { onTheme, phaseVariable } from "../parts/palette.js";
import { sparklines } from "./sparklines.js";
import type { Page, View } from "../parts/view.js";

/** Levels that are this many times higher than the line would flatten it, so they are only named. */
const MOST_ABOVE = 1.7;
const FIXED: Readonly<Record<string, string>> = {
  parameter: "parameters",
  donated: "donated",
  live_out: "outputs",
  constant: "constants",
};

export const timelineView: View = (host, data, page) => {
  if (data.model.steps === null) {
    host.append(sentence("The dump has no live ranges, so it is not known what is in use when."));
    return;
  }
  const plot = h("div", { class: "plot", role: "img" });
  const caption = h("div", { class: "timeline-legend" });
  const status = h("p", { class: "status", "aria-live": "polite" });
  host.append(sparklines(data, page), h("div", { class: "bar" }, status, controls(data, page)), plot, caption);
  addChart(plot, data, page);
  const { store } = page;
  const showStatus = () => fill(status, ...statusOf(data, page));
  const showLegend = () => {
    fill(caption, ...legend(data, store.state.space));
    plot.setAttribute("aria-label", description(data, store.state.space));
  };
  store.on(["step", "space"], showStatus);
  store.on(["space"], showLegend);
  showStatus();
  showLegend();
};

function controls(data: ProgramData, { store }: Page): HTMLElement {
  const zoom = (factor: number) => zoomBy(store, data, factor, centre(store));
  const plateaus = data.model.spaces.some((space) => space.plateaus.length > 1);
  return h(
    "div",
    { class: "controls", role: "group", "aria-label": "Timeline" },
    button("Go to peak", () => goToPeak(store, data), { title: "Key: p" }),
    plateaus ? button("\u2039", () => goToPlateau(store, data, -1), { title: "Previous plateau (key: [)", "aria-label": "Previous plateau" }) : null,
    plateaus ? button("\u203a", () => goToPlateau(store, data, 1), { title: "Next plateau (key: ])", "aria-label": "Next plateau" }) : null,
    button("\u2212", () => zoom(2), { title: "Zoom out (key: -)", "aria-label": "Zoom out" }),
    button("+", () => zoom(0.5), { title: "Zoom in (key: +)", "aria-label": "Zoom in" }),
    button("All steps", () => showAllSteps(store, data), { title: "Key: 0" }),
  );
}

/** The selected step in words. */
function statusOf(data: ProgramData, { store }: Page): Node[] {
  const { step, space } = store.state;
  const bytes = data.usage[space]?.[step] ?? 0;
  const peak = data.model.spaces[space]?.peak ?? 0;
  const instruction = data.instructions.name[data.schedule[step] ?? -1];
  return [
    h("span", {}, `Step ${number(step)} of ${number(data.model.steps! - 1)}: `),
    h("strong", { title: exactSize(bytes) }, size(bytes)),
    h("span", {}, ` in use${ofPeak(bytes, peak)}`),
    ...(instruction ? [h("span", { class: "muted" }, " while ", name(instruction, 60), " runs")] : []),
  ];
}

/** The chart in words, for screen readers. */
function description({ model }: ProgramData, space: number): string {
  const { memory_space, peak, first_step } = model.spaces[space]!;
  const highest = peak === null || first_step === null ? "" : `: at most ${size(peak)}, at step ${number(first_step)}`;
  return `Bytes in use of ${plain(memory_space, 40)} over ${number(model.steps! - 1)} steps${highest}`;
}

function ofPeak(bytes: number, peak: number): string {
  if (peak === 0) return "";
  if (bytes === peak) return ", the peak";
  const share = percent(bytes, peak);
  return share === percent(1, 1) ? `, ${size(peak - bytes)} below the peak` : `, ${share} of the peak`;
}

// -- the chart ------------------------------------------------------------------------------------------

function addChart(host: HTMLElement, data: ProgramData, { store }: Page): void {
  const usage = () => data.usage[store.state.space]!;
  const marks = () => marksOf(data, store.state.space, store.state.step, store.state.range);
  let drawn: ReturnType<typeof chart> | undefined;
  onWidth(host, (width) => {
    const height = width < 560 ? 220 : 280;
    if (drawn) drawn.resize(width, height);
    else {
      drawn = chart(host, width, height, usage(), marks());
      listen(drawn.over, host, data, store);
    }
  });
  store.on(["space", "range"], () => drawn?.update(usage(), marks()));
  store.on(["step"], () => drawn?.redraw(marks()));
  onTheme(() => drawn?.redraw(marks()), host);
}

function listen(over: HTMLElement, host: HTMLElement, data: ProgramData, store: Page["store"]): void {
  const left = () => over.getBoundingClientRect().left - host.getBoundingClientRect().left;
  const step = (x: number) => stepAt(x + left(), store.state.range, host.clientWidth);
  const n = data.model.steps!;
  const panning = new Panning();
  addGestures(over, {
    click: (x) => goTo(store, data, step(x)),
    zoomTo: (from, to) => store.set({ range: [Math.max(0, step(from)), Math.min(n - 1, step(to))] }),
    zoom(factor, x) {
      const range = zoomed(store.state.range, step(x), factor, n);
      if (range[0] === store.state.range[0] && range[1] === store.state.range[1]) return false;
      store.set({ range });
      return true;
    },
    pan: (pixels) => void panning.by(store, data, pixels / over.clientWidth),
    reset: () => showAllSteps(store, data),
  });
}

function marksOf(data: ProgramData, space: number, step: number, range: readonly [number, number]): Marks {
  const model = data.model.spaces[space]!;
  const levels = levelsOf(data, model).filter((level) => isShown(level.bytes, model));
  const highest = Math.max(1, model.peak ?? 0, ...levels.map((level) => level.bytes));
  return {
    range,
    top: highest * 1.09,
    phases: data.phases,
    fixed: fixedBytes(model),
    fixedLabel: fixedNames(model),
    levels,
    plateaus: model.plateaus,
    step,
    bytes: data.usage[space]?.[step] ?? 0,
  };
}

/** What must be reserved, and the capacity, the highest first. */
function levelsOf({ model: { verdict } }: ProgramData, space: Space): Level[] {
  const levels: Level[] = [{ label: "reserved", bytes: space.reserved, dash: [4, 3], variable: "--muted" }];
  const { device } = verdict;
  if (device && space.in_device_memory) {
    levels.push({ label: "available", bytes: device.available, dash: [], variable: "--bad" });
  }
  return levels.sort((a, b) => b.bytes - a.bytes);
}

function isShown(bytes: number, { peak }: Space): boolean {
  return bytes <= MOST_ABOVE * Math.max(1, peak ?? 0);
}

function fixedBytes({ categories }: Space): number {
  return Object.keys(FIXED).reduce((sum, category) => sum + (categories[category] ?? 0), 0);
}

function fixedNames({ categories }: Space): string {
  const names = Object.entries(FIXED).flatMap(([category, label]) => (categories[category] ? [label] : []));
  return names.join(", ");
}

// -- below the chart ----------------------------------------------------------------------------------------

function legend(data: ProgramData, space: number): HTMLElement[] {
  const model = data.model.spaces[space]!;
  const fixed = fixedBytes(model);
  const device = model.in_device_memory ? data.model.verdict.device : null;
  const used = [...new Set(data.phases.phase)].map((phase) => data.phases.names[phase]!);
  return [
    key("key-line", "in use"),
    ...(fixed ? [key("key-fixed", `${fixedNames(model)}: ${size(fixed)}, in use at every step`)] : []),
    level("key-reserved", "reserved", model.reserved, model),
    ...(device ? [level("key-available", availableOn(device), device.available, model)] : []),
    ...used.map((phase) => key("key-phase", phase, phaseVariable(phase))),
    ...(model.plateaus.length ? [key("key-plateau", model.plateaus.length > 1 ? "plateaus, the peak filled" : "the peak")] : []),
  ];
}

function level(kind: string, label: string, bytes: number, model: Space): HTMLElement {
  return isShown(bytes, model) ? key(kind, `${label}: ${size(bytes)}`) : h("span", {}, `${label}: ${size(bytes)}, above the chart`);
}

function availableOn({ name: text }: Device): string {
  return text === "capacity" ? "available" : `available on ${plain(text, 40)}`;
}

function key(kind: string, label: string, variable?: string): HTMLElement {
  const mark = h("span", { class: `key ${kind}`, "aria-hidden": "true" });
  if (variable) mark.style.background = `var(${variable})`;
  return h("span", { class: "legend-item" }, mark, label);
}
