"""What is known of the programs of files and datasets, on tables made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem.compare import programs
from xlamem.compare.programs import DESCRIBED_BY, ProgramEntry
from xlamem.errors import DumpError, UsageError

NONE: Any = None


def a_dataset(**about: Any) -> Any:
    """A dataset of some tables, with these attributes and contents."""
    tables = about.pop("tables", {})
    ids = about.pop("ids", ())

    class Stored:
        def __getitem__(self, name: str) -> Any:
            def to_table(columns: Any = None, filter: Any = None) -> pa.Table:  # noqa: A002
                return tables[name] if columns is None else tables[name].select(list(columns))

            return SimpleNamespace(to_table=to_table)

        def __contains__(self, key: str) -> bool:
            return key in ids

        def read(self, key: str) -> str:
            return f"dump {key}"

    made: Any = Stored()
    made.__dict__.update(about)
    return made


# -- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "can_be_known", "stored", "problem"),
    [
        ({}, True, None, None), ({"doubt": "it is odd"}, True, None, "it is odd"),
        ({"complete": False}, True, None, "it is truncated"),
        ({"complete": False, "doubt": "it is odd"}, True, None, "it is odd"),
        ({"program_fp": None}, True, None, "its used values or live ranges are missing"),
        ({"program_fp": None}, False, "new", "its used values or live ranges are missing"),
        ({"program_fp": None}, True, "new", "its fingerprint is not stored"),
        ({"program_fp": None}, True, "old", "its fingerprint is not stored; `xlamem dataset migrate` adds it"),
        ({"program_fp": None, "complete": False}, True, "old", "it is truncated"),
    ],
)  # fmt: skip
def test_problems_of_dumps(
    about: dict[str, Any], can_be_known: bool, stored: str | None, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "can_be_known", lambda module: (can_be_known, True))
    dataset = a_dataset(old=SimpleNamespace(contents={"old"})) if stored else None
    row = {**dict.fromkeys(DESCRIBED_BY, True), "id": stored, "program_fp": "p", "doubt": None, "peak": 5, **about}
    wanted = {"id": stored, "program_fp": row["program_fp"], "peak": 5} | ({"problem": problem} if problem else {})
    assert programs.with_problem(row, dataset) == wanted


def test_numbers_that_are_not_known() -> None:
    """Those of dumps that are not complete, or in doubt."""
    modules = {"complete": pa.chunked_array([[True, False, None, True]])}
    doubts = pa.array([None, None, None, "odd"], pa.string())
    found = programs.known_numbers(modules, {"peak": pa.array([0, 1, 2, 3])}, doubts)
    assert found["peak"].to_pylist() == [0, None, None, None]
    assert found["doubt"] is doubts


def test_doubts_about_complete_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only dumps are looked at that are complete, and not known to be right."""
    asked: list[int] = []
    texts = ["", "is truncated", "is not known: odd", None]

    def doubt(i: int) -> str:
        asked.append(i)
        if texts[i] is None:
            raise UsageError("a table is missing")
        return texts[i] or ""

    monkeypatch.setattr(programs, "are_proven", lambda modules: modules["proven"])
    monkeypatch.setattr(programs, "as_tables", lambda dump: dump)
    monkeypatch.setattr(programs, "doubt_of_numbers", doubt)
    complete, proven = [True, True, True, True, True, False, None], [False] * 4 + [True, False, False]
    modules = {"complete": pa.chunked_array([complete]), "proven": pa.chunked_array([proven])}
    found = programs._doubts(modules, lambda i: NONE if i > 3 else i)  # type: ignore[arg-type, return-value]
    assert found.to_pylist() == [None, "it is truncated", "odd", "a table is missing", None, None, None]
    assert asked == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("uri", "name", "number", "platform"),
    [
        ("/d/module_0007.jit_f.cpu_after_optimizations-buffer-assignment.txt", "jit_f", 7, "cpu"),
        ("/d/odd", None, None, None), (None, None, None, None),
    ],
)  # fmt: skip
def test_dumps_that_could_not_be_read(
    uri: str | None, name: str | None, number: int | None, platform: str | None
) -> None:
    """The name of the file tells some of what they are."""
    found = programs.unreadable(3, "x", uri, "a digit is missing")
    assert found == ProgramEntry(3, "x", uri, name, number, platform, problem="it cannot be read: a digit is missing",
                                 readable=False)  # fmt: skip
    assert programs.unreadable(0, None, uri, None).problem == "it cannot be read: it is in quarantine"
    dataset = a_dataset(ids=["there"])
    stored = programs.without_module(4, "there", uri, dataset, {})
    assert (stored.row, stored.id, stored.readable) == (4, "there", True)
    assert stored.problem == "the table modules is not stored"
    for errors, why in (({"x": (None, "bad")}, "bad"), ({"y": (None, "bad")}, "it is in quarantine")):
        lost = programs.without_module(5, "x", uri, dataset, errors)
        assert (lost.row, lost.readable, lost.problem) == (5, False, f"it cannot be read: {why}")


