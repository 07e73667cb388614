"""What screens say about random rows, compared with what they said before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stored import check, mixed

import xlamem
from xlamem import schema
from xlamem.cli.options import Output
from xlamem.cli.reporters import (
    bill,
    buffer,
    convert,
    explain,
    info,
    markdown,
    names,
    notes,
    oom,
    pairs,
    peak,
    programs,
    scopes,
    series,
    tables,
    verdict,
)  # fmt: skip
from xlamem.cli.reporters.installation import write_installation
from xlamem.compute import Fits, FoldedScope
from xlamem.input.source import Source
from xlamem.schema import PROBLEMS

Row = dict[str, Any]
SIZES = (0, 1, 999, 4096, 123_456_789)
TEXTS = (None, "5.00G", "512", "12.5M", "0B", "unknown", "-1.5K")


def said(lines: Iterable[Any]) -> str:
    return "\n".join(line if isinstance(line, str) else f"{line.style}: {line.markup}" for line in lines)


def a_source(name: str = "n", location: str = "/d", **about: Any) -> Any:
    identity = {"name": name, "module_id": None, "module_name": None} | about
    label = Source(**{"members": (), **identity}).label
    return SimpleNamespace(**identity, location=location, label=label)


# -- out of memory -------------------------------------------------------------------------------


def reports(count: int) -> list[oom.Report]:
    rows = mixed(
        count, 1, form=[*oom.TITLES], memory_space=("hbm", "vmem", "host", None), code=(None, "E1000"),
        line=(1, 1234), used_text=TEXTS, capacity_text=TEXTS, exceeded_text=TEXTS, used_bytes=(None, 900),
        capacity_bytes=(None, 700, 10**6), exceeded_bytes=(None, 100), requested_text=TEXTS, requested_bytes=SIZES,
        free_text=TEXTS, module_name=(None, "jit_f"), instruction=(None, "add.1", oom.NO_INSTRUCTION),
        last_line=(1, 1240), rank=(None, "host3"), thread=(None, "7"), complete=(True, True, False), same_as=(None,),
        report=(0,),
    )  # fmt: skip
    usage = mixed(
        4 * count, 2, memory_space=("hbm", "hbm", "smem"), part=("total", "program", "output", "compiled", "stats"),
        label=("total", "program", "arguments", "output", "scoped"), size_text=TEXTS, bytes=(None, *SIZES),
        unpadded_bytes=(None, 5), padded_bytes=(None, 5, 9), fragmentation=(None, "0.0", "3.1"),
        utilization=(None, "99"), fragmentation_bytes=(None, 0, 500), capacity_bytes=(None, 0, 9),
    )  # fmt: skip
    listed = mixed(
        4 * count, 3, list=("peak", "peak", oom.FAILED), op_name=(None, "a/b"), source_file=(None, "m.py"),
        source_line=(None, 3), shape=(None, "f32[8]", "f32[8]", "bf16[9,9]"), tag=(None, "a tag"), size_text=TEXTS,
        size_bytes=(None, *SIZES), parameter=(None, True), xla_label=(None, "add = f32[8] add(x)"),
        expansion=(None, 2.5, 1.0), allocation_type=(None, "HLO temp", "scoped"), padding_bytes=(None, 0, 10**6),
        unpadded_bytes=(None, 9),
    )  # fmt: skip
    unknown = mixed(count, 4, line=(5, 77), text=("what is this?", " x "))
    copies = mixed(count, 5, line=(3, 4, 1000), rank=(None, "r1", "r10", "r9"))
    return [
        oom.Report(
            row, usage[4 * i : 4 * i + i % 5], listed[4 * i : 4 * i + i % 4], unknown[: i % 6 // 2], copies[: i % 7]
        )
        for i, row in enumerate(rows)
    ]  # fmt: skip


def test_reports_of_out_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        for i, report in enumerate(reports(80)):
            for limit, width in ((10, 80), (1, None)):
                oom._write_report(report, limit, width)
            yield f"{i}", capsys.readouterr().out
            yield f"{i} cells", oom._usage_cells(report)
        oom._write_fitting(reports(12))
        yield "fitting", capsys.readouterr().out

    check("cli/words-oom", results())


# -- programs ------------------------------------------------------------------------------------


def modules(count: int, seed: int) -> list[Row]:
    return mixed(
        count, seed, module_name=(None, "jit_f"), module_id=(None, 0, 7), platform=(None, "tpu"), target=(None, "v5e"),
        changelist=(None, 123), timestamp_us=(None, 0, 10**15, 10**19), features=("", "report_a,frames"),
        schedule_length=(None, 0, 1234), printed_peak_bytes=(None, 0, 5000), printed_peak_time=(0, 1000),
        total_bytes=(None, 9), n_values=(0, 1234), n_allocations=(None, 5), n_diagnostics=(0, 3),
        **dict.fromkeys(PROBLEMS, (True, True, False)),
    )  # fmt: skip


def test_info(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of dumps with and without names, files, numbers, checks and diagnostics."""
    monkeypatch.setenv("COLUMNS", "70")

    def results() -> Iterator[tuple[str, Any]]:
        found = []
        diagnostics = mixed(
            12, 7, file=("/d/f.txt",), line=(None, 5), offset=(None, 99), section=("values",),
            code=("truncated", "odd"), severity=("error", "warning"), wanted=("a header", "words " * 20),
            excerpt=("", "x" * 90),
        )  # fmt: skip
        files = mixed(6, 8, role=("hlo", "live-range"), bytes=SIZES, complete=(True, False))
        for i, module in enumerate(modules(30, 6)):
            codes = [*schema.CODES][: i % 4]
            checks = {code: ("passed", "failed", "skipped")[(i + k) % 3] for k, code in enumerate(codes)}
            dump: Any = SimpleNamespace(
                source=a_source(f"n{i}", "/home/dumps" * (i % 3), members=[]), module=module, files=files[: i % 4],
                text_bytes=SIZES[i % 5], allocated=(None, 0, 5000)[i % 3], checks=checks,
                diagnostics=diagnostics[: i % 13], failed_checks=[c for c, r in checks.items() if r == "failed"],
                fully_read=True,
            )  # fmt: skip
            found.append(dump)
            yield f"{i}", [info._fields(dump, columns) for columns in (60, None)]
            yield f"{i} state", [info._state(dump), info._short_state(dump), info._cells(dump, i % 2 > 0)]
            info._write_diagnostics(dump, 60)
            yield f"{i} diagnostics", capsys.readouterr().out
        monkeypatch.setattr(info, "duplicates", lambda dumps: [dumps[:2]] if len(dumps) > 5 else [])
        monkeypatch.setattr(info, "path_of", lambda source: source.name)
        for n in (2, 30):
            info.write_list(found[:n], n % 3)
            yield f"list of {n}", capsys.readouterr().out

    check("cli/words-info", results())


