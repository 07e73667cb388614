"""Many dumps to a Parquet dataset, and back.

`driver` (find, plan, commit), `plan` (batches), `worker` (one job), `parquet` and `derived` (what it writes),
`ledger` (what counts), `engines` (where jobs run), `place` (any filesystem), `dataset` (reading).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import OutputError
from .driver import Converted, Interrupted, Status, convert

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["Converted", "Dataset", "Interrupted", "OutputError", "Status", "convert"]


def __getattr__(name: str) -> Any:
    if name == "Dataset":  # it brings pyarrow.dataset, which no converter needs
        from .dataset import Dataset

        return Dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
