"""Writes the JSON schemas of the documents that the commands print, from their types: `make schemas`."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import xlamem
from xlamem import schema
from xlamem.cli import documents

FOLDER = Path(xlamem.__file__).parent / "cli" / "schemas"
REPORT = Path(xlamem.__file__).parent / "page" / "report.schema.json"
"""The schema of `report`, which is written by hand."""

NAMES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
KINDS = {"int": "integer", "float": "number", "bool": "boolean", "name": "string", "text": "string", "time": "string"}
VALUES = {
    ("findings", "status"): schema.STATUSES,
    ("findings", "rule"): schema.RULES,
    ("checked_programs", "status"): schema.STATUSES,
}
"""Columns with few values."""

Schema = dict[str, Any]


def document(name: str) -> Schema:
    """Return the schema of a document."""
    if name == "report":
        loaded: Schema = json.loads(REPORT.read_text())
        return loaded
    spec, body = schema.DOCUMENTS[name], of_type(documents.TYPES[name])
    head = {
        "format": {"const": f"xlamem.{name}"},
        "version": {"const": spec.version},
        "tool": {"type": "string", "description": "version of xlamem"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{spec.command}, version {spec.version}",
        "description": f"{body['description']} Within a version, properties are only added.",
        "type": "object",
        "required": [*head, *body["required"]],
        "properties": head | body["properties"],
    }


def of_type(kind: Any) -> Schema:
    """Return the schema of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Annotated, NotRequired):
        return _annotated(kind)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": of_type(arguments[0])}
    if is_typeddict(kind):
        return _object(kind)
    if kind is documents.Row or origin is dict:
        values = {} if arguments[1] is Any else {"additionalProperties": of_type(arguments[1])}
        return {"type": "object", **values}
    return {"type": NAMES[kind]}


def _object(kind: Any) -> Schema:
    """Return the schema of a TypedDict."""
    hints = get_type_hints(kind, include_extras=True)
    required = [name for name in hints if name in kind.__required_keys__]
    properties = {name: of_type(hint) for name, hint in hints.items()}
    return {"description": kind.__doc__, "type": "object", "required": required, "properties": properties}


def _annotated(kind: Any) -> Schema:
    inner, *notes = get_args(kind)
    result = of_type(inner)
    for note in notes:
        if isinstance(note, schema.Table):
            result = _rows(note, notes)
        elif is_typeddict(note):
            added = of_type(note)
            result["required"] += added["required"]
            result["properties"] |= added["properties"]
        elif isinstance(note, str):
            result["description"] = note
    return result


def _rows(table: schema.Table, notes: list[Any]) -> Schema:
    """Return the schema of a row of a table."""
    nullable = {name for note in notes if isinstance(note, documents.Nullable) for name in note.columns}
    left_out = {name for note in notes if isinstance(note, documents.Without) for name in note.columns}
    columns = [c for c in table.columns if c.name not in left_out]
    return {
        "description": f"{table.row} (a row of the table `{table.name}`)",
        "type": "object",
        "required": [c.name for c in columns],
        "properties": {c.name: _column(table, c, null=c.nullable or c.name in nullable) for c in columns},
    }


def _column(table: schema.Table, column: schema.Column, *, null: bool) -> Schema:
    about = {"description": column.doc + (f" [{column.unit}]" if column.unit else "")}
    if values := VALUES.get((table.name, column.name)):
        return {**about, "enum": list(values)}
    kind = KINDS[column.kind]
    return {**about, "type": [kind, "null"] if null else kind}


def _union(arguments: tuple[Any, ...]) -> Schema:
    """Return the schema of `X | None`."""
    (kind,) = (a for a in arguments if a is not type(None))
    result = of_type(kind)
    if get_origin(kind) is Annotated or "enum" in result or "properties" in result:
        return {"anyOf": [result, {"type": "null"}]}
    return result | {"type": [result["type"], "null"]}


def closed(value: Any) -> Any:
    """Return a schema in which objects have no properties but those that it lists."""
    if isinstance(value, list):
        return [closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: closed(item) for key, item in value.items()}
    return inner | {"additionalProperties": False} if isinstance(value.get("properties"), dict) else inner


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each file in `schemas`."""
    for name in documents.TYPES:
        yield FOLDER / f"{name}.schema.json", json.dumps(document(name), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in texts():
        (Path(sys.argv[1]) / path.name).write_text(text)
