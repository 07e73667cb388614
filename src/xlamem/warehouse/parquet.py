"""Tables of many dumps to Parquet files: row groups of bounded size, several dumps in a file."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from .. import schema
from .ledger import File
from .place import Place

ROW_GROUP = 64 << 20
"""Bytes of a row group before compression, as plain Arrow columns."""
LEAST = 16 << 20
"""A rest smaller than this goes into the row group before it."""
GROUPS = 16
"""Row groups of a file; then the next one begins."""


class Sink:
    """The Parquet files of one batch, a writer for each table that has rows."""

    def __init__(self, place: Place, folder: str, batch: str, *, replace: bool = False) -> None:
        """`folder` stands between the table's own folder and the file's name."""
        self.place, self.folder, self.batch, self.replace = place, folder, batch, replace
        self.writers: dict[str, _Writer] = {}

    def add(self, name: str, table: pa.Table) -> None:
        """Rows of a table, in the types of the warehouse."""
        if table.num_rows:
            if name not in self.writers:
                self.writers[name] = _Writer(self, name)
            self.writers[name].add(table)

    def close(self) -> list[File]:
        """Write what is left; the files, whole now."""
        return [file for name in schema.WAREHOUSE if name in self.writers for file in self.writers[name].close()]

    def abandon(self) -> None:
        """Leave nothing on a local disk of what is not closed yet."""
        for writer in self.writers.values():
            writer.abandon()
        self.writers.clear()


class _Writer:
    """The files of one table."""

    def __init__(self, sink: Sink, name: str) -> None:
        self.sink, self.name = sink, name
        self.pending: list[pa.Table] = []
        self.size = 0
        self.files: list[File] = []
        self.open: tuple[ExitStack, Any, Any, str] | None = None
        self.groups = self.rows = 0

    def add(self, table: pa.Table) -> None:
        self.pending.append(table)
        self.size += table.nbytes
        if self.size >= ROW_GROUP + LEAST:
            self._write(whole=False)

    def close(self) -> list[File]:
        self._write(whole=True)
        self._finish()
        return self.files

    def abandon(self) -> None:
        if self.open:
            stack = self.open[0]
            self.open = None
            stack.__exit__(InterruptedError, InterruptedError(), None)

    def _write(self, *, whole: bool) -> None:
        """The pending rows as row groups; all of them, or leave a rest that the next rows will join."""
        if not self.pending:
            return
        table = pa.concat_tables(self.pending).combine_chunks()
        row = 0
        while row < table.num_rows:
            left = table.slice(row)
            if left.nbytes < ROW_GROUP + LEAST:
                if not whole:
                    break
                stop = table.num_rows
            else:
                stop = row + _rows(left, ROW_GROUP)
            self._group(table.slice(row, stop - row))
            row = stop
        left = table.slice(row)
        self.pending = [left] if left.num_rows else []
        self.size = left.nbytes if left.num_rows else 0

    def _group(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self.open and self.groups == GROUPS:
            self._finish()
        if not self.open:
            part = len(self.files)
            path = "/".join(p for p in (self.name, self.sink.folder, f"{self.sink.batch}-{part:05}.parquet") if p)
            stack = ExitStack()
            stream = stack.enter_context(self.sink.place.output(path, replace=self.sink.replace))
            writer = pq.ParquetWriter(
                stream,
                table.schema,
                compression="zstd",
                compression_level=3,
                write_page_index=True,
                sorting_columns=None,
            )
            self.open = stack, stream, writer, path
        self.open[2].write_table(table, row_group_size=table.num_rows)
        self.groups += 1
        self.rows += table.num_rows

    def _finish(self) -> None:
        if self.open:
            stack, stream, writer, path = self.open
            columns = len(writer.schema)
            writer.close()
            size = stream.tell()
            self.open = None
            stack.close()
            self.files.append(File(self.name, path, self.rows, size, columns))
            self.groups = self.rows = 0


def _rows(table: pa.Table, size: int) -> int:
    """How many rows from the first on are about so many bytes; at least one."""
    low, high = 1, table.num_rows
    while low < high:
        middle = (low + high + 1) // 2
        if table.slice(0, middle).nbytes <= size:
            low = middle
        else:
            high = middle - 1
    return low
