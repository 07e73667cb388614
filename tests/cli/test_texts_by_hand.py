"""What `info`, `explain`, `oom` and comments print, on rows made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xlamem.cli.reporters import explain, info, markdown, oom

Row = dict[str, Any]


def plain(text: object) -> str:
    return " ".join(str(text).replace("\N{NO-BREAK SPACE}", " ").split())


# -- out of memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [30, 60, None])
def test_fields_fit_the_screen(width: int | None) -> None:
    """Prose is wrapped, other texts are shortened; both stand behind the label and two spaces."""
    text = "word " * 40
    room = width and width - oom.LABEL_WIDTH - 2
    for label in oom.WRAPPED:
        lines = oom._field_lines(label, text, width)
        assert " ".join(lines).split() == text.split()
        assert max(map(len, lines)) <= max(room or 80, 20)
    (line,) = oom._field_lines("other", text, width)
    assert len(line) == (len(text) if room is None else max(room, 9))


@pytest.mark.parametrize(
    ("reports", "shown", "last"),
    [
        ([("runtime", None)], [0], ""), ([("runtime", None), ("tpu_e1000", None), ("runtime", 0)], [0, 1], ""),
        ([("usage", None)], [0], ""), ([("usage", None), ("usage", None)], [], "no failure, but 2 reports"),
        ([("usage", None), ("runtime", None)], [1], "also 1 report of"),
        ([("usage", None), ("runtime", None), ("usage", None)], [1], "also 2 reports of"), ([], [], ""),
    ],
)  # fmt: skip
def test_reports_that_are_written(
    reports: list[tuple[str, int | None]], shown: list[int], last: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Each failure once; programs that fit only if nothing failed."""
    rows = [oom.Report({"form": f, "same_as": s, "report": i}, [], [], [], []) for i, (f, s) in enumerate(reports)]
    found: list[tuple[int, int, int | None]] = []
    monkeypatch.setattr(oom, "_split", lambda _: rows)
    monkeypatch.setattr(oom, "_usage_cells", lambda _: [["1"] * 6])
    monkeypatch.setattr(oom, "_write_report", lambda r, limit, width: found.append((r.row["report"], limit, width)))
    none: Any = None
    for limit in (None, 0, 3):
        found.clear()
        oom.write_reports(none, limit, 70)
        assert found == [(i, 10 if limit is None else limit, 70) for i in shown]
        lines = capsys.readouterr().out.splitlines()
        said = [line for line in lines if line.startswith(("no failure", "also"))]
        assert [line[: len(last)] for line in said] == ([last] if last else [])


def usage_row(part: str, label: str, text: str, **more: Any) -> Row:
    empty = dict.fromkeys(("bytes", "capacity_bytes", "unpadded_bytes", "padded_bytes", "fragmentation_bytes",
                           "fragmentation", "utilization"))  # fmt: skip
    return {"memory_space": "hbm", "part": part, "label": label, "size_text": text, **empty, **more}


def test_totals_of_a_memory_space() -> None:
    """The parts of the program are behind its total."""
    total = [usage_row("total", "reserved", "1K"), usage_row("total", "program", "2K"), usage_row("total", "arguments",
        "3K"), usage_row("total", "total", "6K")]  # fmt: skip
    parts = [usage_row("program", "scoped", "5"), usage_row("program", "total", "9K")]
    found = [(t.depth, t.label, t.size, t.note) for t in oom._totals("hbm", [*total, *parts])]
    assert found == [
        (0, "HBM total", "6 KiB", "at least"), (1, "reserved", "1 KiB", ""), (1, "program", "2 KiB", ""),
        (2, "scoped", "5 B", ""), (1, "arguments", "3 KiB", ""),
    ]  # fmt: skip
    assert [(t.depth, t.label, t.size) for t in oom._totals("hbm", parts)] == [
        (0, "HBM of the program", "9 KiB"), (1, "scoped", "5 B"),
    ]  # fmt: skip
    assert [(t.depth, t.label) for t in oom._totals("x", [total[0], parts[0]])] == [(1, "reserved"), (1, "scoped")]


@pytest.mark.parametrize(
    ("row", "lines"),
    [
        (usage_row("output", "output", "7", bytes=7), [(1, "output", "7 B", "")]),
        (usage_row("output", "output", "0", bytes=0), []),
        (usage_row("output", "output", "unknown"), [(1, "output", "unknown", "")]),
        (usage_row("output", "shared", "7", bytes=7), [(1, "output, shared with arguments", "7 B", "")]),
        (usage_row("compiled", "x", "7", capacity_bytes=9), [(0, "HBM of the program", "7 B", "of 9 B")]),
        (usage_row("compiled", "x", "7", capacity_bytes=0), [(0, "HBM of the program", "7 B", "of 0 B")]),
        (usage_row("compiled", "x", "7"), [(0, "HBM of the program", "7 B", "")]),
        (usage_row("program", "x", "7", bytes=7), []),
    ],
)
def test_other_totals(row: Row, lines: list[Any]) -> None:
    found = [(t.depth, t.label, t.size, t.note) for t in oom._rest("hbm", row)]
    assert [tuple(map(plain, line)) for line in found] == [tuple(map(plain, line)) for line in lines]