def test_lists_of_programs() -> None:
    def results() -> Iterator[tuple[str, Any]]:
        spaces = mixed(9, 9, first_step=(None, 0, 1234), peak=(None, 0, 5000), memory_space=("hbm", "memory"))
        listed = []
        for i, module in enumerate(modules(12, 10)):
            overview: Any = SimpleNamespace(
                device_total=(None, *SIZES)[i % 6], spaces=spaces[: i % 4], module=module,
                source=a_source(f"m{i}", f"/d/{'ab'[i % 2]}", module_id=i if i % 2 else None, module_name="f"),
            )  # fmt: skip
            fits = Fits(True, "", 5, 9, 9), Fits(False, "", 5, 4, 9, "v5e"), Fits(None, "why", None, 4, 9)
            listed.append(peak.Program(overview, (None, *fits)[i % 4], []))
        for n, limit in ((0, 3), (3, 3), (12, 5), (12, 11), (12, 20)):
            for width in (40, 90, None):
                yield f"{n} {limit} {width}", said(programs.list_programs(listed[:n], n % 2, limit, width))
        folders = (["/a/b", "/a/c/d", "/a/b"], ["/a", "b"], ["/a"])
        yield "names", [names.short_names([a_source(location=text) for text in own]) for own in folders]

    check("cli/words-programs", results())


