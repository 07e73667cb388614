"""Rules of single modules of the warehouse: numbers of workers, cores, failures, registered tables, arguments."""

from __future__ import annotations

import builtins
import io
import math
import os
from contextlib import nullcontext
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
from xlamem import schema, warehouse
from xlamem.warehouse import (
    catalog,
    derived,
    driver,
    etags,
    followers,
    identity,
    known,
    memory,
    pool,
    processes,
    query,
    registration,
    streamed,
    worker,
    worker_setup,
)
from xlamem.warehouse.batch import Batch, File, Lazy
from xlamem.warehouse.cores import MAX_THREADS, CallerError, Cores
from xlamem.warehouse.followers import Target
from xlamem.warehouse.known import KnownDumps
from xlamem.warehouse.large import LargeLayout
from xlamem.warehouse.plan import make_task
from xlamem.warehouse.pool import WORKER_MEMORY, InProcessExecutor
from xlamem.warehouse.processes import WORKER_BYTES, _Processes
from xlamem.warehouse.result import Converted
from xlamem.warehouse.state import State
from xlamem.warehouse.storage import Storage
from xlamem.warehouse.task import DumpInput, Failure, Options

(SOURCE,) = xlamem.find(DUMPS / "cpu-jaxlib-0.5.3-tuple3")
GIB = 1 << 30
NOW = datetime(2026, 1, 2, tzinfo=UTC)


# ---- workers


