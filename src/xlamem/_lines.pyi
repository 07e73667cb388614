"""Find the sections of a text, and the lines at which a span may be split."""

from typing_extensions import Buffer

CODES: tuple[str, ...]
WANTED: tuple[str, ...]

BUILD: tuple[str, ...]
"""Options of CMake (XLAMEM_…) that the native modules were built with."""
SIMD: tuple[str, ...]
"""Instructions that they use on this machine besides those of plain C."""

ASSIGNMENT: int
TOTAL: int
USED: int
LIVE: int
LIVE_UNAVAILABLE: int
REPORT_LIST: int
SPACE: int

def locate(data: Buffer, first_only: bool) -> list[tuple[int, int]]: ...
def two_modules(data: Buffer) -> tuple[int, int]: ...
def next_line(data: Buffer, begin: int, end: int, prefix: Buffer) -> int: ...
def uses_unknown(data: Buffer, begin: int, end: int) -> bool: ...
