"""A table's columns handed to Arrow in one call, by Arrow's C data interface: nothing that is laid out is copied."""


from typing import Any

INT: int
BOOL: int
NAME: int
TEXT: int

def record(rows: int, columns: list[Any]) -> int: ...
