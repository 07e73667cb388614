"""Read a dataset: its tables as pyarrow datasets or with SQL, and single dumps as `Dump`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as arrow_dataset

from .. import schema
from ..dump import Dump, DumpLike, as_tables, check_table
from ..errors import DumpError, UsageError
from ..input import names
from ..input.find import Member, Source
from ..parse.arrays import Ints, numbers_of
from .ledger import File, Ledger
from .query import SCHEMA, SQL_TYPES, run_sql, sql_over_dump
from .storage import Storage


def is_dataset(dest: str | os.PathLike[str]) -> bool:
    """Return whether a directory or URI has a ledger."""
    return _has_ledger(Storage(dest))


class Dataset:
    """A dataset written by `convert`, as of the time it is opened.

    Only files named by the ledger are read. Files that a converter has not committed yet, or has replaced, are ignored.
    ``ds["values"]`` is a `pyarrow.dataset.Dataset`. Every table of `xlamem.schema.WAREHOUSE` exists, and is empty if
    the converter did not write it.

    Raises
    ------
    UsageError
        The directory or URI has no ledger.
    """

    def __init__(self, dest: str | os.PathLike[str]) -> None:
        self.storage = Storage(dest)
        if not _has_ledger(self.storage):
            raise UsageError(f"{os.fspath(dest)} is not a dataset of `xlamem convert`: it has no ledger")
        self.state = Ledger(self.storage).state
        self.batches = sorted(self.state.batches.values(), key=lambda b: b.name)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(schema.WAREHOUSE)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The dump_ids of the stored dumps, sorted."""
        return tuple(sorted(self.state.stored))

    @cached_property
    def _files(self) -> dict[str, list[File]]:
        """The files of each table, in the order of the batches."""
        files: dict[str, list[File]] = {name: [] for name in schema.WAREHOUSE}
        for batch in self.batches:
            for file in batch.files:
                files.setdefault(file.table, []).append(file)
        return files

    # -- tables ----------------------------------------------------------------------------------

    def dataset(self, table: str) -> arrow_dataset.Dataset:
        """Return a table as a `pyarrow.dataset.Dataset` over its committed files, without opening any.

        Its columns and types are those of this version. Columns that an older version did not write are null.
        """
        return self.scan_files(_check_name(table), self._files[table])

    __getitem__ = dataset

    def scan_files(self, table: str, files: list[File]) -> arrow_dataset.Dataset:
        """Return a pyarrow dataset over some of the files of a table."""
        return arrow_dataset.FileSystemDataset.from_paths(
            [self.storage.path(f.path) for f in files],
            schema=schema.WAREHOUSE[table].warehouse,
            format=arrow_dataset.ParquetFileFormat(),
            filesystem=self.storage.system,
        )

    def dumps(self) -> pa.Table:
        """Return `modules`, sorted by dump_id, with a column ``label_<key>`` for each label."""
        ids = pa.array(self.ids, pa.string())
        with self.damage_errors("modules", "labels"):
            modules, labels = self["modules"].to_table(), self["labels"].to_table()
        table = _rows_of_dumps(modules, ids).set_column(0, modules.schema.field(0), ids)
        for key in sorted(pc.unique(labels["key"]).to_pylist()):
            values = _rows_of_dumps(labels.filter(pc.equal(labels["key"], key)), ids)["value"]
            table = table.append_column(f"label_{key}", values)
        return table

    def files(self, table: str | None = None) -> pa.Table:
        """Return the committed files of one table, or of all tables, for other tools.

        Columns: table, path (a URI if the dataset has one), rows, bytes, batch, tool_version, schema_version, run_id.
        """
        if table is not None:
            _check_name(table)
        order = {name: i for i, name in enumerate(schema.WAREHOUSE)}
        rows = [(b, f) for b in self.batches for f in b.files if table in (None, f.table)]
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

    # -- SQL -------------------------------------------------------------------------------------

    def sql(self, query: str) -> pa.Table:
        """Run an SQL query with DuckDB (the extra ``xlamem[duckdb]``) and return its result.

        Every table is a view; its files are opened only if the query uses it. Quote ``"values"``, which is a reserved
        word in SQL. A statement without a result (``COPY (…) TO 'file.csv'``) returns an empty table.

        Raises
        ------
        UsageError
            DuckDB is not installed or rejects the query.
        DumpError
            A committed file is missing or was modified.
        """
        return run_sql(query, schema.WAREHOUSE, self._load, self._find_damage)

    def _load(self, connection: Any, name: str) -> None:
        """Create a view of a table. pyarrow reads remote files, because DuckDB would need its own credentials."""
        if self.storage.local:
            connection.execute(f'CREATE VIEW {SCHEMA}."{name}" AS {self._select(name)}')
            return
        if damage := self._find_damage([name]):  # DuckDB would wait forever for a missing file
            raise damage
        connection.register(f"arrow_{name}", self[name])
        connection.execute(f'CREATE VIEW {SCHEMA}."{name}" AS FROM "arrow_{name}"')

    def _select(self, name: str) -> str:
        """Return SQL that selects the rows of a table from its files."""
        columns = schema.WAREHOUSE[name].columns
        # Files with the same columns are read together, so that DuckDB does not have to open all of them to compare.
        groups: dict[int, list[str]] = {}
        for file in self._files[name]:
            groups.setdefault(file.columns, []).append(self.storage.path(file.path).replace("'", "''"))
        selects = []
        for n_columns, paths in groups.items():
            quoted = ", ".join(f"'{path}'" for path in paths)
            selects.append(f"FROM read_parquet([{quoted}], hive_partitioning = false, union_by_name = {not n_columns})")
        if groups.keys() != {len(columns)}:  # adds columns that are missing from all files, as nulls
            typed = ", ".join(f'NULL::{SQL_TYPES[c.kind]} AS "{c.name}"' for c in columns)
            selects.insert(0, f"SELECT {typed} WHERE false")
        return " UNION ALL BY NAME ".join(selects)

    # -- one dump --------------------------------------------------------------------------------

    def read(self, dump_id: str, *, tables: Iterable[str] | None = None) -> Dump:
        """Return a stored dump as a `Dump` with its original tables.

        Its `verify()` returns the diagnostics of the conversion. `instructions.text` is not stored, and is null.

        Parameters
        ----------
        dump_id
            The dump_id, or a unique prefix of it.
        tables
            The tables to read; all stored tables by default.
        """
        return Dump(StoredTables(self, self._resolve_id(dump_id), tables))

    def _resolve_id(self, dump_id: str) -> str:
        if dump_id in self.state.stored:
            return dump_id
        matches = [i for i in self.ids if i.startswith(dump_id)] if dump_id else []
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(f"{len(matches):,} dump_ids begin with {dump_id}: {', '.join(matches[:3])}, …")
        if any(i.startswith(dump_id) for i in self.state.quarantined if dump_id):
            raise UsageError(f"the dump {dump_id} could not be read: see the table quarantine")
        raise UsageError(f"no dump {dump_id!r} in {self.storage.uri}")

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
        files = [f for t in tables for f in self._files[t]]
        infos = self.storage.system.get_file_info([self.storage.path(f.path) for f in files])
        for file, info in zip(files, infos, strict=True):
            path = self.storage.uri_of(file.path)
            if not info.is_file:
                return DumpError(path, "a committed file; it is gone (if it was replaced, open the dataset again)")
            if info.size is not None and info.size != file.bytes:
                return DumpError(path, f"{file.bytes:,} bytes, as committed, not {info.size:,}")
        return None

    # -- Python ----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[type[Dataset], tuple[str]]:
        return type(self), (self.storage.uri,)

    def __repr__(self) -> str:
        files = [file for table in self._files.values() for file in table]
        rows, size = sum(f.rows for f in files), sum(f.bytes for f in files)
        return (
            f"<xlamem.Dataset {self.storage.uri}>\n"
            f"  dumps   {len(self.ids):,}, {len(self.state.quarantined):,} in quarantine\n"
            f"  files   {len(files):,} in {len(self.batches):,} batches, {rows:,} rows, {size:,} bytes"
        )


