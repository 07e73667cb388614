"""The memory-usage report, both layouts."""

from typing import TypeAlias

from typing_extensions import Buffer

from ._column import Column, Names

_Text: TypeAlias = tuple[Column, Column, Column]

PARTS: tuple[str, ...]

def scan(
    data: Buffer, begin: int, end: int, labels: Names
) -> tuple[dict[str, Column | _Text], Column, dict[str, int]]: ...
