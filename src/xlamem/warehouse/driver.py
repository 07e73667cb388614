"""Many dumps to a dataset: find, plan, hand out jobs, commit what comes back."""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from .. import schema
from ..errors import OutputError, UsageError, utf8
from ..input.find import Source, find
from .engines import ENGINES, Pool, here
from .ledger import Batch, File, Ledger, host
from .plan import Plan, handfuls, job_of, plan
from .storage import Place, absolute
from .worker import Done, Fault, Item, Job, Options, fault, identify, keep, last_words, process

ALONE = 2
"""Workers of its own that a dump may kill before it is blamed: one may have been killed by something else."""
PATIENCE = 5.0
"""Seconds after which a run that waits says that it is still there."""

EngineName = Literal["local", "dask", "here"]


@dataclass(frozen=True)
class Status:
    """How far a run has come."""

    phase: str
    """find, identify, convert."""
    dumps: int
    """Dumps looked at (identify) or committed (convert) …"""
    of_dumps: int
    """… of so many."""
    bytes: int
    """Bytes of their text …"""
    of_bytes: int
    """… of so many; 0 while that is not known."""
    failed: int
    seconds: float
    """Since the phase began."""


Progress = Callable[[Status], None]


@dataclass(frozen=True)
class Converted:
    """What `convert` did."""

    run_id: str
    found: int
    """Dumps found, those that are there several times included."""
    dumps: int
    """Dumps written now, cut ones included."""
    stored: int
    """Dumps that were stored already, under this version."""
    duplicates: int
    """Dumps found more than once: the same content under the same name."""
    files: int
    """Parquet files written now."""
    bytes: int
    """Their size."""
    rows: int
    """Rows in them."""
    text_bytes: int
    """Size of the dumps written now, as text."""
    failed: list[Fault] = field(default_factory=list)
    """Dumps that could not be read, as written to the table `quarantine`."""
    known: int = 0
    """Dumps that were in quarantine already because of their content, under this version: they were not tried."""
    changed: list[str] = field(default_factory=list)
    """Names of dumps that were written to while the run went on: the next run takes them."""
    cut: list[str] = field(default_factory=list)
    """Names of dumps that were converted as far as they go."""
    stopped: bool = False
    """Whether the run ended early, because more than `max_failures` dumps could not be read."""
    seconds: float = 0.0

    @property
    def unreadable(self) -> int:
        """Dumps of the input that could not be read, now or in a run before."""
        return len(self.failed) + self.known + len(self.changed)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during `convert`; `made` is what had been done: all of it is committed."""

    def __init__(self, made: Converted) -> None:
        super().__init__()
        self.made = made


def convert(
    *sources: str | os.PathLike[str] | Source,
    to: str | os.PathLike[str],
    tables: Iterable[str] | None = None,
    labels: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    top: int = 20,
    workers: int | None = None,
    engine: EngineName = "local",
    scheduler: str | None = None,
    reprocess: bool = False,
    retry_quarantine: bool = False,
    max_failures: int | None = None,
    single_writer: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Write the dumps under ``sources`` to a Parquet dataset; each distinct dump is stored exactly once.

    May be killed at any instant and called again: what is not stored yet is written then. The layout of the
    dataset, and what a reader may rely on, stand in docs/warehouse.md; `xlamem.Dataset` reads it.

    Parameters
    ----------
    sources
        Whatever `find` takes, or what it gave.
    to
        The directory of the dataset, or a URI that pyarrow or fsspec write to; made where it is missing.
    tables
        The tables to write (`xlamem schema` lists them); all by default. All are read in any case, so that every
        check is made.
    labels
        Words of yours for these dumps (commit, date, model): rows of the table `labels`.
    partition_by
        Names of labels that are made part of the path, as in ``values/schema=v1/date=2025-01-31/…``.
    top
        Rows of `peak_members` per memory space.
    workers
        Processes; by default as many as cores, and as fit into the memory with 1 GiB each.
    engine, scheduler
        ``"local"``: processes of this machine (call it under ``if __name__ == "__main__":`` in a script).
        ``"dask"``: a Dask cluster, at the address `scheduler` or one of this machine. ``"here"``: no other process.
    reprocess
        Write dumps again that are stored already, in place of what is stored of them; implies `retry_quarantine`.
    retry_quarantine
        Try again what is in quarantine because of its content. What failed by the system (I/O, memory, a worker that
        died) is tried again by every run.
    max_failures
        Stop when more dumps than this could not be read; by default never.
    single_writer
        No other converter writes there at the same time. Needed only where the filesystem has no conditional write:
        a local disk has, S3, GCS and Azure have with the extras ``s3``, ``gcs`` and ``azure``.
    progress
        Called with a `Status` when something was done.

    Raises
    ------
    UsageError
        No dump anywhere, or arguments that make no sense; or `to` has no conditional write.
    OutputError
        A file cannot be written. What was committed before stays.
    """
    options = _options(to, tables, labels, partition_by, top)
    if engine not in ENGINES:
        raise UsageError(f"no engine {engine!r}; there are {', '.join(ENGINES)}")
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers}")
    place = Place(options.dest, single_writer=single_writer)
    with place.writing():
        place.check_exclusive()
    say = progress or (lambda status: None)
    say(Status("find", 0, 0, 0, 0, 0, 0.0))
    with ExitStack() as announced:
        with (ENGINES[engine] if place.shared else here)(workers, scheduler) as pool:
            try:
                found = _found(sources)
                with place.writing():
                    ledger = Ledger(place)
                    announced.enter_context(ledger.run(options.run_id))
                run = _Run(options, place, ledger, say, max_failures)
                pool.ready()
                try:
                    given = [utf8(absolute(s)) for s in sources if not isinstance(s, Source)]
                    run.everything(pool, found, given, reprocess=reprocess, retry_quarantine=retry_quarantine)
                except KeyboardInterrupt as stop:
                    raise Interrupted(run.made(len(found))) from stop
            except BaseException:
                pool.kill()
                raise
        with place.writing():
            ledger.checkpoint()
    return run.made(len(found))


