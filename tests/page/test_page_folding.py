"""What is left out above the size of a page, and that the rest stays exact."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from decoding import Json, decoded, instructions, texts
from forge_bulk import forge_files

import xlamem
from xlamem.formatting import size
from xlamem.page import folding
from xlamem.page.columns import Encoder
from xlamem.page.folding import _Folding, _n_left, folded
from xlamem.page.model import Program, Uses, as_json, size_as_json
from xlamem.page.program_model import program_model

pytestmark = pytest.mark.usefixtures("small_limits")
LIMITS = {"N_AT_PEAKS": 50, "BYTES_PER_NAME": 400, "SPARE": 300}


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in LIMITS.items():
        monkeypatch.setattr(folding, name, limit)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("forged")
    forge_files(folder, seed=1, megabytes=2)
    return program_model(xlamem.read(folder))


def fold(whole: Program, share: float) -> tuple[Program, Json]:
    limit = int(share * len(json.dumps(as_json(whole))))
    model = folded(whole, limit, Encoder())
    data = as_json(model)
    assert len(json.dumps(data, separators=(",", ":"))) <= 1.01 * limit or share < 0.4  # what is never left out
    return model, decoded(data)


def test_nothing_is_left_out_below_the_limit(whole: Program) -> None:
    model, _ = fold(whole, 1.1)
    assert model.folded == []
    assert model.buffers is whole.buffers


@pytest.mark.parametrize("share", [0.97, 0.8, 0.6, 0.5, 0.2, 0.05])
def test_as_little_as_needed_is_left_out(whole: Program, share: float) -> None:
    model, _ = fold(whole, share)
    n = len(whole.uses.buffer), len(set(filter(None, whole.instructions.name.to_pylist()))), len(whole.buffers.size)
    left = len(model.uses.buffer), len(set(filter(None, model.instructions.name.to_pylist()))), len(model.buffers.size)
    assert left[0] < n[0]
    assert len(model.folded) == sum(a < b for a, b in zip(left, n, strict=True))
    if left[1] < n[1]:
        assert left[0] < 0.2 * n[0]


@pytest.mark.parametrize("share", [0.8, 0.5, 0.2])
def test_the_rest_stays_exact(whole: Program, share: float) -> None:
    model, data = fold(whole, share)
    assert model.bill is whole.bill
    assert model.spaces is whole.spaces
    assert model.verdict is whole.verdict
    before = decoded(as_json(whole))
    rows = {key: i for i, key in enumerate(before["buffers"]["value_id"].tolist())}
    kept = np.array([rows[key] for key in data["buffers"]["value_id"].tolist()])
    assert (np.diff(kept) > 0).all()
    for name in ("offset", "size", "start", "end", "unpadded", "scope", "kind", "saving"):
        assert data["buffers"][name].tolist() == before["buffers"][name][kept].tolist()
    for name in ("shape", "shape_index"):
        wanted = texts(before["buffers"], name)
        assert texts(data["buffers"], name) == [wanted[row] for row in kept.tolist()]
    for name in ("op_name", "source"):
        wanted = texts(before["buffers"], name)
        for found, row in zip(texts(data["buffers"], name), kept.tolist(), strict=True):
            assert found in (wanted[row], None)
    wanted = instructions(before, before["buffers"]["instruction"])
    for found, row in zip(instructions(data, data["buffers"]["instruction"]), kept.tolist(), strict=True):
        assert found in (wanted[row], "")


@pytest.mark.parametrize("share", [0.8, 0.5, 0.2])
def test_references_follow(whole: Program, share: float) -> None:
    _, data = fold(whole, share)
    before = decoded(as_json(whole))
    ids, all_ids = data["buffers"]["value_id"], before["buffers"]["value_id"]
    for table in ("uses", "aliases"):
        pairs = set(zip(ids[data[table]["buffer"]].tolist(), data[table]["instruction"].tolist(), strict=True))
        whole_pairs = zip(all_ids[before[table]["buffer"]].tolist(), before[table]["instruction"].tolist(), strict=True)
        assert pairs <= set(whole_pairs)
    for row, old in zip(data["advice"], before["advice"], strict=True):
        assert row["buffer"] == -1 or (old["buffer"] >= 0 and ids[row["buffer"]] == all_ids[old["buffer"]])
    origin = data["buffers"]["origin_instruction"]
    for column in (data["uses"]["instruction"], data["aliases"]["instruction"], origin[origin >= 0]):
        assert all(instructions(data, column))  # what is referred to has a name
    unnamed = np.array([name == "" for name in instructions(data, data["buffers"]["instruction"])])
    assert unnamed.any() == (share > 0.2)  # with little room, none of these is left
    assert (data["buffers"]["origin_instruction"][unnamed] == -1).all()


def test_aliases_have_a_size_too(whole: Program) -> None:
    """Of a program without uses, only as many are left out as needed."""
    nothing = np.empty(0, np.int64)
    leaves_out = folding._Folding(replace(whole, uses=Uses(nothing, nothing, nothing)), 0, Encoder())
    leaves_out.leave_out_uses(100)
    assert 0.9 * len(whole.aliases.buffer) < len(leaves_out.program.aliases.buffer) < len(whole.aliases.buffer)


def test_the_least_important_buffers_are_left_out_with_the_advice_about_them(
    whole: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = len(whole.buffers.size)
    monkeypatch.setattr(folding, "_by_importance", lambda _: np.arange(n)[::-1])
    leaves_out = folding._Folding(replace(whole, advice=[{"buffer": row} for row in (-1, 0, n - 1)]), 0, Encoder())
    leaves_out.leave_out_buffers(1 << 30)
    left = len(leaves_out.program.buffers.size)
    assert left < n
    assert [row["buffer"] for row in leaves_out.program.advice] == [-1, -1, left - 1]
    (sentence,) = leaves_out.result().folded
    buffers = f"{n - left:,} buffers of at most {size(int(whole.buffers.size[: n - left].max()))}"
    assert sentence == f"Left out: {buffers}. They are in the curves, the bill and all totals."


def test_buffers_that_are_in_use_at_the_peak_are_most_important(monkeypatch: pytest.MonkeyPatch) -> None:
    """From their first step to their last one; then the largest."""
    monkeypatch.setattr(folding, "N_AT_PEAKS", 3)
    buffers = SimpleNamespace(
        size=np.array([9, 8, 7, 6, 5, 4, 3]), allocation=np.array([0, 0, 0, 0, 0, 1, 2]),
        start=np.array([-1, 4, 1, 3, 0, 7, 0]), end=np.array([-1, 9, 3, 5, 2, 7, 9]),
    )  # fmt: skip
    program: Any = SimpleNamespace(
        buffers=buffers, spaces=[SimpleNamespace(first_step=step) for step in (3, 7, None)],
        allocations=SimpleNamespace(space=np.array([0, 1, 2])),
    )  # fmt: skip
    assert folding._by_importance(program).tolist() == [2, 3, 5, 0, 1, 4, 6]
    monkeypatch.setattr(folding, "N_AT_PEAKS", 1)  # the others are not more important than any
    assert folding._by_importance(program).tolist() == [2, 0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("share", [0.8, 0.5, 0.2, 0.01])
def test_the_largest_buffers_at_peaks_keep_everything(whole: Program, share: float) -> None:
    _, data = fold(whole, share)
    b = whole.buffers
    steps = np.array([s.first_step for s in whole.spaces])
    step = steps[whole.allocations.space[b.allocation]]
    at_peak = np.flatnonzero((b.start >= 0) & (b.start <= step) & (step <= b.end))
    first = at_peak[np.argsort(-b.size[at_peak], kind="stable")][: LIMITS["N_AT_PEAKS"]]
    place = {key: i for i, key in enumerate(data["buffers"]["value_id"].tolist())}
    rows = np.array([place[key] for key in b.value_id[first].tolist()])
    names = [whole.buffers.op_name_names[i].as_py() if i >= 0 else None for i in b.op_name[first].tolist()]
    table = data["buffers"] | {"op_name": data["buffers"]["op_name"][rows]}
    assert texts(table, "op_name") == names
    assert all(instructions(data, data["buffers"]["instruction"][rows]))
    n_uses = np.bincount(whole.uses.buffer, minlength=len(b.size))[first]
    assert np.bincount(data["uses"]["buffer"], minlength=len(place))[rows].tolist() == n_uses.tolist()


def test_the_sentences_have_numbers(whole: Program) -> None:
    """They follow those about what was left out before."""
    _, data = fold(replace(whole, folded=["Curves are left out."]), 0.2)
    assert data["folded"][0] == "Curves are left out."
    assert len(data["folded"]) == 4
    n = len(whole.buffers.size) - len(data["buffers"]["size"])
    assert data["folded"][3].startswith(f"Left out: {n:,} buffers of at most ")


def test_the_page_stays_below_its_limit(tmp_path: Path, small_limits: None) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    forge_files(folder, seed=1, megabytes=2)
    whole, small = tmp_path / "whole.html", tmp_path / "small.html"
    xlamem.report(folder).save(whole)
    limit = whole.stat().st_size - 20_000
    made = xlamem.report(folder, output=small, max_bytes=limit)
    assert small.stat().st_size <= limit
    assert made.programs[0].folded


def test_the_largest_buffer_that_is_left_out_is_named() -> None:
    """The most important ones come first, wherever they are."""
    program: Any = SimpleNamespace(buffers=SimpleNamespace(size=np.array([5, 100, 7])))
    folding_ = _Folding(program, 0, Encoder())
    vars(folding_)["_order"] = np.array([1, 2, 0])
    assert [folding_._smallest(n) for n in (1, 2)] == ["2 buffers of at most 7 B", "1 buffer of at most 5 B"]


@pytest.mark.parametrize(
    ("n", "excess", "least", "left"),
    [(10, 6, 0, 7), (10, 7, 0, 6), (8, 6, 0, 5), (10, 6, 8, 8), (10, 99, 2, 2), (10, 8, 5, 6)],
)
def test_how_many_rows_are_left(n: int, excess: int, least: int, left: int) -> None:
    """The last ones, of 2 bytes each, are left out: no more than what is to be saved."""
    assert _n_left(np.full(10, 2.0), n, excess, least) == left


def test_uses_and_aliases_are_weighed_by_their_sizes(whole: Program) -> None:
    """Those of as few buffers as seem to have the bytes that are to be saved."""
    folding_, excess = _Folding(whole, 0, Encoder()), size_as_json(whole.uses, Encoder()) // 4
    folding_.leave_out_uses(excess)

    def saved(n: int) -> float:
        return sum(
            size_as_json(part, Encoder()) * np.isin(part.buffer, folding_._order[n:]).mean()
            for part in (whole.uses, whole.aliases)
        )

    assert saved(folding_._n_read) >= excess > saved(folding_._n_read + 1)
