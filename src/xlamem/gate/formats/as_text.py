"""The result for people: a line for each program, and below it what did not pass and why."""

from __future__ import annotations

from collections.abc import Iterator

from ...formatting import DEFAULT_WIDTH, align, count, one_line, shorten_distinct, shorten_path, wrap
from ..program_names import name_of
from ..result import FAILED, NOT_KNOWN, NOTE, PASSED, WARNING, CheckResult, Row
from .sources import Sources
from .wording import BAD, IN_TABLE, findings_by_program, is_new, notes, number_cells, of_budget

WORDS = {PASSED: "ok", NOTE: "ok", WARNING: "warning", NOT_KNOWN: "NOT KNOWN", FAILED: "FAILED"}
"""What the line of a program begins with."""
MAX_PASSED = 20
"""Maximum number of programs that passed, and have a line."""
MAX_NAME = 24
MAX_WHY = 6
"""Maximum number of lines of a cause."""
INDENT = 2


def as_text(result: CheckResult) -> str:
    """Return the result as lines of at most 80 characters."""
    return "\n".join(_lines(result))


def _lines(result: CheckResult) -> Iterator[str]:
    result = result.with_distinct_names()
    shown, n_more = _shown(result.programs.to_pylist())
    findings, sources = findings_by_program(result), Sources(result.config.sources, result.stacks)
    table = _table(shown, findings)
    if table:
        yield table[0]
    for line, program in zip(table[1:], shown, strict=True):
        yield line
        yield from _details(findings.get(program["program"], []), sources)
    if n_more:
        yield f"and {count(n_more, 'more program')} that passed"
    for note in notes(result):
        yield from wrap(one_line(note), 0, DEFAULT_WIDTH)
    yield one_line(result.summary)


def _shown(programs: list[Row]) -> tuple[list[Row], int]:
    """Return the programs that have a line, and how many others passed: the largest ones are shown."""
    passed = sorted((p for p in programs if WORDS[p["status"]] == "ok"), key=lambda p: -(p["device_total"] or 0))
    left_out = {p["program"] for p in passed[MAX_PASSED:]}
    return [p for p in programs if p["program"] not in left_out], len(left_out)


def _table(programs: list[Row], findings: dict[int | None, list[Row]]) -> list[str]:
    """Return a line with the headings, and one for each program."""
    if not programs:
        return []
    rows = [["", "program", "must fit", "change", "peak", "change"]]
    names = shorten_distinct([one_line(name_of(p)) for p in programs], MAX_NAME)
    for p, name in zip(programs, names, strict=True):
        numbers = number_cells(p, is_new=is_new(findings.get(p["program"], [])))
        rows.append([WORDS[p["status"]], name, *numbers])
    return align(rows, {0, 1})


def _details(findings: list[Row], sources: Sources) -> Iterator[str]:
    """Yield what did not pass, then the cause and the source line."""
    rows = [row for row in findings if row["status"] in BAD or (row["status"] == NOTE and row["rule"] not in IN_TABLE)]
    for row in rows:
        yield from _paragraph(f"{_label(row)}: {row['message']}")
    bad = [row for row in rows if row["status"] in BAD]
    if why := next((row["why"] for row in bad if row["why"]), None):
        lines = _paragraph(f"why: {why}")
        yield from lines if len(lines) <= MAX_WHY else [*lines[: MAX_WHY - 1], f"{' ' * INDENT}  …"]
    if place := next((place for row in bad if (place := sources.place(row))), None):
        label = f"{' ' * INDENT}at: "
        yield f"{label}{shorten_path(one_line(str(place)), DEFAULT_WIDTH - len(label))}"


def _label(row: Row) -> str:
    """Return the rule of a finding, with the budget and the status where the line of the program does not tell."""
    status = "" if row["status"] == FAILED else f"{row['status']}, "
    return f"{status}{row['rule']}{of_budget(row)}"


def _paragraph(text: str) -> list[str]:
    first, *more = wrap(one_line(text), INDENT + 2)
    return [" " * INDENT + first, *(" " * (INDENT + 2) + line for line in more)]
