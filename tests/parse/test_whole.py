"""However a text is cut into spans and whoever scans them: the tables are the same."""

from __future__ import annotations

import gc
import os
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import forge
import pytest
from conftest import DUMPS, every_row, label, texts
from test_cuts import held

import xlamem
from xlamem import schema
from xlamem._column import Names
from xlamem.input.find import Source
from xlamem.parse import checks, diagnostics, sections, whole
from xlamem.parse.batch import Batch, Span

SHIPPED = xlamem.find(DUMPS)
MANY = next(s for s in SHIPPED if "v5e-host_offload" in s.location)
"""A dump with several files."""


def same(a: xlamem.Dump, b: xlamem.Dump) -> None:
    for name in schema.TABLES:
        assert a[name].equals(b[name]), name


@pytest.mark.parametrize(("span", "threads"), every_row(5, product([1, 2, 3, 64, 5, 7, 1000], [1, 3])))
def test_tiny_spans(span: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [s for s in SHIPPED if sum(m.size or 0 for m in s.members) < 60_000][:: 1 if span > 5 else 4]
    assert len(small) > 5
    for source in small:
        expected = xlamem.read(source, text=True, threads=1)
        expected.diagnostics  # noqa: B018  (reads everything before SPAN shrinks)
        monkeypatch.setattr(whole, "SPAN_BYTES", span)
        monkeypatch.setattr(whole, "MAX_SPAN_BYTES", span)
        same(expected, xlamem.read(source, text=True, threads=threads))
        monkeypatch.undo()


@pytest.mark.parametrize("threads", range(1, 9))
def test_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in SHIPPED[::3]:
        expected = xlamem.read(source, text=True, threads=1)
        expected.diagnostics  # noqa: B018
        monkeypatch.setattr(whole, "SPAN_BYTES", 500)
        monkeypatch.setattr(whole, "MAX_SPAN_BYTES", 500)
        same(expected, xlamem.read(source, text=True, threads=threads))
        monkeypatch.undo()


@pytest.mark.parametrize("source", SHIPPED, ids=label)
def test_spans_of_every_dump(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = xlamem.read(source, text=True, threads=1)
    expected.diagnostics  # noqa: B018
    monkeypatch.setattr(whole, "SPAN_BYTES", 300)
    monkeypatch.setattr(whole, "MAX_SPAN_BYTES", 300)
    same(expected, xlamem.read(source, text=True, threads=2))


def test_spans_of_long_sections_are_not_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few threads there are: some spans take longer than others. The last ones are short."""
    source = max(SHIPPED, key=lambda s: sum(m.size or 0 for m in s.members))

    def span_sizes() -> list[int]:
        reader = whole.WholeReader(source, text=False, threads=2)
        spans = reader._spans(sections.SECTIONS[sections.USED])
        (section,) = reader.sections(sections.USED)
        assert [section.begin, *(s.end for s in spans)] == [*(s.begin for s in spans), section.end]
        return [s.end - s.begin for s in spans]

    monkeypatch.setattr(whole, "SPAN_BYTES", 1000)
    sizes, longest_record = span_sizes(), 700
    left = sum(sizes)
    for size in sizes[:-1]:
        assert 0 <= size - max(1000, left // 4) < longest_record
        left -= size
    assert left < 1500
    monkeypatch.setattr(whole, "MAX_SPAN_BYTES", 2000)
    assert max(span_sizes()) < 2000 + longest_record
    same(xlamem.read(source, text=True, threads=1), xlamem.read(source, text=True, threads=2))


@pytest.mark.parametrize("text", [False, True])
def test_only_large_sections_are_evicted(text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Span by span, unless the text of instructions may still be requested."""
    source = max(SHIPPED, key=lambda s: sum(m.size or 0 for m in s.members))
    evicted: list[tuple[int, int]] = []
    monkeypatch.setattr(whole, "evict_pages", lambda data, begin, end: evicted.append((begin, end)))
    for constant in ("SPAN_BYTES", "MAX_SPAN_BYTES"):
        monkeypatch.setattr(whole, constant, 1000)
    (section,) = whole.WholeReader(source, text=text, threads=2).sections(sections.USED)
    for least in (section.end - section.begin, section.end - section.begin - 1):
        monkeypatch.setattr(whole, "EVICT_BYTES", least)
        evicted.clear()
        xlamem.read(source, text=text, threads=2).diagnostics  # noqa: B018
        spans = sorted(evicted)
        if text or least == section.end - section.begin:
            assert not spans
        else:
            assert (spans[0][0], spans[-1][1]) == (section.begin, section.end)
            assert all(a[1] == b[0] for a, b in pairwise(spans))


def repeats(change: int | None) -> dict[str, bytes]:
    """A tuple parameter with many leaves, whose instruction is printed again for each; one byte changed."""
    made = forge.forge(3, era="E7", values=60, wide=40)
    values = made.files["buffer-assignment-values"]
    line = max(values.split(b"\n"), key=len)
    assert values.count(line) >= 40
    if change is not None:
        at = -1
        for _ in range(change + 1):
            at = values.index(line, at + 1)
        middle = at + len(line) // 2
        while not values[middle : middle + 1].isdigit():
            middle += 1
        digit = b"1" if values[middle : middle + 1] != b"1" else b"2"
        values = values[:middle] + digit + values[middle + 1 :]
    return {**made.files, "buffer-assignment-values": values}


@pytest.mark.parametrize("span", [1 << 20, 700])
@pytest.mark.parametrize("change", [None, 0, 1, 20, 39])
def test_a_repeat_is_compared_over_its_whole_length(
    change: int | None, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = xlamem.read(held("x", repeats(None)), text=True)
    monkeypatch.setattr(whole, "SPAN_BYTES", span)
    monkeypatch.setattr(whole, "MAX_SPAN_BYTES", span)
    dump = xlamem.read(held("x", repeats(change)), text=True, threads=2)
    names = dump.instructions["instruction"].to_pylist()
    found = [d["code"] for d in dump.diagnostics.to_pylist()]
    if change is None:
        assert len(names) == len(set(names))
        assert found == []
    else:
        # One byte in the middle makes a row of its own, and is said once.
        assert len(names) == len(set(names)) + 1 == plain.instructions.num_rows + 1
        assert found == ["instruction_differs"]
        texts_ = set(dump.instructions["text"].to_pylist()) - set(plain.instructions["text"].to_pylist())
        assert len(texts_) == 1


def test_many_python_threads_on_one_dump() -> None:
    source = next(s for s in SHIPPED if "scan_while" in s.location)
    expected, shared = xlamem.read(source), xlamem.read(source)
    seen: list[bool] = []

    def work(names: list[str]) -> None:
        seen.append(all(shared[n].num_rows == expected[n].num_rows for n in names))

    names = list(schema.TABLES)
    workers = [threading.Thread(target=work, args=(names[i:] + names[:i],)) for i in range(len(names))]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert seen == [True] * len(names)
    for name in ("allocations", "values", "live_ranges", "diagnostics"):
        assert shared[name].to_pylist() == expected[name].to_pylist()


def test_eight_threads_read_one_dump_and_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that share a Dump, each beginning with another table, beside threads with dumps of their own."""
    sources = [s for s in SHIPPED if len(s.members) > 2][:8]
    expected = [{name: xlamem.read(s, threads=1)[name].to_pylist() for name in schema.TABLES} for s in sources]
    monkeypatch.setattr(whole, "SPAN_BYTES", 700)
    names = list(schema.TABLES)
    for shared in (0, 1):
        dump = xlamem.read(sources[shared], threads=3)
        start = threading.Barrier(16)

        def common(i: int) -> bool:
            turned = names[2 * i :] + names[: 2 * i]
            start.wait()  # noqa: B023
            return all(dump[n].to_pylist() == expected[shared][n] for n in turned)  # noqa: B023

        def own(i: int) -> bool:
            start.wait()  # noqa: B023
            mine = xlamem.read(sources[i], threads=1 + i % 3)
            return all(mine[n].to_pylist() == expected[i][n] for n in names)

        with ThreadPoolExecutor(16) as workers:
            found = [workers.submit(work, i) for i in range(8) for work in (common, own)]
            assert all(f.result() for f in found)


def test_codes_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to the dictionaries, whichever table is asked for first."""
    monkeypatch.setattr(whole, "SPAN_BYTES", 400)
    for source in SHIPPED[::4]:
        for first in ("allocations", "values", "live_ranges", "aliases", "uses", "instructions", "modules"):
            one, many = (xlamem.read(source, threads=n) for n in (1, 5))
            assert one[first].equals(many[first])
            same(one, many)
            for name, table in schema.TABLES.items():
                for column in table.columns:
                    if column.kind == "name" and one[name].num_rows:
                        texts_ = [d[name][column.name].chunk(0).dictionary for d in (one, many)]
                        assert texts_[0].equals(texts_[1]), (name, column.name)


def test_a_dump_is_let_go_at_once() -> None:
    """No cycle keeps its buffers until a garbage collection."""
    gc.collect()
    gc.disable()
    try:
        dump = xlamem.read(SHIPPED[0])
        for name in schema.TABLES:
            dump[name]
        file = weakref.ref(dump._tables.reader.files[0])
        del dump
        assert file() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("era", sorted(forge.ERAS))
@pytest.mark.parametrize("hostile", [False, True])
def test_forged(era: str, hostile: bool, tmp_path: Path) -> None:
    """A forged dump states its own tables."""
    made = forge.forge(11, era=era, values=150, platform="tpu", hostile=hostile)
    dump = xlamem.read(held("x", made.files, "tpu"), text=True)
    assert dump.diagnostics.to_pylist() == []
    for table in schema.SECTION_TABLES:
        assert dump[table.name].to_pylist() == made.tables[table.name], table.name
    assert texts(xlamem.find(made.write(tmp_path)[0].parent)[0]).keys() == made.files.keys()


def test_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "SPAN_BYTES", 700)
    before = set(threading.enumerate())
    dump = xlamem.read(next(s for s in SHIPPED if len(s.members) > 2), threads=3)
    assert all(dump[name] is not None for name in schema.TABLES)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before


@pytest.fixture
def waiting_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Workers wait with the used values until the event is set. The main thread does not."""
    monkeypatch.setattr(whole, "SPAN_BYTES", 100)
    used, go = sections.SECTIONS[sections.USED], threading.Event()
    scan = used.scan

    def late(span: Span, names: Sequence[Names]) -> Batch:
        assert threading.current_thread() is threading.main_thread() or go.wait(60)
        return scan(span, names)

    monkeypatch.setattr(used, "scan", late)
    yield go
    go.set()


def test_one_table_starts_the_scan_of_the_others(waiting_workers: threading.Event) -> None:
    dump = xlamem.read(MANY, threads=2)
    assert dump.allocations.num_rows
    reader = dump._tables.reader
    assert sections.USED in reader._queued
    assert sections.USED not in reader.batches
    waiting_workers.set()
    assert dump["diagnostics"].num_rows == 0
    assert sections.USED not in reader._queued


def test_computations_scan_what_they_need(waiting_workers: threading.Event) -> None:
    dump = xlamem.read(MANY, threads=2)
    assert xlamem.peak(dump).spaces.num_rows
    assert sections.USED not in {*dump._tables.reader._queued, *dump._tables.reader.batches}


def test_sections_of_tables_that_were_not_requested_are_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "SPAN_BYTES", 700)
    dump = xlamem.read(MANY, threads=2, tables=["allocations", "values", "live_ranges"])
    assert dump.values.num_rows
    assert sections.USED not in {*dump._tables.reader._queued, *dump._tables.reader.batches}


def test_large_sections_are_not_scanned_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "SPAN_BYTES", 700)
    monkeypatch.setattr(whole, "AHEAD_BYTES", 1000)
    dump = xlamem.read(MANY, threads=2)
    assert dump.allocations.num_rows
    assert not dump._tables.reader._queued


def test_a_dump_that_is_let_go_cancels_its_jobs(
    waiting_workers: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    used, scanned = sections.SECTIONS[sections.USED], []
    scan = used.scan
    monkeypatch.setattr(used, "scan", lambda span, names: scanned.append(span) or scan(span, names))
    dump = xlamem.read(MANY, threads=2)
    assert dump.allocations.num_rows
    _, tasks = dump._tables.reader._queued[sections.USED]
    assert len(tasks) > 2
    del dump, tasks
    waiting_workers.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before
    assert len(scanned) <= 1  # the worker was in the first one


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_child_has_no_workers(waiting_workers: threading.Event) -> None:
    dump = xlamem.read(MANY, threads=2)
    assert dump.allocations.num_rows
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            waiting_workers.set()  # for the workers that the child starts
            code = 0 if dump.uses.num_rows and not dump.diagnostics.num_rows else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("part", ["allocations", "live ranges", "used values"])
def test_interrupted_and_asked_again(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "SPAN_BYTES", 700)
    source = next(s for s in SHIPPED if len(s.members) > 2)
    before = set(threading.enumerate())
    dump = xlamem.read(source, threads=3)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(sections.SECTIONS[part]), "complete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _ = dump.diagnostics
    same(xlamem.read(source, threads=1), dump)
    assert not dump._tables.reader._queued
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("part", ["allocations", "live ranges", "used values"])
def test_interrupted_behind_a_part(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows have been counted. They are not counted again."""
    source = next(s for s in SHIPPED if len(s.members) > 2)
    dump, note = xlamem.read(source, threads=1), whole.WholeReader.note

    def interrupted(reader: Any, batch: Any) -> None:
        note(reader, batch)
        if batch.span.section.kind == part:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(whole.WholeReader, "note", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _ = dump.diagnostics
    same(xlamem.read(source, threads=1), dump)


@pytest.mark.parametrize("part", ["allocations", "live ranges", "used values", "checks"])
def test_interrupted_where_text_is_unknown(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a section or the checks had found is not found twice."""
    for module in (diagnostics, checks):
        monkeypatch.setattr(module, "MAX_ROWS", 1)
    needed = {"live-range", "buffer-assignment-values"}
    members = texts(next(s for s in SHIPPED if needed <= {m.role for m in s.members}))
    for role, data in members.items():
        lines = data.splitlines(keepends=True)
        members[role] = b"".join([*lines[:-9], *[b"unknown line\n"] * 3, lines[-9], lines[-1][:3]])
    members["live-range"] = re.sub(rb"(?m)^    (\w[^:]*:\d+-\d+)$", rb"    un\1", members["live-range"], count=3)
    source = held("x", members)
    dump, expected = xlamem.read(source, threads=1), xlamem.read(source, threads=1)
    assert {"unknown_line", "live_range_unmatched", "more_diagnostics"} <= {*expected.diagnostics["code"].to_pylist()}
    note, check = whole.WholeReader.note, whole.check

    def noted(reader: Any, batch: Any) -> None:
        note(reader, batch)
        if batch.span.section.kind == part:
            raise KeyboardInterrupt

    def checked(reader: Any) -> None:
        check(reader)
        if part == "checks":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(whole.WholeReader, "note", noted)
        patched.setattr(whole, "check", checked)
        with pytest.raises(KeyboardInterrupt):
            _ = dump.diagnostics
    same(expected, dump)


def test_interrupted_behind_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = xlamem.read(SHIPPED[0])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("xlamem.parse.diagnostics.Diagnostics.rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _ = dump.diagnostics
    same(xlamem.read(SHIPPED[0]), dump)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("span", [300, 700])
def test_lists_in_a_wrong_order(span: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Live ranges whose lists stand where they do not belong are read as by one thread."""
    members = texts(next(s for s in SHIPPED if any(m.role == "live-range" for m in s.members)))
    lines = members["live-range"].splitlines(keepends=True)
    heads = [i for i, line in enumerate(lines) if line.startswith(b"  ") and line[2:3] not in b" "]
    assert len(heads) >= 3
    head, *lists = (lines[a:b] for a, b in zip([0, *heads], [*heads, len(lines)], strict=True))
    for order in ([1, 0, 2, 1], [2, 1, 0], [0, 0, 1, 2, 0, 1], [0, 2, 1, 2]):
        broken = {"live-range": b"".join([*head, *(line for k in order for line in lists[k])])}
        expected = xlamem.read(held("x", broken), threads=1)
        assert expected.diagnostics.num_rows
        with monkeypatch.context() as patched:
            patched.setattr(whole, "SPAN_BYTES", span)
            same(expected, xlamem.read(held("x", broken), threads=threads))
