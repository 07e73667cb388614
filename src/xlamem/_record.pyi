"""Columns as one Arrow record batch, through Arrow's C data interface and without a copy."""

from typing import Any

INT: int
BOOL: int
NAME: int
TEXT: int

def record(rows: int, columns: list[Any]) -> int: ...