@pytest.mark.parametrize(
    ("pages", "limits", "size"),
    [
        (4 * GIB, {}, 4 * GIB),
        (4 * GIB, {"/sys/fs/cgroup/memory.max": "1000\n"}, 1000),
        (4 * GIB, {"/sys/fs/cgroup/memory.max": "max\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "77"}, 77),
        (4 * GIB, {"/sys/fs/cgroup/memory/memory.limit_in_bytes": str(1 << 63)}, 4 * GIB),
    ],
)
def test_the_memory_of_a_container(
    monkeypatch: pytest.MonkeyPatch, pages: int, limits: dict[str, str], size: int
) -> None:
    def opened(path: str, *args: Any, **options: Any) -> Any:
        if path not in limits:
            raise FileNotFoundError
        return io.StringIO(limits[path])

    values = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": pages // 4096}
    monkeypatch.setattr(os, "sysconf", values.__getitem__)
    monkeypatch.setattr(os, "sysconf_names", values)
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", opened)
        found = memory.total_memory()
    assert found == size


@pytest.mark.parametrize(
    ("cores", "size", "workers"), [(4, 100, 4), (4, 3, 3), (4, 0.5, 1), (1, 100, 1), (3, 3, 3)]
)
def test_one_worker_per_core_and_gib(monkeypatch: pytest.MonkeyPatch, cores: int, size: float, workers: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cores), raising=False)
    monkeypatch.setattr(pool, "total_memory", lambda: int(size * WORKER_MEMORY))
    assert pool.default_workers() == workers
    with pool.in_process(None) as found:
        assert (found.size, found.cores.size) == (1, workers)
    with pool.in_process(7) as found:
        assert (found.size, found.cores.size) == (1, 7)


@pytest.mark.parametrize(("count", "workers"), [(None, 1), (1, 1), (5, 5)])
def test_workers_where_a_process_runs_on_any_core(
    monkeypatch: pytest.MonkeyPatch, count: int | None, workers: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr(pool, "total_memory", lambda: 100 * WORKER_MEMORY)
    assert pool.default_workers() == workers


@pytest.mark.parametrize(
    ("workers", "text", "started"),
    [
        (None, 0, None), (None, WORKER_BYTES, None), (None, 2 * WORKER_BYTES - 1, None),
        (None, 2 * WORKER_BYTES, 2), (None, 100 * WORKER_BYTES, 3),
        (1, 1, 1), (5, 1, 5), (5, 0, None),
    ],
)  # fmt: skip
def test_how_many_workers_are_started(
    monkeypatch: pytest.MonkeyPatch, workers: int | None, text: int, started: int | None
) -> None:
    sizes: list[int] = []

    def start(self: _Processes) -> None:
        sizes.append(self.pool.size)
        self.executor = self.here  # type: ignore[assignment]

    monkeypatch.setattr(processes, "default_workers", lambda: 3)
    monkeypatch.setattr(_Processes, "_start", start)
    monkeypatch.setattr(_Processes, "_wait_until_ready", lambda self: None)
    found = _Processes(workers)
    found.start(text)
    found.start(100 * WORKER_BYTES if started else 0)  # once they are started, there are no more
    assert sizes == ([] if started is None else [started])
    assert found.pool.size == (started or 1)


@pytest.mark.parametrize("is_careful", [False, True])
def test_a_worker_tells_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_careful: bool) -> None:
    told: list[bytes] = []
    monkeypatch.setattr(Storage, "write", lambda self, name, data: told.append(data))
    options = Options(str(tmp_path), ("modules",), tool_version="1", run_id="r", host="h", started=NOW)
    (found,) = identity.identify([SOURCE])[0]
    task = replace(make_task((found,), options), write_progress=is_careful)
    assert worker.process(task).dumps == (found.content_id,)
    assert told == ([found.content_id.encode(), b""] if is_careful else [])


def test_cores_are_shared() -> None:
    cores = Cores(2)
    assert (cores.threads, Cores(100).threads) == (2, MAX_THREADS)
    with cores.working():
        assert cores.take()
        assert not cores.take()
        cores.give_back()
        cores.set_read(5)
        assert cores.read == 5
        assert cores.take()
        cores.give_back()
    assert (cores.read, cores.numbers) == (0, [0, 0, 0, 0])
    numbers = [0] * 5
    shared = [Cores(3, numbers) for _ in range(4)]
    for i, one in enumerate(shared):
        one.start_worker()
        one.set_read(10 ** i)
    assert [one.worker for one in shared] == [0, 1, 2, 0]
    assert shared[0].read == 1000 + 10 + 100
    assert numbers == [4, 0, 1000, 10, 100]


def test_an_error_of_the_caller_is_not_one_of_the_dump() -> None:
    cores = Cores()

    def report() -> None:
        raise ZeroDivisionError

    def fail() -> None:
        raise CallerError("without a cause")

    cores.report = report
    with pytest.raises(CallerError, match="without a cause"):
        InProcessExecutor().submit(fail)
    with pytest.raises(CallerError):
        cores.set_read(1)
    with pytest.raises(ZeroDivisionError):
        InProcessExecutor(cores).submit(cores.set_read, 1)
    future = InProcessExecutor().submit(lambda: 1 // 0)
    assert isinstance(future.exception(), ZeroDivisionError)
    assert InProcessExecutor().submit(max, 3, 4).result() == 4


def test_the_heap_is_trimmed_after_a_full_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []
    monkeypatch.setattr(worker_setup.ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=trims.append))
    for phase, generation in (("start", 2), ("stop", 1), ("stop", 0), ("start", 0)):
        worker_setup._trim_heap(phase, {"generation": generation})
    assert trims == []
    worker_setup._trim_heap("stop", {"generation": 2})
    assert trims == [0]
    monkeypatch.setattr(worker_setup.ctypes, "CDLL", lambda name: SimpleNamespace())
    worker_setup._trim_heap("stop", {"generation": 2})


# ---- failures


def test_kinds_of_failures() -> None:
    content = xlamem.DumpError("f.txt", "a line", "hlo", line=3, offset=7, excerpt="x")
    for error, kind in ((content, "content"), (OSError("x"), "system"), (MemoryError(), "system"),
                        (ValueError("x"), "content"), (RuntimeError("y"), "content")):  # fmt: skip
        row = identity.failure(error, SOURCE, "id", 4)
        assert (row.kind, row.attempts, row.identified, row.content_id) == (kind, 4, True, "id")
        unknown = identity.failure(error, SOURCE)
        assert (unknown.attempts, unknown.identified) == (1, False)
        assert len(unknown.content_id) == 32
    row = identity.failure(content, SOURCE)
    assert (row.uri, row.error, row.line, row.offset, row.excerpt) == ("f.txt", "expected a line [hlo]", 3, 7, "x")
    assert identity.failure(ValueError("x"), SOURCE).error.startswith("ValueError: x (a bug of xlamem")
    assert identity.failure(OSError("x"), SOURCE).error == "x"
    assert identity.failure(OSError("x"), SOURCE).uri == SOURCE.members[0].location
    # A place where the system fails is one row, whatever the error; bad content is one row per error.
    ids = [identity.failure(e, SOURCE).content_id for e in (OSError("x"), OSError("y"), content)]
    assert ids[0] == ids[1] != ids[2]
    other = xlamem.DumpError("f.txt", "a line", "hlo", line=3, offset=8, excerpt="x")
    assert identity.failure(other, SOURCE).content_id != ids[2]


# ---- files that are known


def test_what_a_known_dump_is_known_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version, name, and of each member its role, its file, the state of it, and its place in it."""
    first = {"st_size": 1, "st_mtime_ns": 2, "st_ctime_ns": 3, "st_ino": 4}
    monkeypatch.setattr(known.os, "stat", lambda path: SimpleNamespace(**states.get(path, first)))
    states: dict[str, dict[str, int]] = {}

    def key(source: Any, version: str = "1") -> bytes | None:
        return KnownDumps(Storage(tmp_path), version, "run")._key(source)

    def with_member(**fields: Any) -> Any:
        return replace(plain, members=(replace(plain.members[0], **fields), *plain.members[1:]))

    plain = replace(SOURCE, members=SOURCE.members[:2])
    keys = [key(plain), key(plain, "2"), key(replace(plain, name="y")), key(replace(plain, members=plain.members[:1]))]
    other = {"role": "x", "uri": "/x", "form": "gzip", "inner_name": "i", "begin": 5, "end": 6}
    other |= {"entry": SimpleNamespace(name="e")}
    keys += [key(with_member(**{name: value})) for name, value in other.items()]
    for name in first:
        for i, member in enumerate(plain.members):
            states[member.uri] = {**first, name: 8 + i}
            keys.append(key(plain))
    states.clear()
    assert None not in keys
    assert len({*keys}) == len(keys)
    assert key(plain) == keys[0]
    assert key(with_member(entry=SimpleNamespace(name="f"))) not in keys
    assert key(with_member(content=b"x")) is None
    assert key(with_member(fault=xlamem.DumpError("/x", "a file"))) is None
    flags = replace(plain.members[0], role="debug-options", uri="/flags")
    assert key(replace(plain, members=(*plain.members, flags))) == keys[0]  # flags are no content


def test_a_time_that_could_hide_a_change_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = KnownDumps(Storage(tmp_path), "1", "run")
    for after, is_known in ((0, True), (1, False), (known.RESOLUTION_NS, False), (-known.RESOLUTION_NS, True)):
        time = found._began - known.RESOLUTION_NS + after
        status = SimpleNamespace(st_size=1, st_mtime_ns=time, st_ctime_ns=3, st_ino=4)
        monkeypatch.setattr(known.os, "stat", lambda path, status=status: status)
        assert (found._state("/x") is not None) is is_known


def raising(error: BaseException) -> Any:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    return fail


def test_a_content_that_cannot_be_loaded_has_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lack of memory is not the fault of the dump."""
    ((found,),) = identity.identify([SOURCE])
    assert identity.loaded_id(SOURCE) == found.content_id
    monkeypatch.setattr(identity, "_load", raising(OSError("gone")))
    assert identity.loaded_id(SOURCE) is None
    monkeypatch.setattr(identity, "_load", raising(MemoryError()))
    with pytest.raises(MemoryError):
        identity.loaded_id(SOURCE)
    monkeypatch.setattr(worker, "ReadDump", raising(MemoryError()))
    marked: list[str] = []
    own: Any = object.__new__(worker._Worker)
    vars(own).update(mark_progress=marked.append)
    with pytest.raises(MemoryError):
        own.read(found, None)
    assert marked == [found.content_id]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_each_module_of_a_file_is_a_dump(n: int, tmp_path: Path) -> None:
    module = "BufferAssignment:\nallocation 0: size {}, maybe-live-out:\n"
    (tmp_path / "x-buffer-assignment.txt").write_text("".join(module.format(8 * i) for i in range(1, n + 1)))
    (source,) = xlamem.find(tmp_path)
    (found,) = identity.identify([source])
    assert all(isinstance(dump, DumpInput) for dump in found)
    assert len({dump.content_id for dump in found}) == len(found) == n


def test_the_state_of_a_file_that_is_gone(tmp_path: Path) -> None:
    """A dump of a file of which nothing is known now is read."""
    found = KnownDumps(Storage(tmp_path), "1", "r")
    assert found._state(str(tmp_path / "gone")) is None


def test_names_that_the_package_lacks() -> None:
    with pytest.raises(AttributeError, match=r"module 'xlamem\.warehouse' has no attribute 'nothing'"):
        warehouse.nothing  # noqa: B018
    assert warehouse.convert is driver.convert


# ---- registered tables


class Table:
    """A table of another format, which others change a few times before a commit succeeds."""

    def __init__(self, there: dict[str, int], conflicts: int) -> None:
        self.there, self.conflicts = there, conflicts

    def files(self) -> dict[str, int]:
        return dict(self.there)

    def replace(self, added: list[File], removed: list[str]) -> bool:
        self.conflicts -= 1
        if self.conflicts >= 0:
            return False
        assert not {f.path for f in added} & (self.there.keys() - {*removed})
        for path in removed:
            del self.there[path]
        self.there |= {f.path: f.bytes for f in added}
        return True


@pytest.mark.parametrize("conflicts", [0, 1, followers.MAX_ATTEMPTS - 2, followers.MAX_ATTEMPTS])
def test_a_table_gets_the_files_of_the_ledger(conflicts: int) -> None:
    files = [File("values", f"values/{n}", 1, size) for n, size in (("same", 1), ("new", 2), ("changed", 3))]
    state = SimpleNamespace(files=lambda name: files if name == "values" else [])
    table = Table({"values/same": 1, "values/changed": 4, "values/old": 5}, conflicts)

    def follow() -> tuple[int, int, int]:
        return followers._follow_table("values", lambda name: table, lambda: state)  # type: ignore[arg-type, return-value]

    if conflicts >= followers.MAX_ATTEMPTS:
        with pytest.raises(xlamem.errors.OutputError, match="again and again"):
            follow()
        return
    if conflicts == followers.MAX_ATTEMPTS - 2:
        with pytest.raises(xlamem.errors.OutputError):  # one commit for what was removed, and none is left to look
            follow()
        return
    assert follow() == (3, 2, 2)
    assert table.there == {f.path: f.bytes for f in files}
    assert follow() == (3, 0, 0)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("iceberg", ("iceberg", "")), ("delta", ("delta", "")), ("iceberg:a.b", ("iceberg", "a.b")),
        ("iceberg:a.b.c", ("iceberg", "a.b.c")), ("iceberg:", None), ("iceberg:a", None), ("iceberg:.b", None),
        ("iceberg:a.", None), ("delta:", None), ("delta:a.b", None), ("hudi", None), ("", None),
    ],
)  # fmt: skip
def test_formats(text: str, parsed: tuple[str, str] | None) -> None:
    if parsed is None:
        with pytest.raises(xlamem.UsageError, match="is registered as"):
            Target.parse(text)
    else:
        target = Target.parse(text)
        assert (target.format, target.place, str(target)) == (*parsed, text)
        assert target.name == f"_ledger/registered/{target.format}.json"


