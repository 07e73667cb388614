/** Bundle the script and the styles to ../page.js and ../page.css, or to the folder given as argument. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));

/** Every page contains uPlot, so it contains its licence too. */
function licence() {
  const [head] = /^\/\*\*.*?\*\//s.exec(readFileSync(join(here, "vendor/uPlot.esm.js"), "utf8"));
  return `${head}\n/*\n${readFileSync(join(here, "vendor/LICENSE"), "utf8").trim()}\n*/`;
}

await build({
  absWorkingDir: here,
  entryPoints: [
    { in: "main.ts", out: "page" },
    { in: "styles/page.css", out: "page" },
  ],
  outdir: process.argv[2] ?? join(here, ".."),
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome103", "firefox113", "safari16.4"],
  charset: "ascii",
  banner: { js: licence() },
  logLevel: "warning",
});
