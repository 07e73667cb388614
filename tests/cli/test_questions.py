"""Ten questions about a dump that its JSON answers, as docs/skill.md says, against answers from the text alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import oracle
import pytest
from brute import Brute
from conftest import CORPUS, DUMPS, every, label, sources, texts

from xlamem import cli
from xlamem.input.find import Source, resolve

DEVICE_COLORS = {"tpu": {0, 7, 9}, "gpu": {0, 1, 2}, "cpu": {0}}
"""From docs/numbers.md."""
CAPACITY = 1 << 20
MAX_BYTES = 400_000
EVERY = 9
"""Of the dumps of the corpus, one of so many is asked."""

ALLOCATION = re.compile(r"^allocation (\d+): .*?size (\d+)(?:, page \d+)?(?:, color (\d+))?(?:, (.*))?:$", re.M)


class Text:
    """What the files of a dump say, read without xlamem."""

    def __init__(self, source: Source) -> None:
        self.platform, self.members = source.platform, texts(source)
        self.tables = oracle.read(self.members, platform=self.platform)

    @property
    def assignment(self) -> str:
        return self.members.get("buffer-assignment", b"").decode()

    @cached_property
    def allocations(self) -> list[tuple[int, int, str]]:
        """Size, color and remaining text of each allocation but the thread-local ones."""
        found = ALLOCATION.findall(self.assignment)
        return [(int(size), int(color or 0), rest) for _, size, color, rest in found if "thread-local" not in rest]

    @property
    def device_total(self) -> int | None:
        if not self.allocations:
            return None
        colors = DEVICE_COLORS[self.platform or "tpu"]
        return sum(size for size, color, _ in self.allocations if color in colors)

    @property
    def printed_total(self) -> int | None:
        values = self.members.get("buffer-assignment-values", b"").decode()
        found = re.search(r"^Total bytes used: (\d+)", f"{self.assignment}\n{values}", re.M)
        return int(found[1]) if found else None

    @property
    def fits(self) -> bool | None:
        """A proof needs the total that XLA printed."""
        every = sum(int(size) for _, size, *_ in ALLOCATION.findall(self.assignment))
        return None if self.device_total is None or self.printed_total != every else self.device_total <= CAPACITY

    @property
    def parameters(self) -> int | None:
        """Bytes of the parameters in the main memory that no output takes over."""
        if not self.allocations:
            return None
        return sum(
            size for size, color, rest in self.allocations
            if color == 0 and "parameter" in rest and "maybe-live-out" not in rest
        )  # fmt: skip

    @property
    def donated(self) -> list[int]:
        """Parameters in the aliases of the first line of the HLO text."""
        head = self.members.get("hlo", b"").decode("utf-8", "replace").partition("\n")[0]
        listed = re.search(r"input_output_alias=\{ (.*?) \}, ", head)
        return [int(n) for n in re.findall(r": \((\d+),", listed[1])] if listed else []

    @cached_property
    def brute(self) -> Brute:
        return Brute(self.tables)

    @property
    def main(self) -> Any:
        """The peak of the main memory: bytes and first step."""
        unknown = {"peak": None, "first_step": None}
        return next((row for row in self.brute.peaks if row["color"] == 0), unknown)

    @cached_property
    def at_peak(self) -> list[Any]:
        return [row for row in self.brute.live_set() if row["color"] == 0]

    @property
    def largest(self) -> Any:
        """The largest value at that peak; the first one of several."""
        values = [row for row in self.at_peak if row["value_id"] is not None]
        return max(values, key=lambda row: (row["bytes"], -row["value_id"]))

    def last_step(self, value_id: int) -> int:
        return next(r["end"] for r in self.tables["live_ranges"] if r["value_id"] == value_id)


@dataclass(frozen=True)
class Question:
    text: str
    arguments: str
    """The command; {value} is the id of the largest buffer."""
    path: str
    """Where the JSON has the answer."""
    expected: Callable[[Text], Any]
    needs_steps: bool = False


QUESTIONS = (
    Question("How much device memory must fit?", "peak {path}", "dumps[0].device_total", lambda t: t.device_total),
    Question("Does it fit into 1 MiB?", "peak {path} --capacity 1MiB", "dumps[0].fits", lambda t: t.fits),
    Question(
        "How much is in use at most in the main memory?", "peak {path}", "dumps[0].spaces[color=0].peak",
        lambda t: t.main["peak"],
    ),
    Question(
        "At which step first?", "peak {path}", "dumps[0].spaces[color=0].first_step", lambda t: t.main["first_step"]
    ),
    Question(
        "How much of that are arguments that are not donated?", "peak {path}",
        "dumps[0].spaces[color=0].categories.parameter", lambda t: t.parameters,
    ),
    Question(
        "How large is the largest buffer at that peak?", "top {path} --by buffer --space 0",
        "rows[role=value].bytes", lambda t: t.largest["bytes"], needs_steps=True,
    ),
    Question(
        "Until which step is it live?", "buffer {path} {value}", "end",
        lambda t: t.last_step(t.largest["value_id"]), needs_steps=True,
    ),
    Question("Which arguments are donated?", "show aliases {path}", "rows[*].parameter", lambda t: t.donated),
    Question(
        "What total does XLA print, all memories together?", "info {path}", "dumps[0].module.total_bytes",
        lambda t: t.printed_total,
    ),
    Question(
        "Is the dump whole, so that its numbers count?", "info {path}", "dumps[0].module.complete",
        lambda t: t.tables["modules"][0]["complete"],
    ),
)  # fmt: skip


def answer(document: Any, path: str) -> Any:
    """Return what a path selects: names, [0], [key=value] for the first such element, and [*]."""
    for name, key in re.findall(r"(\w+)(?:\[([^]]*)\])?", path):
        document = [row[name] for row in document] if isinstance(document, list) else document[name]
        if key == "*":
            continue
        if "=" in key:
            column, _, value = key.partition("=")
            document = next((row for row in document if str(row[column]) == value), None)
            if document is None:
                return None
        elif key:
            document = document[int(key)]
    return document


def asked() -> list[Source]:
    """One dump of each release and platform, and some of the corpus."""
    small = [s for s in sources() if (s.bytes_on_disk() or 0) < MAX_BYTES and s.module_id is not None]
    corpus = [s for s in small if CORPUS.is_dir() and Path(s.members[0].uri).is_relative_to(CORPUS)]
    return [s for s in small if Path(s.members[0].uri).is_relative_to(DUMPS)] + corpus[::EVERY]


@pytest.mark.parametrize("source", every(2, asked()), ids=label)
def test_the_json_answers(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    text, documents = Text(source), dict[str, Any]()
    for q in QUESTIONS:
        if q.needs_steps and text.main["peak"] is None:
            continue
        value = text.largest["value_id"] if q.needs_steps else ""
        command = q.arguments.format(path=Path(source.members[0].uri), value=value)
        if command not in documents:
            assert cli.main([*command.split(), "--json"]) in (0, 1, 3)
            documents[command] = json.loads(capsys.readouterr().out)
        assert answer(documents[command], q.path) == q.expected(text), q.text


def test_the_guide_has_the_paths() -> None:
    """docs/skill.md names every property that answers a question."""
    guide = (DUMPS.parent.parent / "docs" / "skill.md").read_text()
    for question in QUESTIONS:
        assert re.split(r"[.\]]", question.path)[-1] in guide, question.path


def test_the_difference_of_two_programs(capsys: pytest.CaptureFixture[str]) -> None:
    sides = [DUMPS / f"tpu-libtpu-0.0.50.1-v5e-{name}" for name in ("mlp_grad", "host_offload")]
    assert cli.main(["diff", *map(str, sides), "--json"]) == 0
    a, b = (Text(resolve(side)).device_total or 0 for side in sides)
    assert json.loads(capsys.readouterr().out)["device_total_change"] == b - a
