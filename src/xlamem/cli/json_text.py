"""JSON as `json.dumps(data, indent=2)` writes it, also of Arrow tables.

The encoder of the standard library indents in Python, value by value. Here a row is one call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

_encode = json.JSONEncoder().encode


def json_text(data: Any, indent: str = "\n") -> str:
    """Return data as JSON. A table is a list of its rows; the keys of dictionaries are strings."""
    inner = indent + "  "
    if isinstance(data, pa.Table):
        return _joined("[]", _rows(data, inner), indent)
    if not data or not isinstance(data, dict | list | tuple):
        return _encode(data)
    values = data.values() if isinstance(data, dict) else data
    if not any(isinstance(value, dict | list | tuple | pa.Table) for value in values):
        text = _flat_encoder(inner)(data)
        return f"{text[0]}{inner}{text[1:-1]}{indent}{text[-1]}"
    texts = [json_text(value, inner) for value in values]
    if isinstance(data, dict):
        return _joined("{}", [f"{_encode(key)}: {text}" for key, text in zip(data, texts, strict=True)], indent)
    return _joined("[]", texts, indent)


@cache
def _flat_encoder(indent: str) -> Callable[[Any], str]:
    """Return the encoder of a container that holds no others."""
    return json.JSONEncoder(separators=(f",{indent}", ": ")).encode


def _joined(brackets: str, items: list[str], indent: str) -> str:
    if not items:
        return brackets
    inner = indent + "  "
    return f"{brackets[0]}{inner}{f',{inner}'.join(items)}{indent}{brackets[1]}"


def _rows(table: pa.Table, indent: str) -> list[str]:
    inner = indent + "  "
    template = _joined("{}", [f"{_encode(name).replace('%', '%%')}: %s" for name in table.column_names], indent)
    return [template % row for row in zip(*(_cells(column, inner) for column in table.columns), strict=True)]


def _cells(column: pa.ChunkedArray, indent: str) -> list[Any]:
    """Return the cells of a column as JSON, or as integers, which are formatted with the row."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # pyarrow decodes single cells slowly
    cells: list[Any] = column.to_pylist()
    if pa.types.is_integer(column.type):
        return ["null" if cell is None else cell for cell in cells] if column.null_count else cells
    if pa.types.is_string(column.type):
        return ["null" if cell is None else _encode(cell) for cell in cells]
    return [json_text(cell, indent) for cell in cells]
