"""The result as workflow commands of GitHub Actions: annotations at the lines of the model.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from ...formatting import count, one_line, shorten
from ..program_names import name_of
from ..result import FAILED, NOT_KNOWN, STATUSES, WARNING, CheckResult, Row
from .sources import Place, Sources
from .wording import BAD

COMMANDS = {FAILED: "error", NOT_KNOWN: "error", WARNING: "warning"}
MAX_ANNOTATIONS = 10
"""GitHub shows ten errors and ten warnings of a step."""
MAX_TITLE, MAX_TEXT = 120, 2000


class Annotation(NamedTuple):
    """The findings with one status of a program."""

    status: str
    program: str
    findings: list[Row]

    @property
    def rank(self) -> tuple[int, int]:
        """Order by status, then by the bytes beyond the limit."""
        beyond = [(row["value"] or 0) - (row["limit"] or 0) for row in self.findings]
        return -STATUSES.index(self.status), -max(map(abs, beyond))


def as_github(result: CheckResult) -> str:
    """Return an annotation for each of the worst programs, and the result in a sentence."""
    result = result.with_distinct_names()
    annotations = sorted(_annotations(result), key=lambda a: a.rank)
    sources = Sources(result.config.sources, result.stacks)
    lines = [_command(a, sources) for a in annotations[:MAX_ANNOTATIONS]]
    if more := sum(len(a.findings) for a in annotations[MAX_ANNOTATIONS:]):
        lines.append(command("notice", [f"and {count(more, 'other finding')}"], title="xlamem"))
    return "\n".join([*lines, one_line(result.summary)])


def _annotations(result: CheckResult) -> Iterable[Annotation]:
    for (_, status), rows in groupby(result.rows(*BAD), key=lambda row: (row["program"], row["status"])):
        found = list(rows)
        yield Annotation(status, name_of(found[0]), found)


def _command(a: Annotation, sources: Sources) -> str:
    """Return the annotation at the first line of the repository that its findings name."""
    lines = [row["message"] for row in a.findings]
    lines += [f"why: {why}" for why in dict.fromkeys(row["why"] for row in a.findings if row["why"])]
    rules = ", ".join(dict.fromkeys(row["rule"] for row in a.findings))
    places = dict.fromkeys(place for row in a.findings if (place := sources.place(row)))
    place = next((place for place in places if place.path), None)
    if place is None:
        lines += [f"at: {place}" for place in places]
    title = f"{shorten(one_line(a.program), MAX_TITLE)}: {a.status}, {rules}"
    return command(COMMANDS[a.status], lines, **_location(place), title=title)


def _location(place: Place | None) -> dict[str, str | int]:
    if place is None or place.path is None:
        return {}
    return {"file": place.path} if place.line is None else {"file": place.path, "line": place.line}


def command(name: str, lines: Iterable[str], **properties: str | int) -> str:
    """Return a workflow command with lines of text."""
    text = "\n".join(shorten(one_line(line), MAX_TEXT) for line in lines)
    values = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{name} {values}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
