"""What joins the parts of a dump: jobs, interners of spans, columns of several dumps. Each on its smallest inputs."""

from __future__ import annotations

import gc
import itertools
import os
import random
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_cuts import held
from test_lanes import Busy
from test_rare_texts import ALLOCATIONS, LIVE, USED, record

import xlamem
from xlamem import _lines, schema
from xlamem._column import Names, take
from xlamem.parse import diagnostics, recode, repeats, summary, threads, whole
from xlamem.parse import pieces as streaming
from xlamem.parse.arrays import NULL, Rows, distinct_of, joined, text_ends
from xlamem.parse.batch import Batch, File, Section, Span
from xlamem.parse.by_offset import _Overflow, _ReportColumns
from xlamem.parse.hashes import content_hash
from xlamem.parse.interners import Interner, Interners, fixed_dictionary
from xlamem.parse.join import ReadDump, _Join, tables_of
from xlamem.parse.lanes import AHEAD, KEEP, Job, Lanes
from xlamem.parse.pieces import pieces
from xlamem.parse.sections import SECTION_OF, SECTIONS
from xlamem.parse.stores import CompactStore, FullStore, narrow
from xlamem.parse.threads import Task, ThreadPool

WAIT = 60.0
"""Seconds after which a test that should not wait fails."""

# -- the thread pool