def test_where_a_dataset_is_registered(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    storage.write(f"{followers.FOLDER}/delta.json", b'{"format": "delta", "place": ""}')
    storage.write(f"{followers.FOLDER}/.iceberg.json.89abcdef.tmp", b"{")  # of a run that was killed
    assert followers.registered(storage) == [Target("delta")]


def test_what_follows_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(tmp_path)
    assert followers.follow(storage, State) == []
    storage.write(f"{followers.FOLDER}/delta.json", b'{"format": "delta", "place": ""}')
    tables: dict[str, Table] = {}

    def open_table(name: str) -> Table:
        return tables.setdefault(name, Table({"old": 1}, 0))

    monkeypatch.setattr(Target, "opened", lambda self, storage: nullcontext(open_table))
    n = len(followers.TABLES)
    assert followers.follow(storage, State) == [followers.Registered("delta", n, 0, 0, n)]
    assert list(tables) == list(followers.TABLES)


def test_where_a_dataset_is_registered_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, state = Storage(tmp_path), State()
    synced: list[str] = []
    monkeypatch.setattr(Storage, "sync", lambda self, names: synced.extend(names))
    monkeypatch.setattr(Target, "opened", lambda self, storage: nullcontext())
    followers.record_targets(storage, [Target("delta")], state)
    assert synced == [f"{followers.FOLDER}/delta.json"]
    assert followers.registered(storage) == [Target("delta")]


def test_a_dataset_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is returned is about this format, also if the dataset is registered in another one too."""
    xlamem.convert(SOURCE, to=tmp_path, engine="here")
    storage, tables = Storage(tmp_path), dict[tuple[str, str], Table]()

    def opened(target: Target, storage: Storage) -> Any:
        return nullcontext(lambda name: tables.setdefault((target.format, name), Table({}, 0)))

    monkeypatch.setattr(Target, "opened", opened)
    storage.write(f"{followers.FOLDER}/iceberg.json", b'{"format": "iceberg", "place": ""}')
    tables["iceberg", "values"] = Table({"old": 1}, 0)
    found = registration.register(tmp_path, "delta")
    n = sum(len(table.there) for (form, _), table in tables.items() if form == "delta")
    assert n > 5
    assert found == followers.Registered("delta", len(followers.TABLES), n, n, 0)
    assert registration.register(tmp_path, "delta") == replace(found, added=0)
    assert {target.format for target in followers.registered(storage)} == {"delta", "iceberg"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"there": [Target("iceberg", "a.b")]}, "u is registered as iceberg:a.b: delete u/_ledger/registered/iceberg"),
        ({"old_batches": [1]}, "u has files of xlamem 0.1: convert them"),
        ({"shared": False}, "u is seen by this process only"),
        ({"there": [Target("delta")]}, None), ({"there": [Target("iceberg", "a.c")]}, None), ({}, None),
    ],
)  # fmt: skip
def test_what_cannot_be_registered(
    fields: dict[str, Any], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written then, nor without the library."""
    written: list[Any] = []
    storage: Any = SimpleNamespace(
        uri="u", uri_of=lambda name: f"u/{name}", local=True, shared=fields.get("shared", True), sync=written.append,
        write=lambda name, data: written.append((name, data)),
    )  # fmt: skip
    state: Any = SimpleNamespace(old_batches=fields.get("old_batches", []))
    monkeypatch.setattr(followers, "registered", lambda _: fields.get("there", []))
    monkeypatch.setattr(Target, "opened", lambda self, storage: nullcontext())
    target = Target("iceberg", "a.c")
    if message is not None:
        with pytest.raises(xlamem.UsageError, match=message):
            followers.record_targets(storage, [target], state)
        assert written == []
        return
    followers.record_targets(storage, [target], state)
    assert written == [(target.name, b'{"format": "iceberg", "place": "a.c"}'), [target.name]]
    written.clear()
    for error, kind in ((xlamem.UsageError("no library"), xlamem.UsageError), (KeyError("x"), xlamem.OutputError)):
        monkeypatch.setattr(Target, "opened", raising(error))
        with pytest.raises(kind) as caught:
            followers.record_targets(storage, [target], state)
        wanted = "no library" if kind is xlamem.UsageError else "cannot register u as iceberg:a.c (KeyError: 'x'); what"
        assert str(caught.value).startswith(wanted)
    assert written == []


def test_a_path_that_other_libraries_misread() -> None:
    storage: Any = SimpleNamespace(
        uri="s3://b/a#1", local=False, shared=True, files=lambda *args, **options: [], write=None
    )
    state: Any = SimpleNamespace(old_batches=[])
    with pytest.raises(xlamem.UsageError, match="there is a # in its path"):
        followers.record_targets(storage, [Target("delta")], state)
    storage.local = True  # written by the next step, for which this storage is not good enough
    with pytest.raises((xlamem.UsageError, xlamem.OutputError)) as caught:
        followers.record_targets(storage, [Target("delta")], state)
    assert "#" not in str(caught.value).replace(storage.uri, "")


def test_the_tables_by_which_readers_find_rows_follow_last() -> None:
    assert followers.TABLES[-2:] == ("modules", "occurrences")
    assert sorted(followers.TABLES) == sorted(schema.WAREHOUSE)


# ---- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_age": -1}, "min_age must be 0 or more"), ({"workers": 0}, "workers must be 1 or more"),
        ({"min_age": math.nan}, "min_age must be 0 or more"), ({"workers": 1 << 62}, "workers must be at most 65,536"),
        ({"max_failures": -1}, "max_failures must be 0 or more"),
        ({"top": -1}, "top must be 0 or more"), ({"tables": []}, "no table to write"),
        ({"tables": "modulse"}, "no table modulse"), ({"labels": {"": "x"}}, "must not be empty"),
        ({"labels": -1}, "must be a mapping of keys to values, not -1"), ({"register": [None]}, "or delta, not None"),
        ({"labels": {"night": "1", "Night": "2"}}, "must differ in more than case: night, Night"),
        ({"labels": {"a": "\udc80"}}, "must be UTF-8"), ({"labels": {"\udc80": "x"}}, "must be UTF-8"),
        ({"partition_by": "a"}, "no such label"), ({"labels": {"size": "1"}, "partition_by": "size"}, "a column has"),
        ({"labels": {"schema": "1"}, "partition_by": ["schema"]}, "a column has"), ({"engine": "x"}, "no engine"),
        ({"labels": {"Platform": "1"}, "partition_by": "Platform"}, "by 'Platform': a column has"),
        ({"labels": {"a": "1", "b": "2"}, "partition_by": ["a", "b", "a"]}, "by a label twice: a, b, a"),
        ({"register": "x"}, "is registered as"),
    ],
)  # fmt: skip
def test_wrong_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(xlamem.UsageError, match=message):
        xlamem.convert(DUMPS, to=tmp_path / "out", **{"engine": "here", **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{"min_age": 0}, {"workers": 1}, {"max_failures": 0}, {"top": 0}, {"labels": {}}])