def test_verdicts_and_notes() -> None:
    def results() -> Iterator[tuple[str, Any]]:
        made = [Fits(fits, "because", total, available, 2 * available, name, resident, fraction)
                for fits, total in ((True, 5), (False, 5000), (None, None)) for available in (-5, 0, 4000)
                for name, resident, fraction in ((None, 0, 1.0), ("v5e", 5, 0.9))]  # fmt: skip
        for i, fits in enumerate([*made, None]):
            for width in (30, 60, None):
                for reserved in ({}, {"hbm": 5}, {"hbm": 10**9, "vmem": 4096, "host": 7}):
                    lines = verdict.verdict_lines(None if i % 5 == 4 else 10**9, reserved, fits, width)
                    yield f"{i} {width} {len(reserved)}", said(lines)
            own = [note for platform in ("tpu", "gpu") for note in verdict.verdict_notes(fits, platform)]
            yield f"{i} notes", [note.title for note in own]
            shown = [notes.note_lines(own[:n], 50, verbose=v) for n in range(4) for v in (False, True)]
            yield f"{i} shown", "\n".join(map(said, shown))

    check("cli/words-verdicts", results())


def test_trees_of_scopes() -> None:
    def scope(depth: int, n: int) -> Any:
        node: Any = SimpleNamespace(n=(1, 2, 1234)[n % 3], bytes=10 ** (depth + n))
        children = [scope(depth - 1, k) for k in range(n)] if depth else []
        return FoldedScope(("temp", "layer_*" * (n + 1), "a/b")[n % 3], node, children)

    def results() -> Iterator[tuple[str, Any]]:
        for n in (0, 1, 3):
            for width in (40, 60, 80, None):
                yield f"{n} {width}", said(scopes.tree_lines([scope(2, k) for k in range(n)], 10**5, width))

    check("cli/words-trees", results())


# -- one buffer, bills and numbers ---------------------------------------------------------------


def test_one_buffer() -> None:
    def results() -> Iterator[tuple[str, Any]]:
        values = mixed(
            60, 11, allocation=(0, 3), memory_space=("hbm",), offset=(None, 0, 4096),
            category=("temp", "parameter", "live_out"), op_name=(None, "a/b"), source_file=(None, "m.py"),
            source_line=(None, 3), layer=(None, "layer_*"), layer_index=(0, 7), phase=(None, "forward"),
            kind=(None, "gradient"), iterations=(None, 0, 24), size=SIZES, unpadded_size=(None, 0, 900),
            role=("value",), origin=("own", "operand", "none"), origin_instruction=("dot.1",), argument=(None, 0, 2),
            argument_index=(None, "{}", "{1}"), instruction=("add.1",), shape_index=("{}",), shape=("f32[24,8]",),
        )  # fmt: skip
        calls = mixed(6, 12, file=("/m/a.py", "b.py"), line=(3, 44), function=(None, "f.<locals>.g", "h"))
        about = mixed(
            60, 13, definer=(None, {"instruction": "dot.1", "opcode": "dot"}), saving=(None, 0, 5000),
            peak_without=(900,), start=(None, 0, 5), end=(None, 0, 9, 12), peak_step=(None, 0, 7),
            peak_step_without=(None, 7, 9),
            n_calls=(0, 1, 2, 5), last_user=(None, {"instruction": "mul.1", "step": 9}),
        )  # fmt: skip
        users = mixed(9, 14, step=(None, 0, 3, 1234), instruction=("add.1", "mul.2"), op_name=(None, "a/b"))
        for i, (value, more) in enumerate(zip(values, about, strict=True)):
            b: Any = SimpleNamespace(value=value, calls=calls[: more["n_calls"]], **more)
            yield f"{i}", [[*buffer._about(b, steps)] for steps in (None, 9, 12)]
        for n in (0, 1, 3, 20):
            yield f"latest {n}", [buffer._latest(users[k:], n) for k in range(4)]

    check("cli/words-buffer", results())