def _options(
    to: str | os.PathLike[str],
    tables: Iterable[str] | None,
    labels: Mapping[str, str] | None,
    partition_by: Iterable[str],
    top: int,
) -> Options:
    from .. import __version__

    wanted = {*schema.WAREHOUSE} if tables is None else {tables} if isinstance(tables, str) else {*tables}
    if unknown := sorted(wanted - schema.WAREHOUSE.keys()):
        raise UsageError(f"no table {', '.join(unknown)}; there are {', '.join(schema.WAREHOUSE)}")
    if not wanted:
        raise UsageError("no table to write")
    given = {str(k): str(v) for k, v in (labels or {}).items()}
    if odd := [text for text in (*given, *given.values()) if text != utf8(text)]:
        raise UsageError(f"a label must be UTF-8: {utf8(odd[0])}")
    partition = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    columns = {c.name for t in schema.WAREHOUSE.values() for c in t.columns} | {"schema"}
    for key in partition:
        if key not in given:
            raise UsageError(f"cannot partition by {key!r}: there is no such label")
        if key in columns:
            raise UsageError(f"cannot partition by {key!r}: a column has that name")
    if any(not k for k in given):
        raise UsageError("a label needs a name")
    if top < 0:
        raise UsageError(f"top must be 0 or more, not {top}")
    # Failures are always kept: nothing may be dropped silently.
    names = tuple(n for n in schema.WAREHOUSE if n in wanted or n == "quarantine")
    now = datetime.now(UTC)
    return Options(
        absolute(to),
        names,
        tuple(sorted(given.items())),
        partition,
        top,
        __version__,
        f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}",
        host(),
        now,
    )


def _found(sources: tuple[str | os.PathLike[str] | Source, ...]) -> list[Source]:
    if not sources:
        raise UsageError("nothing to convert")
    # One call for all paths: a dump that several of them reach is there once.
    paths = [absolute(s) for s in sources if not isinstance(s, Source)]
    given = [s for s in sources if isinstance(s, Source)]
    return list(dict.fromkeys([*given, *(find(*paths) if paths else [])]))


