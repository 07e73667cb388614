/** A button with a small line of bytes in use for each memory space. */

import { css } from "../parts/canvas.js";
import type { ProgramData } from "../data/data.js";
import { envelope } from "./decimate.js";
import { h, name } from "../parts/dom.js";
import { size } from "../parts/format.js";
import { onTheme, Theme } from "../parts/palette.js";
import type { Page } from "../parts/view.js";

const WIDTH = 64;
const HEIGHT = 24;

export function sparklines(data: ProgramData, { store }: Page): HTMLElement {
  const canvases = data.model.spaces.map(() => h("canvas", { width: 2 * WIDTH, height: 2 * HEIGHT, "aria-hidden": "true" }));
  const buttons = data.model.spaces.map((space, i) =>
    h(
      "button",
      { type: "button", class: "space", "aria-pressed": "false", on: { click: () => store.set({ space: i }) } },
      h("span", { class: "space-name" }, name(space.page ? `${space.memory_space} page ${space.page}` : space.memory_space)),
      canvases[i]!,
      h("span", { class: "space-bytes" }, space.peak === null ? "" : `${size(space.peak)} peak`),
      h("span", { class: "space-bytes muted" }, `${size(space.reserved)} reserved`),
    ),
  );
  const draw = () => {
    const theme = new Theme();
    canvases.forEach((canvas, i) => drawLine(canvas, data.usage[i]!, theme));
  };
  const press = () => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === store.state.space)));
  store.on(["space"], press);
  onTheme(draw, canvases[0]);
  press();
  draw();
  return h("div", { class: "spaces", role: "group", "aria-label": "Memory space" }, ...buttons);
}

function drawLine(canvas: HTMLCanvasElement, usage: Float64Array, theme: Theme): void {
  const ctx = canvas.getContext("2d")!;
  ctx.clearRect(0, 0, canvas.width, canvas.height);
  const values = envelope(usage, canvas.width);
  const top = values.reduce((a, b) => Math.max(a, b), 1);
  const step = canvas.width / values.length;
  ctx.beginPath();
  ctx.moveTo(0, canvas.height);
  values.forEach((bytes, i) => {
    const level = 2 + (canvas.height - 2) * (1 - bytes / top);
    ctx.lineTo(i * step, level);
    ctx.lineTo((i + 1) * step, level);
  });
  ctx.lineTo(canvas.width, canvas.height);
  ctx.fillStyle = css(theme.rgb("--usage"), 0.35);
  ctx.fill();
}
