"""JSON as `json.dumps(data, indent=2)` writes it, also of Arrow tables.

The encoder of the standard library indents in Python, value by value. Here a row is one call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from .. import kernels as pc

_encode = json.JSONEncoder().encode


def json_text(data: Any) -> str:
    """Return data as JSON. A table is a list of its rows; the keys of dictionaries are strings."""
    return "".join(_parts(data, "\n"))


def _parts(data: Any, indent: str) -> Iterator[str]:
    inner = indent + "  "
    if isinstance(data, pa.Table):
        yield from _enclosed("[]", _rows(data, inner), indent)
    elif not data or not isinstance(data, dict | list | tuple):
        yield _encode(data)
    elif isinstance(data, dict):
        yield from _flat(data, indent) if _is_flat(data.values()) else _enclosed("{}", _items(data, inner), indent)
    else:
        yield from _flat(data, indent) if _is_flat(data) else _enclosed("[]", _elements(data, inner), indent)


def _is_flat(values: Iterable[Any]) -> bool:
    return not any(isinstance(value, dict | list | tuple | pa.Table) for value in values)


def _flat(data: Any, indent: str) -> Iterator[str]:
    """Yield a container that holds no others, in a single call of the encoder in C."""
    inner = indent + "  "
    text = _flat_encoder(inner)(data)
    yield f"{text[0]}{inner}{text[1:-1]}{indent}{text[-1]}"


@cache
def _flat_encoder(indent: str) -> Callable[[Any], str]:
    return json.JSONEncoder(separators=(f",{indent}", ": ")).encode


def _enclosed(brackets: str, parts: Iterator[str], indent: str) -> Iterator[str]:
    """Yield the parts, each of which begins with a comma or continues the one before, in brackets."""
    first = next(parts, "")
    yield brackets[0] + first[1:]
    yield from parts
    yield indent + brackets[1] if first else brackets[1]


def _items(data: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        yield f",{indent}{_encode(key)}: "
        yield from _parts(value, indent)


def _elements(data: Iterable[Any], indent: str) -> Iterator[str]:
    for value in data:
        yield f",{indent}"
        yield from _parts(value, indent)


def _rows(table: pa.Table, indent: str) -> Iterator[str]:
    inner = indent + "  "
    cells = [f"{inner}{_encode(name).replace('%', '%%')}: %s" for name in table.column_names]
    template = f",{indent}{{{','.join(cells)}{indent}}}"
    return (template % row for row in zip(*(_cells(column, inner) for column in table.columns), strict=True))


def _cells(column: pa.ChunkedArray, indent: str) -> list[Any]:
    """Return the cells of a column as JSON, or as integers, which are formatted with the row."""
    if pa.types.is_dictionary(column.type):
        return [cell for chunk in column.chunks for cell in _decoded_cells(chunk, indent)]
    cells: list[Any] = column.to_pylist()
    if pa.types.is_integer(column.type):
        return ["null" if cell is None else cell for cell in cells] if column.null_count else cells
    if pa.types.is_string(column.type):
        return ["null" if cell is None else _encode(cell) for cell in cells]
    return ["".join(_parts(cell, indent)) for cell in cells]


def _decoded_cells(array: pa.DictionaryArray, indent: str) -> Iterable[Any]:
    """Return the cells of a dictionary-encoded array. pyarrow decodes single cells slowly."""
    if len(array.dictionary) > len(array):
        return _cells(pa.chunked_array([pc.cast(array, array.type.value_type)]), indent)
    texts = [*_cells(pa.chunked_array([array.dictionary]), indent), "null"]
    return map(texts.__getitem__, pc.fill_null(array.indices, -1).to_pylist())
