"""Parts of the warehouse on values made for them: fingerprints, copies of batches, states, arrays on disk, limits."""

from __future__ import annotations

import itertools
import mmap
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attacks import value
from conftest import DUMPS

import xlamem
from xlamem import compute, schema
from xlamem.dump import as_tables
from xlamem.errors import OutputError
from xlamem.parse.fingerprints import are_known
from xlamem.parse.join import ReadDump, tables_of
from xlamem.warehouse import compaction, derived, dumps_view, identity, known, merged, peak_numbers, query, spill
from xlamem.warehouse.batch import Batch, File, Lazy
from xlamem.warehouse.compaction import _bins, _has_ended
from xlamem.warehouse.known import KnownDumps
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.merged import DumpSet
from xlamem.warehouse.migration import _Migration
from xlamem.warehouse.query import Limits
from xlamem.warehouse.record import batch_name
from xlamem.warehouse.rewrite import rewrite
from xlamem.warehouse.state import State
from xlamem.warehouse.storage import Storage
from xlamem.warehouse.stored_fingerprints import can_be_known
from xlamem.warehouse.streamed import DerivedRows
from xlamem.warehouse.task import DumpInput, Failure

(SOURCE,) = xlamem.find(DUMPS / "cpu-jaxlib-0.5.3-tuple3")


def batch(name: str, dumps: tuple[str, ...] = (), **fields: Any) -> Batch:
    quarantined = fields.pop("quarantined", ())
    return Batch(name, dumps, quarantined, (), "1", schema.VERSION, fields.pop("run_id", "run"), **fields)


# ---- fingerprints of stored dumps


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("n", [0, 3, None])
def test_which_fingerprints_can_be_known(complete: bool, n: int | None) -> None:
    used, live = (None, "values_inline", "values_split"), (None, "live_inline", "live_split")
    for u, v, unavailable in itertools.product(used, live, (False, True)):
        features = [f for f in (u, v, "live_unavailable" if unavailable else None, "tree") if f]
        interface = complete and bool(n)
        program = interface and u is not None and v is not None and not unavailable
        row = {"complete": complete, "features": ",".join(features), "n_allocations": n}
        assert can_be_known(row) == (program, interface)
    assert can_be_known({"complete": complete, "features": None, "n_allocations": n}) == (False, complete and bool(n))


def test_the_same_is_known_of_stored_dumps_as_of_texts() -> None:
    for source in xlamem.find(DUMPS)[::3]:
        dump = xlamem.read(source, hashes=True)
        try:
            (row,) = dump.modules.to_pylist()
        except xlamem.DumpError:
            continue
        reader: Any = as_tables(dump)
        if row["complete"]:
            assert can_be_known(row) == are_known(reader.reader, schema.TABLES)


# ---- batches


def test_a_copy_of_a_batch_has_what_is_left(tmp_path: Path) -> None:
    old = batch(
        "old", ("a", "b", "c"), quarantined=("x", "y", "z"), attempts={"x": 1, "y": 2, "z": 3}, system=("x", "y"),
        places={"x": "/x", "z": "/z"}, hosts={"z": "h", "x": "g"},
    )  # fmt: skip
    storage = Storage(tmp_path)
    some_removed: list[set[str]] = [set(), {"a"}, {"a", "b", "x"}, {"a", "b", "c", "y"}]
    some_failed: list[set[str]] = [set(), {"x"}, {"x", "y", "z"}]
    for removed, failed in itertools.product(some_removed, some_failed):
        new = rewrite(storage, old, removed, failed, "run")
        dumps = tuple(i for i in "abc" if i not in removed)
        left = tuple(i for i in "xyz" if i not in removed | failed)
        if not dumps and not left:
            assert new is None
            continue
        assert new is not None
        assert (new.dumps, new.quarantined) == (dumps, left)
        assert new.attempts == {i: n for i, n in old.attempts.items() if i in left}
        assert new.system == tuple(i for i in "xy" if i in left)
        assert new.places == {i: f"/{i}" for i in "xz" if i in left}
        assert new.hosts == {i: host for i, host in old.hosts.items() if i in left}
        assert new.name != old.name
    names = {rewrite(storage, old, set(some), set(), "r").name for some in ("", "a", "b", "x", "y", "ab")}  # type: ignore[union-attr]
    assert len(names) == 6


