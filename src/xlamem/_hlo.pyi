"""The header of the HLO text: module name, aliases and donors, stack-frame tables. The body is not read."""

from typing import TypeAlias, TypedDict

from typing_extensions import Buffer

from ._column import Column, Names

_Text: TypeAlias = tuple[Column, Column, Column]

class _Header(TypedDict):
    name: bytes | None
    aliases: dict[str, Column]
    files: tuple[Column, _Text]
    functions: tuple[Column, _Text]
    locations: Column
    frames: Column
    gap: Column
    faults: Column
    tables: bool
    complete: bool

GAP_TABLES: tuple[str, ...]

def scan(data: Buffer, end: int, indices: Names, kinds: Names) -> _Header: ...
