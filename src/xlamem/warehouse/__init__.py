"""Many dumps to a Parquet dataset, and back.

`driver` (find, plan, commit), `plan` (batches), `worker` (one job), `parquet` and `derived` (what it writes),
`ledger` (what counts), `engines` (where jobs run), `place` (any filesystem), `dataset` (reading).
"""

from __future__ import annotations

from ..errors import OutputError
from .driver import Converted, Interrupted, Status, convert

__all__ = ["Converted", "Interrupted", "OutputError", "Status", "convert"]
