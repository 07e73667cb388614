"""Find dumps and convert them to a dataset."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime

from .. import schema
from ..errors import DumpError, OutputError, UsageError, utf8, without_passwords
from ..formatting import similar
from ..input.access import local_path
from ..input.find import Source, find_all
from ..input.walk import NoDumpError
from .activity import host_name
from .engines import find_engine
from .followers import Target, record_targets
from .ledger import Ledger
from .pool import in_process
from .record import RunRecord
from .result import Converted, Interrupted, Progress, Status
from .run import Run
from .storage import absolute, open_output
from .task import Options

MAX_WORKERS = 1 << 16
MAX_SOURCES = 20
"""Maximum number of sources that are listed in `runs.options`."""


def convert(
    *sources: str | os.PathLike[str] | Source,
    to: str | os.PathLike[str],
    tables: Iterable[str] | None = None,
    labels: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    top: int = 20,
    workers: int | None = None,
    engine: str = "local",
    scheduler: str | None = None,
    reprocess: bool = False,
    retry_quarantine: bool = False,
    check_content: bool = False,
    min_age: float = 0.0,
    max_failures: int | None = None,
    single_writer: bool = False,
    compact: bool = False,
    register: Iterable[str] = (),
    progress: Progress | None = None,
) -> Converted:
    """Convert dumps to a Parquet dataset that stores each distinct dump once, and records where it was found.

    To resume an interrupted or killed run, repeat the call. docs/warehouse.md describes the layout of the dataset and
    what readers can rely on; `xlamem.Dataset` reads it.

    Parameters
    ----------
    sources
        Paths and URIs, as for `find`, or the sources that it returns.
    to
        The directory of the dataset, or a URI that pyarrow or fsspec can write to. Created if missing.
    tables
        The tables to write (`xlamem schema` lists them); all by default. The cross-checks read all tables in any case.
    labels
        Key-value pairs that describe what this run finds (commit, date, model), stored in the table `labels`.
    partition_by
        Labels that become part of the path, as in ``values/v2/date=2025-01-31/…``.
    top
        Number of rows of `peak_members` per memory space.
    workers
        Number of worker processes, and of threads that work at the same time in all of them; by default one per
        core, but at most one per GiB of memory, and none for less text than two read in a second. Dumps with more
        than 256 MiB of text use several threads.
    engine, scheduler
        ``"local"``: processes on this machine; a script must call `convert` under ``if __name__ == "__main__":``.
        ``"dask"``, ``"ray"``: a cluster, at the address `scheduler` or on this machine. ``"here"``: this process. Other
        packages can add engines (docs/warehouse.md).
    reprocess
        Convert dumps again even if they are already stored, and replace them. Implies `retry_quarantine`.
    retry_quarantine
        Retry dumps that are quarantined because of their content. System failures (I/O, memory, the death
        of a worker) are always retried.
    check_content
        Read all dumps to find out which are stored. By default, those are not read again whose files have the size,
        times and inode (on object stores, the ETag) that an earlier run recorded.
    min_age
        Leave dumps to the next run of which a local file was modified less than this number of seconds ago: they may be
        incomplete.
    max_failures
        Stop when this run could not read more than this number of dumps; by default never. Dumps that are in quarantine
        and not tried again do not count.
    single_writer
        Promise that no other converter writes to the dataset at the same time. Required only for storage without
        conditional writes. The local disk supports them, and so do S3, GCS and Azure with the extras ``s3``, ``gcs``
        and ``azure``.
    compact
        Merge small files of the dataset afterwards, as ``xlamem dataset compact`` does.
    register
        Formats in which the dataset is registered, from this run on: ``"iceberg"`` (in a catalog in its folder, or
        ``"iceberg:CATALOG.NAMESPACE"``) and ``"delta"``, with the extras of the same names.
    progress
        Called with a `Status` as the run proceeds.

    Raises
    ------
    UsageError
        No path has a dump, a path does not exist, an argument is invalid, or `to` does not support conditional writes.
    OutputError
        `to` cannot be reached, or a file in it cannot be written or read. What was committed before is kept.
    """
    options = _options(to, tables, labels, partition_by, top)
    targets = [Target.parse(text) for text in ((register,) if isinstance(register, str) else register)]
    call = {
        "sources": [_source_text(source) for source in sources[:MAX_SOURCES]], "n_sources": len(sources),
        "tables": tables and list(options.tables), "partition_by": list(options.partition), "top": top,
        "workers": workers, "engine": engine,
        "reprocess": reprocess, "retry_quarantine": retry_quarantine, "check_content": check_content,
        "min_age": min_age, "max_failures": max_failures, "single_writer": single_writer,
        "compact": compact, "register": list(map(str, targets)),
    }  # fmt: skip
    run_engine = find_engine(engine)
    if not min_age >= 0:
        raise UsageError(f"min_age must be 0 or more, not {min_age}")
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers}")
    if workers is not None and workers > MAX_WORKERS:
        raise UsageError(f"workers must be at most {MAX_WORKERS:,}, not {workers}")
    if max_failures is not None and max_failures < 0:
        raise UsageError(f"max_failures must be 0 or more, not {max_failures}")
    storage = open_output(options.dest, single_writer=single_writer)
    with storage.output_errors():
        storage.check_conditional_create()
    report = progress or (lambda status: None)
    report(Status("find", 0, 0, 0, 0, 0, 0.0))
    with ExitStack() as active:
        with (run_engine if storage.shared else in_process)(workers, scheduler) as pool:
            try:
                found, empty = _find(sources)
                found, recent = _settled(found, min_age)
                with storage.output_errors():
                    ledger = Ledger(storage)
                    record_targets(storage, targets, ledger.state)
                    active.enter_context(ledger.run(options.run_id))
                record = RunRecord(storage, ledger, options, call)
                run = Run(pool, options, storage, ledger, record, report, max_failures)
                try:
                    paths = [_source_text(s) for s in sources if not isinstance(s, Source)]
                    run.execute(
                        found, paths, recent, reprocess=reprocess, retry_quarantine=retry_quarantine,
                        check_content=check_content,
                    )  # fmt: skip
                except KeyboardInterrupt as stop:
                    record.finish(result := run.result(len(found), empty, len(recent)), "interrupted")
                    raise Interrupted(result) from stop
                except DumpError as error:  # a file of the ledger: dumps that cannot be read are quarantined
                    raise OutputError(str(error)) from error
                record.finish(run.result(len(found), empty, len(recent)), "stopped" if run.stopped else "finished")
            except BaseException:
                pool.kill()
                raise
        with storage.output_errors():
            ledger.checkpoint()
    if compact:
        from .compaction import compact as merge

        merge(to, single_writer=single_writer)
    return run.result(len(found), empty, len(recent))


def _source_text(source: str | os.PathLike[str] | Source) -> str:
    if isinstance(source, Source):
        return source.members[0].location
    return without_passwords(utf8(local_path(absolute(source))))


def _find(sources: tuple[str | os.PathLike[str] | Source, ...]) -> tuple[list[Source], list[str]]:
    """Return the dumps, and the paths without a dump."""
    if not sources:
        raise UsageError("nothing to convert")
    # A single call for all paths, so that a dump under several of them is found only once.
    paths = [absolute(s) for s in sources if not isinstance(s, Source)]
    given = [s for s in sources if isinstance(s, Source)]
    try:
        found, empty = find_all(*paths) if paths else ([], [])
    except NoDumpError as error:
        if not given:
            raise
        found, empty = [], [error]
    return list(dict.fromkeys([*given, *found])) if given else found, [error.path for error in empty]


def _settled(sources: list[Source], min_age: float) -> tuple[list[Source], list[Source]]:
    """Return the dumps of which no local file was modified in the last `min_age` seconds; and the others."""
    if not min_age:
        return sources, []
    begin = time.time() - min_age
    files = {member.uri for source in sources for member in source.members if member.content is None}
    new = {file for file in files if (modified := _modified(file)) is not None and modified > begin}
    found: list[Source] = []
    recent: list[Source] = []
    for source in sources:
        (recent if any(member.uri in new for member in source.members) else found).append(source)
    return found, recent


def _modified(path: str) -> float | None:
    with suppress(OSError, ValueError):  # a URI, or what reading it reports
        return os.stat(path).st_mtime
    return None


def _options(
    to: str | os.PathLike[str],
    tables: Iterable[str] | None,
    labels: Mapping[str, str] | None,
    partition_by: Iterable[str],
    top: int,
) -> Options:
    from .. import __version__

    names, pairs = _table_names(tables), _label_pairs(labels)
    partition = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    _check_partition(partition, pairs)
    if top < 0:
        raise UsageError(f"top must be 0 or more, not {top}")
    now = datetime.now(UTC)
    run_id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    return Options(
        absolute(to), names, tuple(sorted(pairs.items())), partition, top, __version__, run_id, host_name(), now
    )


def _table_names(tables: Iterable[str] | None) -> tuple[str, ...]:
    """Return the tables to write, always including those about runs, in the order of the schema."""
    names = {*schema.WAREHOUSE} if tables is None else {tables} if isinstance(tables, str) else {*tables}
    if unknown := sorted(names - schema.WAREHOUSE.keys()):
        raise UsageError(f"no table {', '.join(unknown)}; {similar(unknown, schema.WAREHOUSE)}")
    if not names:
        raise UsageError("no table to write")
    return tuple(name for name in schema.WAREHOUSE if name in names or name in schema.RUN_TABLES)


def _label_pairs(labels: Mapping[str, str] | None) -> dict[str, str]:
    if not isinstance(labels or {}, Mapping):
        raise UsageError(f"labels must be a mapping of keys to values, not {labels!r}")
    pairs = {str(key): str(value) for key, value in (labels or {}).items()}
    if invalid := [text for text in (*pairs, *pairs.values()) if text != utf8(text)]:
        raise UsageError(f"a label must be UTF-8: {utf8(invalid[0])}")
    if "" in pairs:
        raise UsageError("the key of a label must not be empty")
    if len({key.encode().lower() for key in pairs}) < len(pairs):  # SQL does not distinguish them
        raise UsageError(f"the keys of labels must differ in more than case: {', '.join(pairs)}")
    return pairs


def _check_partition(partition: tuple[str, ...], labels: Mapping[str, str]) -> None:
    columns = {c.name for t in schema.WAREHOUSE.values() for c in t.columns} | {"schema"}
    for key in partition:
        if key not in labels:
            raise UsageError(f"cannot partition by {key!r}: there is no such label")
        if key.lower() in columns:  # SQL does not distinguish them
            raise UsageError(f"cannot partition by {key!r}: a column has that name")
    if len(set(partition)) < len(partition):
        raise UsageError(f"cannot partition by a label twice: {', '.join(partition)}")
