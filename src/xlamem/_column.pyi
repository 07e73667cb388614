"""Owned buffers that cross the border: `Column` (read-only bytes) and `Names` (interned text)."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

_Codes: TypeAlias = npt.NDArray[np.int32]

STAMP: str
"""Version for which the native modules were built."""

@disjoint_base
class Column:
    """A read-only block of bytes, owned. Exported through the buffer protocol without a copy."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@disjoint_base
class Spare:
    """Large blocks of memory that were given back, at most `limit` bytes together, for what is read next."""

    def __init__(self, limit: int) -> None: ...

@disjoint_base
class Names:
    """Texts that repeat, each held once: text -> code (int32), in order of first appearance."""

    def __init__(self, spare: Spare | None = None) -> None: ...
    def __len__(self) -> int: ...
    def expect(self, n: int) -> None: ...
    def adopt(self, other: Names) -> bool: ...
    def look_up(self, other: Names, codes: _Codes, begin: int, end: int) -> None: ...
    def add(self, other: Names, codes: _Codes) -> bool: ...
    def code(self, text: Buffer) -> int: ...
    def export(self) -> tuple[Column, Column]: ...

def recode(column: Column, codes: _Codes) -> None: ...
