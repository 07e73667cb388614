/** Light, dark and paper: `data-theme` and the class of the root element. `palette.ts` reads the colours. */

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
/** What the reader chose; undefined follows the system. */
let chosen: string | undefined;

export function switchTheme(): void {
  chosen = root.dataset["theme"] === "dark" ? "light" : "dark";
  apply();
}

/** Follow the system until the reader chooses, and print in light colours, as wide as paper. */
export function followTheme(): void {
  apply();
  dark.addEventListener("change", apply);
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    root.dataset["theme"] = "light";
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    apply();
  });
}

function apply(): void {
  root.dataset["theme"] = chosen ?? (dark.matches ? "dark" : "light");
}