def test_the_smallest_arguments(tmp_path: Path, options: dict[str, Any]) -> None:
    """A run without a failure is not stopped by the first one that it does not allow."""
    made = xlamem.convert(SOURCE, to=tmp_path / "out", engine="here", **options)
    assert (made.dumps, made.unreadable, made.stopped) == (1, 0, False)


def test_tables_are_written_in_the_order_of_the_schema() -> None:
    every = tuple(schema.WAREHOUSE)
    assert driver._table_names(None) == every
    assert driver._table_names(["values", "modules"]) == tuple(
        t for t in every if t in {"modules", "values", *schema.RUN_TABLES}
    )
    assert driver._table_names("values") == driver._table_names(["values"])


def test_recent_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump is left if any of its files was modified after the given time; one in memory never is."""
    now = 1_000_000.0
    monkeypatch.setattr(driver.time, "time", lambda: now)

    def source(*ages: float, content: bytes | None = None) -> Any:
        members = []
        for i, age in enumerate(ages):
            path = tmp_path / f"{len(ages)}-{i}-{age}"
            path.write_text("")
            os.utime(path, (now - age, now - age))
            members.append(replace(SOURCE.members[0], uri=str(path), content=content))
        return replace(SOURCE, members=tuple(members))

    old, limit, new, mixed = source(100), source(10), source(9), source(100, 9)
    gone, held = replace(SOURCE, members=(replace(SOURCE.members[0], uri="/missing"),)), source(1, content=b"x")
    every = [old, limit, new, mixed, gone, held]
    assert driver._settled(every, 10) == ([old, limit, gone, held], [new, mixed])
    future = source(-5)  # by a clock that is ahead
    assert driver._settled([*every, future], 0) == ([*every, future], [])
    assert driver._settled([old, future], 10) == ([old], [future])
    assert driver._settled(every, 0.5) == (every, [])


def test_what_could_not_be_read_is_counted() -> None:
    failed: list[Any] = [None, None]
    found = Converted("r", 1, 2, 3, 4, 5, 6, 7, 8, 9, failed=failed, known=10, changed=["a"], cut=["b"] * 50)
    assert found.unreadable == 13


def test_etags(monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing per folder, and none for what cannot be listed."""
    listed: list[str] = []

    class System:
        def invalidate_cache(self) -> None:
            listed.append("fresh")

        def ls(self, folder: str, detail: bool) -> list[dict[str, Any]]:
            listed.append(folder)
            if folder == "b/bad":
                raise OSError
            return [{"name": f"{folder}/x", "ETag": '"1"'}, {"name": f"{folder}/y", "etag": 2}, {"name": f"{folder}/z"}]

    monkeypatch.setattr(etags, "filesystem", lambda uri: (None, uri.partition("?")[0].removeprefix("s3://")))
    monkeypatch.setattr(etags, "open_fsspec", lambda uri: System())
    found = etags.ETags()
    assert [found.find(f"s3://b/a/{name}") for name in "xyzw"] == ['"1"', "2", None, None]
    assert found.find("s3://b/a/x?region=eu") == '"1"'
    assert [found.find(f"s3://b/bad/{name}") for name in "xy"] == [None, None]
    assert listed == ["fresh", "b/a", "fresh", "b/a", "fresh", "b/bad"]