@pytest.mark.parametrize("place", ["memory://parts", ""])
def test_copies_of_several_files_of_a_table(place: str, tmp_path: Path) -> None:
    """Each has a file of its own, also where a file can be overwritten."""
    storage, files = Storage(place or tmp_path), []
    for i in range(2):
        path = f"schedule/v{schema.VERSION}/old-{i}.parquet"
        times = pa.array([10 * i, 10 * i + 1, 10 * i + 2], pa.int64())
        rows = pa.table({"content_id": ["a", "b", "c"], "time": times, "instruction": ["x", "y", "z"]})
        data = pa.BufferOutputStream()
        pq.write_table(rows, data)
        storage.write(path, data.getvalue().to_pybytes())
        files.append(File("schedule", path, 3, 1))
    new = rewrite(storage, replace(batch("old", ("a", "b", "c")), files=tuple(files)), {"b"}, set(), "run-12345678")
    assert new is not None
    assert len({file.path for file in new.files}) == 2
    published = storage.publish(file.path for file in new.files)
    found = [pq.read_table(pa.BufferReader(storage.read(published.get(f.path, f.path)) or b"")) for f in new.files]
    assert [table["time"].to_pylist() for table in found] == [[0, 2], [10, 12]]


def test_a_migrated_batch_has_what_is_in_quarantine() -> None:
    """Of the old one's quarantine, what is still there: not what was read since."""
    old = batch(
        "old", ("a", "b"), quarantined=("x", "y", "z"), attempts={"x": 1, "y": 2, "z": 3}, system=("x", "z"),
        places={"x": "/x", "y": "/y"},
    )  # fmt: skip
    migration: Any = object.__new__(_Migration)
    writer = SimpleNamespace(add=lambda table, rows: None, close=lambda: [])
    for left in (("z", "x"), ("y",), ()):
        vars(migration).update(
            old=SimpleNamespace(quarantined_ids=lambda left=left: left), _writer=lambda *_: nullcontext(writer),
            _rows=lambda *_: [],
        )  # fmt: skip
        (new,) = _Migration._content_batch(migration, old, {"c": "a"})
        assert (new.dumps, new.quarantined) == (("c",), left)
        assert new.attempts == {i: n for i, n in old.attempts.items() if i in left}
        assert new.system == tuple(i for i in "xz" if i in left)
        assert new.places == {i: f"/{i}" for i in "xy" if i in left}
        assert new.name != old.name
    assert not [*_Migration._content_batch(migration, old, {})]


def test_which_labels_a_batch_has() -> None:
    """Exactly these, and only if it has occurrences."""
    files = (File("occurrences", "o", 1, 1),)
    one = replace(batch("a", labels={"k": "v"}), files=files)
    several = replace(batch("b", run_labels={"r": {"k": "v"}, "s": {"k": "w"}}), files=files)
    none = replace(batch("c"), files=files)
    cases: tuple[tuple[dict[str, str], list[bool]], ...] = (
        ({"k": "v"}, [True, True, False]), ({"k": "w"}, [False, True, False]), ({}, [False, False, True]),
        ({"k": "v", "m": "n"}, [False, False, False]),
    )  # fmt: skip
    for labels, wanted in cases:
        assert [b.has_labels(labels) for b in (one, several, none)] == wanted
        assert not any(replace(b, files=()).has_labels(labels) for b in (one, several, none))


def test_batches_of_runs_that_have_ended() -> None:
    assert _has_ended(batch("a"))
    assert not _has_ended(batch(batch_name("r", "begin"), runs=("r",), run_id="r"))
    assert _has_ended(batch(batch_name("r", "end"), runs=("r",), run_id="r"))
    assert not _has_ended(batch(batch_name("s", "end"), runs=("r",), run_id="r"))
    assert _has_ended(batch("m", runs=("r", "s"), merged_bytes=1))