def sql(source: DumpLike | Dataset, query: str) -> pa.Table:
    """Run an SQL query over a dump or a dataset (the extra ``xlamem[duckdb]``) and return its result.

    A dump has the tables of the schema and those computed from them (``peaks``, ``live_set``, ``savings``, …). A
    dataset has the tables that `convert` wrote. Only the tables used by the query are read. Quote ``"values"``, which
    is a reserved word in SQL.

    Raises UsageError if DuckDB is not installed or rejects the query.
    """
    if isinstance(source, Dataset):
        return source.sql(query)
    if isinstance(source, (str, os.PathLike)) and is_dataset(source):
        return Dataset(source).sql(query)
    return sql_over_dump(as_tables(source), query)


class StoredTables:
    """The tables of a dump in Parquet, each read from the files of its batch on first use."""

    def __init__(self, dataset: Dataset, dump_id: str, tables: Iterable[str] | None) -> None:
        self.dataset, self.dump_id = dataset, dump_id
        self.batch = dataset.state.batches[dataset.state.stored[dump_id]]
        self.stored = tuple(t for t in schema.TABLES if t in self.batch.tables or not self.batch.tables)
        requested = self.stored if tables is None else [tables] if isinstance(tables, str) else list(tables)
        if missing := [t for t in requested if t not in self.stored]:
            raise UsageError(
                f"no table {', '.join(missing)} of this dump is stored; there are {', '.join(self.stored)}"
            )
        self.tables = tuple(t for t in schema.TABLES if t in requested)
        self.cache: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._read_tables: dict[str, pa.Table] = {}
        self.source = self._source()

    @property
    def _key(self) -> tuple[str, str, tuple[str, ...]]:
        return self.dataset.storage.uri, self.dump_id, self.tables

    def __reduce__(self) -> tuple[Callable[..., StoredTables], tuple[str, str, tuple[str, ...]]]:
        return _stored_tables, self._key

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, StoredTables) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def platform(self) -> str | None:
        return self.source.platform

    @property
    def schedule_length(self) -> int | None:
        length: int | None = self.summary("modules")["schedule_length"][0].as_py()
        return length

    def __getitem__(self, name: str) -> pa.Table:
        check_table(name, self.tables)
        return self.summary(name)

    def integers(self, name: str, *columns: str) -> list[Ints]:
        return [numbers_of(self[name][column]) for column in columns]

    def count_rows(self, name: str) -> int:
        return int(self.summary("modules")[f"n_{name}"][0].as_py() or 0)

    def summary(self, name: str) -> pa.Table:
        """Return a stored table, even if it was not requested."""
        if name not in self.stored:
            raise UsageError(f"the table {name!r} of this dump is not stored; there are {', '.join(self.stored)}")
        with self._lock:
            if name not in self._read_tables:
                self._read_tables[name] = self._read(name)
            return self._read_tables[name]

    def batches(self, name: str) -> pa.RecordBatchReader:
        check_table(name, self.tables)
        return pa.RecordBatchReader.from_batches(schema.TABLES[name].arrow, self._batches(name))

    def verify(self) -> pa.Table:
        """Return the diagnostics that were stored when the dump was converted."""
        return self.summary("diagnostics")

    def _read(self, name: str) -> pa.Table:
        with self.dataset.damage_errors(name):
            table = self._scanner(name).to_table()
        self._check_rows(name, table.num_rows)
        return _with_dump_types(name, table).unify_dictionaries()

    def _batches(self, name: str) -> Iterator[pa.RecordBatch]:
        rows = 0
        with self.dataset.damage_errors(name):
            for batch in self._scanner(name).to_batches():
                rows += batch.num_rows
                if batch.num_rows:
                    yield from _with_dump_types(name, pa.table(batch)).to_batches()
        self._check_rows(name, rows)

    def _scanner(self, name: str) -> arrow_dataset.Scanner:
        files = [f for f in self.batch.files if f.table == name]
        columns = schema.TABLES[name].arrow.names
        is_this_dump = arrow_dataset.field("dump_id") == self.dump_id
        return self.dataset.scan_files(name, files).scanner(
            columns=columns, filter=is_this_dump, batch_readahead=1, fragment_readahead=1
        )

    def _check_rows(self, name: str, rows: int) -> None:
        """Raise an error if the files do not have all rows of the dump, rather than return a partial table."""
        expected = None
        if name in ("modules", "files"):
            expected = max(rows, 1)
        elif (column := f"n_{name}") in schema.TABLES["modules"].arrow.names and "modules" in self.stored:
            expected = self.summary("modules")[column][0].as_py()
        if expected not in (None, rows):
            if not rows:
                raise UsageError(f"the table {name!r} of this dump is not stored")
            uri = self.dataset.storage.uri
            raise DumpError(uri, f"{expected:,} rows of {name} of the dump {self.dump_id}, not {rows:,}")

    def _source(self) -> Source:
        """Return the files that the dump was read from when it was converted. They may no longer exist."""
        files, module = self._rows("files"), self._rows("modules")
        members = tuple(Member(f["role"], f["uri"], size=f["bytes"]) for f in files)
        members = members or (Member("buffer-assignment", self.dataset.storage.uri),)
        name, _ = names.split(members[0].file_name) or (members[0].file_name, "")
        keys = ("module_id", "module_name", "platform", "target", "changelist", "timestamp_us")
        return Source(name, members, **{key: module[0][key] for key in keys if module})

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, or an empty list if it is not stored."""
        with suppress(UsageError):
            rows: list[dict[str, Any]] = self.summary(name).to_pylist()
            return rows
        return []


def _stored_tables(dest: str, dump_id: str, tables: tuple[str, ...]) -> StoredTables:
    return StoredTables(Dataset(dest), dump_id, tables)


def _has_ledger(storage: Storage) -> bool:
    try:
        first = storage.read("_ledger/entries/000000000001.json")
        return first is not None or bool(storage.files("_ledger", recursive=False))
    except NotADirectoryError:
        return False


def _check_name(table: str) -> str:
    if table not in schema.WAREHOUSE:
        raise UsageError(f"no table {table!r}; there are {', '.join(schema.WAREHOUSE)}")
    return table


def _with_dump_types(name: str, table: pa.Table) -> pa.Table:
    """Convert the columns of a dataset to the types of a `Dump`, dictionary-encoding names."""
    spec = schema.TABLES[name].arrow
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for column, field in zip(table.columns, spec, strict=True)
    ]
    return pa.table(columns, schema=spec)


def _rows_of_dumps(table: pa.Table, ids: pa.Array) -> pa.Table:
    """Return the row of each dump_id, or nulls if it has none."""
    return table.take(pc.index_in(ids, table["dump_id"].combine_chunks()))
