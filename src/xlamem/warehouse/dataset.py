"""Reading what `convert` wrote: the tables as pyarrow datasets, by SQL, or one dump as a `Dump` again."""

from __future__ import annotations

import os
import re
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
from ..parse.arrow import Ints, numbers_of
from .ledger import File, Ledger
from .query import answer, sql_over_dump
from .storage import Place

SQL: dict[schema.Kind, str] = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "name": "VARCHAR",
    "text": "VARCHAR",
    "time": "TIMESTAMPTZ",
}


def is_dataset(dest: str | os.PathLike[str]) -> bool:
    """Whether there is a ledger."""
    return bool(_ledger(Place(dest)))


class Dataset:
    """A dataset of `convert`, as its ledger describes it at the moment of opening.

    Which files count is read from the ledger, never found by listing: what a converter has not committed yet, or has
    replaced, is not there. ``ds["values"]`` is a `pyarrow.dataset.Dataset`; every table of `xlamem.schema.WAREHOUSE`
    is there, empty if nothing was written to it.

    Raises
    ------
    UsageError
        There is no ledger at `dest`.
    """

    def __init__(self, dest: str | os.PathLike[str]) -> None:
        self.place = Place(dest)
        if not _ledger(self.place):
            raise UsageError(f"{os.fspath(dest)} is no dataset: it has no ledger (xlamem convert makes both)")
        self.state = Ledger(self.place).state
        self.batches = sorted(self.state.batches.values(), key=lambda b: b.name)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(schema.WAREHOUSE)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The dump_id of every dump that is stored, sorted."""
        return tuple(sorted(self.state.stored))

    @cached_property
    def _files(self) -> dict[str, list[File]]:
        """The files of each table, those of a batch one after the other."""
        found: dict[str, list[File]] = {name: [] for name in schema.WAREHOUSE}
        for batch in self.batches:
            for file in batch.files:
                found.setdefault(file.table, []).append(file)
        return found

    # -- tables ----------------------------------------------------------------------------------

    def dataset(self, table: str) -> arrow_dataset.Dataset:
        """A table as a `pyarrow.dataset.Dataset` over its committed files, none of which is opened yet.

        Columns and types are those of this version; what an older one did not write is null.
        """
        return self.over(_known(table), self._files[table])

    __getitem__ = dataset

    def over(self, table: str, files: list[File]) -> arrow_dataset.Dataset:
        """A table as far as it is in these files."""
        return arrow_dataset.FileSystemDataset.from_paths(
            [self.place.path(f.path) for f in files],
            schema=schema.WAREHOUSE[table].warehouse,
            format=arrow_dataset.ParquetFileFormat(),
            filesystem=self.place.system,
        )

    def dumps(self) -> pa.Table:
        """One row per stored dump, by dump_id: the columns of `modules`, and for each label ``label_<key>``."""
        ids = pa.array(self.ids, pa.string())
        with self.whole("modules", "labels"):
            modules, labels = self["modules"].to_table(), self["labels"].to_table()
        table = _matched(modules, ids).set_column(0, modules.schema.field(0), ids)
        for key in sorted(pc.unique(labels["key"]).to_pylist()):
            values = _matched(labels.filter(pc.equal(labels["key"], key)), ids)["value"]
            table = table.append_column(f"label_{key}", values)
        return table

    def files(self, table: str | None = None) -> pa.Table:
        """The committed files, of one table or of all: what every other tool should read.

        Columns: table, path (a URI where `dest` is one), rows, bytes, batch, tool_version, schema_version, run_id.
        """
        if table is not None:
            _known(table)
        order = {name: i for i, name in enumerate(schema.WAREHOUSE)}
        found = [(b, f) for b in self.batches for f in b.files if table in (None, f.table)]
        found.sort(key=lambda bf: order.get(bf[1].table, len(order)))
        return pa.table(
            {
                "table": pa.array([f.table for _, f in found], pa.string()),
                "path": pa.array([self.place.uri_of(f.path) for _, f in found], pa.string()),
                "rows": pa.array([f.rows for _, f in found], pa.int64()),
                "bytes": pa.array([f.bytes for _, f in found], pa.int64()),
                "batch": pa.array([b.name for b, _ in found], pa.string()),
                "tool_version": pa.array([b.tool_version for b, _ in found], pa.string()),
                "schema_version": pa.array([b.schema_version for b, _ in found], pa.int64()),
                "run_id": pa.array([b.run_id for b, _ in found], pa.string()),
            }
        )

    # -- SQL -------------------------------------------------------------------------------------

    def sql(self, query: str) -> pa.Table:
        """The result of an SQL query by DuckDB (the extra ``xlamem[duckdb]``), which reads no more than it needs.

        Every table is a view. ``"values"`` must be quoted: it is a word of SQL. A statement without result
        (``COPY (…) TO 'file.csv'``) gives an empty table.

        Raises
        ------
        UsageError
            DuckDB is not there, or does not understand the query.
        DumpError
            A committed file is missing or was changed.
        """
        try:
            import duckdb
        except ImportError as e:
            raise UsageError("Dataset.sql needs DuckDB: pip install 'xlamem[duckdb]'") from e
        words = {word.lower() for word in re.findall(r"\w+", query)}
        views = [name for name in schema.WAREHOUSE if name in words] or list(schema.WAREHOUSE)
        with duckdb.connect() as connection:
            try:
                connection.execute("SET TimeZone = 'UTC'")
                for name in views:
                    self._view(connection, name)
                return answer(connection, query)
            except duckdb.Error as e:
                raise self._damage(views) or UsageError(f"DuckDB does not understand the query: {e}") from e

    def _view(self, connection: Any, name: str) -> None:
        files = self._files[name]
        if not self.place.local:  # DuckDB would need extensions and keys of its own
            if damage := self._damage([name]):  # it would wait for ever for a file that is not there
                raise damage
            connection.register(name, self[name])
            return
        columns = schema.WAREHOUSE[name].columns
        # Files with the same columns together: then DuckDB need not open each of them to find out.
        groups: dict[int, list[str]] = {}
        for file in files:
            groups.setdefault(file.columns, []).append(self.place.path(file.path).replace("'", "''"))
        parts = []
        for width, paths in groups.items():
            listed = ", ".join(f"'{p}'" for p in paths)
            parts.append(f"FROM read_parquet([{listed}], hive_partitioning = false, union_by_name = {not width})")
        if groups.keys() != {len(columns)}:  # columns that are missing everywhere are there too, and are null
            typed = ", ".join(f'NULL::{SQL[c.kind]} AS "{c.name}"' for c in columns)
            parts.insert(0, f"SELECT {typed} WHERE false")
        connection.execute(f'CREATE VIEW "{name}" AS ' + " UNION ALL BY NAME ".join(parts))

    # -- one dump --------------------------------------------------------------------------------

    def read(self, dump_id: str, *, tables: Iterable[str] | None = None) -> Dump:
        """A stored dump as a `Dump` again: the same tables, and everything that can be computed of them.

        Parameters
        ----------
        dump_id
            Its dump_id, or as much of the beginning as belongs to no other.
        tables
            The tables wanted; by default all that were stored.

        Its `verify()` gives what was found when it was converted; `instructions.text` is null, as it is not stored.
        """
        return Dump(StoredTables(self, self._identity(dump_id), tables))

    def _identity(self, dump_id: str) -> str:
        if dump_id in self.state.stored:
            return dump_id
        found = [i for i in self.ids if i.startswith(dump_id)] if dump_id else []
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{len(found):,} dump_ids begin with {dump_id}: {', '.join(found[:3])}, …")
        if any(i.startswith(dump_id) for i in self.state.quarantined if dump_id):
            raise UsageError(f"the dump {dump_id} could not be read: see the table quarantine")
        raise UsageError(f"no dump {dump_id!r} in {self.place.uri}")

    # -- damage ----------------------------------------------------------------------------------

    @contextmanager
    def whole(self, *tables: str) -> Iterator[None]:
        """Whoever cannot read files of these tables is told which one is at fault."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            wanted = f"Parquet files ({str(error).partition(chr(10))[0]})"
            raise self._damage(tables) or DumpError(self.place.uri, wanted) from error

    def _damage(self, tables: Iterable[str]) -> DumpError | None:
        """The first file that is not as the ledger says."""
        files = [f for t in tables for f in self._files[t]]
        infos = self.place.system.get_file_info([self.place.path(f.path) for f in files])
        for file, info in zip(files, infos, strict=True):
            path = self.place.uri_of(file.path)
            if not info.is_file:
                return DumpError(path, "a file that the ledger names; it is gone (or replaced: open the dataset again)")
            if info.size is not None and info.size != file.bytes:
                return DumpError(path, f"{file.bytes:,} bytes, as the ledger says, not {info.size:,}")
        return None

    # -- Python ----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[type[Dataset], tuple[str]]:
        return type(self), (self.place.uri,)

    def __repr__(self) -> str:
        files = [f for of in self._files.values() for f in of]
        rows, size = sum(f.rows for f in files), sum(f.bytes for f in files)
        return (
            f"<xlamem.Dataset {self.place.uri}>\n"
            f"  dumps   {len(self.ids):,}, {len(self.state.quarantined):,} in quarantine\n"
            f"  files   {len(files):,} in {len(self.batches):,} batches, {rows:,} rows, {size:,} bytes"
        )


