"""The files of a dataset, as of the time it is opened."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..errors import DumpError, UsageError, utf8
from ..formatting import similar
from .batch import Batch, File
from .ledger import Ledger
from .old import OldDumps
from .state import to_files
from .storage import GONE, Storage

if TYPE_CHECKING:
    import pyarrow.dataset as arrow_dataset


def is_dataset(dest: str | os.PathLike[str]) -> bool:
    """Return whether a directory or URI has a ledger. Paths that are not UTF-8 have none."""
    path = os.fspath(dest)
    return path == utf8(path) and _has_ledger(Storage(path))


class Catalog:
    """The files that the ledger names, and where the rows of each dump are.

    Raises UsageError if the directory or URI has no ledger.
    """

    def __init__(self, dest: str | os.PathLike[str]) -> None:
        self.storage = Storage(dest)
        if not _has_ledger(self.storage):
            raise UsageError(f"{os.fspath(dest)} is not a dataset of `xlamem convert`: it has no ledger")
        self.state = Ledger(self.storage).state
        self.old = OldDumps(self.storage, self.state)
        self._files_of: dict[str, list[File]] = {}

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The content_ids of the stored dumps, sorted."""
        with self.damage_errors():
            return tuple(sorted({*self.state.stored, *self.old.contents}))

    def __contains__(self, content_id: object) -> bool:
        """Return whether a dump with this content_id is stored."""
        with self.damage_errors():
            return content_id in self.state.stored or content_id in self.old.contents

    def files_of(self, table: str) -> list[File]:
        """Return the files of a table, in the order of the batches, without those of version 1."""
        if table not in self._files_of:
            self._files_of[table] = [file for batch, file in self._files(table) if not batch.is_old]
        return self._files_of[table]

    def old_files_of(self, table: str) -> list[File]:
        """Return the files of a table that version 1 wrote."""
        return [file for batch in self.old.batches for file in batch.table_files(table)]

    def _files(self, table: str | None = None) -> list[tuple[Batch, File]]:
        """Return the files of one table, or of all tables, in the order of the batches."""
        files, state = self.state.files_table(table), self.state
        batches = [state.batches[state.names[ordinal]] for ordinal in files["batch"].to_pylist()]
        return sorted(zip(batches, to_files(files), strict=True), key=lambda row: row[0].name)

    def locate(self, content_id: str) -> tuple[Batch, str]:
        """Return the batch of a stored dump and its id in the files of the batch."""
        if name := self.state.stored.get(content_id):
            return self.state.batches[name], content_id
        dump = self.old.contents[content_id]
        return dump.batch, dump.dump_id

    def scan_files(self, table: str, files: list[File], key: str = "content_id") -> arrow_dataset.Dataset:
        """Return a pyarrow dataset over some of the files of a table. `key`: "dump_id" for files of version 1."""
        import pyarrow.dataset as arrow_dataset

        spec = schema.WAREHOUSE[table].warehouse
        if (i := spec.get_field_index("content_id")) >= 0:
            spec = spec.set(i, spec.field(i).with_name(key))
        return arrow_dataset.FileSystemDataset.from_paths(
            [self.storage.path(f.path) for f in files],
            schema=spec,
            format=arrow_dataset.ParquetFileFormat(),
            filesystem=self.storage.system,
        )

    def scan_dump(self, table: str, files: list[File], content_id: str) -> arrow_dataset.Dataset:
        """Return a pyarrow dataset over the row groups that contain a dump.

        In files of merged batches, statistics do not tell which these are: the dumps are not sorted by content_id.
        """
        import pyarrow.dataset as arrow_dataset

        form, system = arrow_dataset.ParquetFileFormat(), self.storage.system
        fragments = [
            form.make_fragment(path, system, row_groups=[row_group])  # pyarrow does not keep the order of several ones
            for path in (self.storage.path(file.path) for file in files)
            for row_group in _row_groups_with(path, system, content_id)
        ]
        return arrow_dataset.FileSystemDataset(fragments, schema.WAREHOUSE[table].warehouse, form, system)

    def files(self, table: str | None = None) -> pa.Table:
        """Return the committed files of one table, or of all tables, for other tools.

        Columns: table, path (a URI if the dataset has one), rows, bytes, batch, tool_version, schema_version, run_id.
        """
        if table is not None:
            check_name(table)
        order = {name: i for i, name in enumerate(schema.WAREHOUSE)}
        rows = self._files(table)
        rows.sort(key=lambda row: order.get(row[1].table, len(order)))
        return pa.table(
            {
                "table": pa.array([f.table for _, f in rows], pa.string()),
                "path": pa.array([self.storage.uri_of(f.path) for _, f in rows], pa.string()),
                "rows": pa.array([f.rows for _, f in rows], pa.int64()),
                "bytes": pa.array([f.bytes for _, f in rows], pa.int64()),
                "batch": pa.array([b.name for b, _ in rows], pa.string()),
                "tool_version": pa.array([b.tool_version for b, _ in rows], pa.string()),
                "schema_version": pa.array([b.schema_version for b, _ in rows], pa.int64()),
                "run_id": pa.array([b.run_id for b, _ in rows], pa.string()),
            }
        )

    # -- damage ----------------------------------------------------------------------------------

    @contextmanager
    def damage_errors(self, *tables: str) -> Iterator[None]:
        """Raise DumpError with the path of the damaged file if these tables cannot be read."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            message = str(error).partition("\n")[0]
            damage = self._find_damage(tables)
            raise damage or DumpError(self.storage.uri, f"readable Parquet files ({message})") from error

    def _find_damage(self, tables: Iterable[str]) -> DumpError | None:
        """Return an error for the first file of these tables that is missing or differs in size from the ledger."""
        names = sorted(tables)
        derived_from = {"modules", "files", "labels"} | ({"bills"} if "peaks" in names else set())
        old = sorted({*names, *derived_from})  # tables of version 1
        files = [f for t in names for f in self.files_of(t)] + [f for t in old for f in self.old_files_of(t)]
        infos = self.storage.system.get_file_info([self.storage.path(f.path) for f in files])
        for file, info in zip(files, infos, strict=True):
            path = self.storage.uri_of(file.path)
            if not info.is_file:
                return DumpError(path, GONE)
            if info.size is not None and info.size != file.bytes:
                return DumpError(path, f"{file.bytes:,} bytes, as committed, not {info.size:,}")
        return None


def _row_groups_with(path: str, system: Any, content_id: str) -> list[int]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, filesystem=system, read_dictionary=["content_id"]) as parquet:
        return [i for i in range(parquet.num_row_groups) if _contains(parquet, i, content_id)]


def _contains(parquet: Any, row_group: int, content_id: str) -> bool:
    """Return whether a row group contains a dump, from the dictionary of its ids."""
    statistics = parquet.metadata.row_group(row_group).column(0).statistics
    if statistics is not None and not statistics.min <= content_id <= statistics.max:
        return False
    ids = parquet.read_row_group(row_group, columns=["content_id"]).column(0)
    return any(pc.any(pc.equal(chunk.dictionary, content_id)).as_py() for chunk in ids.chunks)


def _has_ledger(storage: Storage) -> bool:
    try:
        first = storage.read("_ledger/entries/000000000001.json")
        return first is not None or bool(storage.files("_ledger", recursive=False))
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
            return False
        raise


def check_name(table: str) -> str:
    """Return the name of a table, or raise UsageError."""
    if table not in schema.WAREHOUSE:
        raise UsageError(f"no table {table!r}; {similar([table], schema.WAREHOUSE)}")
    return table
