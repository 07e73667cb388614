"""What commands print about rows made by hand: words, marks, columns and charts, exactly."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.cli import console, inputs, options
from xlamem.cli.json_text import json_text
from xlamem.cli.reporters import advice, bill, buffer, buffers, chart, convert, explain, oom, pairs, series, tables, top
from xlamem.cli.reporters.header import header
from xlamem.cli.reporters.notes import Note, note_lines
from xlamem.cli.reporters.pairs import Changes, cells
from xlamem.cli.reporters.programs import _count_verdicts, _states, list_programs
from xlamem.cli.reporters.scopes import tree_lines
from xlamem.cli.reporters.series import ABSENT, UNKNOWN, Over, _cells, _chosen_points, _style, sparkline
from xlamem.cli.reporters.verdict import _must_fit
from xlamem.compute import FoldedScope
from xlamem.errors import UsageError

MIB = 1 << 20
Row = dict[str, Any]


# -- JSON, CSV and options -----------------------------------------------------------------------


def test_json_is_that_of_the_standard_library() -> None:
    chance = random.Random(6)

    def value(depth: int) -> Any:
        plain = (None, True, False, 0, -7, 1.5, "é\n\"%s%%", "", [], {})
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(plain)
        if chance.random() < 0.5:
            return [value(depth - 1) for _ in range(chance.randrange(4))]
        return {chance.choice(("a", "b%", "ü")) + str(i): value(depth - 1) for i in range(chance.randrange(4))}

    for _ in range(200):
        data = value(4)
        assert json_text(data) == json.dumps(data, indent=2)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_tables_as_json(n: int) -> None:
    names = pa.array(["x", None, "y%"][:n], pa.string())
    rows = pa.table({
        "n%": pa.array([1, None, 3][:n], pa.int64()), "name": names, "code": names.dictionary_encode(),
        "wide": pa.DictionaryArray.from_arrays(pa.array([2, 0, None][:n], pa.int32()), pa.array(list("abcde"))),
        "list": pa.array([[1, 2], [], None][:n], pa.list_(pa.int64())), "flag": pa.array([True, None, False][:n],
            pa.bool_()),
        "size": pa.array([1.5, None, 2.0][:n], pa.float64()),
    })  # fmt: skip
    assert json_text(rows) == json.dumps(rows.to_pylist(), indent=2)
    assert json_text({"a": rows, "b": [rows]}) == json.dumps({"a": rows.to_pylist(), "b": [rows.to_pylist()]}, indent=2)


@pytest.mark.parametrize(
    ("value", "safe", "raw"),
    [
        (None, "", ""), (True, "true", "true"), (5, 5, 5), (-5, -5, -5), ("=1+1", "'=1+1", "=1+1"), ("@x", "'@x", "@x"),
        ("+1", "+1", "+1"), ("-2.5", "-2.5", "-2.5"), ("-2.", "'-2.", "-2."), ("+x", "'+x", "+x"), ("-", "'-", "-"),
        ("a=1", "a=1", "a=1"), ("\x1b[3m", "\\x1b[3m", "\x1b[3m"), ("", "", ""),
    ],
)  # fmt: skip
def test_cells_of_csv(value: Any, safe: Any, raw: Any) -> None:
    assert (console._safe_cell(value), console._raw_cell(value)) == (safe, raw)


@pytest.mark.parametrize("buffered", [1, 30, 1 << 20])
@pytest.mark.parametrize("raw", [False, True])
def test_csv_of_any_length(
    buffered: int, raw: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "CSV_BUFFER", buffered)
    rows = [[i, "=x" if i % 2 else 'a,"b"\n', None] for i in range(20)]
    console.write_csv(["a", "b", "c"], iter(rows), raw=raw)
    formula, text = ("=x" if raw else "'=x"), '"a,""b""\n"'
    lines = [f"{i},{formula if i % 2 else text}," for i in range(20)]
    assert capsys.readouterr().out == "\n".join(["a,b,c", *lines, ""])


def test_first_rows() -> None:
    rows = [*range(9)]
    output = options.Output
    assert [len(output(limit=n).head(rows, 3)) for n in (None, 0, 2, 99)] == [3, 0, 2, 9]
    assert output(json=True).head(rows, 3) == output(csv=True).head(rows, 3) == output().head(rows) == rows
    assert [len(output(csv=True, limit=n).head(rows, 3)) for n in (0, 2)] == [0, 2]
    assert options.labels_of(["a=1=2", "b="]) == {"a": "1=2", "b": ""}
    for text, message in (("a", "KEY=VALUE, not 'a'"), ("=1", "KEY=VALUE, not '=1'")):
        with pytest.raises(UsageError, match=message):
            options.labels_of([text])
    for texts in (["a=1", "a=1"], ["a=", "a=1"]):
        with pytest.raises(UsageError, match="'a' is given twice"):
            options.labels_of(texts)
    none: Any = None
    assert [options._space(none, none, text) for text in (None, "hbm", "0", "12", "-1", "")] == [None, "hbm", 0, 12,
        "-1", ""]


@pytest.mark.parametrize(
    ("value", "plain", "cell"),
    [
        (None, None, "-"), (True, True, "true"), (5, 5, "5"), (1.5, 1.5, "1.5"), (1234567.25, 1234567.25, "1234567.2"),
        (-1234567.25, -1234567.25, "-1234567.2"), (0.1 + 0.2, 0.1 + 0.2, "0.3"), (float("inf"), None, "inf"),
        (Decimal("5.0"), 5, "5"), (Decimal("5.25"), 5.25, "5.25"), ([1, Decimal(2)], [1, 2], "[1, 2]"),
        ({1: float("nan")}, {"1": None}, "{'1': None}"), ("a\nb", "a\nb", "a\\nb"), (Path("x"), "x", "x"),
    ],
)  # fmt: skip
def test_values_of_tables(value: Any, plain: Any, cell: str) -> None:
    assert (tables._plain(value), tables._cell(value)) == (plain, cell)


def test_lists_of_wide_rows() -> None:
    lines = tables._lists(["a", "long"], [["1", "x" * 50], ["2", "y"]], 30)
    assert [str(line) for line in lines] == ["a     1", f"long  {'x' * 12}…{'x' * 11}", "", "a     2", "long  y"]
    kinds = (pa.int8(), pa.float32(), pa.decimal128(5, 2), pa.string(), pa.bool_(), pa.date32())
    assert [tables._is_numeric(kind) for kind in kinds] == [True] * 3 + [False] * 3
    for output, limit in (
        (options.Output(limit=3), 3), (options.Output(json=True), None), (options.Output(csv=True, limit=0), 0),
        (options.Output(wide=True), None),
    ):  # fmt: skip
        assert tables.default_limit(output) == limit


# -- charts --------------------------------------------------------------------------------------


def test_bars() -> None:
    assert [len(chart.bar(part, 100, 20)) for part in (0, 1, 7, 8, 50, 100)] == [0, 1, 1, 2, 10, 20]
    assert chart.bar(5, 0, 9) == ""


@pytest.mark.parametrize(("steps", "width"), [(1, 10), (3, 10), (10, 10), (11, 10), (5, 11), (95, 40), (7, 1)])
def test_columns_of_a_chart(steps: int, width: int) -> None:
    """Each shows some steps, or several show one; that of a step is the first which shows it."""
    starts = chart.column_starts(steps, width)
    assert len(starts) <= width
    assert starts[0] == 0
    if steps <= width:
        repeat = max(1, min(4, width // steps))
        assert starts.tolist() == [s for s in range(steps) for _ in range(repeat)]
    for step in range(steps):
        before = [i for i, start in enumerate(starts) if start <= step]
        assert starts[chart.column_of(starts, step)] == starts[before[-1]]
        assert chart.column_of(starts, step) == list(starts).index(starts[before[-1]])


def test_rows_of_a_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    heights = np.array([0, 1, 8, 9, 16, 12])
    assert chart.chart_rows(heights, 16, 2) == ["   ▁█▄", " ▁████"]
    assert chart.chart_rows(heights, 16, 1) == [" ▁▄▅█▆"]
    assert chart.sparkline(np.array([1, 2]), 9) == "▄▄▄▄████ "
    monkeypatch.setattr(chart, "is_unicode", lambda: False)
    assert chart.chart_rows(heights, 16, 1) == [" .:=#+"]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, ["    ████     16 B", "▁▁▁▁████▄▄▄▄", "████████████ 0 B", "    ▲ step 1"]),
        ({"floor": 4}, ["    ████     16 B", "    ████▂▂▂▂", "    ████████ 4 B", "    ▲ step 1"]),
        ({"rows": 1, "floor": 4}, ["    ████▄▄▄▄ 16 B", "    ▲ step 1 from 4 B"]),
        ({"capacity": 20}, ["┄┄┄┄▄▄▄▄┄┄┄┄ 20 B", "    ████▂▂▂▂", "████████████ 0 B", "    ▲ step 1"]),
        ({"capacity": 8}, ["    ████     16 B", "▁▁▁▁████▄▄▄▄ 8 B", "████████████ 0 B", "    ▲ step 1"]),
    ],
)
def test_a_chart(options: dict[str, Any], lines: list[str]) -> None:
    arguments: dict[str, Any] = {"floor": 0, "capacity": None, "rows": 3, "width": 23, **options}
    drawn = chart.usage_chart(np.array([6, 16, 8]) if "floor" not in options else np.array([4, 16, 9]), 1, **arguments)
    assert [str(line).rstrip() for line in drawn] == lines


def test_what_is_highlighted() -> None:
    """The peak, and steps above a capacity."""
    usage = np.array([8, 16, 9, 9])
    for capacity, n in ((None, 1), (8, 3), (9, 1), (20, 1)):
        line = chart.usage_chart(usage, 1, floor=0, capacity=capacity, rows=1, width=15)[0]
        red = sum(span.end - span.start for span in line.spans if "bold red" in str(span.style))
        assert red == n
    assert str(chart._marker(9, 7, 10, 0)).rstrip() == "  step 7 ▲"
    assert str(chart._marker(2, 7, 10, 0)).rstrip() == "  ▲ step 7"
    assert str(chart._marker(3, 7, 10, 0)).rstrip() == "step 7 ▲"


def test_trees() -> None:
    def scope(name: str, size: int, *children: FoldedScope, n: int = 1) -> FoldedScope:
        node: Any = SimpleNamespace(n=n, bytes=size)
        return FoldedScope(name, node, list(children))

    scopes = [scope("a", 60, scope("b", 50, scope("c", 40)), scope("d", 10, n=2)), scope("temp", 40, n=1234)]
    text = [str(line).split("%  ")[1] for line in tree_lines(scopes, 100, None)]
    assert text == ["a", "├─ b", "│  └─ c", "└─ d  2×", "temporaries  1,234×"]


@pytest.mark.parametrize(
    ("limit", "names"), [(4, ["b", "layers_0", "layers_1"]), (3, ["b", "layers_*"]), (2, ["b", "layers_*"])]
)
def test_layers_are_folded_where_a_tree_takes_all_lines(limit: int, names: list[str]) -> None:
    """Then scopes may be left out."""
    screen: Any = top.Screen.__new__(top.Screen)
    screen.limit = limit
    rows = pa.table({"scope": ["layers_0", "layers_1", "b"], "bytes": [20, 20, 60], "n": [1, 1, 1]})
    assert [scope.name for scope in screen._tree(rows, "scope")] == names


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_long_name_and_path_fit_above_a_screen(width: int) -> None:
    """What follows the name stays whole."""
    module = {"module_name": "f" * 99, "platform": "tpu", "target": "v5e", "schedule_length": 12, "module_id": 3}
    source: Any = SimpleNamespace(name="f", location="/runs/" + "d" * 99)
    name, path = (str(line) for line in header(source, module, [], width))
    assert len(name) <= width
    assert len(path) <= width
    assert name.endswith("f  tpu v5e, 12 steps")
    assert path.startswith("module 0003 in …")


def test_notes() -> None:
    notes = [Note("first", "the text"), Note("second", "more"), Note("third", "x")]
    (line,) = note_lines(notes, None, verbose=False)
    assert str(line) == "3 notes: first; second; third; -v lists them"
    assert str(note_lines(notes, 40, verbose=False)[0]) == "3 notes: first; second; …; -v lists them"
    assert str(note_lines(notes, 39, verbose=False)[0]) == "3 notes: first; …; -v lists them"
    assert str(note_lines(notes, 20, verbose=False)[0]) == "3 notes; -v lists them"
    assert str(note_lines(notes[:1], None, verbose=False)[0]) == "1 note: first; -v shows it"
    assert [str(line) for line in note_lines(notes[:2], None, verbose=True)] == ["2 notes:", "  - the text", "  - more"]
    assert note_lines([], None, verbose=True) == []


# -- convert -------------------------------------------------------------------------------------


def converted(**more: Any) -> Any:
    plain = {"dumps": 0, "rows": 0, "files": 0, "bytes": 0, "already_stored": 0, "occurrences": 0, "duplicates": 0,
             "unreadable": 0, "seconds": 0.0, "text_bytes": 0, "failed": [], "empty": [], "cut": [], "recent": 0,
             "changed": [], "known": 0, "stopped": False}  # fmt: skip
    return SimpleNamespace(**{**plain, **more})


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({}, "0 dumps to x: 0 rows in 0 files, 0 bytes"),
        ({"dumps": 2, "rows": 1, "files": 1, "bytes": 2048, "occurrences": 2, "seconds": 4.0, "text_bytes": 8 * MIB},
         "2 dumps to x: 1 row in 1 file, 2.00 KiB (2,048 bytes); 4.0 s (0 dumps/s, 2.00 MiB/s)"),
        ({"dumps": 1, "occurrences": 3, "duplicates": 2, "already_stored": 1234, "unreadable": 5},
         "1 dump to x: 0 rows in 0 files, 0 bytes; 1,234 already stored; 3 occurrences; 2 duplicates; 5 unreadable"),
    ],
)  # fmt: skip
def test_summaries_of_conversions(about: Row, text: str) -> None:
    assert convert.summary(converted(**about), "x") == text


def test_notes_of_conversions(capsys: pytest.CaptureFixture[str]) -> None:
    fault = SimpleNamespace(uri="u", line=None, offset=None, excerpt="", error="bad", kind="content", attempts=1)
    for n in (10, 11, 12):
        convert.report_failures(converted(failed=[fault] * n))
        lines = capsys.readouterr().err.splitlines()
        more = [f"note: {n - 10} more unreadable: see the table quarantine"] if n > 10 else []
        assert lines == ["error: u: bad"] * 10 + more
    names = [f"n{i}" for i in range(6)]
    convert.report_incomplete(converted(empty=names[:5], cut=names))
    convert.report_notes(converted(recent=1, changed=names[:1], known=2, stopped=True))
    convert.report_notes(converted(known=1))
    convert.report_notes(converted())
    convert.report_incomplete(converted())
    assert [line.removeprefix("note: ") for line in capsys.readouterr().err.splitlines()] == [
        "no dump in n0, n1, n2, n3, n4",
            "truncated, converted up to the point of truncation: n0, n1, n2, n3, n4 and 1 more",
        "1 dump modified less than --min-age ago, left for the next run",
        "1 dump changed while being read, left for the next run: n0",
        "2 dumps in quarantine since an earlier run: --retry-quarantine retries them",
        "stopped after more failures than --max-failures: repeat the command to resume",
        "1 dump in quarantine since an earlier run: --retry-quarantine retries it",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({}, "u: bad"),
        ({"line": 3, "offset": 1234, "excerpt": "x"}, "u:3 (byte 1,234): bad, found 'x'"),
        ({"offset": 0}, "u (byte 0): bad"),
        ({"error": "u is bad", "line": 3}, "u is bad"),
        ({"kind": "system", "attempts": 2}, "u: bad (failed 2 times; the next run retries it)"),
    ],
)
def test_unreadable_dumps(about: Row, text: str) -> None:
    plain = {"uri": "u", "line": None, "offset": None, "excerpt": "", "error": "bad", "kind": "content", "attempts": 1}
    assert convert._describe(SimpleNamespace(**{**plain, **about})) == text


def test_progress_in_words() -> None:
    s: Any = SimpleNamespace(phase="read", dumps=5, of_dumps=1234, bytes=30 * MIB, of_bytes=90 * MIB, seconds=60.0,
                             failed=3)  # fmt: skip
    assert convert._line(s) == "read: 5 of 1,234 dumps, 30.00 MiB of 90.00 MiB, 512.00 KiB/s, 2 min left, 3 unreadable"
    assert convert._counts(s) == "5/1,234 30.00 MiB of 90.00 MiB 512.00 KiB/s 3 failed"
    s = SimpleNamespace(phase="find", dumps=5, of_dumps=6, bytes=0, of_bytes=0, seconds=2.0, failed=0)
    assert (convert._line(s), convert._counts(s)) == ("find: 5 of 6 dumps", "5/6")


def test_the_bar_of_a_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts bytes where they are known, else dumps, and has no end before their number is known."""
    updates: list[Any] = []

    class Bar:
        def __init__(self, *columns: Any, console: Any, transient: bool) -> None:
            updates.append((console.stderr, transient))

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            updates.append("closed")

        def add_task(self, name: str, *, total: int | None, counts: str) -> str:
            return f"the task {name}, {total}, {counts!r}"

        def update(self, task: str, **fields: Any) -> None:
            updates.append((task, fields))

    monkeypatch.setattr("rich.progress.Progress", Bar)
    monkeypatch.setattr(convert.sys, "stderr", SimpleNamespace(isatty=lambda: True))
    plain: Row = {"phase": "find", "dumps": 0, "of_dumps": 0, "bytes": 0, "of_bytes": 0, "seconds": 0.0, "failed": 0}
    with convert.progress(hidden=False) as update:
        assert update is not None
        for about in ({}, {"dumps": 3, "of_dumps": 4, "bytes": 7}, {"dumps": 3, "of_dumps": 4, "of_bytes": 9}):
            update(SimpleNamespace(**{**plain, **about}))  # type: ignore[arg-type]
    numbers = [(0, None, "0/0"), (3, 4, "3/4"), (0, 9, "3/4 0 B of 9 B")]
    assert updates == [
        (True, True),
        *(("the task find, None, ''", {"description": "find", "completed": done, "total": total, "counts": counts})
          for done, total, counts in numbers),
        "closed",
    ]  # fmt: skip


