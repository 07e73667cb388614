"""The rules of the warehouse against plain models of them, on many small random cases."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import schema
from xlamem.input.find import Source
from xlamem.warehouse import checkpoints, compaction, derived, ledger, parquet, plan, segments, worker
from xlamem.warehouse.batch import Batch, File
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.occurrences import distinct, keys_of, new_occurrences
from xlamem.warehouse.offsets import Offsets
from xlamem.warehouse.record import batch_name
from xlamem.warehouse.state import State
from xlamem.warehouse.storage import Storage
from xlamem.warehouse.task import STREAMED_BYTES, DumpInput, Options

(SOURCE,) = xlamem.find(DUMPS / "cpu-jaxlib-0.5.3-tuple3")


def content(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}"


# ---- the ledger


class Model:
    """What a dataset contains, as dictionaries by the names of batches."""

    def __init__(self) -> None:
        self.dumps: dict[str, set[str]] = {}
        self.quarantined: dict[str, set[str]] = {}
        self.files: dict[str, list[File]] = {}

    def add(self, batch: Batch) -> None:
        self.dumps[batch.name], self.quarantined[batch.name] = {*batch.dumps}, {*batch.quarantined}
        self.files[batch.name] = [*batch.files]

    def remove(self, name: str) -> None:
        for table in (self.dumps, self.quarantined, self.files):
            del table[name]  # type: ignore[attr-defined]

    def claimed(self, batch: Batch, removed: Iterable[str], may_fail: set[str]) -> set[str]:
        others = [name for name in self.dumps if name not in removed]
        stored = {i for name in others for i in self.dumps[name]}
        failed = {i for name in others for i in self.quarantined[name]}
        new = {*batch.quarantined} - may_fail
        return ((new | {*batch.dumps}) & stored) | (new & failed)

    def check(self, state: State) -> None:
        batch_of = {i: name for name, ids in self.dumps.items() for i in ids}
        assert dict(state.stored) == batch_of
        assert len(state.stored) == len(batch_of)
        assert state.batches.keys() == self.dumps.keys()
        assert state.quarantined == {i: name for name, ids in self.quarantined.items() for i in ids}
        wanted = sorted((f for files in self.files.values() for f in files), key=lambda f: f.path)
        assert state.files() == wanted
        assert state.files("values") == [f for f in wanted if f.table == "values"]
        for name, batch in state.batches.items():
            assert sorted(batch.dumps) == sorted(self.dumps[name])
            assert sorted(f.path for f in batch.files) == sorted(f.path for f in self.files[name])


@pytest.mark.parametrize("seed", range(6))
def test_the_ledger(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits, claims, removals, merges and checkpoints in any order, by several processes in turn."""
    monkeypatch.setattr(ledger, "CHECKPOINT_INTERVAL", 4)
    monkeypatch.setattr(checkpoints, "FOLD_SECONDS", -1 if seed % 2 else 1000)
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", 3)
    draw, model, numbers = random.Random(seed), Model(), itertools.count()
    logs = [Ledger(Storage(tmp_path)) for _ in range(2)]

    def new_batch() -> Batch:
        number = next(numbers)
        names = [*model.dumps, f"{number:032x}"]
        tables = draw.sample(["values", "modules"], draw.randrange(3))
        files = tuple(File(t, f"{t}/{number}.parquet", number, draw.randrange(9), 3) for t in tables)
        ids = draw.sample(range(40), draw.randrange(4))
        bad = draw.sample(range(40), draw.randrange(2))
        name = draw.choice(names) if draw.random() < 0.1 else names[-1]
        made = Batch(name, tuple(map(content, ids)), tuple(map(content, bad)), files, "1", schema.VERSION, "r")
        return made if made.dumps or made.quarantined else new_batch()

    for _ in range(60):
        log, kind = draw.choice(logs), draw.random()
        if kind < 0.6:
            batch = new_batch()
            removed = tuple(draw.sample([*model.dumps], min(len(model.dumps), draw.randrange(3))))
            if batch.name in model.dumps and batch.name not in removed:
                removed = (*removed, batch.name)
            is_bad = {i for ids in model.quarantined.values() for i in ids}
            may_fail = {i for i in batch.quarantined if i not in is_bad and draw.random() < 0.3}
            wanted = model.claimed(batch, removed, may_fail)
            assert log.commit(batch, remove=removed, may_fail=may_fail) == wanted
            if not wanted:
                for name in removed:
                    model.remove(name)
                model.add(batch)
        elif kind < 0.7 and model.dumps:
            name = draw.choice([*model.dumps])
            assert log.commit(remove=(name,)) == set()
            model.remove(name)
            assert log.commit(batch, remove=(name,)) >= {*batch.dumps, *batch.quarantined}  # it is gone
        elif kind < 0.85:
            state = log.refresh()
            merged = draw.sample([n for n in model.dumps if not model.quarantined[n]], 2) if sum(
                not ids for ids in model.quarantined.values()) >= 2 else []  # fmt: skip
            if merged:
                name = f"{next(numbers):032x}"
                files = tuple(f for n in merged for f in model.files[n])
                ordinals = {n: state.ordinal(n) for n in merged}
                big = replace(state.batches[merged[0]], name=name, dumps=(), merges=tuple(merged), files=files)
                assert not log.commit_merged(big, {**ordinals, merged[0]: ordinals[merged[0]] + 1})
                assert log.commit_merged(big, ordinals)
                dumps = {i for n in merged for i in model.dumps[n]}
                for n in merged:
                    model.remove(n)
                model.dumps[name], model.quarantined[name], model.files[name] = dumps, set(), [*files]
        else:
            log.checkpoint()
            if draw.random() < 0.7:
                log.checkpoints.delete_unused()
                logs = [Ledger(Storage(tmp_path)) for _ in logs]  # a reader may have to open the dataset again
        model.check(draw.choice(logs).refresh())
    model.check(Ledger(Storage(tmp_path)).state)


