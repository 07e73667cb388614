"""The model of a difference: its waterfalls add up, and what it aligns and pairs is so in the dumps."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from conftest import every
from pairs import Pair, stored

import xlamem
from xlamem.compare.difference import Diff, diff
from xlamem.page import comparison
from xlamem.page.alignment import MAX_RUNS, longest_increasing
from xlamem.page.comparison import (
    MAX_GROUPS,
    Difference,
    Pairs,
    Waterfall,
    _buffer_rows,
    _lines,
    _matched_buffers,
    _n_listed,
    changed_accounts,
    difference,
)
from xlamem.page.model import as_json


def compared(a: xlamem.Dump, b: xlamem.Dump) -> tuple[Diff, Difference]:
    """Return the difference and its model, in which the rows of buffers are those of the values by id."""
    d = diff(a, b)
    ids = [np.sort(dump.values["value_id"].to_numpy()) for dump in (a, b)]
    return d, difference(d, *ids)


@cache
def sides_of(pair: Pair) -> tuple[xlamem.Dump, xlamem.Dump]:
    return pair.sides()


@cache
def compared_sides(pair: Pair) -> tuple[Diff, Difference]:
    """The difference of a pair and its model, which several tests look at."""
    return compared(*sides_of(pair))


def assert_adds_up(waterfall: Waterfall) -> None:
    assert waterfall.a + sum(row["change"] for row in waterfall.rows) == waterfall.b


def assert_ascending(steps: Any) -> None:
    assert (np.diff(steps) > 0).all()


@pytest.mark.parametrize("pair", every(3, stored()), ids=lambda pair: pair.name)
def test_the_waterfalls_of_a_pair_add_up(pair: Pair) -> None:
    d, model = compared_sides(pair)
    numbers = {row["account"]: row for row in d.accounts.to_pylist()}
    assert model.accounts[0].account == "device_total"
    for account in model.accounts:
        row = numbers[account.account]
        assert (account.reserved.a, account.reserved.b) == (row["reserved_a"], row["reserved_b"])
        assert (account.peak.a, account.peak.b) == (row["peak_a"], row["peak_b"])
        assert_adds_up(account.reserved)
        assert_adds_up(account.peak)
        assert len(account.peak.rows) <= MAX_GROUPS + 2
        assert account.members.row.max(initial=-1) < len(account.peak.rows)
        counts = np.bincount(account.members.row, minlength=len(account.peak.rows))
        assert counts.tolist() == [row["n"] for row in account.peak.rows]


@pytest.mark.parametrize("pair", every(3, stored()), ids=lambda pair: pair.name)
def test_steps_and_buffers_of_a_pair_correspond(pair: Pair) -> None:
    d, model = compared_sides(pair)
    assert_ascending(model.steps.a)
    assert_ascending(model.steps.b)
    assert_ascending(model.buffers.a)
    matched = dict(zip(*(steps.tolist() for steps in d._matching.steps_in_order[0]), strict=True))
    assert all(matched[s] == t for s, t in zip(model.steps.a.tolist(), model.steps.b.tolist(), strict=True))
    ids = [np.sort(dump.values["value_id"].to_numpy()) for dump in sides_of(pair)]
    pairs = {(row["value_id_a"], row["value_id_b"]) for row in d.matches.to_pylist()}
    assert set(zip(ids[0][model.buffers.a].tolist(), ids[1][model.buffers.b].tolist(), strict=True)) == pairs


@pytest.mark.parametrize("pair", stored()[::8], ids=lambda pair: pair.name)
def test_the_buffers_of_a_row_change_by_its_bytes(pair: Pair) -> None:
    d, model = compared_sides(pair)
    buffers = d.buffers.to_pylist()
    for account in model.accounts:
        own = [row for row in buffers if row["account"] == account.account]
        for number, row in enumerate(account.peak.rows):
            members = np.flatnonzero(account.members.row == number).tolist()
            if members:
                assert sum(own[i]["change"] for i in members) == row["change"]
        for side in "ab":
            known = [row[f"value_id_{side}"] is not None for row in own]
            assert (getattr(account.members, side) >= 0).tolist() == known


def test_a_buffer_that_a_model_leaves_out_is_paired_with_none() -> None:
    a, b = sides_of(stored()[1])
    d, _ = compared_sides(stored()[1])
    ids = [np.sort(dump.values["value_id"].to_numpy()) for dump in (a, b)]
    shown = ids[0][::2]
    model = difference(d, shown, ids[1])
    found = {
        (int(shown[row]) if row >= 0 else None, int(ids[1][other]))
        for row, other in zip(model.buffers.a.tolist(), model.buffers.b.tolist(), strict=True)
    }
    pairs = {(row["value_id_a"], row["value_id_b"]) for row in d.matches.to_pylist()}
    assert found == {(a if a in set(shown.tolist()) else None, b) for a, b in pairs}


def test_matched_buffers_are_in_the_order_of_a() -> None:
    """Those that one model leaves out come first and have -1; those that both leave out are no pair."""
    m: Any = SimpleNamespace(value=np.array([1, -1, 3, 0, 2]))
    found = _matched_buffers(m, Pairs(np.array([4, 3, -1, -1, 2]), np.array([7, 5, -1, -1])))
    assert (found.a.tolist(), found.b.tolist()) == ([-1, 2, 4], [7, -1, 5])


def test_long_sentences_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MAX_TEXT", 24)
    d, _ = compared_sides(stored()[1])
    model = difference(d, np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(model.verdict) == max(len(edit["text"]) for edit in model.edits) == 24


def test_parts_of_a_line_of_the_bill_that_changed() -> None:
    """They are named if there are several; the largest change is first, whether up or down."""
    rows = [("temporaries", "data", 5), ("temporaries", "padding", -2), ("alignment", None, -9), ("packing", "data", 4)]
    bills = pa.table(dict(zip(("line", "part", "change"), map(list, zip(*rows, strict=True)), strict=True)))
    d: Any = SimpleNamespace(bills=bills.append_column("account", pa.array(["hbm"] * 4)))
    assert [(row["change"], row["detail"]) for row in _lines(d, "hbm")] == [
        (-9, ""), (4, ""), (3, "data +5 B, padding -2 B"),
    ]  # fmt: skip


def test_rows_of_the_buffers_of_a_side() -> None:
    """A buffer may have the id 0; those of the other side have none."""
    p: Any = SimpleNamespace(row_of_value=lambda ids: np.array([{0: 2, 5: 1}.get(i, 0) for i in ids.tolist()]))
    assert _buffer_rows(p, np.array([0, -1, 5]), np.array([10, 11, 12])).tolist() == [12, -1, 11]


def test_a_program_compared_with_itself_has_no_rows() -> None:
    a, _ = stored()[1].sides()
    _, model = compared(a, a)
    (account,) = model.accounts
    assert model.same
    assert not account.reserved.rows
    assert not account.peak.rows
    assert not model.edits
    assert model.steps.a.tolist() == model.steps.b.tolist()


def test_smaller_groups_are_one_row() -> None:
    found = False
    for pair in stored()[::4]:
        _, model = compared_sides(pair)
        for account in model.accounts:
            rest = [row for row in account.peak.rows if row["label"].endswith("smaller groups")]
            assert len(rest) <= 1
            found = found or bool(rest)
    assert found


@pytest.mark.parametrize(
    ("change", "n"),
    [
        ([], 0), ([-7], 1), ([0, 0], 2), ([1000, -1], 2), ([-1000, 4], 2), ([1000, 5, -1], 3), ([1000, 5, -4, 1], 2),
        ([9] * 21, 21), ([-9] * 22, 20),
    ],
)  # fmt: skip
def test_groups_with_a_row_of_their_own(change: list[int], n: int) -> None:
    """A single smaller group has one too: the row of several takes as much room."""
    assert _n_listed(np.array(change, np.int64)) == n


def test_accounts_that_changed() -> None:
    """A space that is all of device_total is not one of its own; the peak may move to a step with the same buffers."""
    rows = [("device_total", 10, 10, 5, 6), ("hbm", 10, 10, 5, 6), ("vmem", 4, 4, 1, 2), ("smem", 4, 4, 1, 1),
            ("cmem", 3, 2, 1, 1), ("host", 7, 7, 7, 7)]  # fmt: skip
    names = ("account", "reserved_a", "reserved_b", "peak_a", "peak_b")
    accounts = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    d: Any = SimpleNamespace(accounts=accounts, bills=pa.table({"account": ["device_total"]}),
                             buffers=pa.table({"account": ["host"]}))  # fmt: skip
    assert [row["account"] for row in changed_accounts(d)] == ["device_total", "vmem", "cmem", "host"]


def test_edits_are_those_that_the_terminal_ranks() -> None:
    d, model = compared_sides(stored()[1])
    assert [edit["text"] for edit in model.edits][:1] == [d.verdict.split(": ", 1)[1].split(" (")[0].rstrip(".")]
    assert {edit["text"] for edit in model.edits} == set(d.edits["text"].to_pylist())


@pytest.mark.parametrize("pair", stored()[::4], ids=lambda pair: pair.name)
def test_the_model_is_as_the_schema_says(pair: Pair) -> None:
    schema = json.loads(resources.files("xlamem.page").joinpath("report.schema.json").read_text("utf-8"))
    _, model = compared_sides(pair)
    validator = jsonschema.Draft202012Validator({"$ref": "#/$defs/Difference", "$defs": schema["$defs"]})
    assert [error.message for error in validator.iter_errors(as_json(model))] == []


# -- the longest common order --------------------------------------------------------------------


def length_of_longest(values: list[int]) -> int:
    """Return the length of a longest increasing subsequence, slowly."""
    best: list[int] = []
    for i, value in enumerate(values):
        best.append(1 + max((best[j] for j in range(i) if values[j] < value), default=0))
    return max(best, default=0)


@pytest.mark.parametrize("seed", range(40))
def test_longest_increasing_is_as_long_as_any(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n = int(generator.integers(0, 60))
    values = np.arange(n) * 3
    for _ in range(int(generator.integers(0, 8))):  # move pieces
        first, last, to = np.sort(generator.integers(0, n + 1, 3))
        values = np.concatenate([values[:first], values[last:to], values[first:last], values[to:]])
    if seed % 4 == 0:
        values = generator.permutation(values)
    kept = longest_increasing(values)
    assert_ascending(kept)
    assert_ascending(values[kept])
    assert len(kept) == length_of_longest(values.tolist())


def test_the_longest_runs_remain_if_there_are_too_many() -> None:
    n = 3 * MAX_RUNS
    values = np.concatenate([np.random.default_rng(1).permutation(n), np.arange(n, n + 1000)])
    kept = longest_increasing(values)
    assert_ascending(values[kept])
    assert set(range(n, n + 1000)) <= set(values[kept].tolist())