@pytest.mark.parametrize("seed", range(5))
def test_batches_are_packed_into_bins(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bin is too large, and no two of them would fit into one."""
    monkeypatch.setattr(compaction, "MAX_BYTES", 20)
    monkeypatch.setattr(compaction, "MAX_DUMPS", 6)
    chance = random.Random(seed)
    made = [batch(f"{i}", tuple(f"{i}.{k}" for k in range(chance.randrange(4)))) for i in range(12)]
    group = [(chance.randrange(1, 15), one) for one in made]
    size = {b.name: n for n, b in group}
    bins = [(sum(size[b.name] for b in bin_), sum(len(b.dumps) for b in bin_)) for bin_ in _bins(group)]
    assert sorted(b.name for bin_ in _bins(group) for b in bin_) == sorted(size)
    assert all(n_bytes <= 20 and n_dumps <= 6 for n_bytes, n_dumps in bins)
    assert all(a[0] + b[0] > 20 or a[1] + b[1] > 6 for a, b in itertools.combinations(bins, 2))


def test_which_tables_are_large() -> None:
    """In all batches together; tables of runs are not looked up by content."""
    def files(**sizes: int) -> tuple[File, ...]:
        return tuple(File(table, table, 1, size) for table, size in sizes.items())

    limit = compaction.BLOOM_FILTER_BYTES
    batches = [
        replace(batch("a"), files=files(values=limit // 2, uses=limit, runs=limit)),
        replace(batch("b"), files=files(values=limit // 2 + 1, modules=limit, runs=limit)),
    ]
    assert compaction._large_tables(batches) == ["values"]


def test_large_batches_without_dumps_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of many runs have no dump; only one dump that is large has nothing to gain."""
    for dumps, limit, n_merged in (((), 10, 2), (("a",), 10, 0), (("a",), 19, 0), (("a",), 20, 2), (("a", "b"), 10, 2)):
        monkeypatch.setattr(compaction, "LARGE_DUMP_BYTES", limit)
        state = State()
        for i in range(2):
            files = (File("values", f"values/v2/{i}.parquet", 1, 20),)
            state.add(replace(batch(f"{i}", tuple(f"{i}{d}" for d in dumps)), files=files), i)
        assert sum(map(len, compaction.plan(state))) == n_merged


def test_what_batches_that_are_merged_have_in_common() -> None:
    """The partition, the version, the tables, and what kinds of rows they have."""

    def files(*paths: str) -> tuple[File, ...]:
        return tuple(File(path.split("/")[0], path, 1, 1) for path in paths)

    base = replace(batch("a", ("x",), tables=("values",)), files=files("values/k=1/m=2/a.parquet"))
    alike = [
        replace(base, name="b", run_id="other", dumps=("y", "z"), labels={"l": "1"}),
        replace(base, files=files("values/k=1/m=2/b.parquet", "modules/k=1/m=2/b.parquet")),
        replace(base, system=("q",), attempts={"q": 1}, places={"q": "/in"}),
    ]
    others = [
        replace(base, files=files("values/k=2/m=2/a.parquet")),
        replace(base, files=files("values/k=1/m=3/a.parquet")),
        replace(base, files=files("values/k=1/a.parquet")),
        replace(base, files=files("values/a.parquet")),
        replace(base, files=files("values/k=1/m=2/a.parquet", "occurrences/k=1/m=2/a.parquet")),
        replace(base, tool_version="2"),
        replace(base, schema_version=schema.VERSION + 1),
        replace(base, tables=("values", "modules")),
        replace(base, runs=("r",)),
        replace(base, dumps=()),
        replace(base, quarantined=("q",)),
    ]
    assert {compaction._group(b) for b in alike} == {compaction._group(base)}
    assert len({compaction._group(b) for b in (base, *others)}) == 1 + len(others)


def test_runs_of_merged_batches_keep_their_labels() -> None:
    """Those with occurrences too that have none: what such a run has found is not recorded again."""
    values, occurrences = (File(name, f"{name}/k=1/a.parquet", 1, 1) for name in ("values", "occurrences"))
    labels, runs = {"l": "1"}, {"r": {"l": "2"}, "s": {}}
    for fields, found in (
        ({"files": (values,)}, []),
        ({"files": (values, occurrences)}, [("run", {})]),
        ({"files": (values,), "labels": labels}, [("run", labels)]),
        ({"files": (values, occurrences), "labels": labels}, [("run", labels)]),
        ({"files": (values, occurrences), "run_labels": runs}, [*runs.items()]),
        ({"files": (values,), "run_labels": runs}, [*runs.items()]),
    ):
        assert compaction._run_labels(replace(batch("a", ("x",)), run_id="run", **fields)) == found  # type: ignore[arg-type]


def test_the_order_of_dumps_without_modules() -> None:
    """That of their ids, also if only some have a row."""
    storage = Storage("memory://order")
    ids, orders = ["c", "a", "b"], []
    for n in (3, 2, 0):
        rows = pa.Table.from_pylist(
            [{"content_id": i, "platform": "x", "module_name": i.translate({97: "z"})} for i in ids[:n]],
            schema.WAREHOUSE["modules"].warehouse,
        )
        data = pa.BufferOutputStream()
        pq.write_table(rows, data)
        storage.write(f"modules/v2/{n}.parquet", data.getvalue().to_pybytes())
        one = replace(batch("x", tuple(ids)), files=(File("modules", f"modules/v2/{n}.parquet", n, 1),))
        orders.append(compaction._order(storage, [one]).to_pylist())
    assert orders == [["b", "c", "a"], ["a", "b", "c"], ["a", "b", "c"]]


# ---- the state


@pytest.mark.parametrize("seed", range(8))
def test_a_state_is_what_was_added_and_removed(seed: int) -> None:
    """Compared with dictionaries: stored and quarantined dumps, runs, merged batches."""
    chance, state = random.Random(seed), State()
    there: dict[str, tuple[set[str], set[str], set[str]]] = {}
    stored: dict[str, str] = {}
    quarantined: dict[str, str] = {}
    ids = [f"{i:032x}" for i in range(40)]
    for number in range(60):
        kind = chance.random()
        if kind < 0.5 or len(there) < 2:
            free = [i for i in ids if i not in stored]
            dumps = chance.sample(free, min(len(free), chance.randrange(4)))
            failed = chance.sample(ids, chance.randrange(3))
            name = f"b{number}"
            made = batch(name, tuple(dumps), quarantined=tuple(failed), runs=(f"r{number}",))
            state.add(made, number)
            there[name] = set(dumps), set(failed), {f"r{number}"}
            stored.update(dict.fromkeys(dumps, name))
            quarantined.update(dict.fromkeys(failed, name))
        elif kind < 0.75:
            name = chance.choice(sorted(there))
            state.remove(name)
            stored = {i: b for i, b in stored.items() if b != name}
            quarantined = {i: b for i, b in quarantined.items() if b != name}
            del there[name]
        else:
            merged = chance.sample(sorted(there), 2)
            parts = [there.pop(m) for m in merged]
            sets = tuple(set.union(*(part[k] for part in parts)) for k in range(3))
            name = f"m{number}"
            new = batch(name, quarantined=tuple(sorted(sets[1])), runs=tuple(sorted(sets[2])), merges=tuple(merged))
            state.merge(new, number)
            there[name] = sets
            stored = {i: name if b in merged else b for i, b in stored.items()}
            quarantined |= dict.fromkeys(sets[1], name)
        assert state.stored.find(ids) == stored
        assert len(state.stored) == len(stored)
        assert set(state.stored) == set(stored)
        dumps_of = {name: set(b.dumps) for name, b in state.batches.items()}
        assert dumps_of == {name: part[0] for name, part in there.items()}
        for prefix in ("0" * 31, "0" * 30 + "1", ids[7], ""):
            assert state.stored.starting_with(prefix) == sorted(i for i in stored if i.startswith(prefix))
        assert set(state.runs) == {run for _, _, runs in there.values() for run in runs}
        assert all(run in there[name][2] for run, name in state.runs.items())
        assert state.quarantined == quarantined


def test_the_ordinal_of_a_batch() -> None:
    found = State()
    found.add(batch("a"), 0)
    found.add(batch("b"), 7)
    assert [found.ordinal(name) for name in ("a", "b", "c")] == [0, 7, -1]


def test_attempts_that_were_not_counted() -> None:
    """One, if a version quarantined a dump that did not count them."""
    state = State()
    state.add(batch("a", quarantined=("x", "y"), attempts={"x": 3}), 0)
    assert [state.attempts(i) for i in "xyz"] == [3, 1, 0]


def test_a_lazy_sequence() -> None:
    loaded: list[int] = []
    items = Lazy(3, lambda: loaded.append(1) or ["a", "b", "c"])  # type: ignore[func-returns-value]
    assert len(items) == 3
    assert not loaded
    assert (items[1], list(items[1:]), list(items)) == ("b", ["b", "c"], ["a", "b", "c"])
    assert items == ("a", "b", "c")
    assert items != ("a", "b")


# ---- identities


def test_ids_of_version_1_have_no_timestamp() -> None:
    """Of its first place in the name only."""

    def of(name: str, timestamp: int | None, labels: tuple[tuple[str, str], ...] = ()) -> str:
        source: Any = SimpleNamespace(name=name, timestamp_us=timestamp)
        return identity.id_of_version_1("hash", source, labels, "p")

    assert of("12.module_12.f", 12) == of(".module_12.f", None) != of(".module_.f", None)
    assert of("12.module_3", 12) != of("12.module_3", None)
    assert of("a", None, (("k", "v"), ("a", "b"))) == of("a", None, (("a", "b"), ("k", "v")))


def test_failures_of_a_place() -> None:
    """What the system says differs from run to run; what is wrong with a text does not."""
    first, second = (identity.failure(OSError(text), SOURCE) for text in ("no space", "no file"))
    assert first.content_id == second.content_id
    assert {first.kind, second.kind} == {"system"}
    bad = [identity.failure(ValueError(text), SOURCE) for text in ("a", "b")]
    assert bad[0].content_id != bad[1].content_id
    assert (bad[0].kind, bad[0].identified) == ("content", False)
    known_id = identity.failure(ValueError("a"), SOURCE, "id", 4)
    assert (known_id.content_id, known_id.identified, known_id.attempts) == ("id", True, 4)


@pytest.mark.parametrize(("name", "identified", "changes"), [
    ("/a/b", False, True), ("a", False, True), ("s3://b/a", False, False), ("/a/b", True, False),
])  # fmt: skip
def test_paths_are_those_of_a_host(name: str, identified: bool, changes: bool) -> None:
    failure = Failure("id", name, name, "x", identified=identified)
    ids = {identity.with_host(failure, host).content_id for host in ("g", "h")}
    assert (len(ids), "id" in ids) == ((2, False) if changes else (1, True))


# ---- arrays on disk


@pytest.mark.parametrize(
    ("table", "column", "key"),
    [
        ("allocations", "page", "page"), ("allocations", "allocation", "allocation"), ("frames", "id", "id"),
        ("values", "allocation", "allocation"), ("values", "value_id", "value_id"),
        ("instructions", "stack_frame_id", "id"),
    ],
)  # fmt: skip
def test_ids_of_several_dumps_stay_apart(table: str, column: str, key: str) -> None:
    """Whichever of the columns with ids of a kind has the highest one; a frame that is named may be missing."""
    columns = {"allocations": ["page", "allocation"], "values": ["allocation", "value_id"], "live_ranges": ["value_id"],
               "frames": ["id"], "instructions": ["stack_frame_id"]}  # fmt: skip
    tables = {t: {c: [0, 9 if (t, c) == (table, column) else 3] for c in names} for t, names in columns.items()}
    dumps: Any = SimpleNamespace(ids=["x", "y"], tables={t: pa.table(content) for t, content in tables.items()})
    offsets = merged._offsets(dumps)
    ids, dump = np.tile(np.arange(-1, 10), 3), np.repeat(np.arange(3), 11)
    assert len({*offsets.add(key, ids, dump).tolist()}) == 31  # one of them is -1
    dumps.ids = ["x"]
    assert merged._offsets(dumps).add(key, ids, dump).tolist() == ids.tolist()


def test_arrays_do_not_share_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "REGION_BYTES", 4 * mmap.PAGESIZE)
    scratch = spill.Scratch()
    arrays = []
    page = mmap.PAGESIZE
    for i, n in enumerate((1, 7, page, page + 1, 0, 100, 5 * page, 3, 2 * page - 1)):
        array = scratch.empty(n, np.uint8)
        array[:] = i
        arrays.append(array)
        assert array.ctypes.data % page == 0 or not n
    assert all((array == i).all() for i, array in enumerate(arrays))
    assert scratch.empty(3, np.int64).dtype == np.int64