def test_accounts_of_a_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill, "details", lambda rows: [(0, f"{len(rows)} rows"), (1, "more " * 9)])

    def results() -> Iterator[tuple[str, Any]]:
        rows = mixed(
            40, 15, line=[*schema.BILL_LINES], part=("data", "padding", "unused"), bytes=SIZES, step=(3,),
            account=("hbm",), page=(0, 0, 2), memory_space=(None, "hbm"), kind=(None, "gradient"), n=(1, 12),
            name=(None, "a/b"),
        )  # fmt: skip
        for i in range(10):
            own = sorted(rows[4 * i : 4 * i + 1 + i % 4], key=lambda r: (r["line"], r["part"]))
            own = [{**row, "step": None if i % 3 == 2 else 3} for row in own]
            total = sum(row["bytes"] for row in own)
            yield f"{i}", said(bill._account(own, total, {"schedule_length": (None, 9)[i % 2]}, (50, None)[i % 2]))
        packings = [SimpleNamespace(**row) for row in mixed(
            24, 16, memory_space=("hbm",), page=(0, 1), size=(10_000, 9), found=(10_000, 9_000, 9),
            lower_bound=(9_000, 9_995, 8), attempts=(1, 7), is_optimal=(True, False),
        )]  # fmt: skip
        yield "packings", [bill._packing(p) for p in packings]  # type: ignore[arg-type]
        yield "lines", said(bill._packing_lines(packings, 10_000, 60))
        yield "no lines", said(bill._packing_lines([], 0, None))

    check("cli/words-bill", results())


def test_numbers_of_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "header", lambda *_: [])
    monkeypatch.setattr(explain, "describe_problems", lambda _: [])

    def results() -> Iterator[tuple[str, Any]]:
        for i in range(16):
            numbers = mixed(
                12, 20 + i, name=("peak", "reserved", "xla_rule", "xla_printed"),
                memory_space=("hbm", "vmem", "smem"), page=(0,), color=(0,), bytes=(None, 0, 5000, 10**9),
                difference=(None, 0, -5), time=(None, 12), definition=("d " * 30,), basis=("exact", "inferred"),
                n_equal=(3,), n_compared=(4,), releases=(None,),
            )  # fmt: skip
            together = mixed(
                3, i, name=("device_total", "peak_together", "jax.temp_size", "jax.host_temp", "jax.temp,a"),
                bytes=(None, 0, 5000), releases=(None, "0.5"),
            )  # fmt: skip
            numbers += [{**numbers[0], **row, "memory_space": None, "color": None, "page": None} for row in together]
            causes = mixed(9, 50 + i, name=("peak", "reserved"), color=(0,), page=(0,), bytes=(1, -4096, 10**8),
                           cause=("alignment", "padding " * 5))  # fmt: skip
            dump: Any = SimpleNamespace(modules=pa.table({"a": [1]}), source=None)
            for width, verbose in ((60, False), (100, True), (None, False)):
                yield f"{i} {width}", said(explain.screen(dump, numbers, causes[: i % 9], width, verbose=verbose))

    check("cli/words-explain", results())


# -- pairs, series, conversions and tables -------------------------------------------------------