def test_programs_that_fit() -> None:
    """A row for each memory space that is used; of several sizes, the first one counts."""
    usage = [usage_row("total", "total", "6K"), usage_row("total", "total", "7K"),
             usage_row("total", "arguments", "5"), usage_row("program", "total", "0")]  # fmt: skip
    empty = [{**usage[3], "memory_space": "smem"}]
    report = oom.Report({"line": 1234, "rank": None}, [*usage, *empty], [], [], [])
    assert oom._usage_cells(report) == [["1,234", "HBM", "6 KiB", "0 B", "5 B", ""]]
    report = oom.Report({"line": 1, "rank": "r1"}, [*empty, *usage[2:3]], [], [], [])
    assert oom._usage_cells(report) == [["1", "HBM", "-", "-", "5 B", "r1"]]


@pytest.mark.parametrize(
    ("about", "fields"),
    [
        ({}, []), ({"requested_text": "12"}, [("requested", "12 B (12 bytes)")]),
        ({"requested_text": "5K"}, [("requested", "5 KiB")]), ({"free_text": "3K"}, [("free", "3 KiB")]),
        ({"form": "tpu_allocation"}, [("requested", "12 B (12 bytes)"), ("available", "7 B (7 bytes)")]),
    ],
)  # fmt: skip
def test_what_was_requested(about: Row, fields: list[tuple[str, str]]) -> None:
    row = {"form": "runtime", "requested_text": None, "requested_bytes": 12, "capacity_bytes": 7, "free_text": None}
    assert [(a, plain(b)) for a, b in oom._request({**row, **about})] == [(a, _bytes(b)) for a, b in fields]


def _bytes(text: str) -> str:
    return plain(oom.exact_size(int(text.split()[0]))) if "(" in text else text


@pytest.mark.parametrize(
    ("about", "label"),
    [
        ({}, ""), ({"parameter": True}, "entry parameter"), ({"xla_label": "x = add(a), metadata={b}"}, "x = add(a)"),
        ({"xla_label": "x = f32[2] add(a)", "shape": "f32[2]"}, "x = add(a)"),
        ({"xla_label": "x", "allocation_type": "HLO temp"}, "x"), ({"xla_label": "x", "allocation_type": "scoped"},
            "x (scoped)"), ({"allocation_type": "scoped"}, ""),
    ],
)  # fmt: skip
def test_labels_of_listed_buffers(about: Row, label: str) -> None:
    assert oom._label({"parameter": None, "xla_label": None, "shape": None, "allocation_type": None, **about}) == label
    places = (("m.py", 3), ("m.py", None), (None, 3), ("m.py", 0))
    assert [oom._source({"source_file": f, "source_line": n}) for f, n in places] == ["m.py:3", "m.py", "", "m.py"]


