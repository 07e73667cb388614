"""The baseline file character by character, and its values on the edge of what is allowed."""

from __future__ import annotations

import json
import random
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xlamem import UsageError
from xlamem.errors import OutputError
from xlamem.gate import baseline as baselines
from xlamem.gate.amounts import MAX_NUMBER, amount, share, size_limit
from xlamem.gate.baseline import MAX_DONATED, MAX_KEPT, Baseline, is_baseline, is_baseline_file, loads, merged
from xlamem.gate.entry import Argument, Entry, Group

FLAGS = {"xla_b": "2", "xla_a": "é"}
FIRST = Entry(
    "jit_f.3", "tpu", "p1", "i1", 100, 90, 7, ("peak_a", "report_b"), FLAGS, {"packing": 0, "temporaries/data": 5},
    (Argument("w", 4, "f32[1]"), Argument("x", 2)), 2, frozenset({("w", None)}),
    (Group("a/é", "temp", 5, 2, "f32[8]", "C:\\u\\m.py", 3), Group("b", "parameter", 1, source_file="/h/u/n.py")), 6,
)  # fmt: skip
SECOND = Entry(None, None, None, None, 0, None, flags={}, test="test_a[1]")
TEXT = """{
  "format": "xlamem-baseline",
  "version": 1,
  "flags": {
    "4f53cda18c2baa0c": {},
    "HASH": {
      "xla_a": "é",
      "xla_b": "2"
    }
  },
  "programs": [
    {
      "name": "jit_f",
      "platform": "tpu",
      "program_fp": "p1",
      "interface_fp": "i1",
      "device_total": 100,
      "peak": 90,
      "changelist": 7,
      "format": ["peak_a", "report_b"],
      "flags": "HASH",
      "bill": {
        "packing": 0,
        "temporaries/data": 5
      },
      "n_donated": 2,
      "donated": [
        {"name": "w", "bytes": 4, "shape": "f32[1]"},
        {"name": "x", "bytes": 2, "shape": null}
      ],
      "peak_buffers": [
        {"name": "a/é", "category": "temp", "bytes": 5, "n": 2, "shape": "f32[8]", "source_file": "m.py", "source_line": 3},
        {"name": "b", "category": "parameter", "bytes": 1, "n": 1, "source_file": "n.py"}
      ],
      "other_buffers": 6
    },
    {
      "test": "test_a[1]",
      "name": null,
      "platform": null,
      "program_fp": null,
      "interface_fp": null,
      "device_total": 0,
      "peak": null,
      "changelist": null,
      "format": [],
      "flags": "4f53cda18c2baa0c",
      "bill": {},
      "n_donated": 0,
      "donated": [],
      "peak_buffers": [],
      "other_buffers": 0
    }
  ]
}
"""  # noqa: E501


def test_the_text_of_a_file() -> None:
    """It does not depend on the order of programs and flags, and reading gives what was written."""
    other = replace(FIRST, flags=dict(reversed(FLAGS.items())))
    text = Baseline.of([SECOND, FIRST]).dumps()
    assert text == Baseline.of([other, SECOND]).dumps()
    (hashed,) = {p["flags"] for p in json.loads(text)["programs"]} - {"4f53cda18c2baa0c"}
    assert text == TEXT.replace("HASH", hashed)
    read = loads(text, "x")
    assert read.dumps() == text
    kept = tuple(replace(g, source_file=g.source_file and g.source_file[-4:]) for g in FIRST.groups)
    assert read.entries == (replace(FIRST, name="jit_f", arguments=None, groups=kept), SECOND)
    assert [e.flags for e in loads(Baseline.of([replace(SECOND, flags=None)]).dumps(), "x").entries] == [None]
    assert Baseline().dumps().endswith('"flags": {},\n  "programs": []\n}\n')


def test_the_order_of_programs() -> None:
    """By test, platform and name without its number; the others in order of compilation."""
    chance = random.Random(3)
    entries = [
        replace(SECOND, test=chance.choice((None, "a", "b")), platform=chance.choice((None, "cpu", "tpu")),
                name=chance.choice((None, "jit_f", "jit_f.9", "jit_g.1")), device_total=i)
        for i in range(60)
    ]  # fmt: skip
    found = Baseline.of(entries).entries
    names = {"jit_f.9": "jit_f", "jit_g.1": "jit_g"}
    def key(e: Entry) -> Any:
        return e.test or "", e.platform or "", names.get(e.name or "", e.name or "")
    wanted = [e for k in sorted({key(e) for e in entries}) for e in entries if key(e) == k]
    assert [e.device_total for e in found] == [e.device_total for e in wanted]
    assert {e.name for e in found} == {None, "jit_f", "jit_g"}