# ---- known dumps


@pytest.mark.parametrize(("n_files", "n_merged"), [(1, 0), (2, 2), (3, 3)])
def test_records_are_merged_when_there_are_many_files(
    n_files: int, n_merged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of dumps that this run has not found are kept, unless there are too many bytes."""
    monkeypatch.setattr(known, "MAX_FILES", 2)
    storage, sources = Storage(tmp_path), xlamem.find(DUMPS)[:5]
    monkeypatch.setattr(KnownDumps, "_key", lambda self, source: str(sources.index(source)).encode() * 16)

    def run(name: str, numbers: list[int]) -> KnownDumps:
        found = KnownDumps(storage, "1", name)
        for i, dump in zip(numbers, found.look_up([sources[n] for n in numbers]), strict=True):
            if dump is None:
                found.add(numbers.index(i), DumpInput(f"{i:032x}", sources[i], i, f"{i + 9:032x}"))
        found.save()
        return found

    for i in range(n_files):
        if i < 2:
            run(f"r{i}", [i])
        else:
            (tmp_path / known.FOLDER / f"r{i}").write_bytes(b"damaged")
    run("last", [4])
    there = sorted(path.name for path in (tmp_path / known.FOLDER).iterdir())
    assert there == (["last"] if n_merged else ["last", *(f"r{i}" for i in range(n_files))])
    again = KnownDumps(storage, "1", "x").look_up(sources)
    recorded = {*range(min(n_files, 2)), 4}
    assert [d and d.content_id for d in again] == [f"{i:032x}" if i in recorded else None for i in range(5)]


# ---- the view of dumps


def test_labels_that_differ_in_case() -> None:
    assert dumps_view.labels_in_sql(["Run", "run", "a", "RUN", "É", "é"]) == {
        "Run": ["Run", "run", "RUN"], "a": ["a"], "É": ["É"], "é": ["é"]
    }  # fmt: skip
    assert dumps_view._literal("it's") == "'it''s'"
    assert query.quoted('a"b') == '"a""b"'
    text = dumps_view.select(["o", "l", "m"], ["it's", 'a"b'])
    assert "key IN ('it''s')" in text
    assert '"label_a""b"' in text


def test_rows_of_the_view_are_sorted() -> None:
    """By dump, then by place: file, offset, time."""
    keys = [("a", "u", 1), ("a", "u", 2), ("a", "v", 0), ("b", "a", 0), ("a", "u", 1)]
    columns = ("content_id", "uri", "offset")
    rows = [{**dict(zip(columns, key, strict=True)), "run_id": f"r{k}", "stem": "s"} for k, key in enumerate(keys)]
    occurrences = pa.Table.from_pylist(rows, schema.OCCURRENCES.warehouse)
    of_runs = [{"run_id": run, "key": "k", "value": text} for run, text in (("r2", "x"), ("r0", "y"))]
    labels = pa.Table.from_pylist(of_runs, schema.LABELS.warehouse)
    modules = schema.WAREHOUSE["modules"].warehouse.empty_table()
    found = dumps_view.join([occurrences, labels, modules], ["k"]).select(["run_id", "label_k"]).to_pylist()
    runs = {"r0": "y", "r4": None, "r1": None, "r2": "x", "r3": None}
    assert [(r["run_id"], r["label_k"]) for r in found] == [*runs.items()]


# ---- limits of a query


def test_the_memory_of_a_result_is_that_of_all_its_parts() -> None:
    pytest.importorskip("duckdb")
    dump, limits = as_tables(xlamem.read(SOURCE)), Limits(memory=8 << 20)
    assert query.sql_over_dump(dump, "SELECT range AS n FROM range(500000)", limits).num_rows == 500_000
    with pytest.raises(xlamem.UsageError, match="more than 8,388,608 bytes"):
        query.sql_over_dump(dump, "SELECT range AS n FROM range(2000000)", limits)


@pytest.mark.parametrize(
    "text", ["SET threads = 1", "CREATE TABLE t (a INT)", "COPY (SELECT 1) TO 'x'", "PRAGMA version", "ATTACH 'x.db'"]
)
def test_a_sandbox_only_selects(text: str) -> None:
    pytest.importorskip("duckdb")
    with pytest.raises(xlamem.UsageError, match="only SELECT"):
        query.sql_over_dump(as_tables(xlamem.read(SOURCE)), text, Limits(sandbox=True))


# ---- storage


@pytest.mark.parametrize("is_marked", [True, False, None])
@pytest.mark.parametrize("exist", [True, False])
@pytest.mark.parametrize("local", [True, False])
def test_files_that_another_run_has_deleted(local: bool, exist: bool, is_marked: bool | None) -> None:
    """On remote storage, an entry names files of a run with a heartbeat only, or of one that needs none."""
    ledger, asked = object.__new__(Ledger), list[set[str]]()
    ledger.storage = SimpleNamespace(  # type: ignore[assignment]
        local=local, uri="s3://b", exist=lambda names: asked.append(names) or exist
    )
    ledger._active = None if is_marked is None else SimpleNamespace(exists=lambda: is_marked)  # type: ignore[assignment]
    new = tuple(replace(batch(n), files=(File("values", f"values/{n}.parquet", 1, 1),)) for n in "ab")
    ledger._require_files(())
    is_gone = not local and (is_marked is False or not exist)
    with pytest.raises(OutputError, match="which it took for dead") if is_gone else nullcontext():
        ledger._require_files(new)
    assert asked == ([] if local or is_marked is False else [{"values/a.parquet", "values/b.parquet"}])


def test_the_name_of_a_file_may_be_taken(tmp_path: Path) -> None:
    """It gets another one, and the first stays as it is."""
    storage, published = Storage(tmp_path), []
    for text in (b"a", b"b", b"c"):
        staged = storage.staged("t/x.parquet")
        with storage.open_staged(staged) as file:
            file.write(text)
        published += storage.publish([staged]).values()
    assert published[0] == "t/x.parquet"
    assert len({*published}) == 3
    assert [storage.read(name) for name in published] == [b"a", b"b", b"c"]
    assert all(name.startswith("t/x-") and name.endswith(".parquet") for name in published[1:])


def test_rows_of_a_large_dump_that_are_read_before_its_peaks_are_known() -> None:
    """Frames may stand in the first file. Only some tables determine what is in use."""
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    with DerivedRows("x", lambda dumps: {}) as rows:
        for name in ("frames", "instructions", "allocations", "values", "live_ranges"):
            rows.add(name, dump[name])
        kept = rows.kept.tables()
    assert [kept[name].num_rows for name in ("frames", "instructions")] == [
        dump[name].num_rows for name in ("frames", "instructions")
    ]


def test_a_request_that_is_repeated() -> None:
    """The first one may have succeeded: then the file has the same content."""

    class Taken:
        def pipe_file(self, path: str, data: bytes, mode: str) -> None:
            raise FileExistsError(path)

    storage: Any = object.__new__(Storage)
    vars(storage).update(uri="memory://x", local=False, single_writer=False, root="x", _conditional_filesystem=Taken())
    storage.read = lambda name: b"same"
    assert Storage.create(storage, "n", b"same") is True
    assert Storage.create(storage, "n", b"other") is False


def test_local_paths_have_no_query(tmp_path: Path) -> None:
    storage = Storage(f"{tmp_path}/a?b=c")
    assert storage.uri_of("t/x") == f"{tmp_path}/a?b=c/t/x"
    remote: Any = object.__new__(Storage)
    vars(remote).update(uri="s3://b/d/?region=eu", local=False)
    assert Storage.uri_of(remote, "t/x") == "s3://b/d/t/x?region=eu"


# ---- derived tables


def test_numbers_that_are_not_printed_have_no_rows() -> None:
    modules = pa.table({
        "total_bytes": pa.array([5, None, 0], pa.int64()), "printed_peak_bytes": pa.array([None, 7, 0], pa.int64()),
        "printed_peak_time": pa.array([None, 3, 0], pa.int64()),
    })  # fmt: skip
    rows = peak_numbers.module_numbers(modules, pa.array([1, None, 0], pa.int64())).to_pylist()
    assert [(r["definition"], r["dump"], r["bytes"], r["time"]) for r in rows] == [
        ("device_total", 0, 1, None), ("device_total", 2, 0, None),
        ("xla_total", 0, 5, None), ("xla_total", 2, 0, None), ("xla_printed", 1, 7, 3), ("xla_printed", 2, 0, 0),
    ]  # fmt: skip


def test_a_printed_number_of_0_has_causes() -> None:
    """As any other; one that is not printed has none."""
    modules = pa.table({
        "printed_peak_bytes": pa.array([0, None, 4], pa.int64()), "total_bytes": pa.array([9, 0, None], pa.int64()),
        "features": pa.array(["", None, "peak_a"], pa.string()),
    })  # fmt: skip
    totals = {name: [peak_numbers.Cause("other", np.zeros(3, np.int64))] for name in ("xla_printed", "xla_total")}
    found = peak_numbers.Causes(np.array([5, 6, 7]), [], totals).table(modules)
    left = {(r["definition"], r["dump"], r["cause"], r["bytes"]) for r in found.to_pylist() if r["bytes"]}
    assert left == {
        ("xla_printed", 0, peak_numbers.DISAGREE, -5), ("xla_printed", 2, peak_numbers.POINTERS, -3),
        ("xla_total", 0, peak_numbers.DISAGREE, 4), ("xla_total", 1, peak_numbers.DISAGREE, -6),
    }  # fmt: skip


@pytest.mark.parametrize("color", [0, 5])
@pytest.mark.parametrize("ranges", [["a{}:1-2"], ["b{}:0-1"], ["a{}:2-1", "b{}:1-1"], ["a{}:2-1", "b{}:2-1"]])
def test_bills_of_programs_in_which_little_is_in_use(color: int, ranges: list[str], tmp_path: Path) -> None:
    """The steps are those of a single program: null if nothing is ever in use in the device's memory."""
    allocations = (
        f"allocation 0: size 64, color {color}, preallocated-temp:\n{value(0, 'a', 64, color=color)}"
        f"allocation 1: size 16, color 5, preallocated-temp:\n{value(1, 'b', 16, color=5)}"
    )
    members = attacks.dump([], allocations=allocations, ranges=ranges)
    for role, data in members.items():
        (tmp_path / f"module_0000.jit_f.cl_1.after_optimizations-{role}.txt").write_bytes(data)
    (source,) = xlamem.find(tmp_path)
    tables, counts = tables_of([ReadDump(source), ReadDump(source)])
    found = derived.derive(DumpSet(["x", "y"], tables, counts), 20)["bills"].to_pylist()
    wanted = compute.bill(xlamem.read(source)).to_pylist()
    steps = {(r["account"], r["color"], r["line"], r["part"]): r["step"] for r in wanted}
    for name in "xy":
        rows = [r for r in found if r["content_id"] == name]
        assert {(r["account"], r["color"], r["line"], r["part"]): r["step"] for r in rows} == steps
