"""SQL over a dump or a dataset, by DuckDB."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pyarrow as pa

from .. import schema
from ..compute import REGISTRY
from ..dump import Tables
from ..errors import UsageError


def sql_over_dump(dump: Tables, query: str) -> pa.Table:
    """The result of a query over the tables of a dump, computed ones included; reads those that the query names."""
    try:
        import duckdb
    except ImportError as e:
        raise UsageError("sql needs DuckDB: pip install 'xlamem[duckdb]'") from e
    words = {word.lower() for word in re.findall(r"\w+", query)}
    with duckdb.connect() as connection:
        for name in words & set(dump.tables):
            connection.register(name, dump[name])
        if words & set(schema.COMPUTED):
            for name in words & set(REGISTRY):
                connection.register(name, REGISTRY[name](dump))
        try:
            return answer(connection, query)
        except duckdb.Error as e:
            raise UsageError(f"DuckDB does not understand the query: {e}") from e


def answer(connection: Any, query: str) -> pa.Table:
    """What DuckDB answers; a table without columns to a statement without result. Sums of bytes stay whole numbers."""
    result = connection.sql(query)
    table = pa.table({}) if result is None else result.to_arrow_table()
    for i, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):  # DuckDB's sum of int64
            with suppress(pa.ArrowInvalid):  # one that is too large stays what it is
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    return table