# ---- dumps that are computed together


@pytest.mark.parametrize("table", ["allocations", "values", "live_ranges", "frames", "instructions"])
def test_dumps_with_odd_ids_are_computed_alone(table: str) -> None:
    names = {
        "allocations": ["allocation", "page"], "values": ["value_id", "allocation"], "live_ranges": ["value_id"],
        "frames": ["id"], "instructions": ["stack_frame_id"],
    }  # fmt: skip
    for column in names[table]:
        items = [0, 7, None, (1 << 31) - 1, 1 << 31, -1, 1 << 40]
        tables = {n: pa.table({c: pa.array([5] * len(items), pa.int64()) for c in cs}) for n, cs in names.items()}
        at = tables[table].schema.get_field_index(column)
        tables[table] = tables[table].set_column(at, column, pa.array(items, pa.int64()))
        rows = dict.fromkeys(names, np.arange(len(items)))
        dumps: Any = SimpleNamespace(ids=list(range(len(items))), tables=tables, dump_of_row=rows)
        assert derived._has_large_ids(dumps).tolist() == [False] * 4 + [True] * 3, column


@pytest.mark.parametrize("per_call", [1, 2, 100])
def test_the_scopes_of_the_op_names_in_use(per_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "OP_NAMES_PER_CALL", per_call)
    op_names = ["jit(f)/a/mul", "jit(f)/b/mul", "jit(f)/a/add", "jit(f)/c/add"]
    codes, names = derived._scope_codes(np.array([2, 0, -1, 3, 0]), pa.array(op_names))
    assert names.arrays(codes.astype(np.int32))[0].to_pylist() == ["a", None, "a", "c", None]  # none is that of null


