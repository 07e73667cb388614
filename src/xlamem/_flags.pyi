"""Flags: protobuf text with one field a line."""

from typing import Any

from typing_extensions import Buffer

from ._column import Column

def scan(data: Buffer, begin: int, end: int) -> tuple[dict[str, Any], Column, bool]: ...