def sql(source: DumpLike | Dataset, query: str) -> pa.Table:
    """Return the result of an SQL query over a dump or a dataset (the extra ``xlamem[duckdb]``).

    Over a dump, every table of the schema can be named, computed ones included (``peaks``, ``live_set``,
    ``savings``, …); only those that the query names are read. Over a dataset, every table that `convert` wrote.
    Quote ``"values"``: it is a reserved word of SQL.

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
        return self.dataset.place.uri, self.dump_id, self.tables

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
        """Return any stored table, whether or not it was requested."""
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
        with self.dataset.whole(name):
            table = self._scanner(name).to_table()
        self._check_rows(name, table.num_rows)
        return _in_memory(name, table).unify_dictionaries()

    def _batches(self, name: str) -> Iterator[pa.RecordBatch]:
        rows = 0
        with self.dataset.whole(name):
            for batch in self._scanner(name).to_batches():
                rows += batch.num_rows
                if batch.num_rows:
                    yield from _in_memory(name, pa.table(batch)).to_batches()
        self._check_rows(name, rows)

    def _scanner(self, name: str) -> arrow_dataset.Scanner:
        files = [f for f in self.batch.files if f.table == name]
        columns = schema.TABLES[name].arrow.names
        own_rows = arrow_dataset.field("dump_id") == self.dump_id
        return self.dataset.over(name, files).scanner(
            columns=columns, filter=own_rows, batch_readahead=1, fragment_readahead=1
        )

    def _check_rows(self, name: str, rows: int) -> None:
        """Raise an error if the files have not as many rows as the dump: they must not pass for an empty table."""
        expected = None
        if name in ("modules", "files"):
            expected = max(rows, 1)
        elif (column := f"n_{name}") in schema.TABLES["modules"].arrow.names and "modules" in self.stored:
            expected = self.summary("modules")[column][0].as_py()
        if expected not in (None, rows):
            if not rows:
                raise UsageError(f"the table {name!r} of this dump is not stored")
            uri = self.dataset.place.uri
            raise DumpError(uri, f"{expected:,} rows of {name} of the dump {self.dump_id}, not {rows:,}")

    def _source(self) -> Source:
        """The files that the dump was read from when it was converted; they may no longer exist."""
        files, module = self._rows("files"), self._rows("modules")
        members = tuple(Member(f["role"], f["uri"], size=f["bytes"]) for f in files)
        members = members or (Member("buffer-assignment", self.dataset.place.uri),)
        name, _ = names.split(members[0].file_name) or (members[0].file_name, "")
        keys = ("module_id", "module_name", "platform", "target", "changelist", "timestamp_us")
        return Source(name, members, **{key: module[0][key] for key in keys if module})

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table; none if it is not stored."""
        with suppress(UsageError):
            rows: list[dict[str, Any]] = self.summary(name).to_pylist()
            return rows
        return []


def _stored_tables(dest: str, dump_id: str, tables: tuple[str, ...]) -> StoredTables:
    return StoredTables(Dataset(dest), dump_id, tables)


def _ledger(place: Place) -> bool:
    try:
        return place.read("_ledger/entries/000000000001.json") is not None or bool(place.files("_ledger", below=False))
    except NotADirectoryError:
        return False


def _known(table: str) -> str:
    if table not in schema.WAREHOUSE:
        raise UsageError(f"no table {table!r}; there are {', '.join(schema.WAREHOUSE)}")
    return table


def _in_memory(name: str, table: pa.Table) -> pa.Table:
    """Columns of the warehouse in the types of a Dump: names as codes into a dictionary."""
    spec = schema.TABLES[name].arrow
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for column, field in zip(table.columns, spec, strict=True)
    ]
    return pa.table(columns, schema=spec)


def _matched(table: pa.Table, ids: pa.Array) -> pa.Table:
    """The row of each dump_id; nulls where there is none."""
    return table.take(pc.index_in(ids, table["dump_id"].combine_chunks()))