# -- programs ------------------------------------------------------------------------------------


def test_verdicts_of_several_programs() -> None:
    def fits(*found: bool | None, device: str | None = "v5e") -> list[Any]:
        return [SimpleNamespace(fits=f, device=device, available=MIB) for f in found]

    assert _count_verdicts([]) == []
    assert _count_verdicts(fits(True, True)) == ["all fit in v5e (1.00 MiB)"]
    assert _count_verdicts(fits(False, True, None, device=None)) == ["1 does not fit in 1.00 MiB", "fit unknown for 1"]
    assert _count_verdicts(fits(False, False)) == ["2 do not fit in v5e (1.00 MiB)"]
    assert _count_verdicts(fits(None, True)) == ["fit unknown for 1"]
    module = {"complete": True, "understood": True, "consistent": True}
    module["platform"] = "cpu"
    for verdict, states, other in (
        (True, [], False), (False, ["does not fit"], False), (None, ["fit unknown"], False), (None, ["for cpu"], True),
    ):  # fmt: skip
        about = {"fits": verdict, "other_platform": other, "__bool__": lambda self: self.fits is True}
        answer = type("Fits", (), about)()
        p: Any = SimpleNamespace(overview=SimpleNamespace(module=module), fits=answer)
        assert _states(p) == states


