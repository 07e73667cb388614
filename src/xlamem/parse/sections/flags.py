"""The flags of a compile, as protobuf text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import _flags
from ..._column import Names
from ...input.names import FLAG_EXTENSIONS
from ..batch import FLAGS, Batch, Columns, Section, Span
from ..interners import FixedDictionary
from ..tables import Column
from .base import Context, SectionReader

_ROLES = FixedDictionary(*FLAG_EXTENSIONS)


def _role(_: Context, batch: Batch, columns: Columns) -> Column:
    code = _ROLES.codes_of([batch.span.section.file.role])
    return np.repeat(code, len(columns["ordinal"])), _ROLES


class FlagsReader(SectionReader):
    kind = FLAGS
    tables = ("flags",)
    derived = {"flags": {"role": _role}}  # noqa: RUF012

    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        columns, faults, unclosed = _flags.scan(span.section.data, span.begin, span.end)
        return Batch(span, {"flags": columns}, faults, summary=unclosed)

    def next_split(self, section: Section, offset: int) -> int:
        return section.end  # a message may extend over the whole file

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        for batch in batches:
            file, unclosed = batch.span.section.file, batch.summary
            if unclosed:
                context.diagnostics.truncated(file, file.end, FLAGS, "}")
