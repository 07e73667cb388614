"""Compares the computations of an HLO text as the package reads them with what the slow reader reads."""

from __future__ import annotations

from typing import Any

import hlo_text

from xlamem.parse.arrays import NULL
from xlamem.parse.hlo_body import HloBody, scan_body


def complete_lines(data: bytes) -> HloBody:
    return scan_body(data, 0, data.rfind(b"\n") + 1)


def slices(begin: Any, *columns: list[Any]) -> list[list[Any]]:
    items = list(zip(*columns, strict=True))
    return [items[a:b] for a, b in zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True)]


def names(body: HloBody, column: str) -> list[str | None]:
    found: list[str | None] = body.text(column).to_pylist()
    return found


def numbers(values: Any, missing: int = -1) -> list[int | None]:
    return [None if v == missing else v for v in values.tolist()]


def plain(body: HloBody) -> hlo_text.Body:
    """What the native reader found, in the form of the slow one."""
    columns: dict[str, list[Any]] = {
        c: names(body, c) for c in ("instruction", "opcode", "element_type", "op_name", "source_file")
    } | {
        "computation": body.computation.tolist(), "called": numbers(body.called),
        "is_root": [bool(r) for r in body.is_root],
        "parameter_number": numbers(body.parameter_number), "tuple_index": numbers(body.tuple_index),
        "source_line": numbers(body.source_line, NULL), "stack_frame_id": numbers(body.stack_frame_id, NULL),
        "operands": slices(
            body.operand_begin, names(body, "operand"), names(body, "operand_index"), numbers(body.operand_row)
        ),
        "calls": slices(body.call_begin, body.call_kind.tolist(), numbers(body.call)),
    }  # fmt: skip
    return hlo_text.Body(
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        [
            {"name": name, "begin": begin, "root": root}
            for name, begin, root in zip(
                names(body, "computation_name"), body.computation_begin[:-1].tolist(), numbers(body.root), strict=True
            )
        ],
        None if body.entry < 0 else body.entry, body.unknown_lines, body.complete,
    )  # fmt: skip


def compare(data: bytes) -> HloBody:
    """Assert that both readers agree, and return what they read."""
    body = complete_lines(data)
    ours, theirs = plain(body), hlo_text.read(data)
    for a, b in zip(ours.instructions, theirs.instructions, strict=False):
        assert a == b
    assert ours == theirs
    assert body.computation_begin[-1] == len(body) == len(body.operand_begin) - 1 == len(body.call_begin) - 1
    return body
