/** Bundle the script and the styles to ../page.js and ../page.css, or to the folder given as argument. */

import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));

await build({
  absWorkingDir: here,
  entryPoints: [
    { in: "main.ts", out: "page" },
    { in: "page.css", out: "page" },
  ],
  outdir: process.argv[2] ?? join(here, ".."),
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome103", "firefox113", "safari16.4"],
  charset: "ascii",
  legalComments: "inline",
  logLevel: "warning",
});
