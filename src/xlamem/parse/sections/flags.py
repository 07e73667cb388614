"""The flags of a compile, as protobuf text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..._column import Names
from ...input.names import FLAG_EXTENSIONS
from ..arrays import Ints
from ..batch import FLAGS, Batch, Columns, File, Section, Span
from ..diagnostics import MAX_ROWS
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
        from ..text_proto import fields_of  # pyarrow.compute is slow to import, and most dumps have no flags

        fields = fields_of(bytes(span.section.data[span.begin : span.end]))
        columns: Columns = {
            "ordinal": np.arange(len(fields.names)), "name": _parts(fields.names), "value": _parts(fields.values),
            "comment": _parts(fields.comments),
        }  # fmt: skip
        return Batch(span, {"flags": columns}, summary=fields)

    def next_split(self, section: Section, offset: int) -> int:
        return section.end  # a message may extend over the whole file

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        for batch in batches:
            _report(context, batch.span.section.file, batch.summary)


def _report(context: Context, file: File, fields: Any) -> None:
    """Add the diagnostics of a file."""
    from ..text_proto import WANTED

    context.diagnostics.unknown_lines(file, FLAGS, fields.unknown)
    _add(context, file, fields.unknown, "unknown_line", WANTED)
    _add(context, file, fields.not_utf8, "not_utf8", "UTF-8")
    if len(fields.not_utf8):
        file.features.add("not_utf8")
    if fields.unclosed:
        context.diagnostics.truncated(file, file.end, FLAGS, "}")


def _add(context: Context, file: File, offsets: Ints, code: str, wanted: str) -> None:
    for offset in offsets[:MAX_ROWS].tolist():
        context.diagnostics.add(file, offset, FLAGS, code, wanted)
    if len(offsets) > MAX_ROWS:
        context.diagnostics.count(file, FLAGS, code, len(offsets) - MAX_ROWS)


def _parts(texts: pa.Array) -> tuple[Any, Any, Any]:
    """Return an array of text in the layout of native columns."""
    valid = texts.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    _, offsets, data = pa.concat_arrays([texts]).buffers()  # without an offset
    ends = np.frombuffer(offsets, np.int32)[: len(texts) + 1] if len(texts) else np.zeros(1, np.int32)
    return data or b"", ends, valid
