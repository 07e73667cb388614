"""The groups of devices of a collective, as `replica_groups=` prints them."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

MAX_DEVICES = 1 << 20
"""Maximum number of devices; more are damaged text."""

_START = "replica_groups="
_GROUPS = re.compile(
    r"\{\{(?P<first>\d{1,9}(?:,\d{1,9})*)\}|\[(?P<n>\d{1,9}),(?P<size>\d{1,9})\]|"
    r"mesh\[(?P<axes>[^\]]*)\](?: ?\{(?P<used>[^}]*)\})?"
)
_AXIS = re.compile(r"('[^']{0,99}')=(\d{1,9})")


class ReplicaGroups(NamedTuple):
    """How many devices take part in a collective."""

    devices: int
    """All of them."""
    size: int
    """Those of each group, of the first one if they differ; 1 if that is not printed."""


def replica_groups(attributes: str) -> ReplicaGroups | None:
    """Return the groups in the attributes of an instruction: `{{0,1},{2,3}}`, `[2,2]<=[4]` or `mesh['x'=4] {'x'}`.

    None if there are none, or more than MAX_DEVICES devices.
    """
    begin = attributes.find(_START) + len(_START)
    match = _GROUPS.match(attributes, begin) if begin >= len(_START) else None
    if not match:
        return None
    if match["first"]:
        end = attributes.find("}}", begin)
        found = ReplicaGroups(len(re.findall(r"\d+", attributes[begin:end])), match["first"].count(",") + 1)
    elif match["size"]:
        found = ReplicaGroups(int(match["n"]) * int(match["size"]), int(match["size"]))
    else:
        axes = _AXIS.findall(match["axes"])
        used = {name.strip() for name in (match["used"] or "").split(",")}
        sizes = (math.prod(int(n) for axis, n in axes if some is None or axis in some) for some in (None, used))
        found = ReplicaGroups(*sizes)
    return found if 0 < found.devices <= MAX_DEVICES else None
