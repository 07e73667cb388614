"""The result as Markdown: a comment for a pull request, or the summary of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from ...compare.verdict import signed
from ...display.markdown import code, escaped, table
from ...formatting import align, count, file_line, one_line, shorten, shorten_path, size
from ..curves import Curves
from ..program_names import name_of
from ..result import FAILED, NOT_KNOWN, NOTE, PASSED, STATUSES, WARNING, CheckResult, Row
from .sources import Place, Sources
from .wording import BAD, IN_TABLE, findings_by_program, is_new, notes, number_cells, of_budget

MARKER = "<!-- xlamem check -->"
"""The first line, by which a workflow finds the comment that it wrote before."""
WORDS = {PASSED: "✅ passed", NOTE: "✅ passed", WARNING: "⚠️ warning", NOT_KNOWN: "❔ not known", FAILED: "❌ failed"}
MAX_ROWS = 30
"""Maximum number of programs in the table, the worst and then the largest first."""
MAX_DETAILED, MAX_CHARACTERS = 10, 50_000
"""Maximum number of programs with a cause, and of characters after which no further one is described: a comment has at
most 65,536."""
MAX_NOTES = 10
MAX_NAME, MAX_TEXT = 60, 800
N_CONTRIBUTORS = 5
BLOCKS = "▁▂▃▄▅▆▇█"
HEADINGS = ("program", "must fit:", "change:", "peak:", "change:", "status")
CONTRIBUTORS = ("change:", "cause", "n:", "buffers at the peak", "shape", "source")


def as_markdown(result: CheckResult) -> str:
    """Return the result in a sentence, a table of programs, and the curves and causes of what did not pass."""
    result = result.with_distinct_names()
    findings = findings_by_program(result)
    programs = sorted(result.programs.to_pylist(), key=_rank)
    lines = [MARKER, f"**{escaped(result.summary)}**", ""]
    lines += table(HEADINGS, [_cells(p, findings.get(p["program"], [])) for p in programs[:MAX_ROWS]])
    if more := len(programs) - MAX_ROWS:
        lines += ["", f"and {count(more, 'other program')}"] if more > 0 else []
    lines += [line for note in notes(result) for line in ("", escaped(note))]
    lines += _other_notes(result)
    return "\n".join([*lines, *_sections(result, [p for p in programs if p["status"] in BAD], findings)])


def _rank(program: Row) -> tuple[int, int]:
    return -STATUSES.index(program["status"]), -(program["device_total"] or 0)


def _cells(p: Row, findings: list[Row]) -> list[str]:
    return [code(_name(p)), *number_cells(p, is_new=is_new(findings)), WORDS[p["status"]]]


def _name(row: Row) -> str:
    return shorten(one_line(name_of(row)), MAX_NAME)


def _other_notes(result: CheckResult) -> list[str]:
    """Return a list of the notes about single programs: improvements, growth that was accepted, other compilers."""
    rows = [row for row in result.rows(NOTE) if row["rule"] not in IN_TABLE]
    shown = [f"- {code(_name(r), in_table=False)}: {r['rule']}: {_prose(r['message'])}" for r in rows[:MAX_NOTES]]
    more = [f"- and {count(len(rows) - MAX_NOTES, 'other note')}"] if len(rows) > MAX_NOTES else []
    return ["", *shown, *more] if rows else []


def _sections(result: CheckResult, programs: list[Row], findings: dict[int | None, list[Row]]) -> list[str]:
    """Return the curves and the causes of the worst programs."""
    contributors: dict[int, list[Row]] = {}
    for row in result.contributors.to_pylist():
        contributors.setdefault(row["program"], []).append(row)
    sources = Sources(result.config.sources, result.stacks)
    lines: list[str] = []
    for i, p in enumerate(programs):
        if i == MAX_DETAILED or sum(map(len, lines)) > MAX_CHARACTERS:
            lines += ["", f"and {count(len(programs) - i, 'other program')} that did not pass"]
            break
        number = p["program"]
        lines += _curves(_name(p), result.curves[number]) if number in result.curves else []
        lines += ["", *_details(p, findings[number], contributors.get(number, []), sources)]
    return lines


def _curves(name: str, curves: Curves) -> list[str]:
    """Return the curves as a block of text, on one scale."""
    values = (*curves.now, *curves.baseline)
    named = [("baseline", curves.baseline), ("now", curves.now)]
    bottom, top = min(values), max(values)
    bottom = bottom if bottom < top else 0
    rows = [[label, sparkline(curve, bottom, top), size(max(curve))] for label, curve in named if curve]
    scale = f"from {size(bottom)} (▁) to {size(top)} (█)"
    text = f"{code(name, in_table=False)} in use over the schedule, {scale}, with the peak:"
    return ["", text, "", "```text", *align(rows, {0, 1}), "```"]


def sparkline(values: Sequence[int], bottom: int, top: int) -> str:
    """Draw values in one line of text."""
    heights = (np.array(values, np.float64) - bottom) / max(top - bottom, 1)
    last = len(BLOCKS) - 1
    return "".join(BLOCKS[level] for level in np.ceil(heights * last).astype(int).tolist())


def _details(p: Row, findings: list[Row], contributors: list[Row], sources: Sources) -> Iterator[str]:
    """Yield what did not pass, the cause, the source line and the largest contributors, folded."""
    bad = [row for row in findings if row["status"] in BAD]
    yield f"<details><summary>{escape(p['status'])}: <code>{escape(_name(p))}</code></summary>"
    yield ""
    for row in bad:
        yield f"- **{row['rule']}**{of_budget(row)}: {_prose(row['message'])}"
    yield from (f"- why: {_prose(why)}" for why in dict.fromkeys(row["why"] for row in bad if row["why"]))
    places = dict.fromkeys(_path(place) for row in bad if (place := sources.place(row)))
    yield from (f"- at: {code(place, in_table=False)}" for place in places)
    if rows := contributors[:N_CONTRIBUTORS]:
        yield ""
        yield from table(CONTRIBUTORS, map(_contributor, rows))
    yield ""
    yield "</details>"


def _prose(text: str) -> str:
    return escaped(shorten(one_line(text), MAX_TEXT))


def _path(place: Place) -> str:
    return shorten_path(one_line(str(place)), MAX_NAME)


def _contributor(row: Row) -> list[str]:
    shape, name = (code(shorten(one_line(row[key] or ""), MAX_NAME)) for key in ("shape", "name"))
    source = code(shorten(file_line(row["source_file"], row["source_line"], folder=False), MAX_NAME))
    return [signed(row["change"]), row["cause"], f"{row['n']:,}", name, shape, source]