def test_names_in_a_list_do_not_depend_on_its_length() -> None:
    """They lack the folders that all programs share, also those that are not listed."""
    module = {"complete": True, "understood": True, "consistent": True}

    def program(folder: str) -> Any:
        source = SimpleNamespace(location=folder, label="f")
        overview = SimpleNamespace(device_total=8, spaces=[], module=module, source=source)
        return SimpleNamespace(fits=None, overview=overview)

    listed = [program(folder) for folder in ("/d/a", "/d/a", "/d/b")]
    for limit in (2, 3):
        names = [str(line).split()[-1] for line in list_programs(listed, 0, limit, None)[1 : limit + 1]]
        assert names == ["a/f", "a/f", "b/f"][:limit]


def pair(how: str, a: tuple[Any, Any] | None, b: tuple[Any, Any] | None, **more: Any) -> Row:
    """Return a row of `pairs` with device_total and peak of both sides."""
    row: Row = {"how": how, "score": None, "reason": ""}
    for side, numbers, folder in (("a", a, "old"), ("b", b, "new")):
        there = numbers is not None
        row |= {f"program_{side}": 0 if there else None, f"readable_{side}": there or None,
                f"device_total_{side}": numbers[0] if numbers else None,
                    f"peak_{side}": numbers[1] if numbers else None,
                f"module_name_{side}": "jit_f" if there else None, f"module_id_{side}": None, f"id_{side}": None,
                f"uri_{side}": f"/{folder}/x/f.txt" if there else None, f"occurrences_{side}": 1,
                f"problem_{side}": None}  # fmt: skip
    return row | more


def changes(*rows: Row, verdict: str = "") -> Changes:
    table: Any = SimpleNamespace(to_pylist=lambda: [dict(row) for row in rows])
    return Changes(table, verdict)


def test_changes_of_programs() -> None:
    rows = [
        pair("same", (5, 5), (5, 5)), pair("interface", (5, 5), (9, 5)), pair("same", (5, 5), (1, 9)),
        pair("new", None, (3, 3)), pair("gone", (7, 7), None), pair("interface", (5, 5), (5, 3)),
        pair("same", (5, 5), (5, None)), pair("name", (5, 5), (5, 5)), pair("similar", (None, None), (2, 2),
            problem_a="it is cut"),
        pair("new", None, (None, None), readable_b=False, problem_b="bad"), pair("same", (5, None), (6, None)),
    ]  # fmt: skip
    c = changes(*rows)

    def numbers(found: list[Row]) -> list[int]:
        return [rows.index(row) for row in found]

    assert numbers(c.changed) == [2, 1, 10, 5]
    assert numbers(c.unknown) == [6, 8]
    assert numbers(c.alone) == [4, 3]
    assert numbers(c.listed) == [2, 1, 10, 5, 6, 8, 4, 3]
    assert numbers(c.ordered) == [2, 1, 10, 5, 6, 8, 4, 3, 0, 7, 9]
    assert (c.is_known, c.has_grown) == (False, True)
    assert c.unreadable == ["B: /new/x/f.txt: bad"]
    assert c.problems == ["its numbers are not stored (3 dumps)", "it is cut (1 dump)"]
    assert c.summary == (
        "11 programs: 4 changed (3 grew), 1 compiled differently with the same numbers, 2 unknown, 1 new, 1 gone,"
        " 1 unreadable, 1 the same."
    )
    assert changes(rows[0], rows[0]).summary == "Nothing changed: 2 programs."
    assert changes(pair("interface", (5, 5), (4, 5))).summary == "1 program: 1 changed, 0 the same."
    assert not changes(pair("interface", (5, 5), (4, 5))).has_grown
    both = pair("same", (5, 5), (5, 5), readable_a=False, readable_b=False, problem_a="x", problem_b="y")
    assert changes(both).unreadable == ["A: /old/x/f.txt: x", "B: /new/x/f.txt: y"]
    for side in "ab":
        numbers_of = {"a": (5, 5), "b": (5, 5)} | {side: (None, None)}
        bad = changes(pair("name", **numbers_of, **{f"readable_{side}": False, f"problem_{side}": "x"}))
        assert (bad.changed, bad.unknown, bad.listed, bad.ordered) == ([], [], [], bad.rows)
        assert (bad.is_known, bad.problems, len(bad.unreadable)) == (False, [], 1)
        assert bad.summary == "1 program: 0 changed, 1 unreadable, 0 the same."