# ---- occurrences


def occurrence_rows(draw: random.Random, n: int) -> pa.Table:
    rows = [
        {
            "content_id": draw.choice("ab"), "uri": draw.choice([None, "/x", "s3://b/x"]),
            "offset": draw.choice([None, 0, 7]), "host": draw.choice([None, "h", "i"]), "run_id": draw.choice("rs"),
            "seen_at": datetime(2025, 1, draw.randrange(1, 5), tzinfo=UTC), "stem": str(i),
        }
        for i in range(n)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema.OCCURRENCES.warehouse)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    uri = row["uri"] or ""
    offset = "" if row["offset"] is None else str(row["offset"])
    return row["content_id"], uri, offset, "" if "://" in uri else row["host"] or ""


@pytest.mark.parametrize("seed", range(20))
def test_occurrences_are_recorded_once(seed: int) -> None:
    draw = random.Random(seed)
    found, known = occurrence_rows(draw, draw.randrange(30)), occurrence_rows(draw, draw.randrange(8))
    assert keys_of(found).to_pylist() == ["\0".join(key(row)) for row in found.to_pylist()]
    first: dict[Any, Any] = {}
    for row in sorted(found.to_pylist(), key=lambda r: (r["host"] or "z", r["seen_at"], r["run_id"])):
        first.setdefault(key(row), (row["host"], row["seen_at"], row["run_id"]))
    once = distinct(found).to_pylist()
    assert {key(row): (row["host"], row["seen_at"], row["run_id"]) for row in once} == first
    assert len(once) == len(first)
    recorded = {key(row) for row in known.to_pylist()}
    wanted = [r for r in found.to_pylist() if key(r) not in recorded and key(r | {"offset": None}) not in recorded]
    assert new_occurrences(found, [known.slice(0, 2), known.slice(2)]).to_pylist() == wanted


# ---- what is converted together


