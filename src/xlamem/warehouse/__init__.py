"""Many dumps to files that other tools read."""

from __future__ import annotations

from ..errors import OutputError
from .parquet import Converted, convert

__all__ = ["Converted", "OutputError", "convert"]