def test_cells_of_programs() -> None:
    assert cells(pair("same", (MIB, 5), (2 * MIB, 4))) == ["1.00 MiB", "2.00 MiB", "+1.00 MiB", "-1 B"]
    assert cells(pair("new", None, (5, 5))) == ["", "5 B", "[NEW]", ""]
    assert cells(pair("gone", (5, 5), None)) == ["5 B", "", "[GONE]", ""]
    assert cells(pair("same", (None, 5), (5, 5))) == ["?", "5 B", "unknown", "±0"]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([pair("same", (1, 1), (1, 1))], ["jit_f"]),
        ([pair("same", (1, 1), (1, 1), module_id_a=1, module_id_b=2)], ["0002.jit_f"]),
        ([pair("same", (1, 1), (1, 1), module_name_a="jit_e")], ["jit_e -> jit_f"]),
        ([pair("gone", (1, 1), None, module_name_a=None)], ["f.txt"]),
        ([pair("same", (1, 1),
        (1, 1)), pair("new", None, (1, 1), uri_b="/new/y/z/f.txt")], ["jit_f -> x/jit_f", "y/z/jit_f"]),
    ],
)
def test_names_of_pairs(rows: list[Row], names: list[str]) -> None:
    c = changes(*rows)
    assert [c.name(row) for row in c.rows] == names


@pytest.mark.parametrize(
    ("others", "name"),
    [
        ([], "jit_f"), ([{"module_name_a": "x", "module_name_b": "y"}], "jit_f"), ([{}], ""),
        ([{"module_name_a": "x"}], ""), ([{"module_name_b": "y"}], ""),
    ],
)
def test_a_name_that_selects_a_program(others: list[Row], name: str) -> None:
    """On both sides, no other program may have it."""
    rows = [pair("same", (5, 5), (6, 6)), *(pair("same", (5, 5), (5, 5), **more) for more in others)]
    c: Any = SimpleNamespace(largest=1, are_dumps=True, rows=rows)
    assert pairs._selectable(c, rows[0]) == name


def show_room(monkeypatch: pytest.MonkeyPatch, reporter: Any) -> Any:
    """Return an output of 50 columns; a text that is wrapped becomes two lines, which name the room."""
    monkeypatch.setattr(reporter, "wrap", lambda text, indent, width: [f"{text} {width - indent}", "more"])
    output: Any = SimpleNamespace(width=50, limit=None, head=options.Output().head)
    return output


def test_a_screen_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is indented has less room."""
    output = show_room(monkeypatch, pairs)
    row = pair("same", (5, 5), (6, 6))
    found = [str(line).rstrip() for line in pairs.screen(changes(row, verdict="why"), output)]
    assert found[:3] == ["1 program: 1 changed (1 grew), 0 the same. 50", "more", ""]
    assert found[-5:] == ["", "largest change  jit_f 34", "                more", "  why 48", "  more"]
    (head, about) = (str(line) for line in pairs._table([row], ["jit_f"], 50))
    assert found[3:-5] == [head, about]
    found = [str(line) for line in pairs.screen(changes(pair("same", (5, None), (6, 6))), output)]
    assert found[-2:] == ["Not known: its numbers are not stored (1 dump) 48", "more"]


def test_a_screen_of_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is indented has less room."""
    output = show_room(monkeypatch, series)
    monkeypatch.setattr(series, "_rows", lambda over, rows, width: [f"{len(rows)} of {width}"])
    monkeypatch.setattr(series, "program_name", lambda row: row)
    over: Any = SimpleNamespace(
        series=SimpleNamespace(summary="all"), listed=["f", "g"], problems=["bad"], event=lambda row: "2: +5 B",
        verdicts=lambda rows, limit: [(row, "why") for row in rows[1:]],
    )  # fmt: skip
    assert [str(line) for line in series.screen(over, output)] == [
        "all 50", "more", "", "2 of 50", "Not known: bad 48", "more", "", "2  g", "  why 48", "  more",
    ]  # fmt: skip
    over.listed = []
    assert [str(line) for line in series.screen(over, output)][2] == "Not known: bad 48"


# -- series --------------------------------------------------------------------------------------


def over(levels: list[int], jump: Row | None = None, n: int | None = None) -> Any:
    points = [f"p{i}" for i in range(n or len(levels))]
    made = SimpleNamespace(points=points, jump=lambda row: jump, levels=lambda row: np.array(levels))
    return made


def test_cells_of_points() -> None:
    """With the change since the last point at which the number is known."""
    levels = [5, UNKNOWN, 7, ABSENT, 7, 4, UNKNOWN]
    row: Row = {}
    assert _cells(over(levels), row, [*range(7)]) == ["5 B", "?", "7 B **+2 B**", "", "7 B", "4 B **-3 B**", "?"]
    assert _cells(over(levels), row, [1, 3, 5]) == ["?", "", "4 B"]


def test_points_of_a_table() -> None:
    jump = {"ordinal_a": 5, "ordinal_b": 9}
    rows: list[Row] = [{}]
    assert _chosen_points(over([], None, 12), rows) == [*range(12)]
    assert _chosen_points(over([], jump, 13), rows) == [0, 5, 9, 12]
    assert _chosen_points(over([], None, 13), rows) == [0, 12]
    many = [{"ordinal_a": 2 * i + 1, "ordinal_b": 2 * i + 2} for i in range(9)]
    found = SimpleNamespace(points=[""] * 40, jump=lambda row: many[row["i"]])
    chosen: Any = found
    assert _chosen_points(chosen, [{"i": i} for i in range(9)]) == sorted([0, 39, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9])


def test_events_of_a_series() -> None:
    jump: Row | None = {"ordinal_a": 0, "ordinal_b": 2, "change": 5, "peak_change": 7}
    own: Any = SimpleNamespace(points=["a", "b", "c"], jump=lambda row: row["jump"])
    row = {"ordinal_first": 0, "ordinal_last": 2, "jump": jump}
    assert Over.event(own, row) == "a -> c: +5 B"
    assert Over.event(own, {**row, "jump": {**jump, "change": 0}}) == "a -> c: peak +7 B"  # type: ignore[dict-item]
    for first, last, text in ((1, 2, "[NEW] at b"), (0, 1, "[GONE] after b"), (1, 1, "[NEW] at b, [GONE] after b"),
        (0, 2, "")):
        assert Over.event(own, {"ordinal_first": first, "ordinal_last": last, "jump": None}) == text
    verdicts: Any = SimpleNamespace(_verdict=lambda jump: f"v{jump}")
    rows = [{"jump": 0}, {"jump": None}, *({"jump": i} for i in range(1, 20))]
    for limit, n in ((None, 1), (0, 0), (1, 1), (3, 2), (99, 9)):
        found = Over.verdicts(verdicts, rows, limit)
        assert [text for _, text in found] == [f"v{i}" for i in range(n)]


