"""Run SQL with DuckDB, over tables that are loaded when a statement uses them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from .. import schema
from ..compute import REGISTRY
from ..dump import Tables
from ..errors import UsageError, XlaMemError, utf8

SQL_TYPES: dict[schema.Kind, str] = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "name": "VARCHAR",
    "text": "VARCHAR",
    "time": "TIMESTAMPTZ",
}

SCHEMA = "loaded"
"""DuckDB schema that contains the loaded tables."""

Load = Callable[[Any, str], None]
"""``load(connection, name)`` creates the table or view `name` in SCHEMA."""
@dataclass(frozen=True)
class Limits:
    """What a query may do and use."""

    sandbox: bool = False
    """Only SELECT statements, no files but those of the dump or dataset, no extensions, no other settings."""
    memory: int | None = None
    """Bytes, of the query and of its result; None for DuckDB's own limit."""
    seconds: float | None = None

    def apply(self, connection: Any) -> None:
        if self.memory is not None:
            connection.execute(f"SET memory_limit = '{self.memory}B'; SET temp_directory = ''")
        if self.sandbox:
            connection.execute("SET enable_external_access = false; SET lock_configuration = true")

    def check(self, statement: Any) -> None:
        if self.sandbox and statement.type.name != "SELECT":
            raise UsageError(f"the sandbox runs only SELECT statements, not {statement.type.name}")


NO_LIMITS = Limits()
_BATCH_ROWS = 100_000
_INTERRUPT_SECONDS = 0.1
_MISSING_TABLE = re.compile(r"Catalog Error: Table with name (\w+) does not exist!")


def run_sql(
    query: str,
    tables: Mapping[str, schema.Table],
    load: Load,
    find_damage: Callable[[list[str]], XlaMemError | None] = lambda loaded: None,
    limits: Limits = NO_LIMITS,
) -> pa.Table:
    """Return the result of the last statement of a query, or an empty table if it returns nothing.

    ``find_damage(loaded)`` may return an error that explains why DuckDB failed.
    """
    try:
        import duckdb
    except ImportError as e:
        raise UsageError("SQL needs DuckDB: pip install 'xlamem[duckdb]'") from e
    if not isinstance(query, str):
        raise UsageError(f"a query must be text, not {type(query).__name__}")
    if utf8(query) != query:
        raise UsageError(f"the query is not UTF-8: {utf8(query)}")
    with duckdb.connect() as connection:
        session = _Session(connection, tables, load, limits)
        try:
            with _time_limit(connection, limits.seconds) as check_time:
                return session.run(query, check_time)
        except duckdb.Error as e:
            raise find_damage(session.loaded) or UsageError(f"DuckDB cannot run the query: {e}") from e


@contextmanager
def _time_limit(connection: Any, seconds: float | None) -> Iterator[Callable[[], None]]:
    """Interrupt the connection after this time, and raise UsageError. Yield a function that checks the time."""
    import duckdb

    if seconds is None:
        yield lambda: None
        return
    ended, expired = threading.Event(), threading.Event()

    def stop() -> None:
        if not ended.wait(min(seconds, threading.TIMEOUT_MAX)):
            expired.set()
            # DuckDB forgets an interrupt if no statement is running, such as while a table is computed.
            while not ended.wait(_INTERRUPT_SECONDS):
                connection.interrupt()

    def check_time() -> None:
        if expired.is_set():
            raise UsageError(f"the query did not end within {seconds:g} second{'' if seconds == 1 else 's'}")

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    try:
        yield check_time
    except duckdb.Error:
        check_time()
        raise
    finally:
        ended.set()
        thread.join()


def sql_over_dump(dump: Tables, query: str, limits: Limits = NO_LIMITS) -> pa.Table:
    """Return the result of an SQL query over the tables of a dump and those computed from them."""

    def load(connection: Any, name: str) -> None:
        connection.register(f"arrow_{name}", REGISTRY[name](dump) if name in computed else dump[name])
        connection.execute(f'CREATE VIEW {SCHEMA}."{name}" AS FROM "arrow_{name}"')

    computed = {name: schema.COMPUTED[name] for name in REGISTRY}
    return run_sql(query, {name: schema.TABLES[name] for name in dump.tables} | computed, load, limits=limits)


