"""What a run does with its tasks: which it submits, retries, divides, leaves to other runs, and how it counts them."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Future
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import DUMPS

import xlamem
from xlamem import schema
from xlamem.errors import OutputError
from xlamem.warehouse.batch import Batch, File
from xlamem.warehouse.plan import Plan, make_task
from xlamem.warehouse.processes import _Processes
from xlamem.warehouse.result import Status
from xlamem.warehouse.run import CONVERT_TO_IDENTIFY, DUMP_BYTES, MAX_DEATHS, Run
from xlamem.warehouse.state import State
from xlamem.warehouse.task import DumpInput, Failure, Options, Task, TaskResult

(SOURCE,) = xlamem.find(DUMPS / "cpu-jaxlib-0.5.3-tuple3")
OPTIONS = Options("out", ("modules", "values"), tool_version="1", run_id="r", host="h")
DEATH = BrokenExecutor("killed")


def dump(content_id: str, **fields: Any) -> DumpInput:
    return DumpInput(content_id, SOURCE, 10, **fields)


def failed(content_id: str, **fields: Any) -> Failure:
    return Failure(content_id, f"/in/{content_id}", f"/in/{content_id}", "bad", **fields)


def batch(name: str, dumps: str = "") -> Batch:
    return Batch(name, tuple(dumps), (), (), "1", schema.VERSION, "r")


def task_of(dumps: str, failures: str = "", replaces: Batch | None = None) -> Task:
    made = make_task(tuple(map(dump, dumps)), OPTIONS, tuple(map(failed, failures)))
    return replace(made, replaces=replaces)


def parts(tasks: list[Task]) -> list[tuple[str, str]]:
    """The dumps and the failures of tasks."""
    return [("".join(d.content_id for d in t.inputs), "".join(f.content_id for f in t.failures)) for t in tasks]


def state(*batches: Batch) -> State:
    found = State()
    for ordinal, one in enumerate(batches):
        found.add(one, ordinal)
    return found


def ended(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def run_of(**fields: Any) -> Any:
    """A run, as far as its methods use it."""
    run: Any = object.__new__(Run)
    vars(run).update({"options": OPTIONS, "stopped": False, "max_failures": None, **fields})
    return run


# ---- what other runs have done


@pytest.mark.parametrize(
    ("claimed", "left", "n_others"),
    [("x", [("abc", "fg")], 0), ("af", [("bc", "g")], 1), ("abc", [("", "fg")], 3), ("abcf", [("", "g")], 3),
     ("abfg", [("c", "")], 2), ("abcfg", [], 3)],
)  # fmt: skip
def test_what_other_runs_have_claimed(claimed: str, left: list[tuple[str, str]], n_others: int) -> None:
    run = run_of(ledger=SimpleNamespace(state=state()), stored_by_others=1, of_dumps=20)
    assert parts(run._unclaimed(task_of("abc", "fg"), {*claimed})) == left
    assert (run.stored_by_others, run.of_dumps) == (1 + n_others, 20 - n_others)


def test_what_another_run_has_stored_of_a_batch_that_is_there() -> None:
    """Only what replaces a batch is looked up: what is new is in no other one."""
    one = batch("one", "ab")
    run = run_of(ledger=SimpleNamespace(state=state(one)), stored_by_others=0, of_dumps=3)
    assert parts(run._unclaimed(task_of("abc", replaces=one), {"x"})) == [("c", "")]
    assert (run.stored_by_others, run.of_dumps) == (2, 1)
    assert parts(run._unclaimed(task_of("abc"), {"x"})) == [("abc", "")]


def test_a_batch_that_is_gone_is_planned_again() -> None:
    new = task_of("c")
    calls = []

    def replan(dumps: Any, found: State) -> Plan:
        calls.append("".join(d.content_id for d in dumps))
        return Plan([new], stored=2, quarantined=1)

    run = run_of(ledger=SimpleNamespace(state=state()), replan=replan, plan=Plan(stored=5, quarantined=7), of_dumps=20)
    tasks = run._unclaimed(task_of("abcd", "f", batch("gone", "abcd")), {"a"})
    assert parts(tasks) == [("c", ""), ("", "f")]
    assert tasks[0] is new
    assert (run.plan.stored, run.plan.quarantined, run.of_dumps) == (7, 8, 17)
    assert run._unclaimed(task_of("abcd", "", batch("gone", "abcd")), {"a"}) == [new]
    assert calls == ["abcd"] * 2


def test_the_batch_that_a_part_of_a_task_replaces() -> None:
    """The other part may have been committed meanwhile: what it left of the batch has another name."""
    one, rest = batch("one", "ab"), batch("rest", "b")
    run = run_of(ledger=SimpleNamespace(state=state(rest)))
    assert run._with_current_batch(task_of("b", replaces=one)).replaces == rest
    assert run._with_current_batch(task_of("c", replaces=one)).replaces is None
    assert run._with_current_batch(task_of("b")).replaces is None
    quarantine = replace(batch("bad"), quarantined=("b",))
    run.ledger.state = state(quarantine)
    assert run._with_current_batch(task_of("b", replaces=one)).replaces == quarantine
    run.ledger.state = state(replace(one, quarantined=("b",)), rest)
    assert run._with_current_batch(task_of("b", replaces=one)).replaces == one


# ---- tasks that fail


@pytest.mark.parametrize(
    ("dumps", "marker", "error", "divided"),
    [
        ("abcde", b"d", DEATH, [("abce", "f"), ("d", "")]),
        ("abcde", b"x", DEATH, [("cde", "f"), ("ab", "")]),
        ("abcde", None, DEATH, [("cde", "f"), ("ab", "")]),
        ("abcde", b"d", ValueError(), [("cde", "f"), ("ab", "")]),
        ("ab", b"b", DEATH, [("a", "f"), ("b", "")]),
        ("abc", b"", DEATH, [("bc", "f"), ("a", "")]),
    ],
)
def test_a_task_is_divided(dumps: str, marker: bytes | None, error: Exception, divided: list[tuple[str, str]]) -> None:
    """The dump that was read when the worker died is read alone; otherwise, half of them are looked at."""
    run = run_of(
        pool=SimpleNamespace(death_errors=(BrokenExecutor,)), storage=SimpleNamespace(read=lambda name: marker),
        failed_tasks=[],
    )  # fmt: skip
    one = batch("one", dumps)
    run.divide(task_of(dumps, "f", one), error)
    assert parts(run.failed_tasks) == divided
    assert [task.replaces for task in run.failed_tasks] == [one, one]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (DEATH, "system", "each of 2 workers that read only this dump died (BrokenExecutor: killed)"),
        (ValueError("odd"), "content", "reading it failed twice: ValueError: odd"),
    ],
)
def test_a_dump_that_fails_alone_is_quarantined(error: Exception, kind: str, message: str) -> None:
    run = run_of(pool=SimpleNamespace(death_errors=(BrokenExecutor,)), failed_tasks=[])
    run.divide(replace(task_of("", "f"), inputs=(dump("a", attempts=4),)), error)
    ((task),) = run.failed_tasks
    assert parts([task]) == [("", "fa")]
    row = task.failures[1]
    assert (row.kind, row.error, row.attempts, row.identified) == (kind, message, 5, True)


@pytest.mark.parametrize(
    ("dumps", "errors", "n_calls", "n_restarts", "left"),
    [
        ("ab", [None], 1, 0, None), ("ab", [DEATH], 1, 1, DEATH), ("a", [DEATH, None], 2, 1, None),
        ("a", [DEATH, DEATH], MAX_DEATHS, MAX_DEATHS, DEATH), ("a", [KeyError("x")], 1, 0, KeyError),
        ("", [DEATH], 1, 1, DEATH),
    ],
)  # fmt: skip
def test_attempts_of_a_task_alone(dumps: str, errors: list[Any], n_calls: int, n_restarts: int, left: Any) -> None:
    """A single dump may kill several workers, others one; each time, the pool is started again."""
    answers, calls, restarts, divided, deleted = iter(errors), [], [], [], []
    new = task_of("z")
    pool = SimpleNamespace(death_errors=(BrokenExecutor,), restart=lambda: restarts.append(1), ended=lambda f: f)
    run = run_of(
        pool=pool, ledger=SimpleNamespace(state=state()), storage=SimpleNamespace(delete=deleted.extend),
        failed_tasks=[], commit=lambda result, task: [new], divide=lambda task, error: divided.append(error),
        _submit_alone=lambda task: (calls.append(task), ended(next(answers)))[1],
    )  # fmt: skip
    task = task_of(dumps, "f")
    run.retry_alone(task)
    assert (len(calls), len(restarts)) == (n_calls, n_restarts)
    assert deleted == [f"_ledger/careful/{task.batch}"]
    if left is None:
        assert (divided, run.failed_tasks) == ([], [new])
    else:
        assert isinstance(divided[0], type(left) if left is DEATH else left)
        assert run.failed_tasks == []


def test_an_output_error_ends_the_run() -> None:
    deleted: list[str] = []
    run = run_of(
        pool=SimpleNamespace(death_errors=(BrokenExecutor,), ended=lambda f: f), failed_tasks=[],
        ledger=SimpleNamespace(state=state()), storage=SimpleNamespace(delete=deleted.extend),
        _submit_alone=lambda task: ended(OutputError("full")), _submit=lambda task: ended(OutputError("full")),
    )  # fmt: skip
    with pytest.raises(OutputError, match="full"):
        run.retry_alone(task_of("a"))
    assert len(deleted) == 1
    run._completed = lambda phase, waiting, submit: [(task, submit(task)) for task in waiting]
    with pytest.raises(OutputError, match="full"):
        run.run_tasks([task_of("a")])


@pytest.mark.parametrize(("deaths", "is_read"), [(0, True), (MAX_DEATHS - 1, True), (MAX_DEATHS, False)])
def test_a_dump_that_kills_workers_while_it_is_identified(deaths: int, is_read: bool) -> None:
    answers, restarts = iter([DEATH] * deaths + [[["found"]]]), []
    pool = SimpleNamespace(
        death_errors=(BrokenExecutor,), restart=lambda: restarts.append(1), ended=lambda f: f,
        submit=lambda function, sources: ended(next(answers)),
    )  # fmt: skip
    found = run_of(pool=pool).identify_alone(SOURCE)
    assert len(restarts) == deaths
    if is_read:
        assert found == ["found"]
    else:
        (row,) = found
        assert (row.kind, row.identified, "workers that read only this dump died" in row.error) == (
            "system", False, True,
        )  # fmt: skip
    pool.submit = lambda function, sources: ended(KeyError("x"))
    with pytest.raises(KeyError):
        run_of(pool=pool).identify_alone(SOURCE)


def test_dumps_that_kill_a_worker_are_identified_again_at_the_end() -> None:
    """Each alone; the progress counts them once."""
    statuses: list[int] = []
    found = [SimpleNamespace(members=[], bytes_on_disk=lambda: 1000) for _ in range(5)]
    answers = [([0, 3], ended(DEATH)), ([1], ended(["one"])), ([2, 4], ended(["two", "four"]))]
    run = run_of(
        pool=SimpleNamespace(start=lambda size: None, death_errors=(BrokenExecutor,)), dumps=2,
        _completed=lambda *args: iter(answers), identify_alone=lambda source: [found.index(source)],
    )  # fmt: skip
    run.report_status = lambda phase: statuses.append(run.dumps)
    assert [*run.read_all(dict(enumerate(found)))] == [(1, "one"), (2, "two"), (4, "four"), (0, [0]), (3, [3])]
    assert statuses == [4, 5, 7]


# ---- what is submitted


class Workers:
    """A pool of two workers that end one call after the other, in their order; some of the calls kill them."""

    size = 2
    death_errors = (BrokenExecutor,)

    def __init__(self, deadly: tuple[int, ...] = ()) -> None:
        self.deadly, self.most, self.restarts = deadly, 0, 0

    def submit(self, item: int) -> Future[int]:
        future: Future[int] = Future()
        future.item = item  # type: ignore[attr-defined]
        return future

    def completed(self, running: dict[Future[int], int]) -> set[Future[int]]:
        self.most = max(self.most, len(running))
        future = next(iter(running))
        if running[future] in self.deadly:
            future.set_exception(DEATH)
        else:
            future.set_result(running[future] * 10)
        return {future}

    def restart(self) -> None:
        self.restarts += 1


def test_two_items_per_worker_are_in_flight() -> None:
    from collections import deque

    pool = Workers()
    run = run_of(pool=pool, report_status=lambda phase: None)
    assert [(i, f.result()) for i, f in run._completed("x", deque(range(9)), pool.submit)] == [
        (i, 10 * i) for i in range(9)
    ]
    assert (pool.most, pool.restarts) == (4, 0)
    pool = Workers(deadly=(1, 7))
    run.pool = pool
    found = [(i, f.exception() is None) for i, f in run._completed("x", deque(range(9)), pool.submit)]
    assert sorted(i for i, _ in found) == [*range(9)]
    assert [i for i, is_good in found if not is_good] == [1, 2, 3, 4, 7, 8]  # all that were in flight with it
    assert pool.restarts == 2


def test_the_status_is_reported_while_nothing_ends() -> None:
    from collections import deque

    class SlowWorkers(Workers):
        def completed(self, running: dict[Future[int], int]) -> set[Future[int]]:
            waits.append(1)
            return set() if len(waits) % 3 else super().completed(running)

    waits: list[int] = []
    phases: list[str] = []
    pool = SlowWorkers()
    run = run_of(pool=pool, report_status=phases.append)
    assert [i for i, _ in run._completed("identify", deque(range(2)), pool.submit)] == [0, 1]
    assert phases == ["identify"] * 4


def test_a_run_that_stops_submits_nothing_more() -> None:
    from collections import deque

    pool, submitted = Workers(), []
    run = run_of(pool=pool, report_status=lambda phase: None)

    def submit(item: int) -> Future[int]:
        submitted.append(pool.submit(item))
        return submitted[-1]

    for i, _ in run._completed("x", deque(range(9)), submit):
        run.stopped = i == 1
    assert len(submitted) == 5
    assert [future.cancelled() for future in submitted] == [False] * 2 + [True] * 3


def test_the_amount_of_text_is_estimated_from_some_dumps() -> None:
    amounts: list[int] = []
    found = [SimpleNamespace(members=[], bytes_on_disk=lambda: 1000) for _ in range(512)]
    run = run_of(pool=SimpleNamespace(start=amounts.append), _completed=lambda *args: [])
    for n, counted in ((1, 1), (255, 255), (256, 256), (512, 3 * 171)):
        assert [*run.read_all(dict(enumerate(found[:n])))] == []
        assert amounts.pop() == counted * (DUMP_BYTES + 1000) // CONVERT_TO_IDENTIFY


def test_workers_are_started_for_what_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for what is identified, and again for what is new, with the time that a dump takes at least as text."""
    amounts: list[int] = []

    def start(self: _Processes, text_bytes: int) -> None:
        amounts.append(text_bytes)

    monkeypatch.setattr(_Processes, "start", start)
    size = sum(member.bytes_on_disk() or 0 for member in SOURCE.members)
    for n in (1, 0):
        xlamem.convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path, check_content=True)
        assert amounts == [(DUMP_BYTES + size) // CONVERT_TO_IDENTIFY, n * (DUMP_BYTES + size)]
        amounts.clear()


# ---- counts


def results() -> list[TaskResult]:
    files = (File("values", "a", 3, 100), File("modules", "b", 2, 20), File("quarantine", "c", 1, 3))
    return [
        TaskResult("x", files, ("a", "b"), (failed("f"),), ("n",), ("t",), 40, {"values": 3, "modules": 2}),
        TaskResult("y", files[:1], ("c",), (), ("m", "o"), (), 2, {"values": 3}),
    ]


def test_the_result_of_a_run() -> None:
    plan = Plan(stored=6, quarantined=7, duplicates=8)
    record = SimpleNamespace(occurrences=9)
    run = run_of(results=results(), plan=plan, record=record, stored_by_others=10, start=0.0, stopped=True)
    found = run.result(11, ["/none"], 12)
    assert (found.run_id, found.found, found.dumps, found.already_stored, found.duplicates) == ("r", 11, 3, 16, 8)
    assert (found.occurrences, found.files, found.bytes, found.rows, found.text_bytes) == (9, 4, 223, 8, 42)
    assert ([f.content_id for f in found.failed], found.known, found.changed, found.cut) == (
        ["f"], 7, ["n", "m", "o"], ["t"],
    )  # fmt: skip
    assert (found.empty, found.recent, found.stopped, found.seconds > 0) == (["/none"], 12, True, True)
    assert found.unreadable == 1 + 7 + 3


def test_what_a_status_says() -> None:
    """Bytes never go back, although a worker that ends counts those of its dump no more."""
    seen: list[Status] = []
    pool = SimpleNamespace(cores=SimpleNamespace(read=10))
    run = run_of(
        pool=pool, plan=Plan(quarantined=7), results=results(), report=seen.append, phase_start=0.0,
        dumps=3, of_dumps=4, bytes=5, of_bytes=18, reported_bytes=0,
    )  # fmt: skip
    for read, size in ((10, 15), (0, 15), (20, 18), (0, 18)):
        pool.cores.read = read
        run.report_status("convert")
        status = seen[-1]
        assert (status.phase, status.dumps, status.of_dumps, status.bytes, status.of_bytes, status.failed) == (
            "convert", 3, 4, size, 18, 7 + 1 + 3,
        )  # fmt: skip


def test_the_statuses_of_a_run(tmp_path: Path) -> None:
    """The search first, then what is identified and what is converted."""
    seen: list[Status] = []
    made = xlamem.convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path, progress=seen.append)
    rows = {path: pq.read_metadata(path).num_rows for path in tmp_path.rglob("*.parquet")}
    of_dumps = {path for path in rows if path.relative_to(tmp_path).parts[0] not in schema.RUN_TABLES}
    assert made.rows == sum(rows[path] for path in of_dumps) > 100
    size = sum(member.bytes_on_disk() or 0 for member in SOURCE.members)
    found = [replace(status, seconds=0.0) for status in seen]
    assert seen[0] == Status("find", 0, 0, 0, 0, 0, 0.0)
    assert list(dict.fromkeys(status.phase for status in found)) == ["find", "identify", "convert"]
    assert [(status.dumps, status.of_dumps) for status in found if status.phase == "identify"][-1] == (1, 1)
    assert found[-1] == Status("convert", 1, 1, size, size, 0, 0.0)
    assert all(a.bytes <= b.bytes for a, b in pairwise(found) if a.phase == b.phase)