def pair_rows(count: int, seed: int) -> list[Row]:
    rows = mixed(
        count, seed, how=("same", "interface", "similar", "new", "gone"), device_total_a=(5, 900, None),
        device_total_b=(5, 900, 7000), peak_a=(4, None), peak_b=(4, 4, 80), module_name_a=("jit_f", "jit_g", None),
        module_name_b=("jit_f", "jit_f", "jit g"), module_id_a=(None, 3), module_id_b=(None, 3),
        uri_a=("/o/x/f", "/o/y/z/f"), uri_b=("/n/x/f", "/n/y/f"), problem_a=(None, "it is cut"),
        problem_b=(None, "it is odd"), readable_a=(True, True, True, False), readable_b=(True,),
    )  # fmt: skip
    for row in rows:
        row |= {"program_a": None if row["how"] == "new" else 0, "program_b": None if row["how"] == "gone" else 0}
        for side in "ab":
            if row[f"program_{side}"] is None:
                row |= {f"{name}_{side}": None for name in ("device_total", "peak", "module_name", "module_id", "uri")}
    return rows


def test_pairs() -> None:
    def results() -> Iterator[tuple[str, Any]]:
        for n in (0, 1, 1, 2, 3, 5, 9, 25, 30):
            rows = pair_rows(n, n)
            table: Any = SimpleNamespace(to_pylist=lambda rows=rows: rows)
            for largest in (None, object()):
                c: Any = pairs.Changes(table, "what changed " * 9, largest, are_dumps=n % 2 > 0)
                if not c.changed:
                    c = pairs.Changes(table)
                yield f"{n} {largest is None}", [c.summary, c.problems, c.unreadable, c.is_known, c.has_grown]
                yield f"{n} {largest is None} names", [c.name(row) for row in c.listed]
                if largest is None or len(c.changed) != 1:
                    output = Output(limit=None if n % 2 else 2, wide=True)
                    yield f"{n} {largest is None} screen", said(pairs.screen(c, output))
                yield f"{n} {largest is None} comment", markdown.pairs_comment(c, None if n % 2 else 2)

    check("cli/words-pairs", results())


def test_series() -> None:
    """Programs with levels, jumps and problems that are made up."""
    def results() -> Iterator[tuple[str, Any]]:
        for n, n_points in ((0, 1), (1, 2), (3, 5), (6, 13), (25, 30)):
            points = tuple(f"p{i}" for i in range(n_points))
            rows = mixed(
                n, n, program=(0, 1), module_name=(None, "jit_f"), module_id=(None, 4),
                ordinal_first=(0, 0, n_points - 1), ordinal_last=(n_points - 1, 0), jump=(None, 0, 1, 2),
                device_total_first=(None, 5, 900), peak_first=(None, 4), device_total_last=(5, 900), peak_last=(4, 9),
            )  # fmt: skip
            jumps = [{"program": i % 2, "change": (0, 5, -900)[i], "peak_change": 7, "ordinal_a": min(i, n_points - 1),
                      "ordinal_b": min(i + 2, n_points - 1)} for i in range(3)]  # fmt: skip
            found = pa.table({"ordinal": [*range(0, n_points, 2)], "device_total": pa.array(
                [(5, None, 7)[i % 3] for i in range(0, n_points, 2)], pa.int64())})  # fmt: skip
            s: Any = SimpleNamespace(
                programs=pa.Table.from_pylist(rows) if rows else pa.table({"program": pa.array([], pa.int64())}),
                jumps=pa.Table.from_pylist(jumps), short_points=points, summary="what changed", over="c",
                points=points, unknown=pa.table({"problem": pa.array(["bad", None, "bad"][: n % 4], pa.string())}),
                is_known=n > 2, has_grown=n > 3, rows=lambda program,
                found=found: found.append_column("program", pa.array([program] * len(found))),
                counts=dict.fromkeys(("programs", "changed", "grown", "new", "gone", "unknown", "same", "listed"), n),
                diff=lambda jump: SimpleNamespace(verdict=f"verdict of {jump}"), series=pa.table({"a": [1]}),
            )  # fmt: skip
            over = series.Over(s)
            for limit in (None, 0, 2, 40):
                output = Output(limit=limit, wide=True)
                yield f"{n} {limit} screen", said(series.screen(over, output))
                yield f"{n} {limit} comment", series.comment(over, limit)
                yield f"{n} {limit} JSON", series.as_json(over, output)
        for own in ([5], [5, -1, -2, 7, 9] * 4):
            yield f"line of {len(own)}", [series.sparkline(np.array(own), width) for width in (1, 7, 20)]

    check("cli/words-series", results())