def test_lines_of_a_series() -> None:
    assert sparkline(np.array([5, 5, UNKNOWN, ABSENT]), 9) == "▄▄· "
    assert sparkline(np.array([0, 7, 3, ABSENT]), 9) == "▁█▄ "
    assert sparkline(np.array([0, 7, 3, 1]), 2) == "█▁"
    assert sparkline(np.array([ABSENT, UNKNOWN]), 9) == " ·"
    for total, peak, style in (((1, 2), (2, 1), "red"), ((2, 1), (1, 2), "red"), ((1, 1), (1, 1), ""), ((None, None),
        (1, 0), ""), ((0, 1), (0, 0), "red"), ((1, 0), (0, 1), "red")):
        row = dict(zip(("device_total_first", "device_total_last", "peak_first", "peak_last"), (*total, *peak),
            strict=True))
        assert _style(row) == style


# -- buffers -------------------------------------------------------------------------------------


def buffer_row(**more: Any) -> Row:
    plain: Row = {
        "op_name": "a/b", "instruction": "add.1", "shape_index": None, "argument": None, "argument_index": None,
        "origin": "own", "opcode": "add", "source_file": "/u/v/m.py", "source_line": 3, "shape": "f32[8]{0:T(8)}",
        "role": "value", "size": 100, "unpadded_size": 90, "origin_instruction": "x.1", "n_shapes": 1,
            "category": "temp",
    }  # fmt: skip
    return {**plain, **more}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({}, "a/b"), ({"name": "n"}, "n"), ({"op_name": None}, "add.1"),
        ({"op_name": None, "shape_index": "{1}"}, "add.1{1}"),
        ({"op_name": None, "shape_index": "{}"}, "add.1"), ({"op_name": None, "instruction": None}, "?"),
        ({"op_name": None, "argument": 0}, "argument 0"),
        ({"op_name": None, "argument": 2, "argument_index": "{1}"}, "argument 2{1}"),
        ({"origin": "user"}, "read by a/b"), ({"origin": "operand", "opcode": "copy-done"}, "copy of a/b"),
        ({"origin": "argument", "opcode": "transpose"}, "transpose of a/b"), ({"origin": "operand"}, "a/b"),
        ({"origin": "slot", "opcode": "copy"}, "a/b"), ({"origin": "operand", "opcode": None}, "a/b"),
    ],
)  # fmt: skip
def test_labels_of_buffers(row: Row, text: str) -> None:
    assert buffers.label(buffer_row(**row)) == text


def test_places_of_buffers() -> None:
    row = buffer_row()
    assert [buffers.source_line(row, width) for width in (None, 11, 10, 8, 6)] == [
        "/u/v/m.py:3", "/u/v/m.py:3", "…/v/m.py:3", "m.py:3", "m.py:3",
    ]  # fmt: skip
    assert buffers.source_line(buffer_row(source_line=None)) == "/u/v/m.py"
    assert buffers.source_line(buffer_row(source_file=None)) == ""
    twins = [buffer_row(source_file=f"/u/{folder}/deep/m.py") for folder in "xy"]
    assert len({*buffers.source_lines(twins, 12)}) == 2
    assert buffers.source_lines([row, row], 8) == ["m.py:3"] * 2
    rows = [row, buffer_row(source_file="/w/n.py")]
    assert buffers._sources(rows, None) == ["/u/v/m.py:3", "/w/n.py:3"]
    assert buffers._sources(rows, 80) == ["m.py:3", "n.py:3"]
    assert len({*buffers._sources(twins, 80)}) == 2


def test_room_for_shapes_and_values() -> None:
    """The shape leaves room for the notes and a short value, which gets all that is left."""
    row = buffer_row(shape=f"f32[{'8,' * 40}4]", unpadded_size=None, bytes=100, shared=False)
    for room in range(40, 70):
        line = buffers._value_line(row, "v" * 60, room, 7).plain
        shape, value, notes = line.split()
        assert (notes, len(shape), len(value)) == ("temp", room - 4 - 22, 18)
        assert (line[:7].strip(), len(line)) == ("", 7 + room)
    for room, widths in ((39, [13, 18]), (38, [12, 18]), (37, [12, 17]), (30, [12, 10]), (29, [12, 9]), (20, [12, 9])):
        words = buffers._value_line(row, "v" * 60, room, 7).plain.split()
        assert [*map(len, words[:2])] == widths
    assert buffers._value_line(row, "", 60, 0).plain.split()[1:] == ["temp"]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({}, "f32[8] 10 % padding"), ({"unpadded_size": 91}, "f32[8]"),
        ({"unpadded_size": 50, "size": 200}, "f32[8] 75 % padding"),
        ({"n_shapes": 2}, "f32[8] +1"), ({"n_shapes": 7, "kind": "gradient"}, "f32[8] +6 gradient"),
        ({"n_shapes": 1200, "shape": None}, "1,200 shapes"),
        ({"category": "live_out", "unpadded_size": None}, "f32[8] output"),
        ({"role": "reserved"}, "f32[8]"), ({"shape": None, "unpadded_size": None}, ""),
        ({"iterations": 8, "shape": "f32[8,4]", "unpadded_size": None}, "f32[8 × 4]"),
    ],
)  # fmt: skip
def test_shapes_of_buffers(row: Row, text: str) -> None:
    assert buffers._about(buffer_row(**row), wide=False) == text


def test_the_shape_of_the_largest_buffer_of_a_group_is_kept() -> None:
    row = buffer_row(bytes=1 << 30, n=32, n_shapes=7, kind="gradient", shape="f32[10,512,512,64]{3,2,1,0:T(8,128)}")
    other: Row = {"name": "an_outer_scope/read by dot_general", "shape": "bf16[10,512,512,64]", "size": 90}
    rows = [row, buffer_row(bytes=9, n=1, **other)]

    def cells(width: int | None) -> list[list[str]]:
        return [re.split(" {2,}", str(line).strip()) for line in buffers.group_lines(rows, width, wide=False)]

    shape = "f32[10,512,512,64] +6"
    assert cells(None)[0] == ["1.00 GiB", "32× a/b", f"{shape} gradient", "/u/v/m.py:3"]
    assert cells(99)[0] == ["1.00 GiB", "32× a/b", f"{shape} gradient", "m.py:3"]
    assert cells(80) == [
        ["1.00 GiB", "32× a/b", f"{shape} grad", "m.py:3"],
        ["9 B", "…/read by dot_general", "bf16[10,512,512,64]", "m.py:3"],
    ]
    assert cells(66)[0][2] == "f32[10,512… +6 grad"
    assert [buffers._about(row, n, wide=False, short=True) for n in (17, 16, 12, 11, 9, 4)] == [
        "f32[10,5… +6 grad", "f32[10,512,5… +6", "f32[10,5… +6", "f32[10,512…", "f32[10,5…", "",
    ]  # fmt: skip


