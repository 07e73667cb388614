/** Copy text. */

import { h } from "./dom.js";

/** Put a text on the clipboard. Returns whether the browser did it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyByCommand(text);
  }
}

/** The way of browsers that have no clipboard for pages from a file. */
function copyByCommand(text: string): boolean {
  const area = h("textarea", { class: "off-screen", "aria-hidden": "true" });
  const focused = document.activeElement as HTMLElement | null;
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
