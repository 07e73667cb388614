"""Write the tables of a batch to Parquet files, with several dumps per file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from .batch import File
from .storage import Storage

ROW_GROUP_BYTES = 64 << 20
"""Target size of a row group before compression, counting names as plain text."""
MIN_ROW_GROUP_BYTES = 16 << 20
"""Minimum size of the last row group. A smaller remainder is added to the previous row group."""
MAX_ROW_GROUPS = 16
"""Maximum number of row groups per file."""
FALSE_POSITIVES = 0.01
"""Share of row groups without a content_id whose Bloom filter does not exclude it."""
SORTED_BY = {name: ("content_id",) for name in schema.WAREHOUSE if name not in schema.RUN_TABLES}
"""The columns by which the rows of a batch are sorted, by table."""


class BatchWriter:
    """Writes the Parquet files of one batch. As a context manager, it abandons them if an exception is raised."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        batch: str,
        *,
        first_file: int = 0,
        low_memory: bool = False,
        run_id: str = "",
        compression_level: int = 3,
        sorted_by: Mapping[str, tuple[str, ...]] = SORTED_BY,
        bloom_filters: Mapping[str, int] | None = None,
    ) -> None:
        """Create a writer for files in `folder`, relative to the folder of their table. `low_memory` halves row groups.

        `sorted_by` names the columns by which the rows of a table will be sorted; it becomes part of the files.
        `bloom_filters` gives the number of content_ids of tables whose row groups get a Bloom filter.

        On remote storage, where files cannot be protected from being overwritten, `run_id` becomes part of their names:
        concurrent runs may write the same batch, and the files of the run that commits must not change.
        """
        self.storage, self.folder, self.batch = storage, folder, batch
        self.first_file, self.compression_level, self.sorted_by = first_file, compression_level, sorted_by
        self.bloom_filters = bloom_filters or {}
        self.suffix = "" if storage.local or not run_id else f"-{run_id[-8:]}"
        self.row_group_bytes = ROW_GROUP_BYTES // 2 if low_memory else ROW_GROUP_BYTES
        self.tables: dict[str, _TableWriter] = {}

    def __enter__(self) -> BatchWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.abandon()

    def add(self, name: str, table: pa.Table) -> None:
        """Append rows to a table of `schema.WAREHOUSE`. Names may be plain or dictionary-encoded."""
        if table.num_rows:
            if name not in self.tables:
                self.tables[name] = _TableWriter(self, name)
            self.tables[name].add(table)

    def flush(self, name: str) -> None:
        """Write the pending rows of a table, and release their memory."""
        if name in self.tables:
            self.tables[name].flush()

    def close(self) -> list[File]:
        """Write all pending rows, sync the files to the disk, and return them, with staged names."""
        files = [file for name in schema.WAREHOUSE if name in self.tables for file in self.tables[name].close()]
        self.storage.sync([file.path for file in files])
        return files

    def abandon(self) -> None:
        """Discard pending rows and, on the local disk, files that are open."""
        for table in self.tables.values():
            table.abandon()
        self.tables.clear()


