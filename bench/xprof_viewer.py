"""XProf's memory viewer and the same computations in xlamem, each in its own process.

XProf's server calls `xspace_to_tool_data` with a profile, which may be empty. It finds the program beside the
profile in `MODULE.hlo_proto.pb`, the HloProto with buffer assignment that XLA dumps with `--xla_dump_hlo_as_proto`.
The result is JSON with the heap over time of one memory space, its peak and the buffers at the peak. This module can
be imported with only one of XProf and xlamem installed.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

from measure import cpu_seconds

AGAIN = 5

if importlib.util.find_spec("xprof"):  # imports are not measured
    from xprof.convert import raw_to_tool_data
if importlib.util.find_spec("xlamem"):
    import xlamem
    import xlamem.compute


def _again(once: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the CPU seconds of the first call, and the median of further calls."""
    times = []
    for _ in range(1 + AGAIN):
        start = cpu_seconds()
        found = once()
        times.append(cpu_seconds() - start)
    return found | {"first_s": times[0], "again_s": statistics.median(times[1:])}


def memory_viewer(profile: str) -> dict[str, Any]:
    """`profile`: path of an `.xplane.pb`, with `program.hlo_proto.pb` in the same folder."""
    options = {"module_name": "program", "memory_space": "0"}

    def once() -> dict[str, Any]:
        data, _ = raw_to_tool_data.xspace_to_tool_data([profile], "memory_viewer", options)
        if b"heapSizes" not in data[:100]:
            raise RuntimeError(f"no answer of the memory viewer but {data[:200]!r}")
        return {"answer_bytes": len(data)}

    return _again(once)


def peak_and_timeline(folder: str) -> dict[str, Any]:
    def once() -> dict[str, Any]:
        dump = xlamem.read(folder, threads=1)
        peak, timeline = xlamem.peak(dump), xlamem.occupancy(dump)
        return {"answer_bytes": peak.spaces.nbytes + timeline.nbytes}

    return _again(once)


WORKS = {"xprof": memory_viewer, "xlamem": peak_and_timeline}