class _Run:
    """The state of a run."""

    def __init__(
        self, options: Options, place: Place, ledger: Ledger, say: Progress, max_failures: int | None
    ) -> None:
        self.options, self.place, self.ledger, self.say = options, place, ledger, say
        self.max_failures = max_failures
        self.plan = Plan([])
        self.begun = self.phase_begun = time.monotonic()
        self.done: list[Done] = []
        self.dumps = self.bytes = self.of_dumps = self.of_bytes = 0
        self.stored_meanwhile = 0
        self.suspects: list[Job] = []
        self.before: frozenset[str] = frozenset()
        self.stopped = False

    def everything(self, pool: Pool, found: list[Source], given: list[str], **again: bool) -> None:
        known = self.identified(pool, found)
        self.before = frozenset(self.ledger.state.stored)
        self.plan = plan(known, self.ledger.state, self.options, given=given, **again)
        if self.plan.healed:
            with self.place.writing():
                self.ledger.commit(clear=self.plan.healed, without=self.without)
        self.of_dumps = sum(len(j.items) for j in self.plan.jobs)
        self.of_bytes = sum(j.bytes for j in self.plan.jobs)
        self.phase_begun = time.monotonic()
        self.tell("convert")
        self.work_through(pool, self.plan.jobs)
        while self.suspects and not self.stopped:
            self.carefully(pool, self.suspects.pop())

    # -- who is who

    def identified(self, pool: Pool, found: list[Source]) -> list[Item | Fault]:
        """The identity of every dump. Those that are held in memory are looked at here."""
        elsewhere = [s for s in found if not _held(s)]
        known = identify([s for s in found if _held(s)], self.options)
        lists = deque(handfuls(elsewhere))
        retry: list[Source] = []
        self.of_dumps = len(found)
        running: dict[Future[Any], list[Source]] = {}
        while lists or running:
            while lists and len(running) < 2 * pool.width:
                some = lists.popleft()
                running[pool.submit(identify, some, self.options)] = some
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            broken = False
            for future in ended:
                some = running.pop(future)
                try:
                    known += future.result()
                except pool.deadly:
                    broken = True
                    retry += some
                self.dumps += len(some)
            if broken:
                retry += [s for some in running.values() for s in some]
                running.clear()
                pool.renew()
            self.tell("identify")
        for source in retry:
            known += self._alone(pool, source)
        self.dumps = 0
        return known

    def _alone(self, pool: Pool, source: Source) -> list[Item | Fault]:
        """One that may have killed a worker gets others for itself."""
        for attempt in range(1, ALONE + 1):
            try:
                found: list[Item | Fault] = pool.submit(identify, [source], self.options).result()
                return found
            except pool.deadly as error:
                pool.renew()
                if attempt == ALONE:
                    return [fault(_died(error), source)]
        raise AssertionError

    # -- jobs

    def work_through(self, pool: Pool, jobs: list[Job]) -> None:
        """All jobs, a few more at a time than there are workers. Those whose worker dies become suspects."""
        waiting = deque(jobs)
        running: dict[Future[Done], Job] = {}
        while (waiting or running) and not self.stopped:
            while waiting and len(running) < 2 * pool.width:
                job = waiting.popleft()
                if any(_held(i.source) for i in job.items):
                    self.finish(process(job), job, waiting)
                else:
                    running[pool.submit(process, job)] = job
            if not running:
                continue
            ended, _ = wait(running, timeout=PATIENCE, return_when=FIRST_COMPLETED)
            if not ended:
                self.tell("convert")
            broken = False
            for future in ended:
                job = running.pop(future)
                try:
                    done = future.result()
                except OutputError:
                    raise
                except Exception as error:
                    broken |= isinstance(error, pool.deadly)
                    self.suspects.append(job)
                    continue
                self.finish(done, job, waiting)
            if broken:
                self.suspects += running.values()
                running.clear()
                pool.renew()
        for future in running:
            future.cancel()

    def carefully(self, pool: Pool, job: Job) -> None:
        """A job that failed as a whole, while nothing else runs. If its worker dies again, the dump that it was
        reading is tried alone; only when that has killed workers of its own is it at fault."""
        again: deque[Job] = deque()
        if not job.items:  # no dump is read
            self.finish(process(job), job, again)
            self.suspects += again
            return
        job = self.renewed(job)
        word = last_words(job.batch)
        try:
            for left in range(ALONE - 1 if len(job.items) == 1 else 0, -1, -1):
                try:
                    done = pool.submit(process, replace(job, careful=True)).result()
                except OutputError:
                    raise
                except Exception as error:
                    died = isinstance(error, pool.deadly)
                    if died:
                        pool.renew()
                    if not died or not left:
                        self.divide(job, (self.place.read(word) or b"").decode() if died else "", error, died=died)
                        break
                else:
                    self.finish(done, job, again)
                    break
        finally:
            self.place.delete([word])
        self.suspects += again

    def renewed(self, job: Job) -> Job:
        """Of a job that was divided: what the parts before it have left of the batch that they replace."""
        state = self.ledger.state
        if job.old is None or job.old.name in state.batches:
            return job
        i = job.items[0].dump_id
        return replace(job, old=state.batches.get(state.stored.get(i) or state.quarantined.get(i) or ""))

    def divide(self, job: Job, culprit: str, error: Exception, *, died: bool) -> None:
        """Put the only dump of a job into quarantine; of several, try the one that may be at fault alone, or where
        none is known, each half."""
        if len(job.items) == 1:
            (item,) = job.items
            one = fault(_died(error) if died else _fatal(error), item.source, item.dump_id, item.attempts + 1)
            self.suspects.append(job_of((), self.options, (*job.faults, one)))
            return
        alone = [i for i in job.items if i.dump_id == culprit] or list(job.items[: len(job.items) // 2])
        others = [i for i in job.items if i not in alone]
        self.suspects.append(replace(job_of(tuple(others), self.options, job.faults), old=job.old))
        self.suspects.append(replace(job_of(tuple(alone), self.options), old=job.old))

    def without(self, batch: Batch, gone: Set[str]) -> Batch | None:
        return keep(self.place, batch, gone, frozenset(), self.options.run_id)

    def batches(self, done: Done) -> list[Batch]:
        """What a worker wrote; what is in quarantine apart, so that it can go without the dumps being touched."""
        o = self.options
        files: dict[bool, list[File]] = {False: [], True: []}
        for file in done.files:
            files[file.table == "quarantine"].append(file)
        made = Batch(
            done.batch, done.dumps, (), tuple(files[False]), o.tool_version, schema.VERSION, o.run_id, o.tables
        )
        bad = replace(
            made,
            name=f"{done.batch}-quarantine",
            dumps=(),
            quarantined=tuple(f.dump_id for f in done.faults),
            files=tuple(files[True]),
            attempts={f.dump_id: f.attempts for f in done.faults},
            system=tuple(f.dump_id for f in done.faults if f.kind == "system"),
            places={f.dump_id: f.name for f in done.faults if not f.identified},
        )
        return [b for b in (made, bad, done.kept) if b and (b.dumps or b.quarantined)]

    def finish(self, done: Done, job: Job, waiting: deque[Job]) -> None:
        """Commit what a worker wrote."""
        tried = {*done.dumps, *(f.dump_id for f in done.faults)}
        if tried:
            with self.place.writing():
                taken = self.ledger.commit(
                    *self.batches(done),
                    drop=(job.old.name,) if job.old else (),
                    clear=tried,
                    without=self.without,
                    stays=self.before,
                )
            if taken:  # another run was quicker: what it did not claim is left to do
                there = self.ledger.state.stored if job.old else {}
                rest = tuple(i for i in job.items if i.dump_id not in taken and i.dump_id not in there)
                self.stored_meanwhile += len(job.items) - len(rest)
                self.of_dumps -= len(job.items) - len(rest)
                faults = tuple(f for f in job.faults if f.dump_id not in taken)
                if rest or faults:
                    waiting.append(job_of(rest, self.options, faults))
                return
        self.done.append(done)
        self.dumps += len(job.items)
        self.bytes += job.bytes
        self.tell("convert")
        if self.max_failures is not None and self.failures > self.max_failures:
            self.stopped = True

    # -- telling

    @property
    def failures(self) -> int:
        return self.plan.known + sum(len(d.faults) + len(d.changed) for d in self.done)

    def tell(self, phase: str) -> None:
        seconds = time.monotonic() - self.phase_begun
        self.say(Status(phase, self.dumps, self.of_dumps, self.bytes, self.of_bytes, self.failures, seconds))

    def made(self, found: int) -> Converted:
        return Converted(
            run_id=self.options.run_id,
            found=found,
            dumps=sum(len(d.dumps) for d in self.done),
            stored=self.plan.stored + self.stored_meanwhile,
            duplicates=self.plan.duplicates,
            files=sum(len(d.files) for d in self.done),
            bytes=sum(f.bytes for d in self.done for f in d.files),
            rows=sum(sum(d.counts.values()) for d in self.done),
            text_bytes=sum(d.bytes for d in self.done),
            failed=[f for d in self.done for f in d.faults],
            known=self.plan.known,
            changed=[n for d in self.done for n in d.changed],
            cut=[n for d in self.done for n in d.cut],
            stopped=self.stopped,
            seconds=time.monotonic() - self.begun,
        )


def _held(source: Source) -> bool:
    return any(m.content is not None for m in source.members)


def _died(error: BaseException) -> Exception:
    """The fault of a dump that killed its workers: the system may be the cause, so the next run tries again."""
    return OSError(f"each of {ALONE} workers that read nothing else died ({type(error).__name__}: {error})")


def _fatal(error: BaseException) -> Exception:
    """What is said of a dump that failed twice in a way that no dump should."""
    return RuntimeError(f"reading it failed twice: {type(error).__name__}: {error}")
