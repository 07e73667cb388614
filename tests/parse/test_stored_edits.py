"""What is said about changed dumps and messages, compared with what was said before, and the same by every way.

Each edit becomes a digest of four digits: which of them differ says what to look at. The slow reader in `oracle` says
where something is wrong; these say in which words, and of what is truncated or of another compile.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from conftest import DUMPS, every, texts
from fuzz.check import source_of
from fuzz.edits import edits
from stored import check, described, digest, outcome
from test_oom import FITS, GPU, OLD, PREFIXES, TEMPS, VMEM

import xlamem
from xlamem.input.find import Source
from xlamem.parse import pieces as streaming
from xlamem.parse import whole
from xlamem.parse.oom import TABLES, read_oom

Members = dict[str, bytes]

SAID = ("files", "diagnostics", "modules", "unknown_text")
N_EDITS, N_LINES = 25, 12
NAMES = (
    "cpu-tf-1.15.0-loop", "cpu-tf-2.3.4-loop", "cpu-jaxlib-0.4.26-scan_while", "cpu-jaxlib-0.4.35-cond_switch",
    "cpu-jaxlib-0.5.3-tuple3", "cpu-jaxlib-0.12.0-no_output", "gpu-jax-0.5.3-mixed_dtypes",
    "tpu-libtpu-0.0.11.4-v5e-tuple3", "tpu-libtpu-0.0.50.1-tpu7x-donate_adam",
)  # fmt: skip
_NUMBER = re.compile(rb"(?<![\w.])\d+(?![\w.])")


def changed(members: Members, others: Members, seed: str) -> Iterator[tuple[str, list[Members]]]:
    """Dumps with single edits, without files or lines, with the files of another program, and with other numbers."""
    chance = random.Random(seed)
    yield "edits", [edited for _, edited in edits(chance, members, N_EDITS)]
    roles = sorted(members)
    subsets = [subset for n in range(1, len(roles)) for subset in combinations(roles, n)]
    yield "files", [{role: members[role] for role in subset} for subset in subsets[:: max(1, len(subsets) // 10)]]
    yield "others", [members | {role: others[role]} for role in roles if role in others]
    yield "numbers", [members | {role: _with_other_number(chance, members[role])} for role in roles for _ in range(4)]
    yield "ends", [members | {role: _cut(chance, members[role])} for role in roles for _ in range(2)]
    n = N_LINES // len(roles)
    yield "lines", [members | {role: _without_lines(chance, members[role])} for role in roles for _ in range(n)]


def _with_other_number(chance: random.Random, text: bytes) -> bytes:
    """One more, or one less, than a number of the first lines of a section, or of any line."""
    found = list(_NUMBER.finditer(text, 0, len(text) if chance.random() < 0.5 else 1000))
    if not found:
        return text
    number = chance.choice(found)
    return text[: number.start()] + b"%d" % max(0, int(number[0]) + chance.choice((-1, 1))) + text[number.end() :]


def _cut(chance: random.Random, text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join(lines[: chance.randrange(len(lines) + 1)])


def _without_lines(chance: random.Random, text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    begin = chance.randrange(len(lines) + 1)
    return b"".join(lines[:begin] + lines[begin + chance.randrange(2, 30) :])


def said_of(source: Source, threads: int = 1) -> Any:
    """What the tables about a dump have, or the error."""
    dump = xlamem.read(source, threads=threads)
    return outcome(lambda: {name: dump[name].to_pylist() for name in SAID})


def said_by_pieces(source: Source) -> Any:
    def read() -> dict[str, Any]:
        found: dict[str, Any] = {name: [] for name in SAID}
        for name, rows in streaming.pieces(source):
            if name in SAID:
                found[name] += rows.to_pylist()
        return found

    return outcome(read)


def programs() -> list[tuple[str, Members, Any]]:
    return [(name, texts(source), source.platform) for name in NAMES for source in xlamem.find(DUMPS / name)[:1]]


@pytest.mark.parametrize("number", every(2, range(len(NAMES))), ids=NAMES)
def test_of_changed_dumps(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    all_programs = programs()
    name, members, platform = all_programs[number]
    others = all_programs[number - 1][1] | all_programs[number - 2][1]
    others = {role: re.sub(rb"\A[^\n]*BufferAssignment:", b"BufferAssignment:", text) for role, text in others.items()}
    found = []
    for kind, variants in changed(members, others, name):
        digests = []
        for i, variant in enumerate(variants):
            source = source_of(variant, platform)
            said = said_of(source)
            digests.append(digest(described(said)))
            if i % 4 == 0:
                monkeypatch.setattr(streaming, "SPAN_BYTES", 400)
                assert said_by_pieces(source) == said, (kind, i)
            elif i % 4 == 2:
                monkeypatch.setattr(whole, "SPAN_BYTES", 400)
                monkeypatch.setattr(whole, "MAX_SPAN_BYTES", 400)
                assert said_of(source, threads=3) == said, (kind, i)
            monkeypatch.undo()
        found.append((kind, " ".join(digests)))
    check(f"parse/edits-{name}", ((key, line) for key, line in _lines(found)))


def _lines(found: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield lines that are short enough to be stored as they are."""
    for key, line in found:
        words = line.split(" ")
        for begin in range(0, len(words), 20):
            yield f"{key} {begin}", " ".join(words[begin : begin + 20])