def test_padding_is_never_negative() -> None:
    assert [buffers.padding_bytes(buffer_row(size=s, unpadded_size=u)) for s, u in ((9, 5), (5, 9), (5,
        None))] == [4, 0, 0]
    assert buffers._fitted([30, 40, 20], 90) == [30, 40, 20]
    assert buffers._fitted([30, 40, 20], 80) == [30, 30, 20]
    assert buffers._fitted([30, 40, 20], 70) == [30, 26, 14]
    assert buffers._fitted([30, 10, 20], 50) == [26, 10, 14]


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"start": None}, "at unknown steps: it has no live range"),
        ({}, "steps 2-5 of 9, not at the peak (step 6)"),
        ({"peak_step": 5}, "steps 2-5 of 9, including the peak (step 5)"),
        ({"peak_step": 2}, "steps 2-5 of 9, including the peak (step 2)"),
        ({"peak_step": None}, "steps 2-5 of 9"),
        ({"peak_step": None, "last": {"instruction": "x", "step": 5}}, "steps 2-5 of 9; last read by x at step 5"),
        ({"peak_step": None, "end": 9}, "steps 2-9 of 9; live to the end"),
        ({"peak_step": None, "end": 9, "category": "donated"},
            "steps 2-9 of 9; kept to the end as a parameter or output"),
        ({"peak_step": None, "end": 8, "category": "donated"}, "steps 2-8 of 9"),
    ],
)
def test_when_a_buffer_is_live(about: Row, text: str) -> None:
    plain = {"start": 2, "end": 5, "peak_step": 6, "last": None, "category": "temp", **about}
    b: Any = SimpleNamespace(start=plain["start"], end=plain["end"], peak_step=plain["peak_step"],
                             last_user=plain["last"], value={"category": plain["category"]})  # fmt: skip
    assert buffer._live(b, 9) == text


def test_callers_of_a_buffer() -> None:
    calls: list[Row] = [{"file": f"/m/{c}.py", "line": i, "function": f"f {c}"} for i, c in enumerate("abcde")]
    shown = [f"{c}.py:{i} (f {c})" for i, c in enumerate("abcd")]
    assert [buffer._calls(calls[:n]).replace("\xa0", " ") for n in (0, 1, 2, 4, 5)] == [
        "", "", " < ".join(shown[:2]), " < ".join(shown), " < ".join([*shown, "…"]),
    ]  # fmt: skip
    assert buffers.call_text({"file": "a.py", "line": None, "function": None}) == "a.py"
    assert buffers.call_text({"file": "/a.py", "line": 3, "function": "f.<locals>.g"}) == "a.py:3 (g)"


def test_the_last_users_of_a_buffer() -> None:
    users = [{"step": 1}, {"step": None}, {"step": 3}, {"step": 7}]
    assert buffer._latest(users, 2) == [{"step": 7}, {"step": 3}]
    assert buffer._latest(users, 9) == [{"step": 7}, {"step": 3}, {"step": 1}]
    assert buffer._latest(users[1:2] * 2, 9) == [{"step": None}] * 2
    assert buffer._latest(users, 0) == []
    lines = buffer._list("also", ["x", "y"], [1, 2, 3, 4], 2, None)
    assert [" ".join(str(line).split()) for line in lines] == ["also x", "y", "2 more: --limit shows more"]
    assert len(buffer._list("also", ["x"], [1], 1, None)) == 1


def test_other_positions_of_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those in the shape of the instruction that defines it."""
    empty: Row = {"header": [], "describe_problems": [], "_about": []}
    for name in empty:
        monkeypatch.setattr(buffer, name, lambda *_, name=name: empty[name])
    positions = [buffer_row(shape_index="{0}"), buffer_row(shape_index="{1}"), buffer_row(instruction="tuple.2")]
    b: Any = SimpleNamespace(value=positions[0], users=[], positions=positions, mates=[])
    dump: Any = SimpleNamespace(modules=pa.table({"schedule_length": [3]}), source=None)
    lines = [str(line).split() for line in buffer.screen(dump, b, None, None)]
    assert lines[2:] == [["also", "add.1{1}"], ["tuple.2"]]


def test_steps_of_users_stay_whole() -> None:
    """12,450 must not read as 450: the op_name is shortened, and else the middle."""
    use = {"step": 12450, "instruction": "gather_fusion.4", "op_name": "jit(f)/while/body/closed_call/gather"}
    use |= {"source_file": None, "source_line": None}
    text = buffer._user(use)
    shown = {width: str(buffer._list("read by", [text], [use], 1, width)[0]) for width in (None, 80, 60, 40, 30)}
    assert all("  12,450 " in line for line in shown.values())
    assert shown[None].endswith("gather_fusion.4  jit(f)/while/body/closed_call/gather")
    assert shown[80].endswith(text)
    assert shown[60].endswith("gather_fusion.4  …/closed_call/gather")
    assert all(width is None or len(line) <= width for width, line in shown.items())


def test_readers_have_lines() -> None:
    use = {"step": 9, "instruction": "select.4", "op_name": None, "source_file": "/y/serve.py", "source_line": 57}
    assert buffer._user(use) == "       9  select.4  serve.py:57"
    assert buffer._user(use | {"op_name": "jit(f)/select_n"}) == "       9  select.4  serve.py:57  jit(f)/select_n"
    assert buffer._user(use | {"source_line": None}) == "       9  select.4  serve.py"


# -- packings and advice -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"lower_bound": 10_000}, "hbm: 9.77 KiB by the compiler; no packing needs less than 9.77 KiB"),
        ({"lower_bound": 9_991}, "hbm: 9.77 KiB by the compiler; no packing needs less than 9.76 KiB"),
        ({}, "hbm: 9.77 KiB by the compiler; none of 7 packings tried is better; no packing needs less than 8.79 KiB"),
        ({"is_optimal": True},
            "hbm: 9.77 KiB by the compiler; none of 7 packings tried is better; no packing needs less"),
        ({"found": 9_000, "is_optimal": True, "page": 2},
         "hbm page 2: 8.79 KiB by the best packing found, 1000 B less than the 9.77 KiB of the compiler;"
         " no packing needs less"),
    ],
)  # fmt: skip
def test_packings(about: Row, text: str) -> None:
    plain = {"memory_space": "hbm", "page": 0, "size": 10_000, "found": 10_000, "lower_bound": 9_000, "attempts": 7,
             "is_optimal": False}  # fmt: skip
    assert bill._packing(SimpleNamespace(**{**plain, **about})) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "n_causes", "shown"),
    [
        ((5, 2), 2, ["+5 B of 5"]), ((10, -50, 9), 2, ["-50 B of -50", "+10 B of 10"]),
        ((10, -50, 20), 2, ["-50 B of -50", "+20 B of 20", "and 1 more: see -v"]),
        ((5, 2, -50), None, ["-50 B of -50", "+5 B of 5", "+2 B of 2"]),
    ],
)  # fmt: skip
def test_causes_below_a_number(sizes: tuple[int, ...], n_causes: int | None, shown: list[str]) -> None:
    """The largest, and where not all are shown, none of less than a thousandth of the number."""
    number = {"name": "x", "time": 3, "bytes": 10_000}
    line = explain.Line(["x"], number, [{"cause": f"of {n}", "bytes": n} for n in sizes])
    step, texts = explain._Columns([number], 80, n_causes, verbose=False)._beside(line, 40)
    assert (step, [" ".join(text.split()) for text in texts]) == ("step 3", shown)


def test_packings_that_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a thousandth of the largest memory space at least."""
    packings: list[Any] = [SimpleNamespace(size=n) for n in (2000, 2, 1)]
    monkeypatch.setattr(bill, "_packing", lambda p: f"of {p.size}")
    assert plain_lines(bill._packing_lines(packings, 2000, None)) == ["packing of the temporaries", "of 2000", "of 2"]


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ((100, 0, 0, False), "It fits the budget of 100 B already."),
        ((99, 5, 1, True), "The following saves at least 5 B: 95 B must fit then, within the budget of 99 B."),
        ((99, 5, 2, True), "These 2 together save at least 5 B: 95 B must fit then, within the budget of 99 B."),
        ((90, 5, 2, False),
            "These 2 together save at least 5 B, which may not be enough: 95 B must fit then, 5 B more than the"
                            " budget of 90 B."),
        ((90, 0, 0, False),
            "Nothing is known to save memory for certain: 100 B must fit, 10 B more than the budget of 90 B."
                            " The following may help."),
    ],
)  # fmt: skip
def test_plans(plan: tuple[int, int, int, bool], text: str) -> None:
    p: Any = SimpleNamespace(**dict(zip(("budget", "saved", "n", "is_reached"), plan, strict=True)))
    assert advice._about_plan(p, 100, is_empty=False) == text
    assert advice._how_to_see(p, [{}] * 3, [{}] * 2) == advice._how_to_see(None, [], []) == "--limit shows more"
    others = "not needed for the budget; listed without it" if p.is_reached else "listed without a budget"
    assert advice._how_to_see(p, [{}] * 2, [{}] * 2) == others


