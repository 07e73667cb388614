"""How rows are laid out in lines of every width, compared with how they were before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stored import check, mixed

from xlamem.cli.options import Output
from xlamem.cli.reporters import advice, bill, buffer, buffers, chart, diff, explain, oom, pairs, peak, series, top
from xlamem.cli.reporters.header import header

Row = dict[str, Any]
WIDTHS = (20, 33, *range(40, 166, 6), 200, None)
SCOPES = (
    None, "", "layer_0/mlp/dot_general", "transformer/layers_*/attention/query/dot_general", "a/b",
    "transformer/layers_*/attention/key/dot_general", "embedding" + "x" * 70 + "/take", "transformer/" * 9 + "add",
)  # fmt: skip
FILES = (None, "", "/home/user/model/train.py", "/home/user/model/layers/attention.py", "x.py", "/y/model/train.py")
SHAPES = (
    None, "f32[]", "f32[8,128]{1,0:T(8,128)}", "bf16[24,8,512,1024]{3,2,1,0:T(8,128)(2,1)}", "(f32[2], s32[])",
    "f32[24,16]{1,0}",
)  # fmt: skip
SIZES = (0, 1, 999, 4096, 123_456_789, 98_765_432_109)


def buffer_rows(n: int, seed: int) -> list[Row]:
    return mixed(
        n, seed, bytes=SIZES, size=SIZES, unpadded_size=(None, 1, 1000, 4096), op_name=SCOPES,
        argument=(None, None, 0, 3), argument_index=(None, "{}", "{1}"),
        origin=("own", "argument", "operand", "slot", "user", "none"),
        opcode=(None, "copy", "add", "all-gather-start", "slice"), role=("value", "value", "reserved"),
        category=("temp", "parameter", "live_out", "temp_in_output", "constant", "donated"), shape=SHAPES,
        iterations=(None, None, 24, 8), shape_index=("", "{}", "{1,0}"), instruction=("add.1", "fusion" * 9, None),
        source_file=FILES, source_line=(None, 7, 1234), shared=(True, False), n=(1, 1, 12, 1234),
        n_shapes=(1, 1, 2, 40), kind=(None, "gradient", "activation"),
    )  # fmt: skip


def drawn(lines: Iterable[Any]) -> str:
    """Return lines with their styles."""
    return "\n".join(line if isinstance(line, str) else f"{line.style}: {line.markup}" for line in lines)


def at_widths(name: str, draw: Callable[[int | None], Iterable[Any]], least: int = 40) -> Iterator[tuple[str, str]]:
    """Yield what is drawn at all widths from the least one on."""
    yield name, "\n".join(drawn(draw(width)) for width in WIDTHS if width is None or width >= least)


def test_buffers() -> None:
    def results() -> Iterator[tuple[str, str]]:
        for seed in range(4):
            rows = buffer_rows((1, 3, 7, 12)[seed], seed)
            for wide in (False, True):
                for draw in (buffers.buffer_lines, buffers.group_lines):
                    yield from at_widths(
                        f"{draw.__name__} {seed} {wide}", lambda w, d=draw, r=rows, wide=wide: d(r, w, wide=wide)
                    )
        for n, row in enumerate(buffer_rows(60, 9)):
            texts = [buffers.label(row), buffers.value_name(row), buffers._notes(row), buffers._about(row, wide=False)]
            texts += [buffers._about(row, limit, wide=False, short=True) for limit in range(3, 30, 4)]
            texts += [buffers.source_line(row, limit) for limit in (None, 9, 14, 22, 30)]
            yield f"row {n}", "\n".join(texts)

    check("cli/layout-buffers", results())


@pytest.mark.parametrize("seed", range(3))
def test_no_line_of_groups_is_too_long(seed: int) -> None:
    """Where there is room for the least widths of all columns."""
    rows = buffer_rows(9, seed)
    for width in range(60, 200, 3):
        assert max(map(len, buffers.group_lines(rows, width, wide=False))) <= width


def test_columns_fill_the_width() -> None:
    """The scope takes what the other columns leave."""
    rows = buffer_rows(9, 1)
    rows[0]["op_name"] = rows[1]["op_name"] = "a" * 300
    for row in rows:
        row.update(argument=None, category="constant", role="value")
    for width in (140, 150, 163):
        assert max(map(len, buffers.buffer_lines(rows, width, wide=False))) == width - 2


def test_directories_of_sources_in_a_pipe() -> None:
    """They are shown in full, even if names of files are the same."""
    rows: list[Row] = [{"source_file": file, "source_line": 1} for file in (FILES[2], FILES[5], FILES[3])]
    assert buffers._sources(rows, None) == [f"{row['source_file']}:1" for row in rows]
    assert buffers._sources(rows[1:], 80) == ["train.py:1", "attention.py:1"]
    assert len({*buffers._sources(rows, 80)}) == 3


def test_an_empty_buffer_has_no_padding() -> None:
    row = buffer_rows(1, 0)[0] | {"size": 0, "bytes": 0, "unpadded_size": 0, "n_shapes": 1, "category": "temp"}
    row |= {"shape": "f32[0]", "role": "value", "kind": None, "iterations": None}
    assert buffers._about(row, wide=False) == "f32[0]"


def test_top() -> None:
    def results() -> Iterator[tuple[str, str]]:
        rows = mixed(
            9, 2, bytes=SIZES, n=(1, 2, 1234), scope=SCOPES, shape=SHAPES, source=FILES, opcode=("add", "fusion" * 5),
            category=("temp", "live_out"),
        )  # fmt: skip
        screen: Any = top.Screen.__new__(top.Screen)
        for keys in (["scope"], ["shape"], ["source", "shape"], ["shape", "opcode", "category"], ["category"]):
            for n in (1, 9):
                def draw(width: int | None, keys: list[str] = keys, n: int = n) -> Iterable[Any]:
                    screen.width = width
                    return screen._list(rows[:n], keys, 10**9)  # type: ignore[no-any-return]

                yield from at_widths(f"{keys} {n}", draw, 60)

    check("cli/layout-top", results())


def a_group(row: Row) -> Row:
    """Return a row of `difference_groups`, whose change follows from its bytes."""
    a, b = row["bytes_a"], row["bytes_b"]
    return {**row, "change": b - a, "cause": row["cause"] if a and b else "new" if b else "gone"}


def groups(n: int, seed: int) -> list[Row]:
    rows = mixed(
        n, seed, bytes_a=SIZES, bytes_b=SIZES, cause=("larger", "smaller", "padding changed", "sharing changed"),
        n=(1, 1, 24), n_shapes=(1, 3), buffer=SCOPES, edit=(None, "the batch is larger", "a" * 90), shape_a=SHAPES[1:],
        shape_b=SHAPES[1:], source_file_a=FILES, source_line_a=(None, 5), source_file_b=FILES, source_line_b=(6, 77),
        memory_space_a=("hbm",), memory_space_b=("hbm", "vmem"),
    )  # fmt: skip
    return sorted(map(a_group, rows), key=lambda row: -abs(row["change"]))


def test_differences() -> None:
    def results() -> Iterator[tuple[str, str]]:
        for by in (("buffer", "cause"), ("edit",), ("edit", "cause")):
            for n, seed in ((1, 1), (4, 2), (12, 3)):
                rows = groups(n, seed)
                c: Any = SimpleNamespace(peak_change=10**8, by=by)
                yield from at_widths(
                    f"{by} {n}", lambda w, c=c, rows=rows: [t for lines in diff._groups(c, rows, w) for t in lines]
                )
        accounts = mixed(6, 4, account=("hbm", "device_total"), number=("must fit", "peak"), a=SIZES, b=SIZES)
        accounts = [{**row, "change": row["b"] - row["a"]} for row in accounts]
        yield "accounts", drawn(diff._number_table(accounts))
        yield "amounts", drawn(diff._amount(n, total, "text") for n in (-5, 0, 123_456) for total in (-9, 0, 500))
        modules = mixed(4, 6, module_name=("jit_f", "jit_" + "g" * 60), platform=(None, "tpu"),
                        schedule_length=(None, 1, 1234))  # fmt: skip
        places = SimpleNamespace(location="/home/user/dumps/of/yesterday/with/a/long/name")
        for k in (0, 2):
            dumps = [SimpleNamespace(modules=SimpleNamespace(to_pylist=lambda m=m: [m]), name="n", source=places)
                     for m in modules[k : k + 2]]  # fmt: skip
            c = SimpleNamespace(dumps=dumps)
            yield from at_widths(f"sides {k}", lambda w, c=c: diff._sides(c, w))
        for n in (0, 9):
            bill_lines = [("outputs", 10**9), ("temporaries", -(10**7)), *((f"part {i}", -i) for i in range(n))]
            c = SimpleNamespace(reserved="must fit", bill=lambda lines=bill_lines: lines)
            yield from at_widths(f"bill {n}", lambda w, c=c: diff._bill(c, w))

    check("cli/layout-diff", results())


def test_pairs() -> None:
    def results() -> Iterator[tuple[str, str]]:
        rows = mixed(
            8, 3, how=("same", "interface", "new", "gone"), device_total_a=(None, *SIZES),
            device_total_b=(None, *SIZES), peak_a=SIZES, peak_b=SIZES,
        )  # fmt: skip
        for row in rows:
            row |= {"program_a": None if row["how"] == "new" else 0, "program_b": None if row["how"] == "gone" else 0}
        names = [f"{SCOPES[i % 8] or 'jit_f'}{i}" for i in range(8)]
        for n in (1, 8):
            yield from at_widths(f"{n}", lambda w, n=n: pairs._table(rows[:n], names[:n], w))

    check("cli/layout-pairs", results())


def test_series() -> None:
    def results() -> Iterator[tuple[str, str]]:
        rows = mixed(
            6, 5, device_total_first=SIZES, device_total_last=SIZES, peak_first=(None, 5), peak_last=(4, 6),
            module_name=("jit_f", None, "jit_" + "train" * 12), module_id=(None, 7), event=("a -> b: +1.00 GiB", ""),
        )  # fmt: skip
        for n_points in (1, 4, 12, 90):
            levels = np.arange(n_points) % 7 - 2
            over: Any = SimpleNamespace(
                points=["p"] * n_points, event=lambda row: row["event"], levels=lambda row, levels=levels: levels
            )
            for n in (1, 6):
                yield from at_widths(f"{n_points} {n}", lambda w, over=over, n=n: series._rows(over, rows[:n], w))

    check("cli/layout-series", results())


def test_interventions() -> None:
    def results() -> Iterator[tuple[str, str]]:
        rows = mixed(
            12, 6, rank=(0, 8, 9), lower=SIZES, upper=SIZES, confidence=("exact", "likely", "try"),
            kind=("donate", "batch"), action=("donate it", "recompute what is inside of it in the backward pass " * 4),
            n_buffers=(1, 24), bytes=SIZES, function=(None, "f", "loss" * 12), scope=SCOPES,
            argument=(None, "argument 3"), instruction=("add.1", None),
            shape=SHAPES[1:], source_file=FILES, source_line=(1, 345),
        )  # fmt: skip
        for i, row in enumerate(rows):
            yield from at_widths(f"{i}", lambda w, row=row: advice._intervention(row, w))
        for i in range(len(rows)):
            device = "v5e" if i % 2 else None
            fits: Any = SimpleNamespace(fits=False, available=i * 10**8, device=device, capacity=3 * 10**8)
            yield from at_widths(f"peak {i}", lambda w, fits=fits, i=i: peak._advice(rows[: i % 3], fits, w))

    check("cli/layout-advice", results())


def test_charts() -> None:
    def results() -> Iterator[tuple[str, str]]:
        for n in (1, 3, 11, 60, 257):
            usage = (np.arange(n) * 37) % 101 * 10**6 + 5
            step = int(usage.argmax())
            for floor, capacity in ((0, None), (10**7, None), (0, 9 * 10**7), (0, 2 * 10**8)):
                for rows in (1, 3):
                    yield from at_widths(
                        f"{n} {floor} {capacity} {rows}",
                        lambda w, u=usage, s=step, f=floor, c=capacity, r=rows: chart.usage_chart(
                            u, s, floor=f, capacity=c, rows=r, width=w or 100
                        ), 20,
                    )  # fmt: skip
            yield f"sparkline {n}", drawn(chart.sparkline(usage, width) for width in (1, 5, 20, 61))

    check("cli/layout-charts", results())


def test_other_screens(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers of `explain`, lines of `bill`, the head of a screen, and parts of `buffer` and `oom`."""
    def results() -> Iterator[tuple[str, str]]:
        numbers = mixed(
            9, 7, name=("peak", "reserved", "xla_rule", "peak_together"), bytes=(None, *SIZES),
            difference=(None, 0, -5, 99_999), time=(None, 1234), definition=("what must fit " * 9, "bytes"),
            basis=("inferred", "exact"), n_equal=(3,),
            n_compared=(4,),
        )  # fmt: skip
        causes = mixed(
            9, 8, bytes=(1, -4096, 10**9), cause=("temp bytes not in use at the peak", "padding " * 7, "alignment"),
        )  # fmt: skip
        for verbose in (False, True):
            for i, number in enumerate(numbers):
                line = explain.Line([number["name"], "other", "more_of_them"][: i % 4], number, causes[: i % 5])
                if line.names:
                    yield from at_widths(
                        f"explain {i} {verbose}",
                        lambda w, line=line, i=i, verbose=verbose: explain._Columns(
                            numbers, w, (None, 1, 3)[i % 3], verbose=verbose
                        )._line(line),
                    )  # fmt: skip
        for n, total in ((0, 5), (999, 10**6), (10**9, 10**9)):
            yield f"bill {n}", drawn([bill._amount("label", n, total), bill._amount("l", n, total, "dim")])
        modules = mixed(
            6, 9, module_name=(None, "jit_" + "f" * 50), module_id=(None, 0, 12345), platform=("tpu", None),
            target=(None, "v5e"), schedule_length=(None, 1, 1234),
        )  # fmt: skip
        source: Any = SimpleNamespace(name="n" * 30, location="/home/user/dumps/of/yesterday/with/a/name")
        for i, module in enumerate(modules):
            yield from at_widths(f"header {i}", lambda w, m=module: header(source, m, ["it is odd " * 9], w))
        uses = mixed(
            9, 10, step=(None, 3, 12345), instruction=("add.1",), op_name=SCOPES, source_file=FILES,
            source_line=(None, 3),
        )  # fmt: skip
        for n in (0, 3, 9):
            shown = [buffer._user(use) for use in uses[:n]]
            yield from at_widths(f"uses {n}", lambda w, n=n, shown=shown: buffer._list("read by", shown, uses, n, w))
        listed = mixed(
            24, 11, op_name=SCOPES, source_file=FILES, source_line=(None, 3), shape=SHAPES, tag=(None, "a tag " * 9),
            parameter=(True, False, False), xla_label=("f32[2] add(x), metadata={y}", "fusion" * 9, ""),
            expansion=(None, 2.5), allocation_type=(None, "HLO temp", "arguments"), padding_bytes=(None, 5000),
            size_bytes=(None, 10**6), unpadded_bytes=(None, 10**3),
        )  # fmt: skip
        for i, row in enumerate(listed):
            yield from at_widths(f"oom {i}", lambda w, row=row: oom._describe(row, w))
        usage = mixed(
            7, 12, part=("stats",), label=("used", "reserved for others"), size_text=("5.00G", "12M"),
            memory_space=("hbm",), fragmentation=(None, "3.5"),
        )  # fmt: skip
        for width in (40, 50, None):
            oom._write_breakdown(usage, width)
            yield f"breakdown at {width}", capsys.readouterr().out

    check("cli/layout-others", results())


