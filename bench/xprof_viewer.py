"""XProf's memory viewer on one program, and the same asked of xlamem: each in a process of its own.

XProf's server calls `xspace_to_tool_data` with a profile; it finds the program in `MODULE.hlo_proto.pb` beside
it, the HloProto with buffer assignment that XLA also dumps (`--xla_dump_hlo_as_proto`). The profile
itself may be empty. The answer is JSON with the heap over time, its peak and what it is made of, for one memory space.
This module must be importable where only XProf is installed, or only xlamem.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

from measure import cpu_seconds

AGAIN = 5

if importlib.util.find_spec("xprof"):  # imports are no part of what is measured
    from xprof.convert import raw_to_tool_data
if importlib.util.find_spec("xlamem"):
    import xlamem
    import xlamem.compute


def _again(once: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """CPU seconds of the first call and the median of some more."""
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
