"""The memory-usage report, both layouts."""

from typing import Any, TypeAlias

from typing_extensions import Buffer

from ._column import Column, Names

_Text: TypeAlias = tuple[Column, Column, Column]

PARTS: tuple[str, ...]
GAP_TABLES: tuple[str, ...]

def scan(
    data: Buffer, begin: int, end: int, labels: Names, *, state: dict[str, Any] | None = None, last: bool = True
) -> tuple[dict[str, Column | _Text], Column, dict[str, Any]]: ...
