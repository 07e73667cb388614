"""xlamem: device memory usage of programs compiled by XLA, from XLA's memory dumps.

    import xlamem
    dump = xlamem.read("dumps/")      # a directory, a file, a stem, a tar, a stream, a URI, bytes
    dump.allocations                  # pyarrow tables, tokenised on first use
    dump.verify()                     # lines that were not understood and failed cross-checks; empty if there are none
    xlamem.peak("dumps/").spaces      # computations take a dump, or anything that `read` takes

The packages, in the order of the data: `input` (bytes), the native modules (columns), `parse` (text to tables),
`dump` (the public `Dump`), `compute` (peaks and their composition), `warehouse` (many dumps to a Parquet dataset),
`compare` (two programs, two sides, or many points), `gate` (budgets, baselines, capture), `page` (reports), `cli`.
`schema` describes every table.
"""

from __future__ import annotations

__version__ = "0.2.0"

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

from typing import TYPE_CHECKING

from .errors import DumpError, NativeError, OutputError, UsageError, XlaMemError

__all__ = [
    "CheckResult",
    "Converted",
    "Dataset",
    "Dump",
    "DumpError",
    "NativeError",
    "OutputError",
    "Report",
    "Source",
    "UsageError",
    "XlaMemError",
    "advise",
    "attribution",
    "bill",
    "buffer",
    "capture",
    "check",
    "convert",
    "diff",
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
    "of",
    "padding",
    "pair",
    "peak",
    "read",
    "repack",
    "report",
    "savings",
    "schema",
    "series",
    "show",
    "sql",
    "sweep",
]

if TYPE_CHECKING:
    from . import schema
    from .compare.difference import diff
    from .compare.pairing import pair
    from .compare.series import series
    from .compute import (
        advise,
        attribution,
        bill,
        buffer,
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
        repack,
        savings,
    )
    from .display import show
    from .dump import Dump, read
    from .gate.ahead import of
    from .gate.capture import capture
    from .gate.checking import check
    from .gate.result import CheckResult
    from .gate.sweep import sweep
    from .input.find import Source, find
    from .page.writing import Report, report
    from .warehouse import Converted, Dataset, convert, sql
else:
    # Names are imported on first use, so that `import xlamem` and each command load only what they need.
    _MODULES = {
        "schema": "schema",
        "show": "display",
        "diff": "compare.difference",
        "pair": "compare.pairing",
        "series": "compare.series",
        "check": "gate.checking",
        "CheckResult": "gate.result",
        "of": "gate.ahead",
        "capture": "gate.capture",
        "sweep": "gate.sweep",
        **dict.fromkeys(("Report", "report"), "page.writing"),
        **dict.fromkeys(("Dump", "read"), "dump"),
        **dict.fromkeys(("Source", "find"), "input.find"),
        **dict.fromkeys(("Converted", "Dataset", "convert", "sql"), "warehouse"),
    }

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        # NumPy first: for 100 ms after it is loaded, its OpenBLAS occupies a core, which the first read needs.
        import numpy  # noqa: F401

        module = import_module(f".{_MODULES.get(name, 'compute')}", __name__)
        return module if name == "schema" else getattr(module, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