def dumps_of(sizes: Iterable[int]) -> list[DumpInput]:
    return [DumpInput(content(i), SOURCE, size) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_filled_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 10)
    monkeypatch.setattr(plan, "MAX_BATCH_BYTES", 30)
    monkeypatch.setattr(plan, "TARGET_BATCHES", 4)
    monkeypatch.setattr(plan, "MAX_BATCH_DUMPS", 3 + seed % 5)
    draw = random.Random(seed)
    sizes = [draw.choice([1, 2, 5, 10, 11, 40, STREAMED_BYTES, STREAMED_BYTES + 1]) for _ in range(draw.randrange(40))]
    dumps = dumps_of(s for s in sizes if seed % 2 or s < 100)
    found = plan._batches(dumps)
    limit = min(max(sum(d.bytes for d in dumps if d.bytes <= STREAMED_BYTES) // 4, 10), 30)
    small = [b for b in found if b[0].bytes <= STREAMED_BYTES]
    assert [d for b in small for d in b] == [d for d in dumps if d.bytes <= STREAMED_BYTES]
    assert [b for b in found if b not in small] == [(d,) for d in dumps if d.bytes > STREAMED_BYTES]
    for b, following in itertools.pairwise([*small, ()]):
        assert 0 < len(b) <= plan.MAX_BATCH_DUMPS
        assert len(b) == 1 or sum(d.bytes for d in b) <= limit
        if following:  # it had no room
            assert len(b) == plan.MAX_BATCH_DUMPS or sum(d.bytes for d in (*b, following[0])) > limit


@pytest.mark.parametrize("seed", range(10))
def test_chunks_are_filled_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "CHUNK_BYTES", 10)
    draw = random.Random(seed)
    dumps = dumps_of(draw.choice([1, 3, 10, 11]) for _ in range(draw.randrange(30)))
    chunks = [*worker._chunks(tuple(dumps))]
    assert [d for c in chunks for d in c] == dumps
    for chunk, following in itertools.pairwise([*chunks, []]):
        assert len(chunk) == 1 or (chunk and sum(d.bytes for d in chunk) <= 10)
        assert not following or sum(d.bytes for d in (*chunk, following[0])) > 10


def test_the_name_of_a_task_depends_on_what_it_writes() -> None:
    options = Options("out", ("modules",), tool_version="1")
    dumps = tuple(dumps_of([1, 2]))
    tasks = [
        plan.make_task(dumps, options), plan.make_task(dumps[:1], options),
        plan.make_task(dumps, replace(options, tool_version="2")),
        plan.make_task(dumps, replace(options, tables=("modules", "values"))),
        plan.make_task(dumps, replace(options, top=3)),
        plan.make_task(dumps, replace(options, labels=(("night", "1"),), partition=("night",))),
        plan.make_task((replace(dumps[0], attempts=1), dumps[1]), options),
        plan.make_task((dumps[0], replace(dumps[1], attempts=1)), options),
    ]  # fmt: skip
    assert len({task.batch for task in tasks}) == len(tasks)
    same = [dumps[::-1], tuple(replace(d, source=replace(SOURCE, name="x")) for d in dumps)]
    elsewhere = replace(options, dest="other", run_id="r", host="h", labels=(("night", "1"),))
    assert {plan.make_task(d, o).batch for d in same for o in (options, elsewhere)} == {tasks[0].batch}


# ---- compaction


def small_batch(number: int, size: int, n_dumps: int = 1, **fields: Any) -> Batch:
    files = (File("values", f"values/v2/{number}.parquet", 1, size - size // 3),
             File("modules", f"modules/v2/{number}.parquet", 1, size // 3))  # fmt: skip
    dumps = tuple(content(1000 * number + i) for i in range(n_dumps))
    return replace(Batch(f"{number:032x}", dumps, (), files, "1", schema.VERSION, "run"), **fields)


def planned(batches: Iterable[Batch]) -> list[list[str]]:
    state = State()
    for ordinal, batch in enumerate(batches):
        state.add(batch, ordinal)
    return [[batch.name for batch in merged] for merged in compaction.plan(state)]


@pytest.mark.parametrize("seed", range(20))
def test_small_batches_are_merged(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is in one bin at most, bins are not too large, and no two of them could be one."""
    monkeypatch.setattr(compaction, "MAX_BYTES", 100)
    monkeypatch.setattr(compaction, "MAX_DUMPS", 12)
    monkeypatch.setattr(compaction, "LARGE_DUMP_BYTES", 60)
    draw = random.Random(seed)
    batches = {}
    for number in range(draw.randrange(20)):
        merged = draw.choice([0, 0, 40, 100])
        made = small_batch(number, draw.choice([1, 10, 30, 50, 60, 61, 99, 100]), draw.choice([1, 2, 6, 11, 12]))
        batches[made.name] = replace(made, merged_bytes=merged)

    def size(name: str) -> int:
        return batches[name].merged_bytes or sum(f.bytes for f in batches[name].files)

    bins = planned(batches.values())
    merged = [name for names in bins for name in names]
    left = [n for n in batches if n not in merged and (len(batches[n].dumps) > 1 or size(n) <= 60)]
    assert len(merged) == len({*merged})
    assert all(len(names) > 1 for names in bins)
    assert not [n for n in merged if len(batches[n].dumps) == 1 and size(n) > 60]
    for names in bins:
        assert names == sorted(names, key=lambda n: (-size(n), n))
    totals = [(sum(map(size, names)), sum(len(batches[n].dumps) for n in names))
              for names in (*bins, *([n] for n in left))]  # fmt: skip
    assert all(total[0] <= 100 and total[1] <= 12 for total in totals[: len(bins)])
    for a, b in itertools.combinations(totals, 2):
        assert a[0] + b[0] > 100 or a[1] + b[1] > 12


def test_what_is_not_merged() -> None:
    one = small_batch(0, 10)
    others = [
        {"tool_version": "2"}, {"schema_version": schema.VERSION + 1}, {"tables": ("values",)}, {"dumps": ()},
        {"quarantined": (content(5),)}, {"runs": ("r",), "merged_bytes": 1},
        {"files": (File("values", "values/v2/night=1/1.parquet", 1, 10),)},
        {"files": (*one.files, File("occurrences", "occurrences/v2/1.parquet", 1, 10))},
    ]  # fmt: skip
    for other in others:
        assert planned([one, replace(small_batch(1, 10), **other)]) == []
        assert planned([replace(small_batch(i, 10), **other) for i in (1, 2)]) == [[f"{i:032x}" for i in (1, 2)]]
    for other in ({"files": ()}, {"schema_version": 1}):
        assert planned([replace(small_batch(i, 10), **other) for i in (1, 2)]) == []
    runs = [replace(small_batch(i, 10), runs=(f"r{i}",), run_id=f"r{i}") for i in range(3)]
    ended = [replace(batch, name=batch_name(batch.run_id, "end")) for batch in runs]
    assert planned(runs) == []
    assert [sorted(names) for names in planned(ended)] == [sorted(batch.name for batch in ended)]
    assert planned([ended[0], *runs]) == []


# ---- ids of several dumps


@pytest.mark.parametrize("seed", range(10))
def test_ids_of_merged_dumps(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, stride = 12, {"page": 3, "value_id": 10, "allocation": 4}
    dump, page, color = draw.integers(0, 4, n), draw.integers(0, 3, n), draw.integers(0, 3, n)
    ids = {name: draw.integers(-1, stride[name], n) for name in ("value_id", "allocation")}
    offsets = Offsets(stride)
    merged = {name: offsets.add(name, column, dump) for name, column in {"page": page, **ids}.items()}
    for name, column in ids.items():
        assert merged[name].tolist() == [
            int(i + d * stride[name]) if i >= 0 else -1 for i, d in zip(column, dump, strict=True)
        ]
    local = offsets.local_page(merged["page"])
    assert (local.dump.tolist(), local.page.tolist()) == (dump.tolist(), page.tolist())
    table = pa.table({"page": merged["page"], "color": color, "value_id": merged["value_id"],
                      "allocation": merged["allocation"], "row": range(n)})  # fmt: skip
    order = sorted(range(n), key=lambda i: (dump[i], color[i], page[i], i))
    null = {name: [None if i < 0 else int(i) for i in column] for name, column in ids.items()}
    assert offsets.split(table).to_pylist() == [
        {"dump": int(dump[i]), "page": int(page[i]), "color": int(color[i]), "value_id": null["value_id"][i],
         "allocation": null["allocation"][i], "row": i}
        for i in order
    ]  # fmt: skip
    alone = Offsets()
    assert alone.add("page", page, dump).tolist() == page.tolist()
    assert {*alone.split(table.drop_columns("value_id"))["dump"].to_pylist()} == {0}


@pytest.mark.parametrize("seed", range(8))
def test_which_dumps_are_computed_together(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without live ranges, and those with some, of similar length, as long as they have few cells together."""
    monkeypatch.setattr(derived, "MAX_CELLS", 60)
    monkeypatch.setattr(derived, "MAX_DUMP_SPACES", 4)
    draw, n = random.Random(seed), 30
    length = [draw.choice([-1, *range(12), 70]) for _ in range(n)]
    odd = [draw.choice(["", "", "", "large id", "size"]) for _ in range(n)]
    colors, pages = (range(3), [None, 0, 1]) if seed % 3 else ([0], [None])
    spaces = [[(draw.choice(colors), draw.choice(pages)) for _ in range(draw.randrange(7))] for _ in range(n)]
    dump = [d for d in range(n) for _ in spaces[d]]
    color, page = zip(*itertools.chain(*spaces), strict=True)
    modules = {"schedule_length": length, "n_schedule": length, "n_live_ranges": [int(i >= 0) for i in length]}
    allocations = {
        "color": color, "page": page, "size": [-1 if odd[d] == "size" else 8 for d in dump],
        "allocation": [1 << 31 if odd[d] == "large id" else 0 for d in dump],
    }  # fmt: skip
    integers = {name: pa.array(column, pa.int64()) for name, column in allocations.items()}
    tables = {"modules": pa.table(modules), "allocations": pa.table(integers)}
    for name, columns in (
        ("values", ("value_id", "allocation", "size", "offset")), ("live_ranges", ("value_id",)), ("frames", ("id",)),
        ("instructions", ("stack_frame_id",)),
    ):  # fmt: skip
        tables[name] = pa.table({c: pa.array([], pa.int64()) for c in columns})
    rows = {name: np.zeros(0, np.int64) for name in tables} | {"allocations": np.array(dump)}
    dumps: Any = SimpleNamespace(ids=[*range(n)], tables=tables, dump_of_row=rows)

    size = [len({(c, p or 0) for c, p in own}) for own in spaces]
    known = [d for d in range(n) if 0 < size[d] <= 4 and odd[d] != "size"]
    wanted = [[d] for d in known if odd[d]]
    for timed in (False, True):
        group: list[int] = []
        for d in sorted((d for d in known if not odd[d] and (length[d] >= 0) == timed), key=lambda d: (length[d], d)):
            if group and (sum(size[i] for i in group) + size[d]) * (length[d] + 1) > 60:
                wanted.append(sorted(group))
                group = []
            group.append(d)
        wanted += [sorted(group)] if group else []
    assert [group.tolist() for group in derived._groups(dumps)] == wanted


# ---- files


def text_table(draw: random.Random, n: int) -> pa.Table:
    texts = [draw.choice([None, "", "a", "é", "long" * 20]) for _ in range(n)]
    table = pa.table({"text": pa.array(texts, pa.string()), "name": pa.array(texts).dictionary_encode(),
                      "number": pa.array(range(n), pa.int64()), "flag": pa.array([None] * n, pa.bool_())})  # fmt: skip
    cut = draw.randrange(n + 1)
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


@pytest.mark.parametrize("seed", range(10))
def test_sizes_of_rows(seed: int) -> None:
    table = text_table(random.Random(seed), 1 + seed * 3)
    wanted = [sum(4 + len((row[c] or "").encode()) for c in ("text", "name")) + 16 for row in table.to_pylist()]
    assert parquet.row_bytes(table).tolist() == wanted
    assert parquet.table_bytes(table) == sum(wanted)
    part = table.slice(1, seed)
    for copy in (parquet.copied(part), parquet.compacted(part)):
        assert copy.to_pylist() == part.to_pylist()
    used = parquet.compacted(part)["name"].combine_chunks()
    assert len(used.dictionary) == len({*part["name"].to_pylist()} - {None})


def addresses(table: pa.Table) -> set[int]:
    """The memory that a table uses."""
    arrays = [chunk for column in table.columns for chunk in column.chunks]
    arrays += [array.dictionary for array in arrays if isinstance(array, pa.DictionaryArray)]
    return {buffer.address for array in arrays for buffer in array.buffers() if buffer and buffer.size}


def test_a_copy_shares_no_memory() -> None:
    """Not even a dictionary, which may be that of a large table."""
    table = text_table(random.Random(1), 30).combine_chunks()
    assert addresses(table) & addresses(table.slice(3))
    assert not addresses(table) & addresses(parquet.copied(table.slice(3)))


@pytest.mark.parametrize("seed", range(12))
def test_row_groups_and_files(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows in their order, row groups of about the target, none too small, and a limited number per file."""
    import pyarrow.parquet as pq

    draw = random.Random(seed)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 4000)
    monkeypatch.setattr(parquet, "MIN_ROW_GROUP_BYTES", 1000)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUPS", 3)
    low_memory = bool(seed % 2)
    target = 2000 if low_memory else 4000
    writer = parquet.BatchWriter(Storage(tmp_path), "v2", "x", low_memory=low_memory, first_file=5)
    rows: list[dict[str, Any]] = []
    for _ in range(draw.randrange(1, 30)):
        part = [
            {"run_id": f"{len(rows)}/{i}", "key": "k", "value": "v" * draw.choice([1, 10, 300])}
            for i in range(draw.choice([0, 1, 3, 30]))
        ]
        rows += part
        writer.add("labels", pa.Table.from_pylist(part, schema.LABELS.warehouse))
    files = writer.close()
    assert [f.path.split("/")[-1].split(".")[1] for f in files] == [f"x-{5 + i:05}" for i in range(len(files))]
    found, groups = [], []
    for file in files:
        path = tmp_path / file.path
        assert (file.table, file.bytes) == ("labels", path.stat().st_size)
        with pq.ParquetFile(path) as opened:
            assert file.rows == opened.metadata.num_rows
            parts = [opened.read_row_group(i) for i in range(opened.num_row_groups)]
        assert len(parts) <= 3
        assert file is files[-1] or len(parts) == 3
        found += [row for part in parts for row in part.to_pylist()]
        groups += [parquet.table_bytes(part) for part in parts]
    assert found == rows
    assert all(1000 <= size <= target + 1000 for size in groups[:-1])
    assert not groups or len(groups) == 1 or groups[-1] >= 1000 - 400
    assert not groups or groups[-1] < target + 1000


def test_names_that_repeat_are_encoded() -> None:
    """At least twice on average."""
    spec = schema.WAREHOUSE["allocations"]
    name = next(f.name for f in spec.arrow if pa.types.is_dictionary(f.type) and f.name != "content_id")
    for letters, is_encoded in (("aa", True), ("aba", False), ("abab", True), ("a", False)):
        texts = [*letters]
        columns = {f.name: pa.nulls(len(texts), f.type) for f in spec.arrow}
        columns[name] = pa.array(texts).dictionary_encode().cast(spec.arrow.field(name).type)
        chosen = parquet.choose_encodings(pa.table(columns, schema=spec.arrow), spec)
        assert pa.types.is_dictionary(chosen.field(name).type) is is_encoded
        columns[name] = pa.array(texts)  # Parquet counts the names of plain text itself
        plain = parquet.choose_encodings(pa.table(columns), spec)
        assert pa.types.is_dictionary(plain.field(name).type)


def test_a_source_in_memory_stays_in_this_process() -> None:
    from xlamem.warehouse.run import DUMP_BYTES, UNKNOWN_BYTES, _in_memory, _work

    held = replace(SOURCE, members=(*SOURCE.members, replace(SOURCE.members[0], content=b"x")))
    assert isinstance(held, Source)
    assert (_in_memory(SOURCE), _in_memory(held)) == (False, True)
    assert _work([0, 5, None]) == 3 * DUMP_BYTES + 5 + UNKNOWN_BYTES