# ---- damage


@pytest.mark.parametrize("error", [OSError("first\nsecond"), pa.ArrowInvalid("first\nsecond")])
def test_the_first_line_of_an_error_is_told(error: Exception, tmp_path: Path) -> None:
    """No file is gone or has another size, so that all that is known is what Arrow says."""
    storage = Storage(tmp_path)
    files: Any = SimpleNamespace(storage=storage, _find_damage=lambda tables: None)
    for context, place in (
        (catalog.Catalog.damage_errors(files, "values"), tmp_path),
        (storage.parquet_errors("values/a.parquet"), tmp_path / "values/a.parquet"),
    ):
        with pytest.raises(xlamem.DumpError, match=r"\(first\)$") as found, context:
            raise error
        assert str(found.value).startswith(f"{place}: ")


# ---- batches


def test_batches_as_json() -> None:
    files = (File("values", "a", 1, 2, 3), File("modules", "b", 4, 5))
    batch = Batch("n", ("1",), ("2",), files, "v", 2, "r", ("values",), {"2": 3}, ("2",), {"2": "/x"}, {"k": "v"},
                  ("r",), {"q": {"k": "w"}}, ("m",), 7, {"2": "h"})  # fmt: skip
    data = batch.to_json()
    assert Batch.from_json({**data, "later": 1, "files": [{**f, "later": 2} for f in data["files"]]}) == batch
    assert batch.table_files("values") == [files[0]]
    assert [f.path for f in batch.renamed({"a": "c"}).files] == ["c", "b"]
    assert [batch.is_old, replace(batch, schema_version=1).is_old] == [False, True]
    assert not batch.has_labels({"k": "w"})  # it has no occurrences
    seen = replace(batch, files=(File("occurrences", "o", 1, 1),))
    assert [seen.has_labels(labels) for labels in ({"k": "w"}, {"k": "v"}, {})] == [True, False, False]
    alone = replace(seen, run_labels={})
    assert [alone.has_labels(labels) for labels in ({"k": "w"}, {"k": "v"}, {})] == [False, True, False]