# -- comments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "n"), [(None, 10), (0, 0), (1, 1), (12, 12), (13, 12)])
def test_comments_about_a_difference(limit: int | None, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows add up to the change of the peak."""
    groups = [{"change": 12 - i, "n": i + 1000} for i in range(12)]
    for name in ("mark", "shapes", "sources"):
        monkeypatch.setattr(markdown, name, lambda _: "")
    monkeypatch.setattr(markdown, "label", lambda g, by: f"{by} {g['change']}")
    monkeypatch.setattr(markdown, "numbers", lambda _: [])
    monkeypatch.setattr(markdown, "moved", lambda _: "moved")
    is_same = SimpleNamespace(verdict="v", is_same=False, has_peaks=limit is None)
    c: Any = SimpleNamespace(
        groups=lambda: groups, row={"moved": 7}, peak_change=85, by="by", account="hbm", diff=is_same,
        problems=list, other_edits=lambda: [{"text": "e", "change": 5}, {"text": "f", "change": 0}],
    )  # fmt: skip
    lines = [plain(line) for line in markdown.comment(c, limit).splitlines()]
    rows = [line for line in lines if line.startswith("| +")]
    assert [line.split("|")[5].strip() for line in rows[:n]] == [f"`by {12 - i}`" for i in range(n)]
    left = 12 - n
    total = sum(g["change"] for g in groups[n:])
    if left:
        assert rows[n].startswith(f"| +{total} B | {total / 85:.1%} |".replace("%", " %"))
        assert f"{sum(g['n'] for g in groups[n:]):,} | {left} other group{'s' if left > 1 else ''}" in rows[n]
    assert rows[-1].startswith("| +7 B | 8.2 % |")
    assert len(rows) == n + bool(left) + 1
    number = "peak" if limit is None else "reserved"
    assert lines[-6:] == [f"| **+85 B** | | | | **{number} of hbm** | | |", "", "What else changed:", "", "- e (+5 B)",
        "- f"]  # fmt: skip


@pytest.mark.parametrize(("limit", "n"), [(None, 20), (0, 0), (2, 2), (30, 30), (31, 30)])
def test_comments_about_programs(limit: int | None, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown.pairs, "N_ROWS", 20)
    monkeypatch.setattr(markdown.pairs, "cells", lambda row: [str(row)] * (len(markdown.pairs.HEADINGS) - 1))
    c: Any = SimpleNamespace(summary="s", listed=[*range(30)], name=lambda row: f"p{row}", problems=["bad"],
                             verdict="v", changed=[4, 5])  # fmt: skip
    lines = markdown.pairs_comment(c, limit).splitlines()
    assert [line.split("`")[1] for line in lines if line.startswith("|") and "`" in line] == [f"p{i}" for i in range(n)]
    assert ("and" in "".join(lines)) == (n < 30)
    assert n == 30 or f"and {30 - n} more" in lines
    assert lines[-4:] == ["", "Not known: bad", "", "`p4`: v"]


# -- info ----------------------------------------------------------------------------------------


def inspection(**about: Any) -> Any:
    module = {"platform": "tpu", "printed_peak_bytes": 5, "total_bytes": 9, "printed_peak_time": 1000,
              "schedule_length": 2000, **about.pop("module", {})}  # fmt: skip
    problems = dict.fromkeys(info.PROBLEMS, True)
    plain = {"allocated": 9, "diagnostics": [], "checks": {}, "failed_checks": [], "source": None, **about}
    return SimpleNamespace(module={**problems, **module}, **plain)


@pytest.mark.parametrize(
    ("dump", "cells"),
    [
        (inspection(), ["9 B", "5 B", "tpu", ""]),
        (inspection(allocated=0, module={"printed_peak_bytes": 0, "platform": None}), ["0 B", "0 B", "?", ""]),
        (inspection(allocated=None, module={"printed_peak_bytes": None}), ["-", "-", "tpu", ""]),
    ],
)
def test_cells_of_dumps(dump: Any, cells: list[str]) -> None:
    assert [plain(cell) for cell in info._cells(dump, False)] == cells


def test_words_about_a_dump() -> None:
    assert info._allocated(inspection())[0].endswith(", as printed by XLA,")
    assert info._allocated(inspection(module={"total_bytes": 0}))[0].endswith(", as printed by XLA,")
    assert info._allocated(inspection(module={"total_bytes": None}))[0].endswith(", the sum of the allocations,")
    assert info._allocated(inspection(allocated=None)) == []
    assert info._allocated(inspection(allocated=0)) != []
    assert info._printed_peak(inspection().module)[1] == "at step 1,000 of 2,000"
    assert info._printed_peak(inspection(module={"printed_peak_bytes": None}).module) == []
    assert len(info._printed_peak(inspection(module={"printed_peak_bytes": 0}).module)) == 2
    names = [info._module({"module_name": m, "module_id": i}) for m, i in (("f", 0), ("f", None), (None, 3),
        (None, None))]  # fmt: skip
    assert names == ["f, number 0", "f", "number 3", "unknown"]
    assert info._date(0) == "1970-01-01 00:00:00 UTC"
    assert info._date(10**18) == "1,000,000,000,000,000,000 microseconds after 1970"
    checks = {"a": "passed", "b": "skipped", "c": "passed"}
    assert info._checks(inspection(checks=checks)) == ["2 passed, 1 skipped"]
    assert info._state(inspection()).endswith("; no diagnostics")
    assert info._state(inspection(diagnostics=[{}])).endswith("; 1 diagnostic")


@pytest.mark.parametrize(("n", "last"), [(9, ""), (10, ""), (11, "… and 1 more:"), (13, "… and 3 more:")])
def test_diagnostics_that_are_shown(
    n: int, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[int] = []
    monkeypatch.setattr(info, "_write_diagnostic", lambda d, *_: found.append(d))
    info._write_diagnostics(inspection(diagnostics=[*range(n)]), 80)
    assert found == [*range(min(n, 10))]
    assert capsys.readouterr().out.strip()[: len(last) or None] == last


# -- explain -------------------------------------------------------------------------------------


def a_number(name: str, n: int | None, **more: Any) -> Row:
    return {"name": name, "bytes": n, "difference": None, "time": None, "basis": "exact", "n_equal": 7, "page": 0,
            "n_compared": 9, "color": 0, "memory_space": "hbm", "releases": None, "definition": "d",
            **more}  # fmt: skip


def test_where_a_number_is_from() -> None:
    """The field is exact, or inferred by a formula."""
    inferred, exact = (a_number("jax.temp", 5, basis=basis) for basis in ("inferred", "exact"))
    assert [explain._basis(n) for n in (inferred, exact)] == ["inferred, matches 7 of 9 dumps", ""]
    columns = explain._Columns([exact, a_number("x", 123_456)], None, None, verbose=False)
    assert columns.digits == 7
    assert plain(explain._field("temp", inferred, columns)) == "temp 5 B 5 inferred, 7 of 9"
    assert plain(explain._field("temp", exact, columns)) == "temp 5 B 5"
    assert plain(explain._field("temp", a_number("x", None), columns)) == "temp not in the dump"
    assert columns.amount(1234).endswith("  " + "  1,234")


def test_numbers_that_are_equal() -> None:
    """They share a line if their causes are the same."""
    numbers = [a_number("a", 5), a_number("b", 5), a_number("c", 5, difference=1), a_number("d", None),
               a_number("e", None), a_number("f", 5, color=1)]  # fmt: skip
    causes: Any = {explain._key(n): [] for n in numbers}
    causes["f", 1, 0] = [{"cause": "x", "bytes": 1}]
    assert [line.names for line in explain._lines(numbers, causes, each=False)] == [["a", "b"], ["c"], ["d"], ["e"],
        ["f"]]  # fmt: skip
    assert [line.names for line in explain._lines(numbers, causes, each=True)] == [[c] for c in "abcdef"]


@pytest.mark.parametrize(
    ("used", "titles"),
    [
        ({"hbm": 5}, [["hbm", "reserved", "device_total"]]),
        ({"vmem": 9, "hbm": 5}, [["hbm", "reserved"], ["vmem", "reserved"], [explain.TOGETHER, "device_total"]]),
        ({"vmem": 9, "hbm": 0}, [["vmem", "reserved", "device_total"]]),
    ],
)
def test_blocks_of_memory_spaces(used: dict[str, int], titles: list[list[str]]) -> None:
    """The main memory is first; spaces that are not used are left out."""
    numbers = [a_number("reserved", n, memory_space=space, color=i) for i, (space, n) in enumerate(used.items())]
    numbers += [a_number("device_total", 7, memory_space=None, color=None), a_number("jax.temp", 1)]
    blocks = explain._blocks(numbers, [], each=True)
    assert [[b.title, *(line.names[0] for line in b.lines)] for b in blocks] == titles


def test_how_much_is_shown() -> None:
    """Fewer memory spaces first, then fewer causes."""

    def block(title: str, *sizes: int | None) -> explain.Block:
        return explain.Block(title, [explain.Line(["n"], a_number("n", n), []) for n in sizes])

    blocks = [block("hbm", 5, 10_000, None), block("vmem", 10), block("smem", 9), block(explain.TOGETHER, 10_000)]
    assert [b.largest for b in blocks] == [10_000, 10, 9, 10_000]
    assert [*explain._extents(blocks)] == [(2, None), (1, None), (1, 3), (1, 2), (1, 1)]
    assert [*explain._extents([])] == [(1, None), (1, 3), (1, 2), (1, 1)]
    columns = explain._Columns([], None, None, verbose=False)
    lines = [plain(line) for line in explain._spaces(blocks, 1, columns)]
    assert "also: smem 9 B" in lines
    assert [line for line in lines if line.startswith("vmem")] == ["vmem 10 B 10 peak"]


@pytest.mark.parametrize(
    ("n_causes", "lines"),
    [
        (None, ["+5000 B c", "-900 B b", "+1 B a"]), (3, ["+5000 B c", "-900 B b"]),
        (1, ["+5000 B c", "and 1 more: see -v"]), (2, ["+5000 B c", "-900 B b"]),
    ],
)  # fmt: skip
def test_causes_of_a_number(n_causes: int | None, lines: list[str]) -> None:
    """The largest first; small ones only if all are shown."""
    causes = [{"cause": c, "bytes": n} for c, n in (("a", 1), ("b", -900), ("c", 5000))]
    line = explain.Line(["n"], a_number("n", 10_000, time=1234), causes)
    columns = explain._Columns([], None, n_causes, verbose=False)
    text, more = columns._beside(line, 0)
    assert text == "step 1,234"
    assert [plain(t) for t in more] == [t.replace("5000 B", "4.88 KiB") for t in lines]
