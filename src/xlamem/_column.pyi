"""Owned buffers that cross the border: `Column` (read-only bytes) and `Names` (interned text)."""

from typing_extensions import Buffer, disjoint_base

STAMP: str
"""Version for which the native modules were built."""

@disjoint_base
class Column:
    """A read-only block of bytes, owned. Exported through the buffer protocol without a copy."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@disjoint_base
class Names:
    """Texts that repeat, each held once: text -> code (int32), in order of first appearance."""

    def __len__(self) -> int: ...
    def merge(self, other: Names) -> Column: ...
    def code(self, text: Buffer) -> int: ...
    def export(self) -> tuple[Column, Column]: ...
