"""Long spans, whose columns are allocated at a predicted size: the same rows as those of short spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scans import pools, scan

from xlamem._column import Column, Names

LONG = 1 << 20
"""Bytes of a long span (PRESIZE_MIN_SPAN)."""
OWN_ROWS = {"before", "gap"}
"""Columns that count the rows of their span."""


def assignment(i: int) -> bytes:
    return (
        b"allocation %d: 0x%x, size %d, color %d, parameter %d, shape |f32[%d]| at ShapeIndex {%d}, maybe-live-out:\n"
        b" value: <%d name.%d{%d} @%d> (size=%d,offset=0): f32[%d]{0}\n"
        b" value: <%d other.%d (phi) @0> (size=8,offset=%d): (f32[2]{0}, s32[%d])\n"
        % (i, 9 * i, 8 * i, i % 3, i, i % 50, i % 20, 2 * i, i % 999, i % 12, i % 3, i, i % 90, 2 * i + 1, i, i, i)
    )


def used(i: int) -> bytes:
    return (
        b"<%d fusion.%d{%d} @0>\n positions:\n  fusion.%d {%d}\n  tuple.%d {1,%d}\n uses:\n  add.%d, operand %d\n"
        b' from instruction: %%fusion.%d = f32[%d]{0} fusion(%%a.%d), kind=kLoop, calls=%%c.%d, sharding={replicated}, '
        b'metadata={op_name="jit(f)/%d" source_file="a%d.py" source_line=%d}, backend_config={"n":"%d"}, zz=%d\n'
        % (i, i, i % 2, i, i % 2, i // 2, i % 30, i + 1, i % 3, i, i, i, i, i % 300, i % 9, i, i, i % 7)
    )


def live(i: int) -> bytes:
    return b"    name.%d{%d}:%d-%d\n" % (i % 7000, i % 12, i, i + i % 9)


def schedule(i: int) -> bytes:
    return b"    %d:name.%d\n" % (-i, i * 7 % 70_000)


def report(i: int) -> bytes:
    return b"  %7d.%dKiB(%3d%%); %7d.0KiB; %12d;  %15d; %d\xc3\x97f32[%d]{0}\n" % (
        i, i % 10, i % 100, i, 8 * i, i % 20, i % 20, i)  # fmt: skip


def body(i: int) -> bytes:
    return (
        b"  n.%d = f32[%d]{0} call(n.%d, x.%d#1), to_apply=%%c.%d, metadata={op_name=\"f/%d\" source_line=%d}\n"
        % (i, i, i - 1, i, i % 40, i % 500, i)
    )


TEXTS = {
    "assignment": (b"", assignment, 5000), "used": (b"", used, 5000), "live": (b"  BufferLiveRange:\n", live, 70_000),
    "schedule": (b"  InstructionSequence:\n", schedule, 70_000),
    "report": (
        b"Memory Space: hbm (color=1)\nTotal bytes: 8 (8B)\n"
        b"  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n", report, 16_000,
    ),
    "body": (b"ENTRY %e {\n", body, 14_000),
}  # fmt: skip


def columns(value: Any, name: str = "") -> Iterator[tuple[str, bytes, bytes]]:
    """The columns of a result, with the ends of texts as lengths."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from columns(item, f"{name}.{key}") if key not in OWN_ROWS else ()
    elif isinstance(value, Column):
        yield name, bytes(value), b""
    elif isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], Column):
        data, offsets, valid = value
        yield name, bytes(data), np.diff(np.frombuffer(offsets, np.int32)).tobytes() + b"|" + bytes(valid)


def parts_of(text: bytes, head: bytes, size: int) -> Iterator[tuple[int, int]]:
    begin = 0
    while begin < len(text):
        end = text.find(b"\n" + head, begin + size) + 1 or len(text)
        yield begin, end
        begin = end


def lines_of(kind: str, even: bool) -> Iterator[bytes]:
    """The lines; uneven ones are longer where samples are taken, so that columns outgrow their predicted sizes."""
    _, line, n = TEXTS[kind]
    for i in range(n):
        text = line(i)
        if not even and (0.4 < 12 * i / n % 1 < 0.6 or i < n // 20):
            text = text.replace(b"\n", b" zz%s\n" % (b"z" * len(text)), 1)
        yield text


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("kind", TEXTS)
def test_long_spans(kind: str, even: bool) -> None:
    before, _, n = TEXTS[kind]
    text = before + b"".join(lines_of(kind, even)) + (b"}\n" if kind == "body" else b"")
    assert len(text) > LONG
    name = "live" if kind == "schedule" else kind
    names = pools(name)
    whole = scan(name, text, len(text), names)
    expected = {c[0]: c[1:] for c in columns(whole if isinstance(whole, dict) else whole[0])}
    if kind == "body":
        assert even == (whole["unknown"] == 0)
        assert len(expected[".instruction"][0]) == 4 * n
        assert np.frombuffer(whole["operand_row"], np.int32)[::2].tolist() == list(range(-1, n - 1))
        return
    assert not len(whole[1])
    heads = {"assignment": b"allocation ", "used": b"<", "live": b"    name", "schedule": b"    ", "report": b"  "}
    for size in (200_000, 900_000):
        again: list[Names] = pools(name)
        found: dict[str, list[tuple[bytes, bytes]]] = {}
        state: Any = ()
        for begin, end in parts_of(text, heads[kind], size):
            part = scan(name, text, end, again, begin, state)
            state = part[-1] if name in ("assignment", "live", "report") else ()
            for column, data, more in columns(part[0]):
                found.setdefault(column, []).append((data, more))
        for column, (data, more) in expected.items():
            assert data == b"".join(d for d, _ in found[column]), column
            if more:
                lengths, valid = (b"".join(m.split(b"|", 1)[k] for _, m in found[column]) for k in (0, 1))
                assert sorted(more) == sorted(lengths + b"|" + valid), column
        assert [list(map(bytes, p.export())) for p in names] == [list(map(bytes, p.export())) for p in again]