def test_what_a_file_keeps() -> None:
    groups = tuple(Group(f"g{i}", "temp", 500 - i, shape="(" + "f32[1234], " * i + ")") for i in range(MAX_KEPT + 5))
    donated = tuple(Argument(f"w{i}", 500 - i) for i in range(MAX_DONATED + 5))
    (e,) = Baseline.of([replace(FIRST, groups=groups, donated=donated, n_donated=105)]).entries
    assert [g.name for g in e.groups] == [f"g{i}" for i in range(20)]
    assert (len(e.donated), e.n_donated, e.donated[-1].name) == (100, 105, "w99")
    assert e.rest == 6 + sum(g.bytes for g in groups[20:])
    assert max(len(g.shape or "") for g in e.groups) == 80
    assert e.groups[3].shape == groups[3].shape


def test_programs_that_stay_and_new_ones() -> None:
    old = [replace(SECOND, name=name) for name in "abcd"]
    new = [replace(SECOND, name="bb", device_total=9)]
    found = merged(old, {1: replace(old[1], device_total=7), 2: replace(old[2], device_total=8)}, new, [0, 2])
    assert [(e.name, e.device_total) for e in found.entries] == [("b", 7), ("bb", 9), ("d", 0)]


@pytest.mark.parametrize("n", [0, MAX_NUMBER, MAX_NUMBER + 1, -1])
@pytest.mark.parametrize("name", ["device_total", "peak", "changelist", "n_donated", "other_buffers", "bytes", "n"])
def test_numbers_on_the_edge(name: str, n: int) -> None:
    data = json.loads(Baseline.of([FIRST]).dumps())
    (row,) = data["programs"]
    row["donated"] = []
    row["peak_buffers"] = row["peak_buffers"][:1]
    (row["peak_buffers"][0] if name in ("bytes", "n") else row)[name] = n
    if 0 <= n <= MAX_NUMBER:
        assert loads(json.dumps(data), "x").entries[0].name == "jit_f"
    else:
        with pytest.raises(UsageError, match=rf"damaged \(ValueError: ({name}|rest) is {n}\)"):
            loads(json.dumps(data), "x")


@pytest.mark.parametrize(("rows", "name"), [("peak_buffers", "bytes"), ("peak_buffers", "n"), ("donated", "bytes")])
def test_sums_on_the_edge(rows: str, name: str) -> None:
    data = json.loads(Baseline.of([FIRST]).dumps())
    first, second = data["programs"][0][rows]
    for n, is_fine in ((MAX_NUMBER - 1, True), (MAX_NUMBER, False)):
        first[name], second[name] = n, 1
        if is_fine:
            loads(json.dumps(data), "x")
        else:
            with pytest.raises(UsageError, match=f"{name} add up to {MAX_NUMBER + 1}"):
                loads(json.dumps(data), "x")


def test_what_is_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "base.json"
    baselines.write(path, Baseline.of([FIRST]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [p.name for p in path.parent.iterdir()] == ["base.json"]
    assert is_baseline(path)
    other = tmp_path / "other.json"
    other.write_text('{"format": "other"}')
    assert not is_baseline(other)
    assert not is_baseline(tmp_path / "missing.json")
    assert not is_baseline(tmp_path)
    assert all(map(is_baseline_file, ("a.json", Path("b/c.json"))))
    assert not any(map(is_baseline_file, ("a.json/", "json", "a.json.gz")))


def test_a_file_that_cannot_be_replaced_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "base.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(baselines.os, "replace", fail)
    with pytest.raises(OutputError, match=r"base\.json: the baseline cannot be written: No space left on device"):
        baselines.write(path, Baseline())
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


# -- sizes and shares ----------------------------------------------------------------------------


def test_limits_on_the_edge() -> None:
    assert size_limit("peak", MAX_NUMBER) == MAX_NUMBER
    with pytest.raises(UsageError, match=r"peak must be at most 2\^60 bytes, not 1152921504606846977"):
        size_limit("peak", MAX_NUMBER + 1)
    assert share("named", "100 %", most=100) == share("named", "100.0%", most=100) == 1
    with pytest.raises(UsageError, match=r"named must be at most 100 %, not '100\.01 %'"):
        share("named", "100.01 %", most=100)
    assert share("named", "250 %") == 2.5


@pytest.mark.parametrize(
    ("given", "text", "of_1009"),
    [
        (" 5 % ", "5 %", 50),
        (".5%", ".5%", 5),
        ("0.99 %", "0.99 %", 9),
        ("200 %", "200 %", 2018),
        (" 1KiB ", "1KiB", 1024),
        (1234567, "1,234,567 bytes", 1234567),
        (0, "0 bytes", 0),
        (f"{'9' * 18} %", f"{'9' * 18} %", 10089999999999999989),
    ],
)
def test_amounts(given: Any, text: str, of_1009: int) -> None:
    found = amount("growth", given)
    assert (found.text, found.of(1009)) == (text, min(of_1009, MAX_NUMBER))