class _Session:
    """A DuckDB connection with a view of every table. The table in SCHEMA behind a view is missing until it is loaded.

    DuckDB reports a missing table when it binds a statement, before it executes any of it. The table is then loaded,
    and the statement is bound again. Statements that list tables and columns see the views and load nothing.
    """

    def __init__(self, connection: Any, tables: Mapping[str, schema.Table], load: Load, limits: Limits) -> None:
        self.connection, self.tables, self.load_table, self.limits = connection, tables, load, limits
        self.loaded: list[str] = []
        # Otherwise, DuckDB would look up unknown tables among the Python variables of its callers.
        connection.execute("SET python_enable_replacements = false; SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")  # on stdout, of `python -c`
        connection.execute(";".join(_view_statements(tables)))
        limits.apply(connection)

    def run(self, query: str, check_time: Callable[[], None]) -> pa.Table:
        result = pa.table({})
        for statement in self.connection.extract_statements(query):
            self.limits.check(statement)
            if statement.type.name == "TRANSACTION":  # a missing table would abort it
                self._load_all()
            result = self._execute(statement, check_time)
        return _with_distinct_names(_with_int64_sums(result))

    def _execute(self, statement: Any, check_time: Callable[[], None]) -> pa.Table:
        import duckdb

        while True:
            check_time()
            try:
                relation = self.connection.sql(statement)
                return pa.table({}) if relation is None else self._result(relation)
            except duckdb.CatalogException as error:
                match = _MISSING_TABLE.match(str(error))
                name = match[1].lower() if match else ""
                if name not in self.tables or name in self.loaded:
                    raise
                self._load(name)

    def _result(self, relation: Any) -> pa.Table:
        if self.limits.memory is None:
            return relation.to_arrow_table()
        import duckdb

        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader  # before DuckDB 1.5
        reader, batches, size = read(_BATCH_ROWS), [], 0
        try:
            for batch in reader:
                size += batch.nbytes
                if size > self.limits.memory:
                    raise UsageError(f"the result of the query has more than {self.limits.memory:,} bytes")
                batches.append(batch)
        except (OSError, pa.ArrowException) as error:  # as pyarrow reports what DuckDB raises after the first rows
            raise duckdb.Error(str(error)) from error
        return pa.Table.from_batches(batches, reader.schema)

    def _load(self, name: str) -> None:
        self.loaded.append(name)
        self.load_table(self.connection, name)

    def _load_all(self) -> None:
        for name in self.tables.keys() - set(self.loaded):
            with suppress(UsageError):  # the dump lacks what it is computed from
                self._load(name)


def quoted(name: str) -> str:
    """Return the name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _view_statements(tables: Mapping[str, schema.Table]) -> list[str]:
    """Return SQL statements that create a view of each table. The tables are needed only while views are created."""
    statements = ["BEGIN", f"CREATE SCHEMA {SCHEMA}"]
    for name, table in tables.items():
        columns = ", ".join(f"{quoted(c.name)} {SQL_TYPES[c.kind]}" for c in table.columns)
        statements += [
            f'CREATE TABLE {SCHEMA}."{name}" ({columns})',
            f'CREATE VIEW "{name}" AS FROM {SCHEMA}."{name}"',
        ]
    return [*statements, f"DROP SCHEMA {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}", "COMMIT"]


def _with_int64_sums(table: pa.Table) -> pa.Table:
    """Cast sums of int64, which DuckDB returns as decimals, to int64 if they fit."""
    for i, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):
            with suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    return table


def _with_distinct_names(table: pa.Table) -> pa.Table:
    """Rename columns that have the name of an earlier one, as DuckDB does in new tables: size, size_1."""
    names: list[str] = []
    taken = {*table.column_names}
    for name in table.column_names:
        if name in names:
            name = next(new for k in count(1) if (new := f"{name}_{k}") not in taken)
            taken.add(name)
        names.append(name)
    return table.rename_columns(names)