class _TableWriter:
    """Writes the files of one table."""

    def __init__(self, batch: BatchWriter, name: str) -> None:
        self.batch, self.name = batch, name
        self.pending: list[pa.Table] = []
        self.sizes: list[int] = []
        """`table_bytes` of the pending tables."""
        self.files: list[File] = []
        self.file: _OpenFile | None = None
        self.schema: pa.Schema | None = None

    def add(self, table: pa.Table) -> None:
        if self.schema is None:
            self.schema = choose_encodings(table, schema.WAREHOUSE[self.name])
        table = cast_table(table, self.schema)
        self.pending.append(table)
        self.sizes.append(table_bytes(table))
        while sum(self.sizes) >= self.max_pending:
            self._write_full_row_group()

    def flush(self) -> None:
        if self.pending:
            self._write_tables(len(self.pending))

    def close(self) -> list[File]:
        self.flush()
        self._close_file()
        return self.files

    def abandon(self) -> None:
        if self.file:
            self.file.abandon()
            self.file = None

    @property
    def max_pending(self) -> int:
        """Size of the pending rows from which they fill a row group and leave enough rows for another one."""
        return self.batch.row_group_bytes + MIN_ROW_GROUP_BYTES

    def _write_full_row_group(self) -> None:
        """Write a row group, which ends between two tables unless it would be too small."""
        n = int(np.searchsorted(np.cumsum(self.sizes), self.batch.row_group_bytes, "right"))
        if sum(self.sizes[:n]) < MIN_ROW_GROUP_BYTES:
            self._split()
            n = 1
        self._write_tables(n)

    def _split(self) -> None:
        """Split the pending rows at the size of a row group."""
        table = pa.concat_tables(self.pending).combine_chunks()
        ends = np.cumsum(row_bytes(table))
        row = max(1, int(np.searchsorted(ends, self.batch.row_group_bytes, "right")))
        parts = [part for part in (table.slice(0, row), table.slice(row)) if part.num_rows]
        self.pending = [*parts[:1], *map(compacted, parts[1:])]
        self.sizes = [int(ends[row - 1]), int(ends[-1] - ends[row - 1])][: len(parts)]

    def _write_tables(self, n: int) -> None:
        """Write the first n pending tables as a row group."""
        tables, self.pending, self.sizes = self.pending[:n], self.pending[n:], self.sizes[n:]
        self._write_row_group(pa.concat_tables(tables).combine_chunks())

    def _write_row_group(self, table: pa.Table) -> None:
        if self.file and self.file.row_groups == MAX_ROW_GROUPS:
            self._close_file()
        if not self.file:
            number = self.batch.first_file + len(self.files)
            name = f"{self.batch.batch}-{number:05}{self.batch.suffix}.parquet"
            path = "/".join(p for p in (self.name, self.batch.folder, name) if p)
            self.file = _OpenFile(self.batch, self.name, path, table.schema)
        self.file.write(table)

    def _close_file(self) -> None:
        if self.file:
            file, self.file = self.file, None
            self.files.append(file.close())


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, batch: BatchWriter, table: str, path: str, spec: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.storage, self.table, self.path = batch.storage, table, batch.storage.staged(path)
        self.rows = self.row_groups = 0
        self.n_columns = len(spec)
        self.stack = ExitStack()
        self.stream = self.stack.enter_context(self.storage.open_staged(self.path))
        encoded = [f.name for f in spec if pa.types.is_dictionary(f.type)]
        texts = [c.name for c in schema.WAREHOUSE[table].columns if c.kind == "text"]
        # Without Arrow's schema in the file, every reader sees dictionary-encoded names as plain text.
        self.parquet = pq.ParquetWriter(
            self.stream,
            spec,
            compression="zstd",
            compression_level=batch.compression_level,
            use_dictionary=[*encoded, *texts],
            write_page_index=True,
            store_schema=False,
            sorting_columns=[pq.SortingColumn(spec.get_field_index(c)) for c in batch.sorted_by.get(table, ())] or None,
            **_bloom_filter(batch.bloom_filters.get(table, 0)),
        )

        self.parquet.add_key_value_metadata(spec.metadata)

    def write(self, table: pa.Table) -> None:
        self.parquet.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows
        self.row_groups += 1

    def close(self) -> File:
        self.parquet.close()
        size = self.stream.tell()
        self.stack.close()
        return File(self.table, self.path, self.rows, size, self.n_columns)

    def abandon(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self.parquet.close()
        self.stack.__exit__(InterruptedError, InterruptedError(), None)


def _bloom_filter(n_ids: int) -> dict[str, Any]:
    """Return the option of ParquetWriter for a Bloom filter of this many content_ids, which pyarrow 24 introduced."""
    import pyarrow.parquet as pq

    name = "bloom_filter_options"
    is_known = name in inspect.signature(pq.ParquetWriter).parameters
    return {name: {"content_id": {"ndv": n_ids, "fpp": FALSE_POSITIVES}}} if n_ids and is_known else {}


def choose_encodings(table: pa.Table, spec: schema.Table) -> pa.Schema:
    """Return the schema with which a table is written: `spec.parquet`, with dictionaries for names that repeat."""
    encoded = spec.parquet
    for i, (name, column) in enumerate(zip(spec.arrow, table.columns, strict=True)):
        if pa.types.is_dictionary(name.type):
            n = max((len(c.dictionary) for c in column.chunks), default=0) if name.type == column.type else 0
            if 2 * n <= len(column):
                encoded = encoded.set(i, encoded.field(i).with_type(name.type))
    return encoded


def cast_table(table: pa.Table, spec: pa.Schema) -> pa.Table:
    """Return a table with the types of these columns."""
    columns = []
    for field, column in zip(spec, table.columns, strict=True):
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
            column = pc.dictionary_encode(pc.cast(column, pa.string()))
        columns.append(pc.cast(column, field.type))
    return pa.table(columns, schema=spec)


def compacted(table: pa.Table) -> pa.Table:
    """Copy a slice of a table, with dictionaries that contain only the names that occur in it.

    Otherwise, it would keep and write the dictionaries of all tables that were ever concatenated with it.
    """
    return pa.table([_compacted(c.combine_chunks()) for c in table.columns], schema=table.schema)


def _compacted(array: pa.Array) -> pa.Array:
    encoded = pa.types.is_dictionary(array.type)
    return pc.dictionary_encode(pc.cast(array, array.type.value_type)) if encoded else _copied(array)


def copied(table: pa.Table) -> pa.Table:
    """Copy a table that shares memory with other tables, so that it does not keep their memory alive."""
    return pa.table([_copied(c.combine_chunks()) for c in table.columns], schema=table.schema)


def _copied(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(_copied(array.indices), _copied(array.dictionary))
    return pa.concat_arrays([array, array.slice(0, 0)])


def table_bytes(table: pa.Table) -> int:
    """Return the size of a table in plain Arrow columns: the sum of `row_bytes`."""
    size = 0
    for column in table.columns:
        if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
            size += sum(4 * len(chunk) + int(_lengths(chunk).sum()) for chunk in column.chunks)
        else:
            size += 8 * len(column)
    return size


def row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the size of each row in plain Arrow columns, without dictionaries."""
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
        lengths = np.append(_lengths(array.dictionary), 0)  # -1, the code of null, selects the last element
        codes = pc.fill_null(array.indices, -1)
        row_lengths: npt.NDArray[np.int64] = lengths[codes.to_numpy(zero_copy_only=False)]
        return row_lengths
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)
