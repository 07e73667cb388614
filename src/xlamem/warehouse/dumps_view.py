"""The view `dumps`: occurrences with their labels as columns, and with what `modules` says of their content."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from .. import kernels as pc
from .. import schema
from .query import quoted

TABLES = ("occurrences", "labels", "modules")
"""The tables that it joins."""
MODULE_COLUMNS = tuple(c for c in schema.WAREHOUSE["modules"].columns if c.name not in schema.OCCURRENCES.names)


def labels_in_sql(label_keys: Sequence[str]) -> dict[str, list[str]]:
    """Group keys that differ only in case, by the first of them: SQL does not distinguish their columns."""
    groups: dict[bytes, list[str]] = {}
    for key in label_keys:
        groups.setdefault(key.encode().lower(), []).append(key)  # of bytes, since DuckDB ignores only the case of ASCII
    return {keys[0]: keys for keys in groups.values()}


def spec(label_keys: Sequence[str]) -> schema.Table:
    """Return the columns of the view: those of an occurrence, its labels, and the other columns of `modules`."""
    keys = labels_in_sql(label_keys)
    labels = (schema.Column(f"label_{key}", "text", f"label {key}", nullable=True) for key in keys)
    columns = (*schema.OCCURRENCES.columns, *labels, *MODULE_COLUMNS)
    return schema.Table("dumps", schema.OCCURRENCES.row, "convert", columns)


def select(tables: Sequence[str], label_keys: Sequence[str]) -> str:
    """Return SQL for the view, given SQL for each of TABLES."""
    occurrences, labels, modules = tables
    columns = [f'occurrences."{c.name}"' for c in schema.OCCURRENCES.columns]
    labels_of = labels_in_sql(label_keys)
    columns += [f"run_labels.{quoted(f'label_{key}')}" for key in labels_of]
    columns += [f'modules."{c.name}"' for c in MODULE_COLUMNS]
    values = [
        f"max(value) FILTER (WHERE key IN ({', '.join(map(_literal, keys))})) AS {quoted(f'label_{key}')}"
        for key, keys in labels_of.items()
    ]
    return (
        f"SELECT {', '.join(columns)} FROM ({occurrences}) AS occurrences"
        f" LEFT JOIN (SELECT {', '.join(['run_id', *values])} FROM ({labels}) GROUP BY run_id) AS run_labels"
        f" USING (run_id) LEFT JOIN ({modules}) AS modules USING (content_id)"
    )


def join(tables: Sequence[pa.Table], label_keys: Sequence[str]) -> pa.Table:
    """Return the rows of the view, given TABLES, sorted by content_id and place."""
    occurrences, labels, modules = tables
    order = ("content_id", "uri", "offset", "seen_at", "run_id")
    table = occurrences.sort_by([(name, "ascending") for name in order])
    for key in label_keys:
        rows = labels.filter(pc.equal(labels["key"], key))
        value = rows["value"].take(pc.index_in(table["run_id"], rows["run_id"].combine_chunks()))
        table = table.append_column(f"label_{key}", value)
    module = pc.index_in(table["content_id"], modules["content_id"].combine_chunks())
    for column in MODULE_COLUMNS:
        table = table.append_column(column.name, modules[column.name].take(module))
    return table


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
