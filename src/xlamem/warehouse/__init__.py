"""Many dumps to a Parquet dataset, and back.

`driver` (find, plan, commit), `plan` (batches), `worker` (one job), `parquet` and `derived` (what it writes),
`ledger` (what counts), `engines` (where jobs run), `storage` (any filesystem), `dataset` (reading),
`query` (SQL).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import OutputError
from .driver import Converted, Interrupted, Status, convert

if TYPE_CHECKING:
    from .dataset import Dataset, sql

__all__ = ["Converted", "Dataset", "Interrupted", "OutputError", "Status", "convert", "sql"]


def __getattr__(name: str) -> Any:
    if name in ("Dataset", "sql"):  # they import pyarrow.dataset, which no converter needs
        from . import dataset

        return getattr(dataset, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
