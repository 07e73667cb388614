"""Decode the JSON of a report as a reader of the file does, with the columns of a table in one dictionary."""

from __future__ import annotations

from typing import Any

from xlamem.page.columns import decoded_ints, decoded_texts

Json = dict[str, Any]


def decoded(value: Any) -> Any:
    """Return JSON with arrays of NumPy and lists of texts in place of columns."""
    if isinstance(value, dict):
        if value.get("type") == "int" and "data" in value:
            return decoded_ints(value)
        if value.get("type") == "text" and "data" in value:
            return decoded_texts(value)
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value


def texts(table: Json, column: str) -> list[str | None]:
    """Return the texts of a column X that X_names numbers; None for -1."""
    names = table[f"{column}_names"]
    return [names[code] if code >= 0 else None for code in table[column].tolist()]


def instructions(program: Json, rows: Any) -> list[str | None]:
    names = program["instructions"]["name"]
    return [names[row] if row >= 0 else None for row in rows.tolist()]


def path_of_scope(program: Json, row: int) -> tuple[str, ...]:
    """Return the names of a scope and of those around it, from the outside."""
    scopes, path = program["scopes"], []
    while row > 0:
        path.append(scopes["name"][row])
        row = int(scopes["parent"][row])
    return tuple(reversed(path))