@pytest.mark.parametrize(("limit", "is_over"), [(None, False), (4, False), (3, True), (0, True)])
def test_dumps_that_changed_count_as_failures(limit: int | None, is_over: bool) -> None:
    forgotten: list[set[str]] = []
    run = run_of(
        results=results()[:1], record=SimpleNamespace(forget=forgotten.append), dumps=0, bytes=0, max_failures=limit,
        report_status=lambda phase: None, _commit=lambda result, task, tried: set(),
    )  # fmt: skip
    assert run.commit(results()[1], task_of("cde")) == []
    assert run.stopped is is_over
    assert (run.new_failures, run.dumps, run.bytes) == (4, 3, 30)
    assert forgotten == [{"d", "e"}]


def test_the_batches_of_a_result() -> None:
    """Failures are in one of their own; what it says of a path is said only of what could not be loaded."""
    failures = (
        failed("f", attempts=2), failed("g", attempts=3, kind="system", identified=False),
        replace(failed("h", identified=False), name="s3://b/h"),
    )  # fmt: skip
    result = replace(results()[0], failures=failures, remainder=batch("rest", "z"))
    good, bad, rest = run_of()._batches(result)
    assert (good.name, good.dumps, [f.path for f in good.files], good.attempts) == ("x", ("a", "b"), ["a", "b"], {})
    assert (bad.name, bad.dumps, [f.path for f in bad.files]) == ("x-quarantine", (), ["c"])
    assert (bad.quarantined, bad.attempts) == (("f", "g", "h"), {"f": 2, "g": 3, "h": 1})
    assert (bad.system, bad.places, bad.hosts) == (("g",), {"g": "/in/g", "h": "s3://b/h"}, {"g": "h"})
    assert rest.name == "rest"
    assert good.quarantined == good.system == ()
    assert (good.tool_version, good.schema_version, good.run_id, good.tables) == ("1", schema.VERSION, "r", bad.tables)
    assert [b.name for b in run_of()._batches(replace(result, dumps=(), remainder=None))] == ["x-quarantine"]
    assert [b.name for b in run_of()._batches(replace(result, failures=(), remainder=None))] == ["x"]


