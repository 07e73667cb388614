"""The section BufferAssignment: allocations, values, cross-color lines; E0, E1 and E2 to E7."""

from typing import TypeAlias

from typing_extensions import Buffer

from ._column import Column, Names

_Text: TypeAlias = tuple[Column, Column, Column]

FEATURES: dict[int, str]
TILES: int
GAP_TABLES: tuple[str, ...]

def scan(
    data: Buffer,
    begin: int,
    end: int,
    names: Names,
    indices: Names,
    shapes: Names,
    *,
    state: tuple[int, ...] | None = None,
) -> tuple[dict[str, dict[str, Column | _Text]], Column, int, int, tuple[int, ...]]: ...
