"""Many dumps to files that other tools read."""

from __future__ import annotations

from .parquet import Converted, OutputError, convert

__all__ = ["Converted", "OutputError", "convert"]
