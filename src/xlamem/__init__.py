"""xlamem: where device memory goes in programs compiled by XLA, and which number to trust.

    import xlamem
    dump = xlamem.read("dumps/")      # a directory, a file, a stem, a tar, a stream, a URI, bytes
    dump.allocations                  # pyarrow tables, tokenised when first asked for
    dump.verify()                     # what was not understood or does not add up: empty if all is well

The rooms, in the order of the data: `source` (bytes), the native modules (columns), `reader` and
`verify` (tables and rules), `dump` (what users hold), `compute` (peaks and what makes them),
`warehouse` (many dumps to a Parquet dataset), `cli`. `schema` describes every table.
"""

from __future__ import annotations

__version__ = "0.1.0"

try:
    from ._column import STAMP as _STAMP
except ImportError as e:  # pragma: no cover - only in a broken installation
    raise ImportError(
        f"xlamem's native modules are missing ({e}): install xlamem with pip, which compiles them"
    ) from e
if __version__ != _STAMP:
    raise ImportError(
        f"xlamem's native modules were built for {_STAMP}, these files are {__version__}: install xlamem again"
    )

import os
import sys
from typing import TYPE_CHECKING, Any

if sys.argv and os.path.splitext(os.path.basename(sys.argv[0]))[0] == "xlamem":
    # The command does no linear algebra. Threads for it would turn on the spot for a tenth of a second, one a core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from . import schema
from .dump import Dump, read
from .errors import DumpError, NativeError, OutputError, UsageError, XlaMemError
from .input.find import Source, find

if TYPE_CHECKING:
    from .compute import (
        attribution,
        donation,
        explain,
        explain_causes,
        fits,
        fragmentation,
        idle,
        live_set,
        memory_analysis,
        occupancy,
        padding,
        peak,
        savings,
    )
    from .warehouse import Converted, Dataset, convert, sql

_LATE = {
    **dict.fromkeys(
        (
            "attribution", "donation", "explain", "explain_causes", "fits", "fragmentation", "idle", "live_set",
            "memory_analysis", "occupancy", "padding", "peak", "savings",
        ),
        "compute",
    ),
    **dict.fromkeys(("Converted", "Dataset", "convert", "sql"), "warehouse"),
}  # fmt: skip
"""Names that are imported when first asked for, and the room where they live: reading alone stays quick to start."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(f".{_LATE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATE])


__all__ = [
    "Converted",
    "Dataset",
    "Dump",
    "DumpError",
    "NativeError",
    "OutputError",
    "Source",
    "UsageError",
    "XlaMemError",
    "attribution",
    "convert",
    "donation",
    "explain",
    "explain_causes",
    "find",
    "fits",
    "fragmentation",
    "idle",
    "live_set",
    "memory_analysis",
    "occupancy",
    "padding",
    "peak",
    "read",
    "savings",
    "schema",
    "sql",
]