def test_a_plan_without_advice() -> None:
    p: Any = SimpleNamespace(budget=90, saved=0, n=0, is_reached=False)
    wanted = f"{advice.NO_ADVICE} 100 B must fit, 10 B more than the budget of 90 B."
    assert advice._about_plan(p, 100, is_empty=True) == wanted
    p.budget = 100
    assert advice._about_plan(p, 100, is_empty=True) == "It fits the budget of 100 B already."


@pytest.mark.parametrize(
    ("plan", "limit", "ranks", "more"),
    [
        (None, None, [1, 2, 3], ""),
        (None, 2, [1, 2], "1 other intervention: --limit shows more"),
        (0, None, [1, 2, 3], ""),
        (0, 1, [1], "2 other interventions: --limit shows more"),
        (2, None, [1, 3], "1 other intervention: listed without a budget"),
        (2, 1, [1], "2 other interventions: --limit shows more"),
    ],
)
def test_interventions_that_are_listed(
    plan: int | None, limit: int | None, ranks: list[int], more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the plan, or all if nothing is certain to help."""
    rows = [{"rank": i, "in_plan": i != 1, "upper": 9} for i in range(3)]
    p: Any = SimpleNamespace(n=plan, budget=90, saved=0, is_reached=False, device_total=100)
    plan_of = None if plan is None else p
    dump: Any = SimpleNamespace(modules=pa.table({"a": [1]}), source=None, live_ranges=SimpleNamespace(num_rows=1))
    monkeypatch.setattr(advice, "header", lambda *_: [])
    monkeypatch.setattr(advice, "describe_problems", lambda _: "")
    monkeypatch.setattr(advice, "device_total", lambda _: 100)
    monkeypatch.setattr(advice, "_intervention", lambda row, _: [f"#{row['rank'] + 1}"])
    monkeypatch.setattr(advice, "_call_sites", lambda *_: {})
    monkeypatch.setattr(advice, "_rematerializes", lambda *_: "")
    lines = [str(line) for line in advice.screen(dump, rows, plan_of, options.Output(limit=limit, wide=True))]
    assert [int(line[1:]) for line in lines if line.startswith("#")] == ranks
    assert (lines[-1] if "other" in lines[-1] else "") == more


@pytest.mark.parametrize(
    ("upper", "reached", "limit", "wanted"),
    [
        (9, False, None, ["#1"]),
        (10, False, None, ["#1", advice.ENOUGH_ALONE, "#2"]),
        (10, True, None, ["#1"]),
        (10, False, 1, ["#1"]),
    ],
)
def test_interventions_that_may_be_enough_alone(
    upper: int, reached: bool, limit: int | None, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the plan is not enough for certain, those follow whose upper bound is."""
    rows: Any = [{"rank": 0, "in_plan": True, "upper": 99}, {"rank": 1, "in_plan": False, "upper": upper}]
    rows = [row | {"kind": "donate"} for row in rows]
    plan: Any = SimpleNamespace(n=1, budget=90, saved=9 + reached, is_reached=reached, device_total=100)
    dump: Any = SimpleNamespace(modules=pa.table({"a": [1]}), source=None, live_ranges=SimpleNamespace(num_rows=1))
    monkeypatch.setattr(advice, "header", lambda *_: [])
    monkeypatch.setattr(advice, "describe_problems", lambda _: "")
    monkeypatch.setattr(advice, "device_total", lambda _: 100)
    monkeypatch.setattr(advice, "_intervention", lambda row, _: [f"#{row['rank'] + 1}"])
    monkeypatch.setattr(advice, "_call_sites", lambda *_: {})
    monkeypatch.setattr(advice, "_rematerializes", lambda *_: "")
    lines = [str(line) for line in advice.screen(dump, rows, plan, options.Output(limit=limit, wide=True))]
    assert [line for line in lines if line.startswith("#") or line == advice.ENOUGH_ALONE] == wanted
    plan.n, plan.saved, plan.is_reached = 0, 0, False  # nothing helps for certain: all are listed, once
    rows = [row | {"in_plan": False} for row in rows]
    lines = [str(line) for line in advice.screen(dump, rows, plan, options.Output(wide=True))]
    assert [line for line in lines if line.startswith("#")] == ["#1", "#2"]


# -- accounts ------------------------------------------------------------------------------------


def plain_lines(lines: list[Any]) -> list[str]:
    return [" ".join(str(line).split()) for line in lines]


def test_small_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those below a thousandth of the largest one are summed up."""
    dump: Any = SimpleNamespace(modules=pa.table({"a": [1]}), source=None)
    for name in ("header", "_account"):
        monkeypatch.setattr(bill, name, lambda *_: [])
    monkeypatch.setattr(bill, "describe_problems", lambda _: "")
    for sizes, folded in (([1000, 1], 0), ([2000, 1], 1), ([2000, 2, 1, 1], 2)):
        accounts = [[{"bytes": n, "account": f"s{i}", "page": 0}] for i, n in enumerate(sizes)]
        monkeypatch.setattr(bill, "accounts_of", lambda _, accounts=accounts: accounts)
        (last,) = plain_lines(bill.screen(dump, [], None, None))[-1:]
        assert last.count(" 1 B") == folded, sizes
    assert [bill._is_small([{"bytes": 1}, {"bytes": n}], 2000) for n in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ({"data": 900}, False), ({"data": 900, "padding": 1}, True), ({"data": 1999, "padding": 1}, False),
        ({"padding": 1, "data": 1999}, False), ({"data": 1000, "a": 1, "padding": 999}, True),
        ({"a": 1, "data": 1998, "b": 1}, False),
    ],
)  # fmt: skip
def test_parts_of_a_line(parts: dict[str, int], shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed unless all but the largest are small."""
    monkeypatch.setattr(bill, "details", lambda rows: [(0, f"details of {rows[0]['part']}")])
    rows = [{"part": part, "bytes": n} for part, n in parts.items()]
    total = 1000 if sum(parts.values()) < 1000 else 2000
    texts = [str(line) for line in bill._line("temporaries", rows, total, None)]
    indents = {len(text) - len(text.lstrip()) for text in texts if "details" in text}
    assert indents == {bill.INDENT + 2 if shown else bill.INDENT}
    lines = plain_lines(texts)
    assert len(lines) == (1 + 2 * len(parts) if shown else 2)
    named = [line.removeprefix("details of ") for line in lines if line.startswith("details")]
    assert named == ([*parts] if shown else ["data"])


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({}, "output"), ({"bytes": 6}, "output, shares 2 B"), ({"bytes": 6, "shared": False}, "output"),
        ({"role": "reserved", "bytes": 6}, "output, reserved, not live"),
        ({"bytes": 6, "unpadded_size": 5}, "output, shares 2 B, 3 B padding"),
    ],
)
def test_notes_of_a_buffer(about: Row, text: str) -> None:
    """One that counts with all of its bytes shares none."""
    plain = {"category": "live_out", "role": "value", "size": 8, "bytes": 8, "unpadded_size": 8, "shared": True}
    assert buffers._notes({**plain, **about}) == text


