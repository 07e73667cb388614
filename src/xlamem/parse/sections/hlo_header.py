"""The header of the HLO text: module name, input/output aliases, stack frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import _hlo
from ..._column import Names
from ..arrays import NULL, ints, row_of, texts
from ..batch import HLO, Batch, Columns, Section, Span
from ..interners import Interners
from .base import Context, SectionReader


class HloHeaderReader(SectionReader):
    kind = HLO
    tables = ("frames", "aliases")
    interners = ("shape_index", "kind")

    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        header = _hlo.scan(span.section.data, span.end, *names)
        features = {"frames"} if header["tables"] else set()
        return Batch(
            span, {"aliases": header["aliases"]}, header["faults"], features, header["gap"], _hlo.GAP_TABLES,
            summary=header,
        )  # fmt: skip

    def next_split(self, section: Section, offset: int) -> int:
        return section.end  # the scan stops after the header

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        for batch in batches:
            header, file = batch.summary, batch.span.section.file
            if len(header["frames"]):
                batch.tables["frames"] = _frames(header, batch.interners)
            context.module_name = header["name"]
            if not header["complete"]:
                context.diagnostics.truncated(file, file.end, HLO, "the first computation")


def _frames(header: Mapping[str, Any], interners: Interners) -> Columns:
    """Return the stack frames with their locations.

    XLA prints the id of the parent plus one; 1 means that there is none.
    """
    frames = ints(header["frames"]).reshape(-1, 3)
    locations = ints(header["locations"]).reshape(-1, 7)
    locations = np.vstack([locations, np.full((1, 7), NULL)])  # row -1 is null
    location = locations[row_of(locations[:-1, 0], frames[:, 1])]
    columns: Columns = {
        "id": np.ascontiguousarray(frames[:, 0]),
        "parent": np.where(frames[:, 2] > 1, frames[:, 2] - 1, NULL),
    }
    for name, key, i in (("file", "files", 1), ("function", "functions", 2)):
        ids, parts = header[key]
        codes = interners[name].add(texts(parts))
        columns[name] = np.append(codes, np.int32(-1))[row_of(ints(ids), location[:, i])]
    for name, i in (("line", 3), ("column", 4), ("end_line", 5), ("end_column", 6)):
        columns[name] = np.ascontiguousarray(location[:, i])
    return columns
