"""`xlamem info`: what is there, and whether it adds up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click

from ... import schema
from ...dump import Dump, read
from ...errors import DumpError, UsageError
from ...input.find import Source, find
from .. import console
from ..console import bad, bold, counted, dim, out
from ..program import STATES, file_of, in_words, states, wrong

SHOWN = 10
"""Diagnostics printed for people."""

LABEL = 16
"""Columns taken by the labels."""

CHECKS = {
    "total_differs": "sizes add up to the printed total",
    "records_differ": "used values are those of the allocations",
    "value_outside": "values end within their allocations",
    "ids_descend": "ids ascend",
    "schedule_gap": "the schedule is dense",
    "steps_differ": "the schedule is as long as printed",
    "range_outside": "live ranges lie in the schedule",
    "live_range_missing": "every temporary has its live range",
    "live_range_unmatched": "every live range has its value",
    "tree_differs": "the stack tree adds up to its head",
    "report_differs": "XLA's report agrees with the allocations",
}
"""Codes of the cross-checks, and what holds if none is found."""


@dataclass
class Facts:
    """One dump as plain data."""

    source: Source
    module: dict[str, Any]
    files: list[dict[str, Any]]
    diagnostics: list[dict[str, Any]]
    allocated: int | None
    """Printed total, else the sum of the allocations."""
    checks: dict[str, str]
    """Code of each cross-check: passed, failed, or skipped because the dump lacks what it needs."""
    wrong: list[str]
    """A sentence for each state that is not as it should be."""

    @property
    def label(self) -> str:
        return console.visible(os.path.join(self.source.location, self.source.name).removeprefix("./"))

    @property
    def failed(self) -> list[str]:
        return [code for code, state in self.checks.items() if state == "failed"]

    @property
    def state(self) -> str:
        """In one or two words."""
        if found := wrong(self.module):
            return found[0]
        return counted(len(self.diagnostics), "diagnostic") if self.diagnostics else "ok"


@click.command("info", short_help="Say what is in dumps: sizes, features, checks.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strict", is_flag=True, help="Exit with 3 if a dump is truncated or not understood.")
def command(paths: tuple[str, ...], as_json: bool, strict: bool) -> int:
    """Read the dumps under PATHs (files, directories, archives, URIs, - for standard input) wholly, and say what they
    hold and whether their numbers agree with each other.
    """
    known: list[Facts] = []
    failed: list[tuple[str, str]] = []
    for source in find(*paths):
        try:
            known.append(_facts(read(source, hashes=True)))
        except (DumpError, UsageError, OSError) as error:
            failed.append((os.path.join(source.location, source.name).removeprefix("./"), str(error)))
    same = _duplicates(known)
    if as_json:
        console.out_json(_as_json(known, failed, same))
    elif len(known) == 1 and not failed:
        _print_one(known[0])
    elif known:
        _print_many(known, len(failed), same)
    for name, said in failed:
        console.complain(said if name in said else f"{name}: {said}", console.UNREADABLE)
    if failed or (strict and any(_strict_fault(k) for k in known)):
        return console.UNREADABLE
    return console.CHECK_FAILED if any(k.failed and k.module["complete"] for k in known) else console.FINE


def _strict_fault(facts: Facts) -> bool:
    return not facts.module["complete"] or any(d["code"] not in CHECKS for d in facts.diagnostics)


# -- facts ---------------------------------------------------------------------------------------


def _facts(dump: Dump) -> Facts:
    diagnostics = dump.verify().to_pylist()
    module = dump.modules.to_pylist()[0]
    allocated = module["total_bytes"]
    if allocated is None and module["n_allocations"]:
        allocated = sum(dump.allocations["size"].to_pylist())
    checks = _checks(module, diagnostics)
    return Facts(dump.source, module, dump.files.to_pylist(), diagnostics, allocated, checks, states(dump))


def _checks(module: dict[str, Any], diagnostics: list[dict[str, Any]]) -> dict[str, str]:
    features = set(module["features"].split(","))
    values, live = bool(module["n_values"]), module["schedule_length"] is not None
    possible = {
        "total_differs": module["total_bytes"] is not None and bool(module["n_allocations"]),
        "records_differ": values and bool(features & {"values_inline", "values_split"}),
        "value_outside": values,
        "ids_descend": values,
        "schedule_gap": live,
        "steps_differ": live,
        "range_outside": live,
        "live_range_missing": live and values,
        "live_range_unmatched": live and values,
        "tree_differs": "tree" in features,
        "report_differs": bool(features & {"report_a", "report_b"}) and bool(module["n_allocations"]),
    }
    found = {d["code"] for d in diagnostics}
    return {c: "failed" if c in found else "passed" if possible[c] else "skipped" for c in CHECKS}


def _duplicates(known: list[Facts]) -> list[list[Facts]]:
    """Dumps whose files hold the same bytes."""
    groups: dict[str, list[Facts]] = {}
    for facts in known:
        if any(f["bytes"] for f in facts.files):
            groups.setdefault(facts.module["content_hash"], []).append(facts)
    return [group for group in groups.values() if len(group) > 1]


def _as_json(known: list[Facts], failed: list[tuple[str, str]], same: list[list[Facts]]) -> dict[str, Any]:
    return {
        "schema_version": schema.VERSION,
        "dumps": [
            {
                "name": k.source.name,
                "place": k.source.location,
                "module": k.module,
                "files": k.files,
                "allocated_bytes": k.allocated,
                "checks": k.checks,
                "diagnostics": k.diagnostics,
            }
            for k in known
        ],
        "duplicates": [[k.label for k in group] for group in same],
        "failed": [{"name": name, "error": said} for name, said in failed],
    }


# -- one dump ------------------------------------------------------------------------------------


def _print_one(facts: Facts) -> None:
    module, width = facts.module, console.width()
    for sentence in facts.wrong:
        for line in console.fill(sentence, 0, width):
            out(bad(line))
    out(bold(console.shortened(console.visible(facts.source.name), width)))
    _line("in", console.shortened(console.visible(facts.source.location), width and width - LABEL - 2))
    _line("module", _module(module))
    _line("platform", " ".join(filter(None, [module["platform"] or "not said by the dump", module["target"]])))
    if module["changelist"] is not None:
        _line("changelist", str(module["changelist"]))
    if module["timestamp_us"] is not None:
        _line("written", _moment(module["timestamp_us"]))
    total = sum(f["bytes"] for f in facts.files)
    _lines("files", [f"{counted(len(facts.files), 'file')}, {console.exact(total)}", *_files(facts.files)])
    _lines("features", console.wrapped(filter(None, module["features"].split(",")), LABEL + 2, width) or ["none"])
    counts = [f"{t} {module[f'n_{t}']:,}" for t in schema.TABLES if module.get(f"n_{t}") and t != "diagnostics"]
    _lines("rows", console.wrapped(counts, LABEL + 2, width) or ["none"])
    if facts.allocated is not None:
        how = "as XLA printed it" if module["total_bytes"] is not None else "the sum of the allocations"
        _lines("allocated", [f"{console.exact(facts.allocated)}, {how},", "all memory spaces together"])
    if module["printed_peak_bytes"] is not None:
        _line("XLA's own peak", f"{console.exact(module['printed_peak_bytes'])}, as printed,")
        _line("", f"at step {module['printed_peak_time']:,} of {console.known(module['schedule_length'])}")
    _print_checks(facts)
    _print_state(facts, width)


def _module(module: dict[str, Any]) -> str:
    number = f"number {module['module_id']}" if module["module_id"] is not None else ""
    return ", ".join(filter(None, [console.visible(module["module_name"] or ""), number])) or "not said by the dump"


def _moment(us: int) -> str:
    from datetime import UTC, datetime, timedelta

    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us):%Y-%m-%d %H:%M:%S} UTC"


def _files(files: list[dict[str, Any]]) -> list[str]:
    ends = ["" if f["complete"] else "truncated" for f in files]
    rows = [[f["role"], console.size(f["bytes"]), f"{f['bytes']:,}", s] for f, s in zip(files, ends, strict=True)]
    return console.columns(rows, {0, 3})


def _print_checks(facts: Facts) -> None:
    found = list(facts.checks.values())
    passed, skipped = found.count("passed"), found.count("skipped")
    said = [f"{passed} passed"] if passed else []
    said += [bad(f"{len(facts.failed)} failed")] if facts.failed else []
    said += [f"{skipped} not possible here"] if skipped else []
    _lines("cross-checks", [", ".join(said), *(bad(f"failed: {CHECKS[c]} ({c})") for c in facts.failed)])


def _print_state(facts: Facts, width: int | None) -> None:
    n = len(facts.diagnostics)
    said = [column if facts.module[column] else bad(not_so) for column, (not_so, _) in STATES.items()]
    _line("state", f"{', '.join(said)}; {counted(n, 'diagnostic') if n else 'no diagnostics'}")
    for d in facts.diagnostics[:SHOWN]:
        _print_diagnostic(d, facts.source, width)
    if n > SHOWN:
        out(f"  … and {counted(n - SHOWN, 'more', 'more')}; --json gives all")


def _print_diagnostic(d: dict[str, Any], source: Source, width: int | None) -> None:
    out(f"  {console.shortened(console.visible(file_of(d, source)), width and width - 2)}")
    out(f"    {(bad if d['severity'] == 'error' else str)(d['code'])} in {d['section']}")
    for text in console.fill(f"expected {d['wanted']}", 4, width):
        out(f"    {text}")
    if d["excerpt"]:
        out(f"    {dim(console.shortened('found    ' + console.visible(d['excerpt']), width and width - 4))}")


def _line(label: str, text: str) -> None:
    out(f"  {dim(label.ljust(LABEL))}{text}")


def _lines(label: str, texts: list[str]) -> None:
    for i, text in enumerate(texts):
        _line("" if i else label, text)


# -- several -------------------------------------------------------------------------------------


def _print_many(known: list[Facts], n_failed: int, same: list[list[Facts]]) -> None:
    width = console.width()
    known = sorted(known, key=lambda k: -(k.allocated or 0))
    stated = any(k.state != "ok" for k in known)
    rows = [["allocated", "XLA's peak", "platform", *(["state"] if stated else []), "dump"]]
    for k in known:
        peak = k.module["printed_peak_bytes"]
        sizes = [console.size(n) if n is not None else "-" for n in (k.allocated, peak)]
        rows.append([*sizes, k.module["platform"] or "?", *([k.state] if stated else []), ""])
    lines = console.columns(rows, {2, 3, 4})
    indent = lines[0].rindex("dump")
    out(bold(lines[0]))
    names = _names(known)
    for k, line, name in zip(known, lines[1:], names, strict=True):
        text = line.ljust(indent) + console.shortened(name, width and width - indent)
        out(text if k.state == "ok" else bad(text))
    out()
    _print_summary(known, n_failed)
    for group in same:
        out("same content:")
        for k in group:
            out(f"  {k.label}")


def _names(known: list[Facts]) -> list[str]:
    """Short names: without the folders that all share, without what XLA puts around the module's name."""
    places = [k.source.location for k in known]
    try:
        shared = os.path.commonpath(places)
    except ValueError:  # absolute and relative ones
        shared = ""
    names = []
    for k, place in zip(known, places, strict=True):
        s = k.source
        module = f"{s.module_id:04d}.{s.module_name}" if s.module_id is not None and s.module_name else s.name
        folder = os.path.relpath(place, shared) if shared else place
        names.append(console.visible(os.path.join(folder, module).removeprefix("./")))
    return names


def _print_summary(known: list[Facts], n_failed: int) -> None:
    size = sum(f["bytes"] for k in known for f in k.files)
    said = [counted(len(known), "dump"), f"{console.exact(size)} of text"]
    said += in_words(k.module for k in known)
    said += [f"{n_failed} unreadable"] if n_failed else []
    out(", ".join(said))