# -- out-of-memory reports

MESSAGES = {"temps": TEMPS.read_text(), "gpu": GPU, "vmem": VMEM, "old": OLD, "fits": FITS}


def logs(message: str) -> Iterator[tuple[str, list[str]]]:
    """Logs with a message that is damaged, or mixed with another one."""
    lines = message.split("\n")
    step = max(1, len(lines) // 40)
    rows = range(0, len(lines), step)
    yield "without", ["\n".join(lines[:i] + lines[i + 1 :]) for i in rows]
    yield "twice", ["\n".join([*lines[:i], lines[i], *lines[i:]]) for i in rows]
    yield "swapped", ["\n".join([*lines[:i], *lines[i : i + 2][::-1], *lines[i + 2 :]]) for i in rows]
    yield "cut", [message[: len(message) * i // 40] for i in range(1, 41)]
    yield "from", ["\n".join(lines[i:]) for i in rows]
    mixed = []
    for prefix, _ in PREFIXES.values():
        for delay in (0, 1, 5):
            log = []
            for i in range(len(lines) + delay):
                log += [prefix.format(1) + lines[i]] if i < len(lines) else []
                log += [prefix.format(2) + lines[i - delay]] if i >= delay else []
                log += ["something else"] if i % 7 == 3 else []
            mixed.append("\n".join(log))
    yield "mixed", mixed
    first = "[rank1]: E0528 07:02:44.350251   27487 client.cc:2826] "
    yield "prefixed", [
        "\n".join((first if i % every == 0 else "") + line for i, line in enumerate(lines)) for every in (1, 2, 5, 1000)
    ]
    folded = repr(message)
    yield "folded", [folded, f"{folded}\n{message}", f"{message}\n{folded}\n{message}", f"x: {folded}, y"]
    numbers = list(re.finditer(r"\d+(?:\.\d+)?", message))[:: max(1, len(re.findall(r"\d+", message)) // 40)]
    yield "numbers", [message[: m.start()] + "999" + message[m.end() :] for m in numbers]


@pytest.mark.parametrize("name", MESSAGES)
def test_of_logs(name: str) -> None:
    found = []
    for kind, variants in logs(MESSAGES[name]):
        said = (outcome(read_oom, text.encode()) for text in variants)
        tables = ([getattr(report, table).to_pylist() for table in TABLES] for report in said)
        found.append((kind, " ".join(digest(described(rows)) for rows in tables)))
    check(f"parse/oom-{name}", _lines(found))