def test_dumps_of_a_dataset_that_are_read() -> None:
    dataset = a_dataset(ids=["a"], storage=SimpleNamespace(uri="/stored"))
    assert str(programs.read_stored(dataset, "a")) == "dump a"
    for key in ("b", None):
        for uri, place in ((None, "/stored"), ("", "/stored"), ("/d/f", "/d/f")):
            with pytest.raises(DumpError, match=f"{place}.*it is in quarantine"):
                programs.read_stored(dataset, key, uri)


# -- datasets ------------------------------------------------------------------------------------


def test_errors_in_quarantine() -> None:
    rows = pa.table({"content_id": ["a", "b"], "uri": ["/u", None], "error": [None, "bad"], "more": [1, 2]})
    assert programs.stored_errors(a_dataset(tables={"quarantine": rows})) == {"a": ("/u", None), "b": (None, "bad")}


def test_runs_with_all_labels() -> None:
    labels = pa.table({
        "run_id": ["1", "1", "2", "2", "3", "4"], "key": ["night", "branch", "night", "branch", "night", "branch"],
        "value": ["a", "main", "a", "dev", "b", "a"],
    })  # fmt: skip
    dataset = a_dataset(tables={"labels": labels})

    def found(**wanted: str) -> list[str]:
        return sorted(programs.runs_with(dataset, wanted).to_pylist())

    assert (found(), found(night="a")) == (["1", "2", "3", "4"], ["1", "2"])
    assert (found(night="a", branch="dev"), found(night="b", branch="main")) == (["2"], [])


def test_dumps_with_labels() -> None:
    """Each label narrows the choice; one that no dump has is an error with what there is."""
    dumps = pa.table({"id": [0, 1, 2], "label_night": ["a", "a", None], "label_branch": ["main", "dev", "dev"]})
    assert programs._labeled(dumps, {})["id"].to_pylist() == [0, 1, 2]
    assert programs._labeled(dumps, {"night": "a", "branch": "dev"})["id"].to_pylist() == [1]
    with pytest.raises(UsageError, match="no dump has the label 'week'; there are branch, night"):
        programs._labeled(dumps, {"week": "a"})
    with pytest.raises(UsageError, match="no dump has night=zzz; there are a"):
        programs._labeled(dumps, {"night": "zzz"})
    with pytest.raises(UsageError, match="no dump has branch=main; there are dev"):
        programs._labeled(dumps.slice(1), {"branch": "main", "night": "a"})


def test_numbers_that_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the dumps that are asked for; null for those without."""
    monkeypatch.setattr(programs, "is_one_of", lambda *_: None)
    total, peak = programs._NUMBERS
    peaks = pa.table({
        "content_id": ["a", "b", "a", "c"], "definition": [total, total, peak, peak], "bytes": [5, 6, 3, 4],
    })  # fmt: skip
    found = programs.stored_numbers(a_dataset(tables={"peaks": peaks}), pa.chunked_array([["c", "a", "b", "a"]]))
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "device_total": [None, 5, 6, 5], "peak": [4, 3, None, 3],
    }  # fmt: skip


# -- kinds of inputs -----------------------------------------------------------------------------


def test_what_programs_are_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths, dumps and lists of them, datasets, and datasets with labels."""
    class Dataset:
        def __init__(self, place: Any) -> None:
            self.place = place

    monkeypatch.setattr(programs, "Dataset", Dataset)
    monkeypatch.setattr(programs, "is_dataset", lambda path: str(path).startswith("stored"))
    monkeypatch.setattr(programs, "StoredPrograms", lambda dataset, labels: ("stored", dataset.place, labels))
    monkeypatch.setattr(programs, "find", lambda path: [f"{path} 1", f"{path} 2"])
    monkeypatch.setattr(programs, "FilePrograms", lambda sources: sources)
    dump, source = (object.__new__(kind) for kind in (programs.Dump, programs.Source))
    made = Dataset("opened")
    of: Any = programs.programs_of
    assert of(made) == ("stored", "opened", {})
    assert of((made, {"a": "b"})) == ("stored", "opened", {"a": "b"})
    assert of(("stored", {"a": "b"})) == ("stored", "stored", {"a": "b"})
    for place in ("stored", Path("stored")):
        assert of(place) == ("stored", place, {})
    assert of("d") == ["d 1", "d 2"]
    assert of([dump, "d", [source, Path("e")], []]) == [dump, "d 1", "d 2", source, "e 1", "e 2"]
    assert of(("d", "e")) == ["d 1", "d 2", "e 1", "e 2"]
    for wrong in (5, b"d", {"d": 1}, [None]):
        with pytest.raises(UsageError, match="not a directory, a dump, a dataset or a list of these: "):
            of(wrong)


def test_programs_of_dumps_that_are_open() -> None:
    """A dump that was read is described like its files, and read from neither again."""
    folder = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
    opened = xlamem.read(folder)
    of_files, of_dumps = programs.programs_of(folder), programs.programs_of(opened)
    (of_file,), (of_dump,) = of_files.programs, of_dumps.programs
    assert replace(of_file, id=None, content_hash=None) == of_dump
    assert of_file.key == of_dump.key
    assert of_dumps.read(0) is opened
    assert of_files.read(0).name == opened.name
    assert np.array_equal(of_files.sketches([0]), of_dumps.sketches([0]))
    both = programs.programs_of([opened, folder])
    assert [(p.row, p.occurrences) for p in both.programs] == [(0, 1), (1, 1)]
