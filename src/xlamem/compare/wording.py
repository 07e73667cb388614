"""Words about groups of buffers that contribute to a difference, for screens, comments and notebooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..formatting import one_line, plain_shape
from .groups import BUFFER

Row = dict[str, Any]

ARROW = " -> "
MARKS = {
    "new": "[NEW]",
    "gone": "[GONE]",
    "lives longer": "longer",
    "lives shorter": "shorter",
    "padding changed": "padding",
}
"""Short names of causes."""
OTHER_EDITS = {False: "what else changed", True: "what changed without an effect on memory"}
"""The title of the edits that the verdict does not state, by whether all sizes are the same."""
MAX_PERCENT = 1000
"""A larger share of a change, of which others cancel most, says nothing."""
_SPACE = re.compile(r"\{:S\(\d+\)\}|:?S\(\d+\)")


def mark(row: Row) -> str:
    """Return the cause in a word; empty for groups of several causes."""
    cause = row["cause"]
    if cause == "moved to another space":
        return "moved in" if not row["bytes_a"] else "moved out" if not row["bytes_b"] else "moved"
    if cause == "sharing changed":
        return "unshared" if not row["bytes_a"] else "shared" if not row["bytes_b"] else "sharing"
    return MARKS.get(cause, cause or "")


def label(row: Row, by: Sequence[str]) -> str:
    """Return the keys of a group, without the cause."""
    keys = [key for key in by if key != "cause"]
    names = [row[key] or ("unnamed" if key == BUFFER else f"no {key}") for key in keys]
    return one_line(", ".join(names) or mark(row))


def share(change: int, total: int) -> str:
    """Return the share of a change with its sign; empty if there is none to compare with, or it is too large."""
    if abs(change) >= MAX_PERCENT / 100 * abs(total):
        return ""
    percent = 100 * change / total
    return f"{percent:.1f} %" if abs(percent) >= 0.05 else "0.0 %" if not change else "~0 %"


def relative(a: int, b: int) -> str:
    """Return a change in percent of A, with a sign; empty without A."""
    if not a or not b or a == b:
        return ""
    percent = 100 * (b - a) / a
    return f"{percent:+,.1f} %" if abs(percent) >= 0.05 else "~0 %"


def shapes(row: Row) -> str:
    """Return the shapes of the largest buffer, without layouts unless only these differ, and the number of shapes."""
    a, b = (None if side == _absent(row) else row[f"shape_{side}"] for side in "ab")
    if a and b and plain_shape(a) != plain_shape(b):
        text = f"{plain_shape(a)}{ARROW}{plain_shape(b)}"
    elif a and b and _layout(a) != _layout(b) and row["cause"] in ("larger", "smaller", "padding changed"):
        text = f"{_layout(a)}{ARROW}{_layout(b)}"
    else:
        text = plain_shape(b or a)
    return one_line(f"{text}, {row['n_shapes']:,} shapes" if row["n_shapes"] > 1 else text)


def _layout(shape: str) -> str:
    """Return a shape with its layout, without the memory space."""
    return _SPACE.sub("", shape)


def sources(row: Row) -> str:
    """Return file and line of the largest buffer, of both sides if they differ: `train.py:41 -> :43`."""
    (file_a, line_a), (file_b, line_b) = (_source(row, side) for side in "ab")
    if not file_a or not file_b or (file_a, line_a) == (file_b, line_b):
        return one_line(f"{file_b}{line_b}" if file_b else f"{file_a}{line_a}")
    if file_a == file_b:
        return one_line(f"{file_a}{line_a}{ARROW}{line_b}")
    return one_line(f"{file_a}{line_a}{ARROW}{file_b}{line_b}")


def _absent(row: Row) -> str:
    """Return the side, a or b, on which a buffer does not exist, even if it is a copy of one that does."""
    return {"new": "a", "gone": "b"}.get(row["cause"] or "", "")


def _source(row: Row, side: str) -> tuple[str, str]:
    if side == _absent(row):
        return "", ""
    file, line = row[f"source_file_{side}"], row[f"source_line_{side}"]
    return (file or "").rpartition("/")[2], "" if line is None else f":{line}"