@pytest.mark.parametrize(("cores", "n"), [(None, 1), (1, 1), (2, 2), (4, 4), (5, 4), (64, 4)])
def test_threads_without_an_argument(cores: int | None, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert threads.default_threads() == n


def test_a_task_that_another_thread_runs() -> None:
    """Only its result is waited for."""
    ran: list[int] = []
    task = Task(lambda: ran.append(1))
    with task._running:
        task.run()
        task.run_by_worker()
        assert ran == []
        caller = threading.Thread(target=task.result, daemon=True)
        caller.start()
        caller.join(0.01)
        assert caller.is_alive()
    caller.join(WAIT)
    assert (ran, task.result()) == ([1], None)  # a result of None is one
    task.run()
    task.run_by_worker()
    assert ran == [1]


@pytest.mark.parametrize("call", [Task.run, Task.result])
def test_a_task_in_a_forked_child(call: Callable[[Task[int]], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run once, although the thread that ran it does not exist there."""
    ran: list[int] = []
    task = Task(lambda: ran.append(7) or 7)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with task._running:
        call(task)
        assert task.result() == 7
    assert ran == [7]


def test_a_task_that_fails() -> None:
    """In the thread that asks, it can be asked again; in a worker, its error is kept."""
    outcomes = [KeyError("a"), KeyError("b")]

    def job() -> int:
        if outcomes:
            raise outcomes.pop(0)
        return 5

    task = Task(job)
    for call in (task.run, task.result):
        with pytest.raises(KeyError):
            call()
        assert not task._running.locked()
    assert task.result() == 5
    outcomes.append(KeyError("c"))
    task = Task(job)
    task.run_by_worker()
    task.run()
    for _ in range(2):
        with pytest.raises(KeyError, match="c"):
            task.result()


@pytest.mark.parametrize(("n", "workers"), [(1, 1), (2, 1), (3, 2), (5, 4)])
def test_workers_of_a_pool(n: int, workers: int) -> None:
    """Even a pool of one thread has a worker; they end when there are no more jobs."""
    pool, go = ThreadPool(n), threading.Event()
    before = {*threading.enumerate()}
    tasks = [pool.submit(lambda: go.wait(WAIT)) for _ in range(2 * n)]
    started = {*threading.enumerate()} - before
    assert len(started) == workers == pool._workers
    go.set()
    for worker in started:
        worker.join(WAIT)
    assert pool._workers == 0
    assert [task._results for task in tasks] == [[True]] * len(tasks)  # all run by workers


def test_a_job_whose_task_was_dropped_does_not_run() -> None:
    pool, go, ran = ThreadPool(2), threading.Event(), []  # type: tuple[ThreadPool, threading.Event, list[int]]
    before = {*threading.enumerate()}
    first = pool.submit(lambda: go.wait(WAIT))
    dropped = pool.submit(lambda: ran.append(1))
    kept = pool.submit(lambda: ran.append(2))
    del dropped
    go.set()
    for worker in {*threading.enumerate()} - before:
        worker.join(WAIT)
    assert (ran, first.result(), kept.result()) == ([2], True, None)


def test_results_in_the_order_of_tasks() -> None:
    """Each as soon as it is ready. The caller starts queued tasks before it waits for one that a worker runs."""
    ran: list[int] = []

    def job(i: int) -> int:
        ran.append(i)
        if i == 2:
            tasks[1]._running.release()
        return i

    tasks = [Task(partial(job, i)) for i in range(3)]
    tasks[1]._running.acquire()
    found = ThreadPool(2).results(tasks)
    assert next(found) == 0
    assert ran == [0]
    assert [*found] == [1, 2]
    assert ran == [0, 2, 1]


# -- lanes


@pytest.mark.parametrize("foreign", [False, True])
def test_which_lane_is_next(foreign: bool) -> None:
    """The caller takes quick lanes, the latest one first, then the others in turn; other threads the reverse."""
    ran: list[str] = []
    with Lanes(2, Busy()) as jobs:
        for lane in ("a", KEEP, "b", AHEAD, "a"):
            jobs.submit(lane, lambda lane=lane: ran.append(lane))
        assert ran == []
        for _ in range(5 if foreign else 0):
            (thread := threading.Thread(target=jobs._run_next)).start()
            thread.join(WAIT)
        assert len(ran) == (5 if foreign else 0)
    assert ran == (["b", "a", "a", KEEP, AHEAD] if foreign else [AHEAD, KEEP, "a", "b", "a"])


@pytest.mark.parametrize("n", [1, 3])
def test_threads_of_lanes(n: int) -> None:
    before = threading.active_count()
    with Lanes(n) as jobs:
        assert jobs.threads == n
        assert threading.active_count() == before + n - 1
    assert threading.active_count() == before


def test_one_thread_runs_each_job_at_once() -> None:
    ran: list[Any] = []
    jobs = Lanes()

    def outer() -> int:
        inner = jobs.submit("a", lambda: ran.append("inner of the same lane"))
        other = jobs.submit("b", lambda: ran.append("inner of another lane"))
        ran.append((inner.done, other.done))
        return 3

    job = jobs.submit("a", outer)
    assert ran == ["inner of another lane", (False, True), "inner of the same lane"]
    assert (jobs.result(job), job.done, job.call, jobs._jobs, jobs._queues) == (3, True, None, 0, {})
    for wait in (lambda: jobs.wait("a"), jobs.join):
        wait()
    with pytest.raises(ZeroDivisionError):
        jobs.submit("a", lambda: 1 // 0)
    assert (jobs._jobs, [*jobs._queues]) == (1, ["a"])  # it is not done
    with pytest.raises(ZeroDivisionError):
        jobs.submit("b", lambda: ran.append("after an error"))
    with pytest.raises(ZeroDivisionError):
        jobs.result(job)
    assert len(ran) == 3


def test_what_a_job_refers_to_is_released() -> None:
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    job = Job(lambda thing=thing: id(thing))  # type: ignore[misc]
    del thing
    job.run()
    assert job.result is not None
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("n", [1, 2])
def test_how_many_items_are_ahead(n: int) -> None:
    """None on one thread; on several, two besides the one that the caller works with."""
    pulled: list[int] = []

    def items() -> Any:
        for i in range(6):
            pulled.append(i)
            yield i

    reached = threading.Event()
    with Lanes(n) as jobs:
        for i, item in enumerate(jobs.ahead(items())):
            assert item == i
            wanted = min(i + (1 if n == 1 else 3), 6)
            for _ in range(60_000):
                if len(pulled) >= wanted:
                    break
                reached.wait(0.001)
            assert len(pulled) == wanted
    assert pulled == [*range(6)]


def test_a_lane_is_waited_for_alone() -> None:
    started, go, ran = threading.Event(), threading.Event(), []  # type: tuple[threading.Event, threading.Event, list[int]]
    with Lanes(2) as jobs:
        slow = jobs.submit("slow", lambda: started.set() or go.wait(WAIT))
        assert started.wait(WAIT)
        for i in range(3):
            jobs.submit("quick", lambda i=i: ran.append(i))
        jobs.wait("quick")
        assert (ran, slow.done) == ([0, 1, 2], False)
        go.set()
        jobs.wait("slow")
        assert (slow.done, slow.result) == (True, True)


class Counted:
    """Cores of which the first requests get none."""

    def __init__(self, refused: int) -> None:
        self.refused, self.taken, self.most = refused, 0, 0
        self.lock = threading.Lock()

    def take(self) -> bool:
        with self.lock:
            self.refused -= 1
            if self.refused >= 0:
                return False
            self.taken += 1
            self.most = max(self.most, self.taken)
            return True

    def give_back(self) -> None:
        with self.lock:
            self.taken -= 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_core_is_given_back_after_each_job(fails: bool) -> None:
    """Also after a job that fails. A thread that found no idle core looks again."""
    cores, ran = Counted(1), threading.Event()

    def job() -> None:
        ran.set()
        if fails:
            raise KeyError

    jobs = Lanes(2, cores)
    jobs.submit("a", job)
    assert ran.wait(WAIT)  # on the other thread
    if fails:
        with pytest.raises(KeyError), jobs:
            jobs.join()
    else:
        with jobs:
            pass
    assert (cores.taken, cores.most) == (0, 1)


# -- interners of spans


def names_of(*texts: str) -> Names:
    pool = Interner()
    for text in texts:
        pool.code(text)
    return pool.names


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_names_of_spans_become_those_of_the_dump(
    at_once: int, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of first appearance, however many names a thread looks up. Texts and other columns are kept."""
    monkeypatch.setattr(recode, "LOOK_UP_NAMES", at_once)
    spans = [["a", "b", "c"], ["c", "d", "a", "e", "f", "g", "h"], ["a", "b"], [], ["i", "d"]]
    interners, scanned = Interners(), []
    section = Section("hlo", weakref.ref(File(0, "hlo", None, 0, 0)), 0, 0, 0)  # type: ignore[arg-type]
    for texts in spans:
        rows = np.array([*range(len(texts)), -1], np.int32)
        names = names_of(*texts)
        first, second, size = (take(rows, np.arange(len(rows), dtype=np.int32)) for _ in range(3))
        text: Any = (b"", np.zeros(1, np.int32), np.empty(0, np.uint8))
        tables: Any = {"t": {"shape": first}, "u": {"output_shape": second, "size": size}, "v": {"shape": text}}
        scanned.append((Batch(Span(section, 0, 0), tables), [names]))
    found = recode.merge(ThreadPool(n_threads), interners, ["shape"], scanned)
    assert [b for b, _ in scanned] == found
    pool = interners["shape"]
    assert [pool.text(code) for code in range(len(pool.names))] == [*"abcdefghi"]
    for batch, texts in zip(found, spans, strict=True):
        for table, column_name in (("t", "shape"), ("u", "output_shape")):
            codes = np.frombuffer(batch.tables[table][column_name], np.int32).tolist()
            assert [pool.text(code) for code in codes] == [*texts, None]
        assert np.frombuffer(batch.tables["u"]["size"], np.int32).tolist() == [*range(len(texts)), -1]
    assert len(interners["label"].names) == 0


# -- columns of several dumps


def dictionary_of(*texts: str) -> Interner:
    pool = Interner()
    for text in texts:
        pool.code(text)
    return pool


def test_joined_integers() -> None:
    """Null for all rows of dumps without the column, none if no dump has it."""
    join, one = _Join(), np.array([1, NULL])
    assert join.ints("x", [2, 1], [None, None], [None, None]) == (None, None)
    for items, expected in (
        ([one, None, one[:0], one[:1]], [1, NULL, NULL, NULL, NULL, 1]),
        ([None, one], [NULL, NULL, NULL, 1, NULL]),
    ):
        lengths = [3 if column is None else len(column) for column in items]
        found, dictionary = join.ints("x", lengths, items, [None] * len(items))
        assert (found.tolist(), found.dtype, dictionary) == (expected, np.int64, None)


def test_joined_flags() -> None:
    join, bits = _Join(), np.array([1, 2, 3], np.uint8)
    assert join.flags("x", [1], [None, None], []) == (None, None)
    (found, bit), dictionary = join.flags("x", [3, 1], [(bits, 2), (bits[:1], 2)], [])
    assert (found.tolist(), bit, dictionary) == ([1, 2, 3, 1], 2, None)
    found, dictionary = join.flags("x", [3, 1], [bits, bits[1:2]], [])
    assert (found.tolist(), dictionary) == ([1, 2, 3, 2], None)


WORDS: list[list[str | None]] = [["a", None, "", "bcd"], [], ["é", "x" * 9], [None], [""], ["e", "ff"]]


@pytest.mark.parametrize("order", [*itertools.permutations(range(len(WORDS)), 3)])
def test_joined_texts(order: tuple[int, ...]) -> None:
    join, parts, words = _Join(), [], []  # type: tuple[_Join, list[Any], list[str | None]]
    for i in order:
        data = [(word or "").encode() for word in WORDS[i]]
        offsets = np.cumsum([0, *map(len, data)]).astype(np.int32)
        parts.append((b"".join(data), offsets, np.array([w is not None for w in WORDS[i]], np.uint8)))
        words += WORDS[i]
    (data_, ends, valid), dictionary = join.texts("x", [len(WORDS[i]) for i in order], parts, [])
    assert dictionary is None
    ranges = zip(itertools.pairwise(ends.tolist()), valid, strict=True)
    found = [data_[a:b].decode() if v else None for (a, b), v in ranges]
    assert found == words
    assert (ends[0], ends.dtype, valid.dtype) == (0, np.int32, np.uint8)
    assert join.texts("x", [0, 0], [None, None], []) == (None, None)


def test_joined_names() -> None:
    """A dictionary is absorbed once per meaning, and columns with one meaning share the texts."""
    join, ab, bc = _Join(), dictionary_of("a", "b"), dictionary_of("b", "c", "d")
    fixed = fixed_dictionary("c", None, "x")
    codes = np.array([1, -1, 0], np.int32)

    def names(column: str, *items: tuple[Any, Any]) -> list[str | None]:
        lengths = [2 if c is None else len(c) for c, _ in items]
        found, pool = join.names(column, lengths, [c for c, _ in items], [d for _, d in items])
        assert found.dtype == np.int32
        return pool.arrays(found)[0].cast(pa.string()).to_pylist() if pool else found.tolist()  # type: ignore[union-attr]

    assert names("shape", (codes, ab), (codes[::-1], bc)) == ["b", None, "a", "b", None, "c"]
    assert names("shape", (codes, ab), (codes, ab)) == ["b", None, "a", "b", None, "a"]
    assert names("output_shape", (codes, bc), (None, None), (codes, fixed), (codes, ab)) == [
        "c", None, "b", None, None, "x", None, "c", "b", None, "a"
    ]  # fmt: skip
    assert names("space", (codes, bc), (codes[:0], fixed), (codes, ab)) == ["c", None, "b", "b", None, "a"]
    assert names("shape", (None, None), (codes, bc)) == [None, None, "c", None, "b"]
    pool = join._interners["shape"]
    assert [pool.text(code) for code in range(len(pool.names))] == ["a", "b", "c", "d", "x"]
    assert join.names("shape", [1, 1], [None, None], [None, None]) == (None, None)
    assert join.names("kind", [3, 3], [codes, codes], [ab, ab])[1] is ab


def texts_of(**members: str) -> Any:
    return held("x", {role.replace("_", "-"): text.encode() for role, text in members.items()})


UNLIKE = {
    "all": {"buffer_assignment": ALLOCATIONS, "buffer_assignment_values": USED + record(0, "a"), "live_range": LIVE},
    "used": {"buffer_assignment_values": USED + record(3, "u") + record(4, "w")},
    "live": {"live_range": LIVE.replace("    a{}", "    z{}").replace("0:a", "0:z")},
    "allocations": {"buffer_assignment": ALLOCATIONS.replace("a @0", "c{1} @2")},
    "unknown": {"buffer_assignment": f"{ALLOCATIONS}what is this\n\n"},
    "none": {"hlo": "HloModule m\n\n%f () -> f32[] {\n}\n"},
}


@pytest.mark.parametrize("order", [*itertools.permutations(UNLIKE, 2), ("used", "all", "none", "used", "live")])
@pytest.mark.parametrize("shared", [False, True])
def test_unlike_dumps(order: tuple[str, ...], shared: bool) -> None:
    """Each has its rows, its number of rows and its fingerprints, whatever the others lack."""
    interners = Interners() if shared else None
    sources = [texts_of(**UNLIKE[name]) for name in order]
    dumps = [ReadDump(source, interners=interners) for source in sources]
    found, counts = tables_of(dumps)
    alone = [xlamem.read(source, hashes=True) for source in sources]
    for name in schema.TABLES:
        assert found[name].to_pylist() == [row for dump in alone for row in dump[name].to_pylist()]
        assert counts[name].tolist() == [dump[name].num_rows for dump in alone] == [d.count(name) for d in dumps]
        assert counts[name].dtype == np.int64


# -- repeated texts


def test_rows_of_texts_that_are_kept() -> None:
    words = ["a", "", "bcd", "ee", "f"]
    for n in range(len(words) + 1):
        for keep in itertools.combinations(range(len(words)), n):
            offsets = np.cumsum([0, *map(len, words)]).astype(np.int32)
            valid = np.array([1, 0, 1, 1, 0], np.uint8)
            columns: Any = {
                "instruction": np.arange(5, dtype=np.int32),
                "operands": ("".join(words).encode(), offsets, valid),
            }
            repeats._take(columns, np.array(keep, np.int64))
            assert columns["instruction"].tolist() == [*keep]
            data, ends, valid = columns["operands"]
            data = bytes(memoryview(data))
            assert [data[a:b].decode() for a, b in itertools.pairwise(ends.tolist())] == [words[i] for i in keep]
            assert (ends.dtype, valid.tolist()) == (np.int32, [int(i in (0, 2, 3)) for i in keep])


def test_faults_of_texts_that_are_dropped() -> None:
    """Only of texts that are not UTF-8, in the lines of those texts; and differences within a span."""
    text = b" from instruction:%a\n from instruction: %b\n from instruction: %c\n"
    file = File(1, "x", None, len(text), len(text))  # type: ignore[arg-type]
    file.text = type("T", (), {"data": text})()
    section = Section("used values", weakref.ref(file), 0, len(text), 0)
    differs, utf8 = repeats._INSTRUCTION_DIFFERS, repeats._NOT_UTF8
    other = next(i for i in range(len(_lines.CODES)) if i not in (differs, utf8))
    begins = np.array([text.index(b"%" + name) for name in (b"a", b"b", b"c")])
    lines = [0, 21, 43]
    faults = [[code, line, 0] for line in lines for code in (differs, utf8, other)]
    for n in range(3):
        columns: Any = {"instruction": np.arange(3, dtype=np.int32)}
        batch = Batch(Span(section, 0, len(text)), {"instructions": columns}, np.array(faults))
        repeats.keep_instructions(batch, begins[n : n + 1], np.delete(np.arange(3), n))
        assert batch.faults.tolist() == [f for f in faults if f[0] != differs and f[:2] != [utf8, lines[n]]]
        assert columns["instruction"].tolist() == [i for i in range(3) if i != n]


# -- kept columns


def test_columns_of_all_batches_as_they_were_scanned() -> None:
    section = Section("hlo", weakref.ref(File(0, "hlo", None, 0, 0)), 0, 0, 0)  # type: ignore[arg-type]
    chunks = [[3, NULL], [], [5]]
    batches = [
        Batch(
            Span(section, 0, 0),
            {"t": {"a": np.array(c, np.int64), "c": np.array(c, np.int64).astype(np.int32), "f": np.array(c) > 3}},
        )
        for c in chunks
    ]
    store = FullStore([batches[0], Batch(Span(section, 0, 0), {"other": {}}), *batches[1:]])
    assert [c["a"].tolist() for c in store.of("t")] == chunks
    assert store.ints("t", "a").tolist() == [3, NULL, 5]
    assert store.ints("missing", "a").dtype == np.int64
    assert store.codes("t", "c").dtype == np.int32
    assert store.flags("t", "f").tolist() == [False, False, True]
    assert store.packed("t", "a").tolist() == [3, NULL, 5]
    assert store.packed("t", "a", 2).tolist() == [1, NULL, 3]
    found = [(first, a.tolist(), c.tolist()) for first, a, c in store.batches("t", "a", "c")]
    assert found == [(0, chunks[0], [3, 0]), (2, [], []), (2, [5], [5])]


@pytest.mark.parametrize(
    ("values", "base", "kind"),
    [
        ([[0, 127]], 0, np.int8),
        ([[0, 128]], 0, np.int32),
        ([[100], [227]], 100, np.int8),
        ([[100], [228]], 100, np.int32),
        ([[0, (1 << 31) - 1]], 0, np.int32),
        ([[0, 1 << 31]], 0, np.int64),
        ([[5], [4]], 5, np.int64),
        ([[1 << 40, (1 << 40) + 1]], 1 << 40, np.int8),
        ([[0], [1 << 62]], 0, np.int64),
    ],
)
def test_the_type_of_packed_columns(values: list[list[int]], base: int, kind: type[Any]) -> None:
    store = CompactStore()
    for chunk in values:
        store.keep("t", {"a": np.array(chunk, np.int64)}, ["a"])
    found = store.packed("t", "a", base)
    assert found.dtype == kind
    assert found.tolist() == [value - base for chunk in values for value in chunk]


@pytest.mark.parametrize(
    ("extent", "kind"),
    [(0, np.int8), (127, np.int8), (128, np.int16), (32767, np.int16), (32768, np.int32), ((1 << 31) - 1, np.int32)],
)
def test_the_width_of_narrow_columns(extent: int, kind: type[Any]) -> None:
    base, items = narrow(np.array([-9, -9 + extent, NULL]))
    assert (base, items.tolist(), items.dtype) == (-9, [0, extent, -1], kind)
    wide = np.array([-9, -9 + (1 << 31), NULL])
    assert narrow(wide).base == NULL
    assert narrow(wide).items.tolist() == wide.tolist()
    assert narrow(wide[2:]).items.tolist() == [-1]


def test_kept_columns_are_copies_and_can_be_dropped() -> None:
    sizes: list[int] = []

    def empty(size: int, dtype: type[Any]) -> Any:
        sizes.append(size)
        return np.full(size, 99, dtype)

    store, flags, ids = CompactStore(empty), np.array([1, 0], np.uint8), np.array([7, 8])
    for _ in range(2):
        store.keep("t", {"f": flags, "a": ids, "not kept": ids}, ("f", "a"))
    flags[:], ids[:] = 5, 5
    assert store.flags("t", "f").tolist() == [1, 0, 1, 0]
    assert store.ints("t", "a").tolist() == [7, 8, 7, 8]
    assert len(sizes) == 2  # a block for each column
    store.drop("t", "a")
    store.drop("missing", "a")
    assert [[*chunk] for chunk in store.of("t")] == [["f"], ["f"]]
    report = CompactStore()
    report.keep("r", {"part": ids, "color": ids + 1}, ("part", "color"))
    columns = _ReportColumns(report, "r")
    assert columns["part"].tolist() == [5, 5]
    assert columns["color"].tolist() == [6, 6]
    assert [*columns] == ["part", "color", "space_label", "total_bytes", "allocation", "n_values"]
    assert len(columns) == 6


def test_keys_that_are_sparse_or_dense() -> None:
    """The first row of a key that repeats, whatever the order of those that are wanted."""
    for step in (1, 1 << 40):
        keys = np.array([5, 3, 5, 9, 3]) * step
        index = Rows(keys)
        for order in itertools.permutations([3, 4, 5, 9, 10]):
            wanted = np.array(order) * step
            expected = {3: 1, 5: 0, 9: 3}
            found = index(wanted)
            assert (found.tolist(), found.dtype) == ([expected.get(key, -1) for key in order], np.int64)
        assert index(keys[:0]).tolist() == []
        assert Rows(keys[:0])(keys).tolist() == [-1] * 5


def test_distinct_values_and_joined_columns() -> None:
    for values in ([], [3], [3, 1, 3, NULL], [*range(5000, 0, -1), 7]):
        assert distinct_of(np.array(values, np.int64)) == sorted(set(values))
    one = np.arange(3)
    assert joined([one], np.int64) is one
    parts: Any = b"", np.array([-10, -5, 3, 3], np.int32), None  # offsets are modulo 2^32
    found = text_ends(parts)
    assert (found.tolist(), found.dtype) == ([5, 13, 13], np.int64)


def overflowing(*batches: tuple[list[tuple[int, int]], list[tuple[int, int, int]]]) -> list[int]:
    """The rows that may overflow: allocations as (number, size), values as (allocation, offset, size)."""
    found, values_ = _Overflow(), [value for _, values in batches for value in values]
    for allocations, values in batches:
        index, size = np.array(allocations, np.int64).reshape(-1, 2).T
        owner, offset, extent = np.array(values, np.int64).reshape(-1, 3).T
        found.add(
            {"allocation": index.copy(), "size": size.copy()},
            {"allocation": owner.copy(), "offset": offset.copy(), "size": extent.copy()},
        )
    rows = [(row, *(int(c[0]) for c in columns)) for row, *columns in found.rows()]
    assert all((*values_[row],) == tuple(value) for row, *value in rows)
    return [row for row, *_ in rows]


def test_values_that_may_end_beyond_their_allocation() -> None:
    """Those of an earlier span or of an allocation that is not the last one printed, too."""
    values = [(0, 0, 10), (0, 0, 11), (0, 10, 0), (0, 11, 0), (1, 0, 5), (1, 1, 5)]
    assert overflowing(([(0, 10), (1, 5)], values)) == [1, 3, 5]
    assert overflowing(([(0, 10)], [(0, -1, 2), (0, 0, -2), (7, 0, 1), (0, NULL, 1)])) == [0, 1, 2, 3]
    assert overflowing(([(0, -10)], [(0, 0, 0)])) == [0]
    # an allocation whose values are in several spans
    of_three = ([(0, 10)], [(0, 0, 10)]), ([], [(0, 0, 10), (0, 5, 6)]), ([(1, 4)], [(0, 1, 10), (1, 0, 4)])
    assert overflowing(*of_three) == [2, 3]
    # printed twice, in one span or in two: all values after that are candidates
    assert overflowing(([(0, 10), (0, 12)], [(0, 0, 1)]), ([(1, 9)], [(1, 0, 1)])) == [0, 1]
    assert overflowing(([(1, 10)], [(1, 0, 1)]), ([(1, 9)], [(1, 0, 1)]), ([(2, 9)], [(2, 0, 1)])) == [1, 2]
    assert overflowing(([(2, 10)], [(2, 0, 1)]), ([(1, 9)], [(1, 0, 1)])) == [1]
    assert overflowing(([], [(0, 0, 1)]), ([(0, 9)], [(0, 0, 1)])) == [0]


@pytest.mark.parametrize("links", [1, 8])
@pytest.mark.parametrize("seed", range(8))
def test_instructions_whose_texts_repeat(seed: int, links: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text of a name is a row where it is first. A diagnostic names each but the first one of a name."""
    chance = random.Random(seed)
    monkeypatch.setattr(repeats, "MAX_LINKS", links)
    names, operands = ("a", "b", "c", "d")[: 1 + seed % 4], "stuvwxyz"[: 2 + seed % 7]
    chosen = [(chance.choice(names), chance.choice(operands)) for _ in range(60)]
    texts = [
        record(i, f"v.{i}").replace(f"%v.{i} =", f"%{name} =").replace(f"%x.{i}, %y.{i}", f"%{operand}, %y")
        for i, (name, operand) in enumerate(chosen)
    ]
    texts[::2] = [text.replace("from instruction:", "from instruction:, color 86000") for text in texts[::2]]
    first = [i for i, pair in enumerate(chosen) if pair not in chosen[:i]]
    again = [i for i in first if chosen[i][0] in [name for name, _ in chosen[:i]]]
    source = held("x", {"buffer-assignment-values": (USED + "".join(texts)).encode()})
    lines = (USED + "".join(texts)).splitlines(keepends=True)
    at = [(n, len("".join(lines[: n - 1]))) for n in (3 + 6 * (i + 1) for i in again)]
    for size in (1, 400, 1000, 1700, 1 << 20):
        for module in (whole, streaming):
            monkeypatch.setattr(module, "SPAN_BYTES", size)
        monkeypatch.setattr(whole, "MAX_SPAN_BYTES", size)
        dump = xlamem.read(source, threads=3)
        found = [(row["instruction"], row["operands"][1]) for row in dump.instructions.to_pylist()]
        assert [(name, operand.strip("%")) for name, operand in found] == [
            (chosen[i][0], (chosen[i][1] + ",")[0]) for i in first
        ]
        differing = [row for row in dump.verify().to_pylist() if row["code"] == "instruction_differs"]
        assert [(row["line"], row["offset"]) for row in differing] == at
        tables: dict[str, list[Any]] = {"instructions": [], "diagnostics": []}
        for name, table in pieces(source, tables):
            tables[name] += table.to_pylist()
        assert tables == {name: dump[name].to_pylist() for name in tables}


# -- summaries -----------------------------------------------------------------------------------


def test_the_hash_of_a_dump() -> None:
    """Over the hashes of its files, without flags, in which there are paths."""
    members = {"buffer-assignment": ALLOCATIONS, "live-range": LIVE}
    flags = {"debug-options": "xla_a: 1\n", "tpu-environment": "a: 1\n"}
    expected = content_hash("\n".join(content_hash(text.encode()) for text in members.values()).encode())
    for more in ({}, flags, dict([*flags.items()][:1])):
        source = held("x", {role: text.encode() for role, text in (more | members).items()})
        dump = xlamem.read(source, hashes=True)
        hashes = {row["role"]: row["content_hash"] for row in dump.files.to_pylist()}
        assert hashes == {role: content_hash(text.encode()) for role, text in (more | members).items()}
        assert dump.modules["content_hash"].to_pylist() == [expected]
        assert xlamem.read(source).modules["content_hash"].to_pylist() == [None]
    (module,) = xlamem.read(held("x", {"debug-options": b"xla_a: 1\n", "hlo": b"HloModule m\n\n"})).modules.to_pylist()
    assert module["content_hash"] is None


@pytest.mark.parametrize(("sizes", "total"), [((0, 0), 0), ((5, 7), 12), (((1 << 63) - 2, 1), (1 << 63) - 1)])
@pytest.mark.parametrize("wanted", [None, {"modules"}, {"modules", "printed_peak"}, {"modules", "values"}])
def test_the_printed_peak(sizes: tuple[int, int], total: int, wanted: set[str] | None) -> None:
    """It is known if the live ranges are read; the rows of tables that were not asked for are not counted."""
    live = LIVE
    for name, size in zip("ab", sizes, strict=True):
        live = live.replace(f"{name}{{}}: 16 bytes", f"{name}{{}}: {size} bytes")
    source = held("x", {"buffer-assignment": ALLOCATIONS.encode(), "live-range": live.encode()})
    dump = xlamem.read(source, tables=wanted and {*wanted, "diagnostics"})
    (row,) = dump.modules.to_pylist()
    is_read = wanted is None or "printed_peak" in wanted
    assert (row["printed_peak_time"], row["printed_peak_bytes"]) == ((1, total) if is_read else (None, None))
    assert row["n_printed_peak"] == (2 if is_read else None)
    assert row["n_values"] == (2 if wanted is None or "values" in wanted else None)
    assert row["n_diagnostics"] == dump.diagnostics.num_rows


@pytest.mark.parametrize(
    ("is_read", "unavailable", "time", "sizes", "expected"),
    [
        (True, [False], 0, [5, 7], (0, 12)), (True, [True, False], 3, [], (3, 0)),
        (False, [False], 3, [5], (None, None)), (True, [True], 3, [5], (None, None)),
        (True, [], 3, [5], (None, None)), (True, [False], None, [5], (None, None)),
        (True, [False], 3, [(1 << 63) - 1, 1], (3, None)), (True, [False], 3, [-(1 << 63) + 1, -1], (3, None)),
    ],
)  # fmt: skip
def test_whether_a_printed_peak_is_known(
    is_read: bool, unavailable: list[bool], time: int | None, sizes: list[int], expected: tuple[int | None, int | None]
) -> None:
    """Not that of live ranges that were not read or are not available, and no sum beyond 64 bits."""
    reader: Any = SimpleNamespace(
        sections=lambda kind: [SimpleNamespace(unavailable=u) for u in unavailable], was_read=lambda kind: is_read,
        live=SimpleNamespace(peak_time=time),
        stores={summary.LIVE: SimpleNamespace(ints=lambda table, column: np.array(sizes, np.int64))},
    )  # fmt: skip
    assert summary._printed_peak(reader) == expected


def test_a_module_whose_name_is_not_utf8() -> None:
    for name, expected in ((b"jit_\xff", "jit_\\xff"), ("jit_é".encode(), "jit_é")):
        source = held("x", {"hlo": b"HloModule " + name + b", is_scheduled=true\n\n%f () -> f32[] {\n}\n"})
        assert xlamem.read(source).modules["module_name"].to_pylist() == [expected]
        tables = dict(pieces(source))
        assert tables["modules"]["module_name"].to_pylist() == [expected]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_shape_that_is_too_large_is_counted_once(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many values have it, also if more shapes are too large than are listed."""
    monkeypatch.setattr(diagnostics, "MAX_ROWS", n)
    values = "".join(
        f" value: <{i} c.{i} @0> (size=16,offset=0): f32[{2**61 + i // 3}]{{0}}\n" for i in range(2, 3 * (n + 2))
    )
    dump = xlamem.read(held("x", {"buffer-assignment": (ALLOCATIONS + values).encode()}))
    rows = [row for row in dump.verify().to_pylist() if row["code"] in ("size_too_large", "more_diagnostics")]
    assert [row["code"] for row in rows] == ["size_too_large"] * n + ["more_diagnostics"]
    assert rows[-1]["wanted"] == "2 more of size_too_large"


ALL_FILES = {
    "buffer-assignment": ALLOCATIONS, "buffer-assignment-values": USED + record(0, "a") + record(1, "b"),
    "live-range": LIVE, "hlo": "HloModule m\n\n%f () -> f32[] {\n}\n", "debug-options": "a: 1\n",
    "memory-usage-report": "Total bytes used: 64 (64B)\n\nAllocations sorted by size:\n\n",
}  # fmt: skip


@pytest.mark.parametrize("table", schema.TABLES)
@pytest.mark.parametrize("n", [1, 3])
def test_what_is_read_for_one_table(table: str, n: int) -> None:
    """Small tables need only their section; others begin the sections whose names they share."""
    dump = xlamem.read(held("x", {role: text.encode() for role, text in ALL_FILES.items()}), threads=n)
    assert dump[table].num_columns
    kinds = {"allocations", "live ranges"}
    small = {"printed_report": {"report"}, "frames": {"hlo"}, "aliases": {"hlo"}, "flags": {"flags"}}
    expected = small.get(table, kinds)
    if table in ("values", "positions", "uses", "instructions"):
        expected = kinds | {"used values"}
    elif table not in SECTION_OF:
        expected = {*SECTIONS}
    reader = dump._tables.reader  # type: ignore[attr-defined]
    assert {*reader.batches} == expected
    assert reader._is_ahead == (table in SECTION_OF and table not in small)
