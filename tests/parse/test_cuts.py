"""Dumps cut anywhere: what was complete is kept, the cut is named, both readers agree."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from compare import differences
from conftest import DUMPS, label, texts

import xlamem
from xlamem.input.find import Member, Source

SMALL = 3 << 10
GROWING = (
    "allocations", "values", "cross_color", "positions", "uses", "instructions", "schedule", "printed_peak",
    "printed_stack",
)  # fmt: skip
"""Tables whose rows stand in the order of the text: a cut file gives the first ones."""

HEAD = re.compile(
    rb"^(BufferAssignment:|Total bytes used: |Used values:|Allocations sorted|Memory Space: |HloLiveRange \(max )", re.M
)


def held(name: str, members: dict[str, bytes], platform: Any = None) -> Source:
    """A dump in memory."""
    made = tuple(Member(role, role, size=len(data), content=data) for role, data in members.items())
    return Source(name, made, platform=platform)


MANY_CUTS = ("cpu-jaxlib-0.12.0-multiheap", "cpu-tf-2.9.3-mlp", "seeds/000_", "seeds/001_", "seeds/003_")
"""Dumps with many places to cut, of formats that smaller dumps have too."""


def shipped() -> list[Source]:
    return [s for s in xlamem.find(DUMPS) if "killed" not in s.location]


def targets(n: int) -> list[Any]:
    """(source, role) of every memory file that the repository ships. All but each n-th are slow."""
    found = []
    for source in shipped():
        for role in (m.role for m in source.members if m.role != "hlo"):
            slow = len(found) % n or any(name in label(source) for name in MANY_CUTS)
            marks = [pytest.mark.slow] if slow else []
            found.append(pytest.param(source, role, id=f"{label(source)}-{role}", marks=marks))
    return found


def tables(dump: xlamem.Dump) -> dict[str, list[Any]]:
    """Rows of those tables; whether uses are known depends on text behind the values."""
    found = {t: dump[t] for t in GROWING}
    found["values"] = found["values"].drop_columns(["uses_known"])
    return {t: rows.to_pylist() for t, rows in found.items() if rows.num_rows}


def check(data: bytes, role: str, at: int, platform: Any, full: dict[str, list[Any]]) -> None:
    """Read the file cut at `at`; what it gives must be a beginning of what the whole file gives."""
    dump = xlamem.read(held("x", {role: data[:at]}, platform), text=True, threads=1)
    if not HEAD.search(data[: data.rfind(b"\n", 0, at) + 1]) and not data[:at].startswith(b"HloLiveRange not"):
        with pytest.raises(xlamem.DumpError, match="expected a section"):
            dump.modules  # noqa: B018
        return
    if at == 0 or data[at - 1 : at] != b"\n":
        # Within a line: the line is not a record, the file is not complete, and the place is named.
        line = data.rfind(b"\n", 0, at) + 1
        assert not dump.complete
        found = dump.diagnostics.to_pylist()
        assert [(d["file"], d["offset"]) for d in found if d["code"] == "truncated"] == [(role, line)]
    for name, rows in tables(dump).items():
        assert rows == full[name][: len(rows)], name


@pytest.mark.parametrize(("source", "role"), targets(8))
@pytest.mark.parametrize("most", [80, pytest.param(None, marks=pytest.mark.slow)])
def test_cut(source: Source, role: str, most: int | None) -> None:
    """At the ends of `most` lines or of all, and at other places."""
    members = texts(source)
    data = members[role]
    platform = xlamem.read(source).modules["platform"][0].as_py()
    full = tables(xlamem.read(held("x", {role: data}, platform), text=True))
    rng = random.Random(source.name + role)
    lines = [i + 1 for i in range(len(data) - 1) if data[i : i + 1] == b"\n"]
    if sum(len(d) for r, d in members.items() if r != "hlo") <= SMALL:
        places = list(range(len(data)))
    else:
        ends = rng.sample(lines, min(most or len(lines), len(lines)))
        places = sorted({*ends, *(rng.randrange(len(data)) for _ in range(len(ends) // 3))})
    for at in places:
        check(data, role, at, platform, full)
    # The slow reader is slow: it looks at a sample of the same cuts, of the whole dump, line ends among them.
    for at in sorted({*rng.sample(lines, min(12, len(lines))), *(rng.randrange(len(data)) for _ in range(12))}):
        cut = members | {role: data[:at]}
        if not any(HEAD.search(text[: text.rfind(b"\n") + 1]) for text in cut.values()):
            continue  # nothing is left of the only file, see above
        dump = xlamem.read(held(source.name, cut, source.platform), text=True, threads=1)
        assert differences(dump, cut) == [], at


def test_a_cut_tells_where() -> None:
    source = next(s for s in shipped() if "jaxlib-0.12.0-scan_while" in s.location)
    members = texts(source)
    data = members["buffer-assignment-values"]
    at = data.index(b" uses:") + 3
    dump = xlamem.read(held("x", members | {"buffer-assignment-values": data[:at]}))
    found = [d for d in dump.diagnostics.to_pylist() if d["code"] == "truncated"]
    line = data[:at].count(b"\n") + 1
    assert [(d["file"], d["line"], d["severity"]) for d in found] == [("buffer-assignment-values", line, "error")]
    assert found[0]["excerpt"] == " us"
    with pytest.raises(xlamem.DumpError, match=rf"buffer-assignment-values:{line}.*byte \d+.*expected a newline"):
        xlamem.read(held("x", {"buffer-assignment-values": data[:at]}), strict=True)


def test_every_undetectable_cut_is_one_that_the_text_cannot_tell() -> None:
    """At line ends of the newest format nearly every cut is found; the exceptions are known."""
    source = next(s for s in shipped() if "jaxlib-0.12.0-scan_while" in s.location)
    members = texts(source)
    missed: dict[str, int] = {}
    for role, data in members.items():
        if role == "hlo":
            continue
        for at in [i + 1 for i in range(len(data) - 1) if data[i : i + 1] == b"\n"]:
            cut = held("x", members | {role: data[:at]}, source.platform)
            missed[role] = missed.get(role, 0) + xlamem.read(cut, threads=1).complete
    assert missed == {
        "buffer-assignment": 0, "buffer-assignment-values": 0, "live-range": 0, "memory-usage-report": 0,
    }  # fmt: skip


def test_a_cut_is_in_the_last_section() -> None:
    text = b"BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n value: <0 a @0> (size=8,offset=0): f32[2]\n"
    text += b"\nTotal bytes used: 8 (8B)\n\nUsed values:\n<0 a @0>\n positions:\n  a\n uses:\n from instruction: %a"
    found = xlamem.read(held("x", {"buffer-assignment": text})).diagnostics.to_pylist()
    assert [d["section"] for d in found if d["code"] == "truncated"] == ["used values"]


@pytest.mark.parametrize("length", [1, 65_000, 65_536, 65_537, 131_072, 200_000])
def test_only_the_line_that_is_cut_is_lost(length: int) -> None:
    """However long the file is, and the line that is cut."""
    lines = [f" value: <{i} a.{i} @0> (size=8,offset={8 * i}): f32[2]{{0}}\n" for i in range(3_000)]
    head = "BufferAssignment:\nallocation 0: size 24000, preallocated-temp:\n"
    cut = " value: <3000 " + "b" * length
    dump = xlamem.read(held("x", {"buffer-assignment": (head + "".join(lines) + cut).encode()}, "tpu"))
    assert dump.values["value_id"].to_pylist() == list(range(3_000))
    assert "truncated" in dump.diagnostics["code"].to_pylist()
