"""BufferAssignment: allocations, values, values of another color, and in old releases also positions and uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ... import _allocations, schema
from ..._column import Names, take
from ..arrays import NULL, codes, distinct_of, ints
from ..batch import ASSIGNMENT, Batch, Columns, Section, Span
from ..interners import fixed_dictionary
from ..tables import Column
from .base import Context, Derived, SectionReader, SizeOf, feature_names, next_line, split

FLAGS = ("is_parameter", "is_entry_root", "is_constant", "is_thread_local", "is_live_out", "is_temp")
"""Boolean columns of an allocation; column i is bit i of the native column `flags`."""


_SIZED = re.compile(r"(?:b\()*(?:pred|(?:bf|[sufc])[1-9]\d{0,2}[a-z]?\w*)\[(?:<=)?\d+(?:,(?:<=)?\d+)*\]")
"""An array whose size follows from its text."""


def _flag(bit: int, _: Context, __: Batch, columns: Columns) -> Column:
    return (columns["flags"], bit), None


def _memory_space(context: Context, _: Batch, columns: Columns) -> Column:
    platform, colors = context.platform, sorted(context.colors)
    spaces = fixed_dictionary(*(schema.memory_space(platform, c) for c in colors))
    return spaces.codes(np.asarray(np.searchsorted(colors, columns["color"]))), spaces


def _element_type(_: Context, batch: Batch, columns: Columns) -> Column:
    if "shape" not in columns:
        return None, None
    types, _sizes = batch.interners.shape_sizes()
    return codes(take(types, columns["shape"])), batch.interners["element_type"]


def _unpadded_size(_: Context, batch: Batch, columns: Columns) -> Column:
    if "shape" not in columns:
        return None, None
    return ints(take(batch.interners.shape_sizes()[1], columns["shape"])), None


def _uses_known(context: Context, _: Batch, columns: Columns) -> Column:
    if "uses_known" in columns:
        return columns["uses_known"], None
    unknown = context.unknown_uses()
    if unknown is None:
        return None, None
    if not len(unknown):
        return np.ones(len(columns["value_id"]), np.uint8), None
    return np.isin(columns["value_id"], unknown, invert=True).view(np.uint8), None


class AssignmentReader(SectionReader):
    kind = ASSIGNMENT
    tables = ("allocations", "values", "cross_color")
    interners = ("instruction", "shape_index", "shape")
    derived = {  # noqa: RUF012
        "allocations": {
            **{name: partial(_flag, bit) for bit, name in enumerate(FLAGS)},
            "memory_space": _memory_space,
        },
        "values": {"element_type": _element_type, "unpadded_size": _unpadded_size, "uses_known": _uses_known},
    }
    first_state = ()

    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        tables, faults, bits, unfinished, state = _allocations.scan(
            span.section.data, span.begin, span.end, *names, state=span.state
        )
        gaps = tables.pop("gaps")["gap"]
        features = feature_names(bits, _allocations.FEATURES)
        return Batch(span, tables, faults, features, gaps, _allocations.GAP_TABLES, unfinished, state)

    def next_split(self, section: Section, offset: int) -> int:
        return next_line(section, offset)

    def spans(self, section: Section, size_of: SizeOf) -> Iterator[Span]:
        return split(section, section.begin, section.end, size_of, b"allocation ")

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        for batch in batches:
            context.colors.update(distinct_of(batch.tables["allocations"]["color"]))
            _report_sizes(context, batch)


def _report_sizes(context: Context, batch: Batch) -> None:
    """Report the shapes whose sizes do not fit into 64 bits."""
    unknown = batch.interners.shape_sizes()[1] == NULL
    if not unknown.any():
        return
    section = batch.span.section
    for code in np.unique(batch.tables["values"]["shape"]).tolist():
        shape = batch.interners["shape"].text(code) or "" if unknown[code] else ""
        if _SIZED.match(shape):
            wanted = f"a size of less than 2^63 bytes, unlike {shape[:80]}"
            context.diagnostics.add(section.file, None, section.kind, "size_too_large", wanted)


__all__ = ["FLAGS", "AssignmentReader", "Derived"]
