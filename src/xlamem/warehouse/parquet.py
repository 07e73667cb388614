"""Tables of many dumps to Parquet files: row groups of bounded size, several dumps in a file."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import schema
from .ledger import File
from .storage import Place

ROW_GROUP = 64 << 20
"""Bytes of a row group before compression, names counted as the text that they stand for."""
LEAST = 16 << 20
"""A rest smaller than this goes into the row group before it."""
GROUPS = 16
"""Row groups of a file; then the next one begins."""


class Sink:
    """The Parquet files of one batch, a writer for each table that has rows."""

    def __init__(
        self,
        place: Place,
        folder: str,
        batch: str,
        *,
        replace: bool = False,
        first: int = 0,
        lean: bool = False,
        run_id: str = "",
    ) -> None:
        """`folder` stands between the table's own folder and the file's name.

        `first` is the number of the first file; `lean`: with row groups of half the size. Where a file cannot be
        kept from being overwritten (not on a local disk), `run_id` is part of its name: two runs at once may
        make the same batch, and the bytes of the one that commits must stay.
        """
        self.place, self.folder, self.batch, self.replace, self.first = place, folder, batch, replace, first
        self.suffix = "" if place.local or not run_id else f"-{run_id[-8:]}"
        self.group = ROW_GROUP // 2 if lean else ROW_GROUP
        self.writers: dict[str, _Writer] = {}

    def add(self, name: str, table: pa.Table) -> None:
        """Rows of a table of `schema.WAREHOUSE`; names may be plain text or coded."""
        if table.num_rows:
            if name not in self.writers:
                self.writers[name] = _Writer(self, name)
            self.writers[name].add(table)

    def flush(self, name: str) -> None:
        """Write what is pending of a table, as no more rows of it are to come soon."""
        if name in self.writers:
            self.writers[name].flush()

    def close(self) -> list[File]:
        """Write what is left; the files, whole and on the disk now."""
        files = [file for name in schema.WAREHOUSE if name in self.writers for file in self.writers[name].close()]
        self.place.settle([file.path for file in files])
        return files

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
        self.schema: pa.Schema | None = None

    def add(self, table: pa.Table) -> None:
        if self.schema is None:
            self.schema = layout(table, schema.WAREHOUSE[self.name].arrow)
        table = _as(table, self.schema)
        self.pending.append(table)
        self.size += table_bytes(table)
        if self.size >= self.sink.group + LEAST:
            self._write(whole=False)

    def flush(self) -> None:
        self._write(whole=True)

    def close(self) -> list[File]:
        self.flush()
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
        if whole and self.size < self.sink.group + LEAST:
            self._group(table)
            self.pending, self.size = [], 0
            return
        ends = np.cumsum(row_bytes(table))
        row = done = 0
        while row < table.num_rows:
            stop = table.num_rows
            if ends[-1] - done >= self.sink.group + LEAST:
                stop = max(row + 1, int(np.searchsorted(ends, done + self.sink.group, "right")))
            elif not whole:
                break
            self._group(table.slice(row, stop - row))
            row, done = stop, int(ends[stop - 1])
        self.pending = [trimmed(table.slice(row))] if row < table.num_rows else []
        self.size = int(ends[-1]) - done
        if not whole:
            release()

    def _group(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self.open and self.groups == GROUPS:
            self._finish()
        if not self.open:
            part = self.sink.first + len(self.files)
            name = f"{self.sink.batch}-{part:05}{self.sink.suffix}.parquet"
            path = "/".join(p for p in (self.name, self.sink.folder, name) if p)
            stack = ExitStack()
            stream = stack.enter_context(self.sink.place.output(path, replace=self.sink.replace))
            coded = [f.name for f in table.schema if pa.types.is_dictionary(f.type)]
            texts = [c.name for c in schema.WAREHOUSE[self.name].columns if c.kind == "text"]
            # Without Arrow's own schema in the file, coded names are plain text to every reader.
            writer = pq.ParquetWriter(
                stream,
                table.schema,
                compression="zstd",
                compression_level=3,
                use_dictionary=[*coded, *texts],
                write_page_index=True,
                store_schema=False,
            )
            self.open = stack, stream, writer, path
        self.open[2].write_table(table, row_group_size=table.num_rows)
        self.groups += 1
        self.rows += table.num_rows

    def _finish(self) -> None:
        if self.open:
            stack, stream, writer, path = self.open
            writer.close()
            size = stream.tell()
            self.open = None
            stack.close()
            if self.sink.place.local:  # another run may have made it first
                size = os.stat(self.sink.place.path(path)).st_size
            self.files.append(File(self.name, path, self.rows, size))
            self.groups = self.rows = 0


def layout(table: pa.Table, spec: pa.Schema) -> pa.Schema:
    """The types in which a table like this one is best written: names coded where they repeat, else plain.

    Of names that are mostly different ones a dictionary saves nothing and costs time.
    """
    fields = []
    for field, column in zip(spec, table.columns, strict=True):
        if pa.types.is_dictionary(field.type):
            n = max((len(c.dictionary) for c in column.chunks), default=0) if field.type == column.type else 0
            if 2 * n > len(column):
                field = field.with_type(pa.string())
        fields.append(field)
    return pa.schema(fields)


def _as(table: pa.Table, spec: pa.Schema) -> pa.Table:
    columns = []
    for field, column in zip(spec, table.columns, strict=True):
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=spec)


def trimmed(table: pa.Table) -> pa.Table:
    """The same rows in memory of their own, with dictionaries of only what they name.

    What is joined again and again would else hold, and write, the names of all that was ever joined to it.
    """
    return pa.table([_trimmed(c.combine_chunks()) for c in table.columns], schema=table.schema)


def _trimmed(array: pa.Array) -> pa.Array:
    coded = pa.types.is_dictionary(array.type)
    return array.cast(array.type.value_type).dictionary_encode() if coded else _owned(array)


def owned(table: pa.Table) -> pa.Table:
    """The same rows in memory of their own: a piece of a dump keeps the memory of all its span."""
    return pa.table([_owned(c.combine_chunks()) for c in table.columns], schema=table.schema)


def _owned(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(_owned(array.indices), _owned(array.dictionary))
    return pa.concat_arrays([array, array.slice(0, 0)])


def table_bytes(table: pa.Table) -> int:
    """The sum of `row_bytes`."""
    size = 0
    for column in table.columns:
        if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
            size += sum(4 * len(chunk) + int(_lengths(chunk).sum()) for chunk in column.chunks)
        else:
            size += 8 * len(column)
    return size


def row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Bytes of each row as plain Arrow columns."""
    size = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if not (pa.types.is_dictionary(column.type) or pa.types.is_string(column.type)):
            size += 8
            continue
        row = 0
        for chunk in column.chunks:
            size[row : row + len(chunk)] += 4 + _lengths(chunk)
            row += len(chunk)
    return size


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    if isinstance(array, pa.DictionaryArray):
        lengths = np.append(_lengths(array.dictionary), 0)  # a null's code, -1, is the last
        codes = array.indices if not array.null_count else array.indices.fill_null(-1)
        found: npt.NDArray[np.int64] = lengths[codes.to_numpy(zero_copy_only=False)]
        return found
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)


def release() -> None:
    """Give memory that is free back to the system: a worker lives long, and its tables come and go."""
    gc.collect()  # programs hold themselves in cycles
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
