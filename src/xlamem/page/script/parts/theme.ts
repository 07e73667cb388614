/** Light, dark and paper: `data-theme` and the class of the root element. `palette.ts` reads the colours. */

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const paper = matchMedia("print");
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
  paper.addEventListener("change", apply);
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));
}

function setPrinting(isPrinting: boolean): void {
  root.classList.toggle("printing", isPrinting);
  apply();
}

function apply(): void {
  const isPaper = paper.matches || root.classList.contains("printing");
  root.dataset["theme"] = isPaper ? "light" : (chosen ?? (dark.matches ? "dark" : "light"));
}
