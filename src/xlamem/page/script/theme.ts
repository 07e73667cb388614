/** Light and dark: `data-theme` of the root element. `palette.ts` reads the colours. */

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
/** What the reader chose; undefined follows the system. */
let chosen: string | undefined;

export function switchTheme(): void {
  chosen = root.dataset["theme"] === "dark" ? "light" : "dark";
  apply();
}

/** Follow the system until the reader chooses, and print in light colours. */
export function followTheme(): void {
  apply();
  dark.addEventListener("change", apply);
  addEventListener("beforeprint", () => (root.dataset["theme"] = "light"));
  addEventListener("afterprint", apply);
}

function apply(): void {
  root.dataset["theme"] = chosen ?? (dark.matches ? "dark" : "light");
}
