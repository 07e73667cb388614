"""Find the sections of a text, and the lines at which a span may be split."""

from typing_extensions import Buffer

CODES: tuple[str, ...]
WANTED: tuple[str, ...]

ASSIGNMENT: int
TOTAL: int
USED: int
LIVE: int
LIVE_UNAVAILABLE: int
REPORT_LIST: int
SPACE: int

def locate(data: Buffer, first_only: bool) -> list[tuple[int, int]]: ...
def next_line(data: Buffer, begin: int, end: int, prefix: Buffer) -> int: ...
def uses_unknown(data: Buffer, begin: int, end: int) -> bool: ...
