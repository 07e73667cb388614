"""Read a dataset: its tables as pyarrow datasets or with SQL, and single dumps as `Dump`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.capacity import byte_count
from ..dump import Dump, DumpLike, as_tables
from ..errors import DumpError, UsageError, without_passwords
from ..formatting import visible
from . import dumps_view
from .batch import File
from .catalog import Catalog, check_name, is_dataset
from .old import RUN_TABLES, with_content_ids
from .query import SCHEMA, SQL_TYPES, Limits, run_sql, sql_over_dump
from .stored import StoredTables

if TYPE_CHECKING:
    import pyarrow.dataset as arrow_dataset

__all__ = ["Dataset", "is_dataset", "sql"]

SANDBOX_MEMORY = 4 << 30
SANDBOX_SECONDS = 60.0


class Dataset(Catalog):
    """A dataset written by `convert`, as of the time it is opened.

    Only files named by the ledger are read. Files that a converter has not committed yet, or has replaced, are ignored.
    ``ds["values"]`` is a `pyarrow.dataset.Dataset`. Every table of `xlamem.schema.WAREHOUSE` exists, and is empty if
    the converter did not write it. What version 1 stored (``schema=v1``) is shown as this version would have stored
    it; ``xlamem dataset migrate`` converts its files.

    Raises
    ------
    UsageError
        The directory or URI has no ledger.
    """

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(schema.WAREHOUSE)

    # -- tables ----------------------------------------------------------------------------------

    def dataset(self, table: str) -> arrow_dataset.Dataset:
        """Return a table as a `pyarrow.dataset.Dataset` over its committed files, without opening any.

        Its columns and types are those of this version. Columns that an older version did not write are null. Rows in
        files of version 1 are read into memory.
        """
        import pyarrow.dataset as arrow_dataset  # takes long to import, and is not needed to look for a dataset

        files = self.scan_files(check_name(table), self.files_of(table))
        if not self.old.batches:
            return files
        with self.damage_errors(table):
            old = arrow_dataset.dataset(self._old_rows(table))
        return arrow_dataset.UnionDataset(files.schema, [old, files])

    __getitem__ = dataset

    def _old_rows(self, table: str) -> pa.Table:
        """Return the rows of a table that only version 1 stored."""
        if table in RUN_TABLES:
            return self.old.run_table(table)
        import pyarrow.dataset as arrow_dataset

        spec = schema.WAREHOUSE[table].warehouse
        ids = self.old.content_ids(table)
        is_shown = arrow_dataset.field("dump_id").isin(ids["dump_id"].combine_chunks())
        rows = self.scan_files(table, self.old_files_of(table), key="dump_id").to_table(filter=is_shown)
        if table == "peaks":
            rows = pa.concat_tables([rows, self.old.device_peaks(*self.old.batches)])
        return with_content_ids(rows, ids).cast(spec)

    def dumps(self) -> pa.Table:
        """Return `occurrences` with a column ``label_<key>`` for each label, and with the columns of `modules`.

        There is one row for each place and set of labels, sorted by content_id and place. The columns of `modules` are
        null for dumps that are not stored because they could not be read. In SQL, this is the view `dumps`.
        """
        with self.damage_errors(*dumps_view.TABLES):
            tables = [self[name].to_table() for name in dumps_view.TABLES]
        return dumps_view.join(tables, self.label_keys)

    @cached_property
    def label_keys(self) -> tuple[str, ...]:
        """The keys of all labels, sorted."""
        with self.damage_errors("labels"):
            old = self.old.labels.values()
        batches = self.state.batches.values()
        new = (labels for batch in batches for labels in (batch.labels, *batch.run_labels.values()))
        return tuple(sorted({key for labels in (*new, *old) for key in labels}))

    # -- SQL -------------------------------------------------------------------------------------

    def sql(
        self, query: str, *, sandbox: bool = False, memory_limit: str | int | None = None, timeout: float | None = None
    ) -> pa.Table:
        """Run an SQL query with DuckDB (the extra ``xlamem[duckdb]``) and return its result.

        Every table is a view; its files are opened only if the query uses it. The view ``dumps`` has the rows of
        `Dataset.dumps`. Quote ``"values"``, which is a reserved word in SQL. A statement without a result
        (``COPY (…) TO 'file.csv'``) returns an empty table. The other parameters are those of `xlamem.sql`.

        Raises
        ------
        UsageError
            DuckDB is not installed or rejects the query.
        DumpError
            A committed file is missing or was modified.
        """
        views = {**schema.WAREHOUSE, "dumps": dumps_view.spec(self.label_keys)}
        limits = limits_of(sandbox=sandbox, memory_limit=memory_limit, timeout=timeout)
        direct = self.storage.local and not sandbox
        return run_sql(query, views, partial(self._load, direct), self._find_damage, limits)

    def duckdb_views(self, *tables: str) -> str:
        """Return SQL that creates a view of each table, by default of all tables and of the view ``dumps``, in DuckDB.

        The view ``dumps`` comes with those of the tables that it joins. The statements list the committed files. They
        stay valid until one of these files is replaced or removed.

        Raises
        ------
        UsageError
            A table is unknown, or the dataset has files of version 1, which DuckDB would show as they are.
        """
        if self.old.batches:
            raise UsageError(f"{self.storage.uri} has files of xlamem 0.1: convert them with `xlamem dataset migrate`")
        names: Iterable[str] = tables or (*schema.WAREHOUSE, "dumps")
        if "dumps" in names:  # which selects from these
            names = dict.fromkeys((*dumps_view.TABLES, *names))
        texts = {name: self._exported(name) for name in names}
        return "".join(f'CREATE OR REPLACE VIEW "{name}" AS\n{text};\n' for name, text in texts.items())

    def _exported(self, name: str) -> str:
        """Return SQL that selects a table or the view `dumps`, with paths or URIs of files, one a line."""
        if name != "dumps":
            return self._select(None, check_name(name), self.storage.uri_of, ",\n")
        return dumps_view.select([f'FROM "{table}"' for table in dumps_view.TABLES], self.label_keys)

    def _load(self, direct: bool, connection: Any, name: str) -> None:
        """Create a view of a table, or of the tables joined in `dumps`."""
        with self.damage_errors(name):
            if name == "dumps":
                relations = [self._relation(direct, connection, table) for table in dumps_view.TABLES]
                text = dumps_view.select(relations, self.label_keys)
            else:
                text = self._relation(direct, connection, name)
        connection.execute(f'CREATE VIEW {SCHEMA}."{name}" AS {text}')

    def _relation(self, direct: bool, connection: Any, name: str) -> str:
        """Return SQL that selects a table, which DuckDB reads directly or by pyarrow.

        pyarrow reads remote files, for which DuckDB would need its own credentials, and files for a sandbox.
        """
        if direct:
            return self._select(connection, name)
        if damage := self._find_damage([name]):  # DuckDB would wait forever for a missing file
            raise damage
        connection.register(f"arrow_{name}", self[name])
        return f'FROM "arrow_{name}"'

    def _select(self, connection: Any, name: str, path: Callable[[str], str] | None = None, comma: str = ", ") -> str:
        """Return SQL that selects the rows of a table from its files. `path` returns the path of a file for DuckDB."""
        # The first part adds columns that are missing from all files, as nulls.
        columns = ", ".join(f'NULL::{SQL_TYPES[c.kind]} AS "{c.name}"' for c in schema.WAREHOUSE[name].columns)
        selects = [f"SELECT {columns} WHERE false", *self._from_files(self.files_of(name), path, comma)]
        if self.old.batches:
            selects += self._select_old(connection, name)
        return " UNION ALL BY NAME ".join(selects)

    def _select_old(self, connection: Any, name: str) -> list[str]:
        """Return SQL that selects the rows of a table that only version 1 stored."""
        view = f"old_{name}"
        if name in RUN_TABLES:
            connection.register(view, self.old.run_table(name))
            return [f'FROM "{view}"']
        connection.register(view, self.old.content_ids(name))
        selects = self._from_files(self.old_files_of(name))
        if name == "peaks":
            connection.register("old_device_peaks", self.old.device_peaks(*self.old.batches))
            selects.append('FROM "old_device_peaks"')
        return [
            f'SELECT ids.content_id, old.* EXCLUDE (dump_id) FROM ({rows}) AS old JOIN "{view}" AS ids USING (dump_id)'
            for rows in selects
        ]

    def _from_files(
        self, files: list[File], path: Callable[[str], str] | None = None, comma: str = ", "
    ) -> list[str]:
        """Return SQL that reads files. Those with the same columns are read together: DuckDB need not compare them."""
        groups: dict[int, list[str]] = {}
        for file in files:
            name = (path or self.storage.path)(file.path)
            name = _as_pattern(name) if self.storage.local else name
            groups.setdefault(file.columns, []).append(name.replace("'", "''"))
        selects = []
        for n_columns, paths in groups.items():
            quoted = comma.join(f"'{path}'" for path in paths)
            selects.append(f"FROM read_parquet([{quoted}], hive_partitioning = false, union_by_name = {not n_columns})")
        return selects

    def _find_damage(self, tables: Iterable[str]) -> DumpError | None:
        names = {name for table in tables for name in (dumps_view.TABLES if table == "dumps" else [table])}
        return super()._find_damage(names)

    # -- one dump --------------------------------------------------------------------------------

    def read(self, content_id: str, *, tables: Iterable[str] | None = None) -> Dump:
        """Return a stored dump as a `Dump` with its original tables.

        Its `verify()` returns the diagnostics of the conversion. `instructions.text` is not stored, and is null.

        Parameters
        ----------
        content_id
            The content_id, or a unique prefix of it.
        tables
            The tables to read; all stored tables by default.
        """
        return Dump(StoredTables(self, self._resolve_id(content_id), tables))

    def _resolve_id(self, content_id: str) -> str:
        with self.damage_errors():
            old = [i for i in self.old.contents if i.startswith(content_id)]
            matches = sorted({*self.state.stored.starting_with(content_id), *old}) if content_id else []
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(f"{len(matches):,} content_ids begin with {content_id}: {', '.join(matches[:3])}, …")
        if content_id and any(i.startswith(content_id) for i in (*self.state.quarantined, *self.old.quarantined)):
            raise UsageError(f"the dump {content_id} could not be read: see the table quarantine")
        raise UsageError(f"no dump {content_id!r} in {self.storage.uri}")

    # -- Python ----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[type[Dataset], tuple[str]]:
        return type(self), (self.storage.uri,)

    def __repr__(self) -> str:
        files = self.state.files_table()
        rows, size = (pc.sum(files[name]).as_py() or 0 for name in ("rows", "bytes"))
        dumps = len(self.state.stored) + len(self.old.contents)
        seen = sum(f.rows for f in self.files_of("occurrences")) + len(self.old.dumps)
        quarantined = len(self.state.quarantined) + len(self.old.quarantined)
        return (
            f"<xlamem.Dataset {visible(without_passwords(self.storage.uri))}>\n"
            f"  dumps   {dumps:,} in {seen:,} occurrences, {quarantined:,} in quarantine\n"
            f"  files   {len(files):,} in {len(self.state.batches):,} batches, {rows:,} rows, {size:,} bytes"
        )


def _as_pattern(path: str) -> str:
    """Return the pattern with which DuckDB finds this file alone.

    It matches no pattern against a path with a backslash, and then takes the path as it is.
    """
    return path if "\\" in path else re.sub(r"[*?[]", r"[\g<0>]", path)


def limits_of(*, sandbox: bool, memory_limit: str | int | None, timeout: float | None) -> Limits:
    """Return the limits of a query; a sandbox has some by default."""
    if timeout is not None and not 0 < timeout < math.inf:
        raise UsageError(f"timeout must be a finite number of seconds, more than 0, not {timeout}")
    if sandbox:
        memory_limit = SANDBOX_MEMORY if memory_limit is None else memory_limit
        timeout = SANDBOX_SECONDS if timeout is None else timeout
    memory = None if memory_limit is None else byte_count("memory_limit", memory_limit)
    return Limits(sandbox, memory, timeout)


def sql(
    source: DumpLike | Dataset,
    query: str,
    *,
    sandbox: bool = False,
    memory_limit: str | int | None = None,
    timeout: float | None = None,
) -> pa.Table:
    """Run an SQL query over a dump or a dataset (the extra ``xlamem[duckdb]``) and return its result.

    A dump has the tables of the schema and those computed from them (``peaks``, ``live_set``, ``savings``, …). A
    dataset has the tables that `convert` wrote. Only the tables used by the query are read. Quote ``"values"``, which
    is a reserved word in SQL. A column with the name of an earlier one is renamed: ``size``, ``size_1``.

    Parameters
    ----------
    sandbox
        For queries of others, such as users of a service: only SELECT statements; no files but those of the source,
        no extensions, no network, no change of settings.
    memory_limit
        Bytes (``"2GiB"``) that the query, and its result, may take. In a sandbox 4 GiB unless given.
    timeout
        Seconds that the query may take. In a sandbox 60 unless given.

    Both limits are DuckDB's, which neither counts nor interrupts the work on one block of rows, such as lists that a
    window function makes for each of them. For queries that are meant to do harm, also limit the process.

    Raises
    ------
    UsageError
        DuckDB is not installed or rejects the query, or the query exceeds a limit.
    """
    limits: dict[str, Any] = {"sandbox": sandbox, "memory_limit": memory_limit, "timeout": timeout}
    if isinstance(source, Dataset):
        return source.sql(query, **limits)
    if isinstance(source, (str, os.PathLike)) and is_dataset(source):
        return Dataset(source).sql(query, **limits)
    return sql_over_dump(as_tables(source), query, limits_of(**limits))
