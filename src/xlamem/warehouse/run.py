"""One run of the converter: submits tasks to the workers and commits their results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from .. import schema
from ..errors import OutputError
from ..input.find import Source
from .batch import Batch, File
from .identity import display_name, failure, id_of_version_1, identify, is_local, with_host
from .known import KnownDumps
from .ledger import Ledger
from .plan import Plan, identify_chunks, make_task, plan
from .pool import Pool
from .record import RunRecord
from .result import Converted, Progress, Status
from .rewrite import rewrite
from .storage import Storage
from .task import DumpInput, Failure, Options, Task, TaskResult
from .worker import process, progress_marker

MAX_DEATHS = 2
"""Number of workers that may die while reading a single dump before it is quarantined."""
DUMP_BYTES = 48 << 10
"""Text that is read in the time that a dump takes in addition to that for its text."""
CONVERT_TO_IDENTIFY = 10
"""Time for converting a dump divided by that for identifying it."""
SAMPLE = 256
"""Number of dumps from whose sizes those of all are estimated."""
UNKNOWN_BYTES = 1 << 20
"""Assumed size of a dump whose size is not known, on an object store."""

T = TypeVar("T")
R = TypeVar("R")


class Run:
    """The state of a run."""

    def __init__(
        self,
        pool: Pool,
        options: Options,
        storage: Storage,
        ledger: Ledger,
        record: RunRecord,
        report: Progress,
        max_failures: int | None,
    ) -> None:
        self.pool, self.options, self.storage, self.ledger = pool, options, storage, ledger
        self.record, self.report, self.max_failures = record, report, max_failures
        self.known = KnownDumps(storage, options.tool_version, options.run_id)
        self.plan = Plan()
        self.replan: Callable[..., Plan]
        self.results: list[TaskResult] = []
        self.failed_tasks: list[Task] = []
        """Tasks that failed as a whole, to be retried one by one."""
        self.stored_before: frozenset[str] = frozenset()
        self.old_ids: dict[str, set[str]] = {}
        """The dump_ids of version 1 in the dataset, by content_id."""
        self.stored_by_others = 0
        self.stopped = False
        self.dumps = self.bytes = self.of_dumps = self.of_bytes = self.reported_bytes = 0
        self.pool.cores.report = lambda: self.report_status("convert")
        self.start = self.phase_start = time.monotonic()

    def execute(
        self,
        sources: list[Source],
        searched: list[str],
        skipped: list[Source],
        *,
        reprocess: bool,
        retry_quarantine: bool,
        check_content: bool,
    ) -> None:
        """Convert the dumps. `searched` lists the paths that were searched for them, `skipped` what else was found."""
        identified = self.identify_all(sources, check_content=check_content)
        self.record.begin(dump for dump in identified if isinstance(dump, DumpInput))
        with self.storage.output_errors():
            self.known.save()
        state = self.ledger.state
        self.stored_before = frozenset(state.stored.find({dump.content_id for dump in identified}))
        self.old_ids = self.find_old_ids(identified)
        self.replan = partial(
            plan, options=self.options, old_ids=self.old_ids, reprocess=reprocess, retry_quarantine=retry_quarantine
        )
        self.plan = self.replan(identified, state, searched=searched, skipped=[display_name(s) for s in skipped])
        if self.plan.recovered:
            with self.storage.output_errors():
                self.ledger.commit(clear=self.plan.recovered, rewrite=self.rewrite)
        self.dumps = 0
        self.of_dumps = sum(len(task.inputs) for task in self.plan.tasks)
        self.of_bytes = sum(task.bytes for task in self.plan.tasks)
        self.phase_start = time.monotonic()
        self.report_status("convert")
        self.pool.start(_work(dump.bytes for task in self.plan.tasks for dump in task.inputs))
        self.run_tasks(self.plan.tasks)
        while self.failed_tasks and not self.stopped:
            self.retry_alone(self.failed_tasks.pop())

    # -- identifying

    def identify_all(self, sources: list[Source], *, check_content: bool) -> list[DumpInput | Failure]:
        """Identify all dumps, and read those that no earlier run has read."""
        self.of_dumps = len(sources)
        with self.storage.output_errors():
            known = self.known.look_up(sources, check=check_content)
        identified: list[DumpInput | Failure] = [dump for dump in known if dump is not None]
        self.dumps = len(identified)
        numbers = [number for number, dump in enumerate(known) if dump is None]
        for number, dumps in self.read_all({number: sources[number] for number in numbers}):
            identified += dumps
            if len(dumps) == 1 and isinstance(dumps[0], DumpInput):
                self.known.add(number, dumps[0])
        host = self.options.host
        return [with_host(dump, host) if isinstance(dump, Failure) else dump for dump in identified]

    def read_all(self, sources: dict[int, Source]) -> Iterator[tuple[int, list[DumpInput | Failure]]]:
        """Yield the dumps in each source. Those in memory are read in this process."""
        step = 1 + len(sources) // SAMPLE
        sizes = (source.bytes_on_disk() for source in [*sources.values()][::step])
        self.pool.start(_work(sizes) * step // CONVERT_TO_IDENTIFY)
        here = [number for number, source in sources.items() if _in_memory(source)]
        yield from zip(here, identify([sources[number] for number in here]), strict=True)
        chunks = deque(identify_chunks(sorted(sources.keys() - here)))
        unread: list[int] = []

        def submit(chunk: Sequence[int]) -> Future[Any]:
            return self.pool.submit(identify, [sources[number] for number in chunk])

        for chunk, future in self._completed("identify", chunks, submit):
            try:
                yield from zip(chunk, future.result(), strict=True)
            except self.pool.death_errors:
                unread += chunk
            self.dumps += len(chunk)
            self.report_status("identify")
        for number in unread:
            yield number, self.identify_alone(sources[number])

    def identify_alone(self, source: Source) -> list[DumpInput | Failure]:
        """Identify a dump that may have killed a worker."""
        error: Exception | None = None
        for _ in range(MAX_DEATHS):
            future: Future[list[list[DumpInput | Failure]]] = self.pool.submit(identify, [source])
            error = _error_of(self.pool.ended(future))
            if error is None:
                return future.result()[0]
            if not isinstance(error, self.pool.death_errors):
                raise error
            self.pool.restart()
        return [failure(_worker_death(error), source)]

    def find_old_ids(self, identified: list[DumpInput | Failure]) -> dict[str, set[str]]:
        """Return the dump_ids of version 1 that the dumps have in the dataset, with the labels of this run."""
        state, options = self.ledger.state, self.options
        known = state.old_ids | state.quarantined.keys()
        found: dict[str, set[str]] = {}
        for dump in identified if known else ():
            if isinstance(dump, DumpInput):
                old = id_of_version_1(dump.content_hash, dump.source, options.labels, "/".join(options.partition))
                if old in known:
                    found.setdefault(dump.content_id, set()).add(old)
        return found

    # -- tasks

    def run_tasks(self, tasks: list[Task]) -> None:
        """Run all tasks. Add those that fail as a whole to `failed_tasks`."""
        waiting = deque(tasks)
        for task, future in self._completed("convert", waiting, self._submit):
            error = _error_of(future)
            if isinstance(error, OutputError):
                raise error
            if error is not None:
                self.failed_tasks.append(task)
            else:
                waiting += self.commit(future.result(), task)

    def _submit(self, task: Task) -> Future[TaskResult]:
        in_memory = any(_in_memory(dump.source) for dump in task.inputs)
        return _run_here(task) if in_memory else self.pool.submit(process, task)

    def _submit_alone(self, task: Task) -> Future[TaskResult]:
        return self.pool.submit(process, replace(task, write_progress=True)) if task.inputs else _run_here(task)

    def _completed(
        self, phase: str, waiting: deque[T], submit: Callable[[T], Future[R]]
    ) -> Iterator[tuple[T, Future[R]]]:
        """Submit the items, keeping two per worker in flight, and yield them as they complete.

        When a worker dies, restart the pool, and yield all items that were in flight as failed.
        """
        running: dict[Future[R], T] = {}
        while (waiting or running) and not self.stopped:
            while waiting and len(running) < 2 * self.pool.size:
                item = waiting.popleft()
                running[submit(item)] = item
            done = self.pool.completed(running)
            if not done:
                self.report_status(phase)
            death = None
            for future in done:
                error = _error_of(future)
                death = error if isinstance(error, self.pool.death_errors) else death
                yield running.pop(future), future
            if death is not None:
                for item in running.values():
                    yield item, _failed_future(death)
                running.clear()
                self.pool.restart()
        for future in running:
            future.cancel()

    def retry_alone(self, task: Task) -> None:
        """Retry a task that failed as a whole, while no other task is running.

        If its worker dies again, the dump that it was reading is retried in a separate task. The dump is quarantined
        only after that task has killed MAX_DEATHS workers.
        """
        task = self._with_current_batch(task)
        marker = progress_marker(task.batch)
        try:
            error = self._run_alone(task, attempts=MAX_DEATHS if len(task.inputs) == 1 else 1)
            if error is not None:
                self.divide(task, error)
        finally:
            self.storage.delete([marker])

    def _run_alone(self, task: Task, attempts: int) -> Exception | None:
        """Run and commit a task. Return its error if it failed, or if every attempt killed a worker."""
        error: Exception | None = None
        for _ in range(attempts):
            future = self.pool.ended(self._submit_alone(task))
            error = _error_of(future)
            if isinstance(error, OutputError):
                raise error
            if error is None:
                self.failed_tasks += self.commit(future.result(), task)
                return None
            if not isinstance(error, self.pool.death_errors):
                return error
            self.pool.restart()
        return error

    def _with_current_batch(self, task: Task) -> Task:
        """Update the batch that a divided task replaces, which changes when the other part is committed."""
        state = self.ledger.state
        if task.replaces is None or task.replaces.name in state.batches:
            return task
        content_id = task.inputs[0].content_id
        name = state.stored.get(content_id) or state.quarantined.get(content_id) or ""
        return replace(task, replaces=state.batches.get(name))

    def divide(self, task: Task, error: Exception) -> None:
        """Divide a task that failed or, if it has only one dump, quarantine that dump.

        The dump that was being read when the worker died is retried separately. If it is unknown, the task is halved.
        """
        died = isinstance(error, self.pool.death_errors)
        if len(task.inputs) == 1:
            (dump,) = task.inputs
            cause = _worker_death(error) if died else _repeated_failure(error)
            row = failure(cause, dump.source, dump.content_id, dump.attempts + 1)
            self.failed_tasks.append(make_task((), self.options, (*task.failures, row)))
            return
        marker = self.storage.read(progress_marker(task.batch)) if died else None
        reading = (marker or b"").decode()
        alone = [d for d in task.inputs if d.content_id == reading] or list(task.inputs[: len(task.inputs) // 2])
        others = [d for d in task.inputs if d not in alone]
        for dumps, failures in ((others, task.failures), (alone, ())):
            part = make_task(tuple(dumps), self.options, failures)
            self.failed_tasks.append(replace(part, replaces=task.replaces))

    # -- committing

    def commit(self, result: TaskResult, task: Task) -> list[Task]:
        """Commit the result of a task.

        If another run has claimed some of the dumps, or has replaced their batch, commit nothing and return tasks for
        what remains.
        """
        tried = {*result.dumps, *(f.content_id for f in result.failures)}
        claimed = self._commit(result, task, tried) if tried else set()
        if claimed:
            return self._unclaimed(task, claimed)
        if result.changed:
            self.record.forget({dump.content_id for dump in task.inputs} - tried)
        self.results.append(result)
        self.dumps += len(task.inputs)
        self.bytes += task.bytes
        self.report_status("convert")
        self.stopped = self.max_failures is not None and self.new_failures > self.max_failures
        return []

    def _commit(self, result: TaskResult, task: Task, tried: set[str]) -> set[str]:
        with self.storage.output_errors():
            return self.ledger.commit(
                *self._batches(result),
                remove=(task.replaces.name,) if task.replaces else (),
                clear=tried | self._replaced_old_ids(result),
                rewrite=self.rewrite,
                may_fail=self.stored_before,
                also=lambda state: self.record.dropped(tried, state),
            )

    def _replaced_old_ids(self, result: TaskResult) -> set[str]:
        """Return the dump_ids of version 1 whose rows the result replaces. A failure replaces no stored dump."""
        old_ids, stored = self.old_ids, {i for batch in self.ledger.state.old_batches for i in batch.dumps}
        replaced = {old for i in result.dumps for old in old_ids.get(i, ())}
        return replaced | {old for f in result.failures for old in old_ids.get(f.content_id, ())} - stored

    def _unclaimed(self, task: Task, claimed: set[str]) -> list[Task]:
        """Return tasks for the dumps that no other run has claimed."""
        if task.replaces and task.replaces.name not in self.ledger.state.batches:
            return self._replanned(task)
        stored = self.ledger.state.stored.find([d.content_id for d in task.inputs]) if task.replaces else {}
        done = claimed | stored.keys()
        dumps = tuple(d for d in task.inputs if d.content_id not in done)
        self.stored_by_others += len(task.inputs) - len(dumps)
        self.of_dumps -= len(task.inputs) - len(dumps)
        failures = tuple(f for f in task.failures if f.content_id not in claimed)
        return [make_task(dumps, self.options, failures)] if dumps or failures else []

    def _replanned(self, task: Task) -> list[Task]:
        """Return tasks for the dumps of a batch that was merged, or replaced because of other dumps in it."""
        found = self.replan(task.inputs, self.ledger.state)
        self.plan.stored += found.stored
        self.plan.quarantined += found.quarantined
        self.of_dumps -= found.stored + found.quarantined
        return [*found.tasks, *([make_task((), self.options, task.failures)] if task.failures else [])]

    def _batches(self, result: TaskResult) -> list[Batch]:
        """Return the batches of a result. Quarantined dumps form a separate batch, which can be cleared separately."""
        options = self.options
        files: dict[bool, list[File]] = {False: [], True: []}
        for file in result.files:
            files[file.table == "quarantine"].append(file)
        dumps = Batch(
            result.batch,
            result.dumps,
            (),
            tuple(files[False]),
            options.tool_version,
            schema.VERSION,
            options.run_id,
            options.tables,
        )
        quarantine = replace(
            dumps,
            name=f"{result.batch}-quarantine",
            dumps=(),
            quarantined=tuple(f.content_id for f in result.failures),
            files=tuple(files[True]),
            attempts={f.content_id: f.attempts for f in result.failures},
            system=tuple(f.content_id for f in result.failures if f.kind == "system"),
            places={f.content_id: f.name for f in result.failures if not f.identified},
            hosts={f.content_id: options.host for f in result.failures if not f.identified and is_local(f)},
        )
        return [b for b in (dumps, quarantine, result.remainder) if b and (b.dumps or b.quarantined)]

    def rewrite(self, batch: Batch, removed: Set[str]) -> Batch | None:
        return rewrite(self.storage, batch, removed, frozenset(), self.options.run_id)

    # -- reporting

    @property
    def new_failures(self) -> int:
        """Dumps that this run could not read, without those in quarantine that it did not try again."""
        return sum(len(r.failures) + len(r.changed) for r in self.results)

    def report_status(self, phase: str) -> None:
        seconds = time.monotonic() - self.phase_start
        # A worker that has finished a dump counts its bytes no more, and the commit not yet.
        self.reported_bytes = max(self.reported_bytes, min(self.bytes + self.pool.cores.read, self.of_bytes))
        size, failures = self.reported_bytes, self.plan.quarantined + self.new_failures
        self.report(Status(phase, self.dumps, self.of_dumps, size, self.of_bytes, failures, seconds))

    def result(self, found: int, empty: list[str], recent: int) -> Converted:
        return Converted(
            run_id=self.options.run_id,
            found=found,
            dumps=sum(len(r.dumps) for r in self.results),
            already_stored=self.plan.stored + self.stored_by_others,
            duplicates=self.plan.duplicates,
            occurrences=self.record.occurrences,
            files=sum(len(r.files) for r in self.results),
            bytes=sum(f.bytes for r in self.results for f in r.files),
            rows=sum(sum(r.rows.values()) for r in self.results),
            text_bytes=sum(r.bytes for r in self.results),
            failed=[f for r in self.results for f in r.failures],
            known=self.plan.quarantined,
            changed=[name for r in self.results for name in r.changed],
            cut=[name for r in self.results for name in r.truncated],
            empty=empty,
            recent=recent,
            stopped=self.stopped,
            seconds=time.monotonic() - self.start,
        )


def _work(sizes: Iterable[int | None]) -> int:
    """Return the amount of text of dumps of these sizes, with the time that each takes at least expressed as text."""
    return sum(DUMP_BYTES + (UNKNOWN_BYTES if size is None else size) for size in sizes)


def _in_memory(source: Source) -> bool:
    return any(m.content is not None for m in source.members)


def _run_here(task: Task) -> Future[TaskResult]:
    """Run a task in this process, and raise its errors."""
    future: Future[TaskResult] = Future()
    future.set_result(process(task))
    return future


def _error_of(future: Future[Any]) -> Exception | None:
    try:
        future.result()
    except Exception as error:
        return error
    return None


def _failed_future(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _worker_death(error: Exception | None) -> Exception:
    """Return the error for a dump that killed its workers: an OSError, so that the next run retries it."""
    message = f"each of {MAX_DEATHS} workers that read only this dump died"
    return OSError(f"{message} ({type(error).__name__}: {error})")


def _repeated_failure(error: Exception) -> Exception:
    """Return the error for a dump that made its task fail twice."""
    return RuntimeError(f"reading it failed twice: {type(error).__name__}: {error}")
