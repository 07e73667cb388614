"""The result as JUnit XML, which CI services show as tests: a test case for each finding."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from ...formatting import one_line
from ...parse.fingerprints import without_counters
from ..program_names import name_of
from ..result import FAILED, NOT_KNOWN, PASSED, CheckResult, Row
from .sources import Place, Sources
from .wording import of_budget

SUITE = "xlamem check"
ELEMENTS = {FAILED: "failure", NOT_KNOWN: "error"}
"""What a test case contains, by status. Its type is the rule."""
SKIPPED = "gone"
"""The rule of programs that were not compiled, and so not checked."""


def as_junit(result: CheckResult) -> str:
    """Return the findings as test cases. What is not known is an error, a program that is gone is skipped."""
    sources = Sources(result.config.sources, result.stacks)
    rows = result.rows()
    counts = {
        "tests": len(rows),
        "failures": len(result.rows(FAILED)),
        "errors": len(result.rows(NOT_KNOWN)),
        "skipped": sum(row["rule"] == SKIPPED for row in rows),
    }
    totals = {name: str(n) for name, n in counts.items()} | {"time": "0"}
    root = ElementTree.Element("testsuites", {"name": SUITE, **totals})
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, **totals})
    for row, name in zip(rows, _names(rows), strict=True):
        _add_case(suite, row, name, sources)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}'


def _names(rows: list[Row]) -> list[tuple[str, str]]:
    """Return the program and the check of each row: different for all rows, and the same in the next run."""
    seen: Counter[tuple[str, str]] = Counter()
    names = []
    for row in rows:
        check = row["rule"] if row["number"] in (None, row["rule"]) else f"{row['rule']} of {row['number']}"
        name = one_line(without_counters(name_of(row))), f"{check}{of_budget(row)}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else (name[0], f"{name[1]} #{seen[name]}"))
    return names


def _add_case(suite: ElementTree.Element, row: Row, name: tuple[str, str], sources: Sources) -> None:
    attributes = {"classname": name[0], "name": name[1], "time": "0"}
    place = sources.place(row)
    if place and place.path:
        attributes["file"] = place.path
    case = ElementTree.SubElement(suite, "testcase", attributes)
    message, text = one_line(row["message"]), _text(row, place)
    if element := ELEMENTS.get(row["status"]):
        ElementTree.SubElement(case, element, {"message": message, "type": row["rule"]}).text = text
    elif row["rule"] == SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": message})
    elif row["status"] != PASSED:
        ElementTree.SubElement(case, "system-out").text = f"{row['status']}: {text}"


def _text(row: Row, place: Place | None) -> str:
    """Return the message, the cause and the source line, each on a line."""
    lines = [row["message"]]
    lines += [f"why: {row['why']}"] if row["why"] else []
    lines += [f"at: {place}"] if place else []
    return "\n".join(map(one_line, lines))
