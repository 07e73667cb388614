"""Convert many dumps to a Parquet dataset, and read it.

Writing: `driver` finds the dumps, `plan` groups them into tasks, `run` submits them to the `pool` of an engine
(`engines`: `processes`, `clusters`) and commits the results to the `ledger`. Its `state` is that of the last of the
`checkpoints` and the entries after it (`batch`, with `segments` of ids); `activity` tells which runs are active.
`record` commits what a run found (`occurrences`) and did. A `worker` runs a `task` in a process configured by
`worker_setup`: it computes the derived tables (`derived`, `merged`, `offsets`, `peak_numbers`) and writes the batch
(`parquet`). `streamed` and `large` convert dumps that do not fit into memory, using `spill` and the `cores` that the
workers share. `identity` computes content_ids, `rewrite` copies batches, and `storage` wraps local and remote
filesystems.

Reading: `dataset`, on top of `catalog`; `stored` for one dump, `query` and `dumps_view` for SQL. `old` reads datasets
of version 1, and `migration` converts them. `retention` drops occurrences and contents, and
`compaction` merges batches (both with `maintenance`). `registration` makes tables of other formats (`iceberg`, `delta`)
`followers` of the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "Compacted", "Converted", "Dataset", "Dropped", "Interrupted", "OutputError", "Registered", "Status", "compact",
    "convert", "drop", "migrate", "register", "sql",
]  # fmt: skip

if TYPE_CHECKING:
    from ..errors import OutputError
    from .compaction import Compacted, compact
    from .dataset import Dataset, sql
    from .driver import convert
    from .followers import Registered
    from .migration import migrate
    from .registration import register
    from .result import Converted, Interrupted, Status
    from .retention import Dropped, drop
else:
    # Imported on first use, because a worker process must be configured before it imports NumPy.
    _MODULES = {
        "convert": ".driver",
        "migrate": ".migration",
        "register": ".registration",
        "Registered": ".followers",
        **dict.fromkeys(("Converted", "Interrupted", "Status"), ".result"),
        **dict.fromkeys(("Dataset", "sql"), ".dataset"),
        **dict.fromkeys(("Compacted", "compact"), ".compaction"),
        **dict.fromkeys(("Dropped", "drop"), ".retention"),
        "OutputError": "..errors",
    }

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_MODULES[name], __name__), name)