@pytest.mark.parametrize("width", [40, 60, 80, None])
def test_options_that_limit_the_width(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from xlamem.cli import console

    monkeypatch.setattr(console, "width", lambda: width)
    assert (Output().width, Output(wide=True).width) == (width, None)


def test_groups_of_memory_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the screen of `top`, with and without a limit."""
    monkeypatch.setattr(top, "header", lambda *_: [])
    monkeypatch.setattr(top, "describe_problems", lambda _: [])
    monkeypatch.setattr(top, "shared_lines", lambda _: {"/home/user/model/train.py:1"})

    def results() -> Iterator[tuple[str, str]]:
        for seed, n in enumerate((0, 1, 6, 40, 40)):
            rows = mixed(
                n, seed, memory_space=("hbm", "hbm", "vmem"), bytes=SIZES, n=(1, 24), scope=SCOPES[2:],
                shape=SHAPES[1:], source=("/home/user/model/train.py:1", "b.py:2", None),
            )  # fmt: skip
            rows.sort(key=lambda row: -row["bytes"])
            names = ("memory_space", "bytes", "n", "scope", "shape", "source")
            types = dict.fromkeys(("bytes", "n"), pa.int64())
            table = pa.table({k: pa.array([r[k] for r in rows], types.get(k, pa.string())) for k in names})
            spaces = [{"memory_space": name, "page": 0, "peak": 10**9, "time": seed if seed else None,
                       "bytes": sum(r["bytes"] for r in rows if r["memory_space"] == name)} for name in ("vmem", "hbm")]
            roles = pa.chunked_array([["hlo"] if seed % 2 else ["live-range"]])
            dump: Any = SimpleNamespace(
                modules=pa.table({"schedule_length": [9]}), source=None, files={"role": roles}, frames=None
            )
            for by in ("scope", "tree", "source,shape", "source"):
                keys, tree = by.replace("tree", "scope").split(","), by == "tree"
                for limit in (None, 3):
                    for width in (70, None):
                        screen = top.Screen(dump, width, limit, wide=False, step=(None, 4)[seed % 2])
                        found = drawn(screen.groups(spaces, table, keys, tree=tree))
                        yield f"{seed} {by} {limit} {width}", found

    check("cli/layout-groups", results())