def test_only_tasks_that_fail_as_a_whole_are_tried_again() -> None:
    run = run_of(failed_tasks=[], commit=lambda result, task: [task_of("c")] if result == "first" else [])
    answers = {"a": "first", "b": DEATH, "c": "second"}
    run._submit = lambda task: ended(answers[task.inputs[0].content_id])

    def completed(phase: str, waiting: Any, submit: Any) -> Any:
        while waiting:
            task = waiting.popleft()
            yield task, submit(task)

    run._completed = completed
    run.run_tasks([task_of("a"), task_of("b")])
    assert [task.inputs[0].content_id for task in run.failed_tasks] == ["b"]


def test_which_dumps_of_version_1_a_result_replaces() -> None:
    """All that it has read again; of those that it failed to read, what version 1 could not read either."""
    old = {"a": ["a1", "a2"], "b": ["b1"], "c": ["c1", "c2"]}
    state = SimpleNamespace(old_batches=[SimpleNamespace(dumps={"a1": 0, "c1": 0})])
    run: Any = SimpleNamespace(old_ids=old, ledger=SimpleNamespace(state=state))
    result: Any = SimpleNamespace(dumps={"a": 0, "x": 0}, failures=[SimpleNamespace(content_id=i) for i in "cy"])
    assert Run._replaced_old_ids(run, result) == {"a1", "a2", "c2"}