@pytest.mark.parametrize(("width", "wide"), [(None, False), (None, True), (200, False), (200, True)])
def test_cells_of_a_buffer(width: int | None, wide: bool) -> None:
    """In a terminal, long names are shortened, and the source too, unless all of it is asked for."""
    source = "/home/user/project/models/transformer/layers.py"
    row = {
        "bytes": 2048, "size": 2048, "unpadded_size": 1024, "role": "value", "category": "live_out", "op_name": "a/b",
        "argument": None, "origin": "own", "opcode": "add", "source_file": source, "source_line": 17,
        "shape": f"f32[{'8,' * 20}4]{{1,0}}", "instruction": "n" * 40, "shape_index": "{1}",
    }  # fmt: skip
    shape, value = f"f32[{'8,' * 20}4]" + "{1,0}" * wide, "n" * 40 + "{1}"
    if width:
        shape, value = f"{shape[:12]}…{shape[-11:]}", f"{'n' * 12}…{'n' * 8}{{1}}"
    short = "…/transformer/layers.py:17" if width and not wide else f"{source}:17"
    assert buffers._cells(row, width, wide=wide) == ["2.00 KiB", "1.00 KiB", "a/b", short, shape, value, "output"]
    reserved = row | {"role": "reserved", "category": "temp", "source_file": None}
    assert buffers._cells(reserved, width, wide=wide) == [
        "2.00 KiB", "", "a/b", "", shape, value, "temp, reserved",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "wide", "columns"),
    [(None, False, True), (140, False, True), (139, False, False), (80, True, True), (200, False, True)],
)
def test_one_line_or_two(width: int | None, wide: bool, columns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_in_columns", lambda *_, wide: ["columns"])
    monkeypatch.setattr(buffers, "_two_lines", lambda *_: ["two"])
    assert buffers.buffer_lines([], width, wide=wide) == ["columns" if columns else "two"]


@pytest.mark.parametrize(("n_skipped", "code"), [(0, 0), (1, 3), (2, 3)])
def test_inputs_that_were_skipped(n_skipped: int, code: int) -> None:
    """The command runs, and its exit code says that there were some."""
    found: list[Any] = []
    decorated = options._opened("dump", lambda path, module: inputs.Opened((path, module), n_skipped))  # type: ignore[arg-type]
    run: Any = decorated(lambda **arguments: found.append(arguments))
    assert run("d", "m", step=4) == code
    assert found == [{"dump": ("d", "m"), "step": 4}]


def test_what_must_fit() -> None:
    def lines(reserved: dict[str, int], width: int | None) -> list[str]:
        return [" ".join(str(line).replace("\N{NO-BREAK SPACE}", " ").split()) for line in _must_fit(3 * MIB,
            reserved, width)]

    assert lines({"hbm": 3 * MIB}, None) == ["must fit 3.00 MiB (3,145,728 bytes) hbm"]
    assert lines({"hbm": 2 * MIB, "vmem": MIB},
        None) == ["must fit 3.00 MiB (3,145,728 bytes) hbm 2.00 MiB + vmem 1.00 MiB"]
    (whole,) = _must_fit(3 * MIB, {"x" * 30: 3 * MIB}, None)
    assert [len(_must_fit(3 * MIB, {"x" * 30: 3 * MIB}, len(whole) - n)) for n in (0, 1)] == [1, 2]


# -- out of memory -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("5.00G", "5.00 GiB"), ("5K", "5 KiB"), ("512", "512 B"), ("-1.5M", "-1.5 MiB"), ("3.0GiB", "3.0 GiB"),
        ("7B", "7 B"),
        ("7MB", "7 MiB"), ("much", "much"), ("", "?"), (None, "?"),
    ],
)  # fmt: skip
def test_printed_sizes(text: str | None, shown: str) -> None:
    assert oom._printed(text) == shown


def test_where_a_report_is() -> None:
    row = {"line": 1234, "last_line": 1240, "rank": "host3", "thread": None}
    assert oom._where(row) == "lines 1,234 to 1,240 of the log, host3"
    assert oom._where({**row, "last_line": 1234, "rank": None, "thread": "7"}) == "line 1,234 of the log, thread 7"
    copies = [{"line": i, "rank": r} for i, r in ((5, "r10"), (6, "r9"), (7, None), (8, "r9"))]
    assert oom._copies(copies) == "4 times with the same text (lines 5, 6, 7, 8), by r9, r10"
    assert oom._copies(copies[2:3]) == "1 time with the same text (line 7)"
    many = [{"line": i, "rank": f"r{i}"} for i in range(9)]
    assert oom._copies(many) == (
        "9 times with the same text (lines 0, 1, 2, 3, 4, …), by r0, r1, r2, r3, r4, r5, r6, r7 and 1 more"
    )
    assert oom._copies(many[:5]).endswith("(lines 0, 1, 2, 3, 4), by r0, r1, r2, r3, r4")


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({}, ""), ({"padded_bytes": MIB, "unpadded_bytes": 5}, "5 B without padding"),
        ({"padded_bytes": 5, "unpadded_bytes": 5}, ""),
        ({"fragmentation_bytes": 5, "fragmentation": "3.1"}, "3.1% fragmented"),
        ({"fragmentation_bytes": 5, "fragmentation": "0.0"}, ""), ({"utilization": "99"}, "99% utilized"),
        ({"utilization": "99", "fragmentation_bytes": 5, "fragmentation": "3.1"}, "3.1% fragmented"),
    ],
)  # fmt: skip
def test_details_of_usage(about: Row, text: str) -> None:
    plain = dict.fromkeys(("padded_bytes", "unpadded_bytes", "fragmentation_bytes", "fragmentation", "utilization"))
    assert oom._details({**plain, **about}) == text


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"padding": 0}, "padding takes 0 B of the 9 B in listed buffers"),
        ({"excess": 5}, "padding takes 5 B of the 9 B in listed buffers, more than the program is over"),
        ({"excess": 6}, "padding takes 5 B of the 9 B in listed buffers"),
        ({"most_padded": {"shape": "f32[2]", "expansion": 2.5}},
         "padding takes 5 B of the 9 B in listed buffers; f32[2] takes 2.5 times its unpadded size"),
    ],
)  # fmt: skip
def test_hints_about_padding(about: Row, text: str) -> None:
    plain = {"padding": 5, "listed": 9, "excess": None, "most_padded": None}
    assert oom._padding_hint(SimpleNamespace(**{**plain, **about})) == text  # type: ignore[arg-type]


def test_lines_that_were_not_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for n, last in ((1, "    0: x"), (3, "    2: x"), (4, "    … and 1 more: --json lists all")):
        oom._write_unknown([{"line": i, "text": " x "} for i in range(n)], None)
        lines = capsys.readouterr().out.splitlines()
        verb = "1 line inside the message was" if n == 1 else f"{n} lines inside the message were"
        assert (lines[1], lines[-1], len(lines)) == (f"  {verb} not understood:", last, 2 + min(n, 3) + (n > 3))


def test_the_largest_buffers_of_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    def row(n: int | None) -> Row:
        return {"size_bytes": n, "size_text": str(n), "op_name": f"op{n}", "source_file": None, "source_line": None,
                "shape": None, "tag": None, "parameter": None, "xla_label": None, "allocation_type": None,
                "padding_bytes": None, "expansion": None, "unpadded_bytes": None}  # fmt: skip

    rows = [row(5000), row(None), row(1), row(90000), row(7)]
    for limit, width, shown in ((9, None, [90000, 5000, 7, 1, None]), (2, None, [90000, 5000]), (9, 80, [90000, 5000,
        None])):
        oom._write_buffers(rows, limit, width)
        lines = capsys.readouterr().out.splitlines()[2:]
        assert [line.split()[-1] for line in lines[: len(shown)]] == [f"op{n}" for n in shown]
        rest = len(rows) - len(shown)
        assert len(lines) == len(shown) + bool(rest)
        if limit == 2:
            assert lines[-1].split() == ["8", "B", "in", "3", "more"]
