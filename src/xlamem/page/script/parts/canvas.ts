/** Lines and texts on a canvas. */

import type { Rgb, Theme } from "./palette.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

export function font(pixels: number): string {
  return `${pixels}px ${FONT}`;
}

export function css([r, g, b]: Rgb, opacity = 1): string {
  return `rgba(${r}, ${g}, ${b}, ${opacity})`;
}

/** The font on a canvas whose pixels are those of the device. */
export function scaledFont(pixels: number): string {
  return font(pixels * devicePixelRatio);
}

export function line(
  ctx: CanvasRenderingContext2D, theme: Theme, variable: string, dash: readonly number[],
  x0: number, y0: number, x1: number, y1: number,
): void {
  ctx.beginPath();
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  ctx.lineWidth = devicePixelRatio;
  ctx.strokeStyle = css(theme.rgb(variable));
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
  ctx.setLineDash([]);
}

/** Text above or below a line. A halo in the colour of the background keeps it legible on other lines. */
export function text(
  ctx: CanvasRenderingContext2D, theme: Theme, variable: string, label: string, x: number, y: number,
  { align, above, halo }: { align: CanvasTextAlign; above: boolean; halo: boolean },
): void {
  ctx.font = scaledFont(11);
  ctx.textAlign = align;
  ctx.textBaseline = above ? "bottom" : "top";
  const at = y + (above ? -3 : 4) * devicePixelRatio;
  if (halo) {
    ctx.lineWidth = 3 * devicePixelRatio;
    ctx.lineJoin = "round";
    ctx.strokeStyle = css(theme.rgb("--bg"));
    ctx.strokeText(label, x, at);
  }
  ctx.fillStyle = css(theme.rgb(variable));
  ctx.fillText(label, x, at);
}
