/** Show the report that the page contains. */

import { initial, programIn } from "./data/address.js";
import { comparisonView } from "./comparison/comparison.js";
import { directoryView } from "./comparison/directory.js";
import { fill, h } from "./parts/dom.js";
import { footer, headline } from "./program/header.js";
import { addHelp, listenToKeys } from "./parts/keys.js";
import type { Program, Report } from "./data/model.js";
import { ProgramPage } from "./program/program.js";
import { Store } from "./data/store.js";
import { followTheme } from "./parts/theme.js";

function main(): void {
  const report = readReport();
  const n = report.programs.length;
  const first = report.kind === "directory" ? -1 : n - 1;
  const row = programIn(location.hash, n) ?? first;
  const store = new Store(initial(row, report.programs[row]));
  const programs = new ProgramPage(report, store, first);
  const overview = h("div", { class: "overview" });
  followTheme();
  fill(document.getElementById("page")!, headline(report), h("main", {}, overview, programs.element), footer(report));
  addHelp();
  listenToKeys(store, () => programs.shown);
  if (report.kind === "directory") directoryView(overview, report, programs.page);
  if (report.kind === "comparison") {
    programs.overview = comparisonView(overview, report, programs.page, () => programs.decodeAll(), (i) => programs.open(i));
  }
  programs.start();
}

/** The report with its programs, each of which is parsed when it is read first. */
function readReport(): Report {
  const report = parsed("report") as Report;
  const blocks = document.querySelectorAll('script[id^="program-"]');
  blocks.forEach((_, i) => defineLazily(report.programs, i, () => parsed(`program-${i}`) as Program));
  return report;
}

function parsed(id: string): unknown {
  return JSON.parse(document.getElementById(id)!.textContent);
}

function defineLazily<T>(list: T[], i: number, make: () => T): void {
  let value: T | undefined;
  Object.defineProperty(list, i, { enumerable: true, configurable: true, get: () => (value ??= make()) });
}

main();