@pytest.mark.parametrize("field", ["rows", "bytes", "columns"])
def test_numbers_of_batches_have_64_bits(field: str) -> None:
    data = Batch("n", (), (), (File("values", "a", 1, 2, 3),), "v", 2, "r").to_json()

    def read(number: int) -> Batch:
        return Batch.from_json({**data, "files": [{**data["files"][0], field: number}], "merged_bytes": number})

    for number in (0, (1 << 63) - 1):
        assert (getattr(read(number).files[0], field), read(number).merged_bytes) == (number, number)
    for number in (-1, 1 << 63):
        with pytest.raises(ValueError, match=f"{field} is {number}"):
            read(number)


def test_lists_that_are_loaded_late() -> None:
    loads: list[int] = []

    def load() -> list[str]:
        loads.append(1)
        return ["a", "b"]

    lazy: Lazy[str] = Lazy(2, load)
    assert len(lazy) == 2
    assert not loads
    assert (lazy[1], lazy[:1], [*lazy]) == ("b", ["a"], ["a", "b"])
    assert lazy == ("a", "b")
    assert lazy != ("a", "c")
    assert lazy != ("a",)
    assert lazy != 2
    assert lazy.__reduce__() == (tuple, (["a", "b"],))


def test_output_errors_name_the_file(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    for error, name in ((OSError(28, "full", "/x/y"), "/x/y"), (OSError("odd"), str(tmp_path))):
        with pytest.raises(xlamem.errors.OutputError, match=name), storage.output_errors():
            raise error


def test_rows_with_the_names_that_are_in_them() -> None:
    names = pa.array(["a", "b", None, "c", "b"]).dictionary_encode()
    rows = pa.table({"name": names, "text": pa.array(list("vwxyz")), "n": pa.array(range(5))}).slice(1, 2)
    found = streamed.without_unused_names(rows)
    assert found.to_pylist() == rows.to_pylist()
    assert found.schema == rows.schema
    assert found["name"].chunk(0).dictionary.to_pylist() == ["b"]


# ---- sources, names of columns, sizes


@pytest.mark.parametrize(
    ("length", "chunks", "steps"),
    [(0, ["live_ranges"], 1), (3, ["values", "live_ranges"], 4), (-1, ["live_ranges"], None), (3, ["values"], None)],
)
def test_steps_of_a_large_dump(length: int, chunks: list[str], steps: int | None) -> None:
    """One more than the schedule has, even if that is empty; none without a schedule or live ranges."""
    layout: Any = object.__new__(LargeLayout)
    vars(layout).update(schedule_length=length, compact=SimpleNamespace(chunks=dict.fromkeys(chunks)))
    assert layout.steps == steps


def test_which_rows_of_a_large_dump_are_needed() -> None:
    """Those of some values, and the first live range; their instructions are found in what is left."""

    def names(*texts: str) -> pa.Array:
        return pa.array(texts).dictionary_encode()

    needed = streamed.NeededRows(np.array([3, 5, 0]))
    values = (([7, 3, 5], names("a", "b", "c")), ([0], names("d")))
    kept = [needed.select("values", pa.table({"value_id": ids, "instruction": rows})) for ids, rows in values]
    assert [rows["value_id"].to_pylist() for rows in kept] == [[3, 5], [0]]
    left = [chunk.dictionary.to_pylist() for rows in kept for chunk in rows["instruction"].chunks]
    assert left == [["b", "c"], ["d"]]
    live = ([7, None, 3], [5, 7], [7])
    found = [needed.select("live_ranges", pa.table({"value_id": pa.array(ids, pa.int64())})) for ids in live]
    assert [rows["value_id"].to_pylist() for rows in found] == [[7, 3], [5], []]
    instructions = [needed.select("instructions", pa.table({"instruction": names(*row)})) for row in ("xdb", "ab")]
    assert [rows["instruction"].to_pylist() for rows in instructions] == [["d", "b"], ["b"]]
    assert needed.instruction_rows().tolist() == [1, -1, 0]
    others = pa.table({"instruction": names("a", "x")})
    assert needed.select("aliases", others).equals(others)


def test_a_dump_that_is_given_twice() -> None:
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-scan_while")
    path = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
    for given in ((source, path), (path, source), (source, source), (path, path)):
        assert driver._find(given) == ([source], [])


def test_only_failures_of_paths_depend_on_the_host() -> None:
    for name, identified, differs in (("/in/x", False, True), ("/in/x", True, False), ("s3://b/x", False, False)):
        failure = Failure("a" * 32, name, name, "oh", identified=identified)
        ids = {identity.with_host(failure, host).content_id for host in ("a", "b")}
        assert len(ids) == 1 + differs
        assert (ids == {failure.content_id}) == (not differs)


def test_columns_of_one_name() -> None:
    names = ["a", "a", "a_1", "a", "b"]
    table = query._with_distinct_names(pa.table([pa.array([i]) for i in range(5)], names))
    assert table.column_names == ["a", "a_2", "a_1", "a_3", "b"]


def test_dumps_with_sizes_that_are_no_sizes() -> None:
    """One of them may be balanced by others."""
    rows = {"allocations": ("size", [8, 8, -8, 1 << 62]), "values": ("size", [8, 8, 8, 8])}
    tables = {name: pa.table({c: sizes, "offset": [0, 0, 0, 0]}) for name, (c, sizes) in rows.items()}
    tables["values"] = tables["values"].set_column(1, "offset", pa.array([0, -1, 0, 0]))
    dump = np.arange(4)
    dumps: Any = SimpleNamespace(ids=[*"abcd"], tables=tables, dump_of_row={"allocations": dump, "values": dump})
    assert derived._has_valid_sizes(dumps).tolist() == [True, False, False, False]
