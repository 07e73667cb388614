"""Run a task in a worker: read its dumps and write the Parquet files of its batch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..errors import OutputError
from ..parse.interners import Interners
from ..parse.join import ReadDump, tables_of
from .cores import current
from .derived import derive
from .identity import content_id, display_name, failure
from .merged import DumpSet
from .parquet import BatchWriter
from .rewrite import rewrite
from .storage import Storage, open_output
from .streamed import StreamedDump
from .task import PROGRESS, STREAMED_BYTES, DumpInput, Failure, Options, Task, TaskResult

CHUNK_BYTES = 8 << 20
"""Approximate amount of text in the dumps that are read and written together."""


def process(task: Task) -> TaskResult:
    """Write the files of a batch. They become part of the dataset when the driver commits the result."""
    storage = open_output(task.options.dest)
    streamed = any(dump.bytes > STREAMED_BYTES for dump in task.inputs)
    with (
        BatchWriter(
            storage, task.options.folder, task.batch, low_memory=streamed, run_id=task.options.run_id
        ) as writer,
        storage.output_errors(),
        current().working(),
    ):
        return _Worker(task, storage, writer).run()


def progress_marker(batch: str) -> str:
    """Return the name of the file in which a worker records which dump it is reading."""
    return f"{PROGRESS}/{batch}"


class _Worker:
    """Runs one task."""

    def __init__(self, task: Task, storage: Storage, writer: BatchWriter) -> None:
        self.task, self.storage, self.writer = task, storage, writer
        self.options = task.options
        self.derived_tables = schema.DERIVED.keys() & set(task.options.tables)
        self.dumps: list[str] = []
        self.failures = list(task.failures)
        self.changed: list[str] = []
        self.truncated: list[str] = []
        self.rows: dict[str, int] = {}
        self.bytes = 0

    def run(self) -> TaskResult:
        for chunk in _chunks(self.task.inputs):
            if chunk[0].bytes > STREAMED_BYTES:
                self.convert_streamed(chunk[0])
            else:
                self.convert_chunk(chunk)
            gc.collect(1)  # worker processes disable automatic collection
        self.write_quarantine()
        files = tuple(self.writer.close())
        return TaskResult(
            self.task.batch,
            files,
            tuple(self.dumps),
            tuple(self.failures),
            tuple(self.changed),
            tuple(self.truncated),
            self.bytes,
            self.rows,
            self.remainder(),
        )

    def remainder(self) -> Any:
        """Copy the remaining dumps of the batch that is being replaced."""
        if self.task.replaces is None:
            return None
        failed = {failure.content_id for failure in self.failures}
        return rewrite(self.storage, self.task.replaces, set(self.dumps), failed, self.options.run_id)

    # -- dumps that fit into memory

    def convert_chunk(self, chunk: list[DumpInput]) -> None:
        """Read and write several dumps together."""
        dumps: dict[str, ReadDump] = {}
        interners = Interners()
        for dump in chunk:
            if (parsed := self.read(dump, interners)) is not None:
                dumps[dump.content_id] = parsed
        self.mark_progress("")
        if dumps:
            self.write_chunk(dumps)

    def read(self, dump: DumpInput, interners: Interners) -> ReadDump | None:
        """Return a parsed dump, or None after recording why it is skipped. All dumps of a chunk share `interners`."""
        self.mark_progress(dump.content_id)
        try:
            parsed = ReadDump(dump.source, interners=interners)
        except MemoryError:
            raise
        except Exception as error:  # an unreadable dump, or a bug that it triggers, must not stop the run
            self.record_failure(error, dump)
            return None
        return parsed if self.accept(dump, parsed.module("content_hash"), parsed.module("complete")) else None

    def accept(self, dump: DumpInput, content: str | None, complete: bool) -> bool:
        """Record a dump as converted, unless its content changed since it was identified."""
        if content_id(content or "", dump.source) != dump.content_id:
            self.changed.append(display_name(dump.source))
            return False
        self.dumps.append(dump.content_id)
        self.bytes += dump.bytes
        if not complete:
            self.truncated.append(display_name(dump.source))
        return True

    def record_failure(self, error: Exception, dump: DumpInput) -> None:
        self.failures.append(failure(error, dump.source, dump.content_id, dump.attempts + 1))

    def write_chunk(self, dumps: dict[str, ReadDump]) -> None:
        ids = list(dumps)
        tables, counts = tables_of(list(dumps.values()))
        dumps.clear()
        dump_set = DumpSet(ids, tables, counts)
        texts = pa.array(ids, pa.string())
        for name, table in tables.items():
            dump = pa.array(dump_set.dump_of_row[name].astype(np.int32))
            self.write_table(name, table, pa.DictionaryArray.from_arrays(dump, texts))
        for name, table in self.derive_selected(dump_set).items():
            self.put(name, table)

    # -- a dump that does not fit into memory

    def convert_streamed(self, dump: DumpInput) -> None:
        """Convert a dump span by span. It is the only dump of its batch, so the batch can be discarded."""
        self.mark_progress(dump.content_id)
        streamed = StreamedDump(dump.source, dump.content_id, current())
        try:
            derive = self.derive_selected if self.derived_tables else None
            module, derived = streamed.convert(self.write_table, self.flush, derive)
        except (MemoryError, OutputError):
            raise
        except Exception as error:
            self.discard()
            self.record_failure(error, dump)
            return
        if not self.accept(dump, module["content_hash"], module["complete"]):
            self.discard()
            return
        self.mark_progress("")
        for name, table in derived.items():
            self.put(name, table)

    def discard(self) -> None:
        self.writer.abandon()
        self.rows.clear()

    # -- tables

    def put(self, name: str, table: pa.Table) -> None:
        """Append rows to a table. Different tables may be written at the same time."""
        self.rows[name] = self.rows.get(name, 0) + table.num_rows
        with self.storage.output_errors():
            self.writer.add(name, table)

    def flush(self, name: str) -> None:
        with self.storage.output_errors():
            self.writer.flush(name)

    def write_table(self, name: str, table: pa.Table, content_ids: pa.Array) -> None:
        """Write rows of a table of `schema.TABLES` with their content_id and, in `modules`, with their lineage."""
        if name in self.options.tables:
            lineage = _lineage(self.options, table.num_rows).values() if name == "modules" else ()
            columns = [content_ids, *lineage, *table.columns]
            self.put(name, pa.table(columns, names=schema.WAREHOUSE[name].arrow.names))

    def derive_selected(self, dumps: DumpSet) -> dict[str, pa.Table]:
        """Return the derived tables that are to be written."""
        tables = derive(dumps, self.options.top) if self.derived_tables else {}
        return {name: table for name, table in tables.items() if name in self.derived_tables}

    def write_quarantine(self) -> None:
        if self.failures:
            self.put("quarantine", _quarantine(self.failures, self.options))

    def mark_progress(self, reading: str) -> None:
        """Write a progress marker so that the driver can tell which dump killed a worker."""
        if self.task.write_progress:
            self.storage.write(progress_marker(self.task.batch), reading.encode())


def _chunks(dumps: tuple[DumpInput, ...]) -> Iterator[list[DumpInput]]:
    """Split the dumps into lists with at most CHUNK_BYTES of text, or of a single dump."""
    chunk: list[DumpInput] = []
    size = 0
    for dump in dumps:
        if chunk and size + dump.bytes > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(dump)
        size += dump.bytes
    if chunk:
        yield chunk


def _lineage(options: Options, rows: int) -> dict[str, pa.Array]:
    """Return the columns that record which run wrote a row."""
    types = schema.QUARANTINE.warehouse
    values = {
        "tool_version": options.tool_version,
        "schema_version": schema.VERSION,
        "run_id": options.run_id,
        "host": options.host,
        "converted_at": options.started,
    }
    return {name: pa.repeat(pa.scalar(value, types.field(name).type), rows) for name, value in values.items()}


def _quarantine(failures: list[Failure], options: Options) -> pa.Table:
    spec = schema.QUARANTINE.warehouse
    columns = _lineage(options, len(failures))
    columns |= {
        field.name: pa.array([getattr(failure, field.name) for failure in failures], field.type)
        for field in spec
        if field.name not in columns
    }
    return pa.table(columns).select(spec.names).cast(spec)
