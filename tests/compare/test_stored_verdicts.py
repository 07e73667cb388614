"""Verdicts, edits and texts of small random differences, compared with stored ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import handmade
import numpy as np
import pytest
from handmade import MIB, account, difference
from stored import check

from xlamem import schema
from xlamem.compare import program_edits, verdict, view, wording
from xlamem.compare.groups import KEYS, difference_groups
from xlamem.compare.series import Series

SIZES = (0, 1, 1000, MIB, 3 * MIB, 40 * MIB)


def a_difference(chance: random.Random) -> Any:
    """A difference of up to three accounts, and some buffers, edits and lines of the bill."""
    names = ["device_total", *chance.sample(["hbm", "vmem", "host", "smem"], chance.randint(0, 3))]
    accounts = []
    for name in names:
        a, b, c, d = (chance.choice(SIZES) for _ in range(4))
        same = chance.random() < 0.3
        peaks = (c, c if same else d)
        timed = chance.random() < 0.8
        more: dict[str, Any] = {"moved": chance.choice((0, 0, 5)), "in_use_a": chance.choice(peaks)}
        if not timed:
            more |= {"peak_step_a": None, "peak_step_b": None, "moved": 0}
        accounts.append(account(name, a, a if same else b, peaks=peaks, **more))
    edits = [
        handmade.edit(kind, chance.choice((0, 0, 5, -5, MIB, -3 * MIB)), evidence=chance.choice([*schema.EVIDENCE]),
                      text=f"{kind} {i}")
        for i, kind in enumerate(chance.sample([*schema.EDITS], chance.randint(0, 4)))
    ]  # fmt: skip
    buffers = []
    for i in range(chance.randint(0, 8)):
        cause = chance.choice([*schema.CAUSES])
        change = chance.choice((1, -1, MIB, -MIB, 3 * MIB, -40 * MIB))
        about = {
            "account": chance.choice(names), "cause": cause, "edit": chance.choice([None, *range(len(edits))]),
            "op_name": chance.choice((None, "jit(f)/layer_3/dot", f"jit(f)/head/op{i}")),
            "source_file_a": chance.choice((None, "m/a.py")), "source_line_a": 3, "source_line_b": 44,
            "source_file_b": chance.choice((None, "m/b.py")), "shape_b": chance.choice(("f32[8]", "f32[9]{0}", None)),
            "element_type_b": chance.choice(("f32", None)), "layer": chance.choice((None, "layer_*")), "layer_index": 3,
            "phase": chance.choice((None, "forward")), "kind": chance.choice((None, "gradient")),
            "argument": chance.choice((None, 0, 2)), "category_b": chance.choice(("temp", "parameter")),
        }  # fmt: skip
        if cause in ("new", "gone"):
            about |= {"bytes_a": 0, "bytes_b": 0} | {"bytes_b" if cause == "new" else "bytes_a": abs(change)}
            change = about["bytes_b"] - about["bytes_a"]
        buffers.append(handmade.buffer(change, **about))
    lines = [{"line": line, "change": chance.choice((0, 7, -7, MIB))} for line in chance.sample([*verdict.LINES], 2)]
    return difference(accounts, lines, buffers, edits, chance.choice(("", "", "A is truncated")))


@pytest.mark.parametrize("seed", range(3))
def test_verdicts(seed: int) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(seed)
        for n in range(28):
            d = a_difference(chance)
            yield f"{n} verdict", verdict.verdict(d)
            yield f"{n} numbers", [d.is_same, d.is_known, d.has_peaks, d.has_grown, d.grown, view.numbers(d)]
            yield f"{n} edits", [row["kind"] for row in verdict.ranked_edits(d)]
            yield f"{n} view", str(view.view(d))

    check(f"compare/verdicts-{seed}", results())


def test_groups() -> None:
    """By each key, in each account."""
    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(8)
        for n in range(4):
            d = a_difference(chance)
            for key in KEYS:
                for name in d.accounts["account"].to_pylist():
                    found = [difference_groups(d, (key, "cause"), account=name, fold=fold) for fold in (True, False)]
                    yield f"{n} {key} {name}", [table.to_pylist() for table in found]

    check("compare/groups", results())


def test_words_about_groups() -> None:
    """Of every combination of cause, sides, names and shapes."""
    def results() -> Iterator[tuple[str, Any]]:
        shapes = (None, "f32[8]{0}", "f32[8]{0:T(8)}", "bf16[9]")
        for cause in (None, *schema.CAUSES):
            said = []
            for a, b, shape_a, shape_b, n, file_a, file_b in product(
                (0, 5), (0, 7), shapes, shapes, (1, 1234), (None, "m/a.py"), (None, "m/a.py", "n/b.py")
            ):
                row = {
                    "cause": cause, "bytes_a": a, "bytes_b": b, "change": b - a, "shape_a": shape_a, "shape_b": shape_b,
                    "n": n, "n_shapes": 1 + n % 3, "buffer": "x" if n > 1 else None, "source_file_a": file_a,
                    "source_line_a": 5, "source_file_b": file_b, "source_line_b": 5 if n > 1 else None,
                    "memory_space_a": "hbm", "memory_space_b": "vmem",
                }  # fmt: skip
                said.append([wording.mark(row), wording.shapes(row), wording.sources(row), verdict.source(row),
                             verdict.happened(row) if cause else "", wording.label(row, ("buffer", "cause"))])
            yield f"{cause}", said

    check("compare/words", results())


class Counts:
    """The names of a program: how many match a pattern."""

    def __init__(self, **counts: int) -> None:
        self.counts = {getattr(program_edits, name): n for name, n in counts.items()}

    def count(self, pattern: str) -> int:
        return self.counts.get(pattern, 0)


def test_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every combination of what is known about both sides."""
    rows: Any = SimpleNamespace(single=np.ones(1, bool), temporary=np.ones(1, bool), is_in=lambda *_: np.zeros(1, bool))

    def results() -> Iterator[tuple[str, Any]]:
        for before, after, entered, saved in product((5, 6), (5, 6), (-3, 0, 3), ((0, 0), (1, 2), (2, 1))):
            texts = []
            for gone, new, points, nested, also, share in product(
                ([], ["f.py:1"]), ([], ["f.py:2"]), ((0, 0), (1, 0), (0, 1), (1, 1)), ((0, 0), (1, 0), (0, 1)),
                ({}, {"now also": ["x"], "no longer": []}), (False, True),
            ):  # fmt: skip
                monkeypatch.setattr(program_edits, "_recomputed_on_one_side", lambda c, also=also: also)
                monkeypatch.setattr(program_edits, "_saved_operations", lambda c, saved=saved: saved)
                monkeypatch.setattr(program_edits, "_entered_checkpoints", lambda c, entered=entered: entered)
                monkeypatch.setattr(program_edits, "_is_other_share", lambda c, share=share: share)
                monkeypatch.setattr(program_edits, "_calls_of_one_side", lambda c, calls=(gone, new): calls)
                names = [Counts(BACKWARD=9, RECOMPUTED=n, CHECKPOINT=k, NESTED=m) for n, k, m in
                         zip((before, after), points, nested, strict=True)]  # fmt: skip
                c: Any = SimpleNamespace(op_names=names, rows=rows, has_hlo=True, other_chip=None)
                texts.append([edit.text for edit in program_edits.rematerialization(c)])
            yield f"{before} {after} {entered} {saved}", texts

    check("compare/recomputation", results())


def test_series() -> None:
    """Random numbers of five programs at four points, of which some are missing or not known."""
    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(4)
        for n in range(12):
            rows = [(p, o) for p in range(5) for o in range(4) if chance.random() < 0.8]
            numbers = {name: [chance.choice((None, 5, 5, 9, MIB)) for _ in rows] for name in ("device_total", "peak")}
            table = handmade.table("series", [
                {"program": p, "ordinal": o, "point": f"p{o}", **{name: numbers[name][i] for name in numbers}}
                for i, (p, o) in enumerate(rows)
            ])  # fmt: skip
            none: Any = None
            s = Series("c", tuple(f"p{i}" for i in range(4)), none, table, none, none)
            yield f"{n}", [s.is_known, s.unknown.to_pylist(), s.rows(0).to_pylist()]

    check("compare/series", results())


def test_shares() -> None:
    numbers = (-(10**9), -1000, -500, -1, 0, 1, 499, 500, 1000, 9999, 10_000, 10**9)
    pairs = [*product(numbers, numbers)]
    said = [[wording.share(a, b), wording.relative(a, b), verdict.signed(a)] for a, b in pairs]
    check("compare/shares", zip(map(str, numbers), np.array(said).reshape(len(numbers), -1).tolist(), strict=True))