def test_conversions(capsys: pytest.CaptureFixture[str]) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        converted = mixed(
            40, 17, dumps=(0, 1, 1234), rows=(0, 1, 5000), files=(1, 3), bytes=SIZES, already_stored=(0, 7),
            occurrences=(0, 9), duplicates=(0, 1), unreadable=(0, 2000), seconds=(0.0, 2.5), text_bytes=SIZES,
            recent=(0, 1, 3), known=(0, 1, 2), changed=([], ["a"], ["a"] * 9), stopped=(True, False),
            empty=([], ["e"]), cut=([], ["c"] * 7),
        )  # fmt: skip
        for i, row in enumerate(converted):
            result: Any = SimpleNamespace(**row)
            convert.report_notes(result)
            convert.report_incomplete(result)
            yield f"{i}", [convert.summary(result, "x"), capsys.readouterr().err]
        for i, row in enumerate(mixed(40, 18, phase=("find", "read"), dumps=(0, 5), of_dumps=(9, 1234), bytes=(0, 5000),
                                      of_bytes=(0, 10**6), seconds=(0.0, 2.0), failed=(0, 3))):  # fmt: skip
            status: Any = SimpleNamespace(**row)
            yield f"status {i}", [convert._line(status), convert._counts(status)]

    check("cli/words-convert", results())


def test_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        rows = mixed(
            30, 19, number=(None, 5, -1234567), share=(0.5, 1e9, float("nan"), None), name=(None, "a\tb", "x" * 90),
            flag=(True, None), text=("", "y" * 25),
        )  # fmt: skip
        table = pa.Table.from_pylist(rows)
        for n in (0, 1, 30):
            for width in ("40", "60", "90", "200", ""):
                monkeypatch.setenv("COLUMNS", width)
                for limit, more in ((None, 0), (3, 0), (None, 500)):
                    tables._write_text(table.slice(0, n), Output(limit=limit), n + more)
                    yield f"{n} {width} {limit} {more}", capsys.readouterr().out

    check("cli/words-tables", results())


@pytest.mark.parametrize("hidden", [True, False])
def test_progress_of_a_conversion(hidden: bool) -> None:
    """None if it is hidden; without a terminal, a line from time to time."""
    with convert.progress(hidden=hidden) as update:
        assert isinstance(update, type(None) if hidden else convert._Log)


def test_installations(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        packages = (("s3", "s3fs", None), ("x", "y", "1"))
        extra, another = ({"extra": name, "package": package, "version": v} for name, package, v in packages)
        found = mixed(
            9, 21, path=("/a", "/home/user" * 9), python=("3.11.7",), platform=("Linux",), build=([], ["a", "b"]),
            simd=([], ["AVX2", "SSE2"]), threads=(1, 8), cores=(1, 16), schema_version=(2,),
            dependencies=({}, {"numpy": "2.0", "rich": None}), extras=([], [extra, another]),
        )  # fmt: skip
        for i, row in enumerate(found):
            monkeypatch.setenv("COLUMNS", ("60", "", "200")[i % 3])
            write_installation(row)  # type: ignore[arg-type]
            lines = capsys.readouterr().out.splitlines()
            assert lines[0] == f"xlamem {xlamem.__version__}"
            yield f"{i}", lines[1:]

    check("cli/words-installation", results())
