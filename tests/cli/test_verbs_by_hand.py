"""Parts of the commands: what options mean, exit codes, and what is written, on values made by hand."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import cli
from xlamem.cli import console, options
from xlamem.cli.inputs import Failure, Program
from xlamem.cli.reporters import top as screens
from xlamem.cli.reporters import verdict
from xlamem.cli.reporters.top import Screen
from xlamem.cli.verbs import advise, check, convert, dataset, diff, explain, info, oom, peak, report, schema, show, top
from xlamem.cli.verbs import bill as verbs_bill
from xlamem.cli.verbs import buffer as verbs_buffer
from xlamem.cli.verbs.check import Target
from xlamem.compute import Fits
from xlamem.errors import OutputError, UsageError
from xlamem.gate.config import Budget, Config

Row = dict[str, Any]
NONE: Any = None
SMALL = DUMPS / "cpu-jaxlib-0.10.2-cond_switch"


def plain(text: object) -> str:
    return " ".join(str(text).replace("\N{NO-BREAK SPACE}", " ").split())


# -- check ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "json", "targets"),
    [
        ([], False, ["text:"]), ([], True, ["json:"]), (["junit=a"], False, ["text:", "junit:a"]),
        (["junit=a", "github"], False, ["github:", "junit:a"]), (["junit=a"], True, ["json:", "junit:a"]),
        (["json", "json="], True, ["json:"]), (["text=a", "text"], True, ["text:", "json:", "text:a"]),
        (["markdown=a=b", "markdown=a=b"], False, ["text:", "markdown:a=b"]),
    ],
)  # fmt: skip
def test_outputs_of_a_check(texts: list[str], json: bool, targets: list[str]) -> None:
    """What goes to stdout comes first, and each once."""
    found = check._all_targets(check._targets(NONE, NONE, texts), json)
    assert [f"{t.format}:{t.file or ''}" for t in found] == targets


def test_outputs_with_one_file(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.touch()
    b.symlink_to(a)
    same = [Target("json", str(a)), Target("json", str(b)), Target("text", None), Target("junit", None)]
    check._require_other_file(same, "baseline.json")
    for targets, baseline, text in (
        ([Target("json", str(a)), Target("junit", str(b))], "x", f"--output junit={b}: this is the file of the output"
            " json"), ([Target("json", str(b))], str(a), f"--output json={b}: this is the file of the baseline"),
        ([Target("json", str(a))], str(b), f"--output json={a}: this is the file of the baseline"),
    ):  # fmt: skip
        with pytest.raises(UsageError) as e:
            check._require_other_file(targets, baseline)
        assert str(e.value) == text


@pytest.mark.parametrize(
    ("total", "device", "budgets"),
    [
        (None, None, 1), ("5B", None, Budget(number=2, device_total=5)), (None, "v5e", Budget(number=2, device="v5e")),
        ("0B", "v5e", Budget(number=2, device_total=0, device="v5e")),
    ],
)  # fmt: skip
def test_a_budget_of_options(total: str | None, device: str | None, budgets: Any) -> None:
    """It is after those of the configuration."""
    config = Config(budgets=(Budget(peak=7),))
    found = check._with_budget(config, total, device).budgets
    assert found[0] == config.budgets[0]
    if budgets == 1:
        assert len(found) == 1
    else:
        (own,) = found[1:]
        names = ("number", "device_total", "device", "peak")
        assert [getattr(own, n) for n in names] == [getattr(budgets, n) for n in names]
        assert own.where == "--max-device-total, --device: budget 2"


def test_a_budget_of_empty_options() -> None:
    for total, device in (("", None), (None, "")):
        with pytest.raises(UsageError):
            check._with_budget(Config(), total, device)


def test_errors_of_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults are in every report; reports of an earlier run are deleted, but no baseline."""
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    summary.write_text("before\n")
    base = tmp_path / "base.json"
    base.write_text('{"xlamem_baseline": 1, "programs": []}')
    is_base = check.is_baseline(str(base))
    files = {name: tmp_path / name for name in ("text", "markdown", "json", "junit")}
    for file in files.values():
        file.write_text("old")
    targets = [*(Target(name, str(file)) for name, file in files.items()), Target("github", None), Target("text", None)]
    targets += [Target("json", str(base)), Target("junit", str(tmp_path / "missing"))]
    with pytest.raises(UsageError, match="no <b>"), check._reporting_errors(targets):
        raise UsageError("no <b>")
    assert files["text"].read_text() == "error: no <b>\n"
    text = files["markdown"].read_text()
    assert text.startswith(f"{check.MARKER}\n**xlamem check: ")
    assert "<b>" not in text
    assert [files[name].exists() for name in ("json", "junit")] == [False, False]
    assert base.exists() is is_base
    assert capsys.readouterr().out == "::error title=xlamem check::no <b>\n"
    assert summary.read_text() == f"before\n{text}"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "")
    check._add_to_summary("x")


def test_outputs_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are written, and the first error is raised."""
    monkeypatch.setattr(check, "FORMATS", {name: lambda _, name=name: f"{name}!" for name in ("text", "json", "x")})
    (tmp_path / "file").touch()
    targets = [Target("text", str(tmp_path / f"file/{i}")) for i in range(2)]
    targets += [Target("json", str(tmp_path / "new/folder/a")), Target("x", str(tmp_path / "b"))]
    with pytest.raises(OutputError, match="file/0"):
        check._write_all(NONE, targets)
    assert (tmp_path / "new/folder/a").read_bytes() == b"json!\n"
    assert (tmp_path / "b").read_text() == "x!\n"


def test_colors_of_statuses() -> None:
    lines = ["FAILED a", "NOT KNOWN b", "warning c", "ok d", "FAILEDe", " ok f", "ok", "x FAILED y"]
    found = check._colored("\n".join(lines)).split("\n")
    colors = {"FAILED": "red", "NOT KNOWN": "red", "warning": "yellow", "ok": "green"}
    wanted = [f"{click.style(w, fg=c)} {line[-1]}" for (w, c), line in zip(colors.items(), lines, strict=False)]
    assert found == [*wanted, *lines[4:]]


# -- top -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "keys"),
    [("scope", ["scope"]), (" scope , layer,", ["scope", "layer"]), ("memory_space", []), ("buffer", ["buffer"]),
     ("memory_space,kind", ["kind"])],
)  # fmt: skip
def test_keys_of_top(by: str, keys: list[str]) -> None:
    assert top._keys(by) == keys
    for wrong in ("buffer,scope", "scope,buffer", "nothing"):
        with pytest.raises(UsageError):
            top._keys(wrong)


def test_first_rows_of_each_memory_space() -> None:
    rows = [{"memory_space": s, "page": p, "i": i} for i, (s, p) in enumerate(
        [("hbm", 0), ("vmem", 0), ("hbm", 0), ("hbm", 1), ("hbm", 0), ("vmem", 0)])]  # fmt: skip
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    for limit, shown in ((None, [*range(6)]), (1, [0, 1, 3]), (2, [0, 1, 2, 3, 5]), (0, [])):
        assert [row["i"] for row in top._first_rows(table, options.Output(limit=limit))] == shown
    found = top._first_rows(table.drop_columns(["page"]), options.Output(limit=2))
    assert [row["i"] for row in found] == [0, 1, 2, 5]


def a_screen(limit: int | None = None, width: int | None = None, step: int | None = None) -> Screen:
    module = pa.table({"schedule_length": [3], "platform": ["tpu"]})
    dump: Any = SimpleNamespace(modules=module, schedule={"instruction": pa.array(["a", "b", "c"])}, source=None)
    return Screen(dump, width, limit, wide=False, step=step)


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({}, "hbm 5 bytes in use at step 2 of 3 (its peak)"),
        ({"bytes": 4}, "hbm 4 bytes in use at step 2 of 3 (peak 5 B)"),
        ({"time": None, "page": 2}, "hbm page 2 5 bytes in use at step 0 of 3 (its peak)"),
        ({"bytes": 2048, "peak": 4096}, "hbm 2.00 KiB (2,048 bytes) in use at step 2 of 3 (peak 4.00 KiB)"),
    ],
)  # fmt: skip
def test_titles_of_memory_spaces(about: Row, text: str) -> None:
    space = {"memory_space": "hbm", "bytes": 5, "peak": 5, "time": 2, "page": 0, **about}
    found = plain(a_screen()._title(space))
    assert found == text
    length = len(str(a_screen()._title(space)))
    assert plain(a_screen(width=length)._title(space)) == found
    assert "bytes" not in plain(a_screen(width=length - 1)._title(space))


@pytest.mark.parametrize(
    ("step", "runs"),
    [(0, "step 0 runs a"), (None, "step 0 runs a"), (2, "step 2 runs c"), (3, "after the last instruction")],
)
def test_what_runs_at_a_step(step: int | None, runs: str) -> None:
    for roles, counts in ((["value"], "1 live buffer"), (["value", "value", "reserved"], "2 live buffers, 1 allocation"
            " reserved but not live"), ([], "0 live buffers")):  # fmt: skip
        rows = pa.table({"role": pa.array(roles, pa.string())})
        assert plain(a_screen()._counts({"time": step}, rows)[0]) == f"{counts}; {runs}"


def test_memory_spaces_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main memory first, then the largest; none that is empty."""
    spaces = [{"memory_space": name, "bytes": n} for name, n in (("vmem", 9), ("a", 0), ("hbm", 5), ("smem", 10))]
    assert [s["memory_space"] for s in screens._sorted(spaces)] == ["hbm", "smem", "vmem"]
    monkeypatch.setattr(screens, "header", lambda *_: [])
    monkeypatch.setattr(screens, "describe_problems", lambda _: [])
    assert a_screen()._header(spaces) == []
    assert [plain(t) for t in a_screen(step=2)._header(spaces[1:2])] == ["", "0 B in use at step 2 of 3"]
    assert [plain(t) for t in a_screen()._header([])] == ["", "0 B in use"]
    names = [screens._group_name(k, n) for k, n in (("scope", None), ("scope", "a\nb"), ("category", "temp"))]
    assert names[0] == "(no scope)"
    assert "\n" not in names[1]
    rows = pa.table({"color": [0, 1, 0], "page": [0, 0, 1]})
    assert screens._of_space(rows, {"color": 0, "page": 1}, "color", "page").to_pylist() == [{"color": 0, "page": 1}]


@pytest.mark.parametrize(
    ("n", "limit", "n_small", "lines"),
    [
        (3, 3, 0, []), (3, 5, 0, []), (3, 2, 2, ["1 B in 1 more: --limit shows more"]),
        (4, 1, 1, ["6 B in 3 more: --limit shows more"]),
        (4, 1, 2, ["6 B in 3 more, with numbers folded to *:", "g5", "g4", "1 B in 1 other group"]),
    ],
)  # fmt: skip
def test_groups_that_are_left_out(
    n: int, limit: int, n_small: int, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screens, "n_until_small", lambda *_: n_small)
    folded = pa.table({"bytes": [5, 4, 1]})
    monkeypatch.setattr(screens, "folded_rest", lambda *_: (folded, 2))
    screen = a_screen(limit)
    monkeypatch.setattr(screen, "_list", lambda rows, keys, total: [f"g{row['bytes']}" for row in rows])
    rows = pa.table({"bytes": [*range(n, 0, -1)]})
    assert [plain(t) for t in screen._rest(rows, ["scope"], 10)] == lines


def test_lines_whose_callers_are_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with more than a tenth of the main memory."""
    sizes = {"/m/a.py:1": 50, "/m/b.py:2": 30, "/m/c.py:3": 10, None: 10}
    rows = pa.table({"memory_space": ["hbm"] * 4, "source": [*sizes], "bytes": [*sizes.values()]})
    rows = pa.concat_tables([rows, pa.table({"memory_space": ["vmem"], "source": ["/m/d.py:4"], "bytes": [90]})])
    spaces: list[Any] = [{"memory_space": name, "bytes": 100} for name in ("vmem", "hbm")]
    monkeypatch.setattr(screens, "shared_lines", lambda _: {"/m/a.py:1", "/m/c.py:3", "/m/d.py:4"})
    screen = a_screen()
    screen.dump.frames = None  # type: ignore[misc]
    start, end = "Called from several lines: ", ". `xlamem buffer PATH NAME` shows the callers of a buffer."
    assert screen._about_callers(spaces, rows) == f"{start}a.py:1{end}"
    monkeypatch.setattr(screens, "shared_lines", lambda _: {"/m/a.py:1", "/m/b.py:2"})
    assert screen._about_callers(spaces, rows) == f"{start}a.py:1, b.py:2{end}"
    assert screen._about_callers(spaces, rows.slice(2)) == screen._about_callers([], rows) == ""


def test_shapes_lose_their_layout_and_not_their_element_type() -> None:
    shapes = ["f32[10,512,512,64]{2,3,1,0:T(8,128)}", "bf16[10,512,512,64]{2,3,1,0:T(8,128)(2,1)}", "f32[]{:T(128)}"]
    rows: list[Any] = [{"shape": shape, "source": f"/home/you/model/train.py:{i}"} for i, shape in enumerate(shapes)]
    assert screens._names(rows, ["shape"], 42) == screens._names(rows, ["shape"], None) == shapes
    assert screens._names(rows, ["shape"], 41) == ["f32[10,512,512,64]", "bf16[10,512,512,64]", "f32[]"]
    assert screens._names(rows, ["shape"], 12) == ["f32[10,512,…", "bf16[10,512…", "f32[]"]
    both = screens._names(rows, ["source", "shape"], 36)
    assert both == ["…/train.py:0  f32[10,512,512,64]", "…/train.py:1  bf16[10,512,512,64]", "…/train.py:2  f32[]"]
    assert screens._names(rows, ["source"], 12) == [f"…/train.py:{i}" for i in range(3)]
    assert [screens._folding(keys) for keys in (["scope"], ["shape"], ["shape", "source"])] == [
        "with numbers folded to *", "by element type and number of dimensions", "with shapes and numbers folded",
    ]  # fmt: skip


def test_shapes_that_differ_only_in_their_layout_keep_it() -> None:
    alike = ["f32[9,8]{1,0:T(8,128)}", "f32[9,8]{0,1:T(8,128)}", "pred[4]{0:T(128)}"]
    rows: list[Any] = [{"shape": shape} for shape in alike]
    assert screens._names(rows, ["shape"], 16) == ["f32[9,8]{1,0:T(…", "f32[9,8]{0,1:T(…", "pred[4]"]
    ends: list[Any] = [{"shape": f"f32[9,8]{{1,0:T(8,128)S({i})}}"} for i in range(2)]
    assert screens._names(ends, ["shape"], 16) == ["f32[9,8]…8)S(0)}", "f32[9,8]…8)S(1)}"]
    middle: list[Any] = [{"shape": f"f32[9999,{i},9999]{{2,1,0}}"} for i in range(2)]
    assert screens._names(middle, ["shape"], 12) == ["f32[9999,0,…", "f32[9999,1,…"]
    assert screens._names(middle, ["shape"], 8) == ["f32…,0,…", "f32…,1,…"]
    in_tuples: list[Any] = [{"shape": f"({row['shape'].partition('{')[0]})"} for row in middle]
    assert screens._names([*middle, *in_tuples], ["shape"], 8) == ["f32[…0…", "f32[…1…", "(…0…", "(…1…"]
    both: list[Any] = [{"shape": f"f32[999,99,9999]{{{i}}}", "opcode": "fusion" * 3} for i in ("2,1,0", "2,0,1")]
    names = screens._names(both, ["shape", "opcode"], 30)
    assert len({*names}) == 2
    assert all(name.startswith("f32") for name in names)


# -- other commands ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fits", "complete", "n_failed", "strict", "code"),
    [
        ([], [True], 0, True, 0), ([True, False], [True], 0, False, 1), ([False, None], [True], 0, False, 3),
        ([True], [True, False], 0, False, 0), ([True], [True, False], 0, True, 3), ([True], [True], 1, False, 3),
        ([False], [False], 0, False, 1), ([True, True], [True], 0, True, 0),
    ],
)  # fmt: skip
def test_exit_codes_of_peak(fits: list[Any], complete: list[bool], n_failed: int, strict: bool, code: int) -> None:
    verdicts: list[Any] = [SimpleNamespace(fits=f, other_platform=False) for f in fits]
    programs = [Program(SimpleNamespace(module={"complete": c}), None, []) for c in complete]  # type: ignore[arg-type]
    programs += [Program(SimpleNamespace(module={"complete": True}), v, []) for v in verdicts]  # type: ignore[arg-type]
    assert peak._exit_code(programs, [Failure("a", "b")] * n_failed, strict=strict) == code


def test_programs_for_another_platform_do_not_decide() -> None:
    """Unless there are no others."""
    for fits, other, code in (
        ([True, None], [0, 1], 0), ([None], [1], 3), ([False, None], [0, 1], 1), ([None, None], [1, 1], 3),
    ):  # fmt: skip
        pairs = zip(fits, other, strict=True)
        verdicts: list[Any] = [SimpleNamespace(fits=f, other_platform=bool(o)) for f, o in pairs]
        module: Any = SimpleNamespace(module={"complete": True})
        assert peak._exit_code([Program(module, v, []) for v in verdicts], [], strict=False) == code


@pytest.mark.parametrize(
    ("fits", "total", "is_shown"), [(True, 90, False), (True, 91, True), (False, 101, True), (None, 101, False)]
)
def test_advice_where_little_is_left(
    fits: bool | None, total: int, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak.compute, "plan_advice", lambda *_: (pa.table({"in_plan": [False]}), None))
    verdict: Any = SimpleNamespace(available=100, fits=fits, device_total=total)
    assert bool(peak._advice(NONE, verdict)) is is_shown
    assert not peak._advice(NONE, None)


@pytest.mark.parametrize(
    ("in_plan", "shown"), [([1, 1, 1], [0, 1]), ([0, 1, 0], [1]), ([0, 0, 0], [0, 1]), ([], []), ([0, 1, 1], [1, 2])]
)
def test_advice_of_peak(in_plan: list[int], shown: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """At most two interventions: those of the plan, or else the first ones."""
    asked: list[int] = []
    table = pa.table({"i": [*range(len(in_plan))], "in_plan": [bool(i) for i in in_plan]})
    monkeypatch.setattr(peak.compute, "plan_advice", lambda _, budget: asked.append(budget) or (table, None))
    for available in (-5, 0, 7):
        fits: Any = SimpleNamespace(available=available, fits=False, device_total=100)
        assert [row["i"] for row in peak._advice(NONE, fits)] == shown
    assert asked == [0, 0, 7]


@pytest.mark.parametrize(
    ("in_plan", "upper", "saved", "shown"),
    [
        ([0, 1, 0], [10, 2, 10], 9, [1, 0]),  # the plan first, then what may be enough alone
        ([0, 1, 0], [9, 2, 10], 9, [1, 2]),
        ([0, 1, 0], [10, 2, 10], 10, [1]),
        ([0, 0, 0], [1, 2, 10], 0, [0, 1]),
    ],
)
def test_advice_of_peak_if_the_plan_is_not_enough(
    in_plan: list[int], upper: list[int], saved: int, shown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["donate"] * 3
    table = pa.table({"i": [*range(3)], "kind": kinds, "in_plan": [bool(i) for i in in_plan], "upper": upper})
    plan = peak.compute.Plan(device_total=100, budget=90, saved=saved, n=sum(in_plan))
    monkeypatch.setattr(peak.compute, "plan_advice", lambda _, budget: (table, plan))
    fits: Any = SimpleNamespace(available=90, fits=False, device_total=100)
    assert [row["i"] for row in peak._advice(NONE, fits)] == shown


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    ("given", "limit", "details"),
    [
        ([], 10, False), (["--limit", "3"], 3, False), (["--limit", "0"], 0, False), (["--csv"], 10, False),
        (["--json"], None, True), (["--json", "--limit", "3"], 3, True), (["--csv", "--limit", "30"], 30, False),
    ],
)  # fmt: skip
def test_what_peak_reads(
    n: int, given: list[str], limit: int | None, details: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All buffers for JSON, without a limit; of several programs, no details of most."""
    asked: list[Any] = []

    def summarize(dump: Any, **arguments: Any) -> Any:
        asked.append(arguments)
        raise UsageError("enough")

    monkeypatch.setattr(peak, "find", lambda *paths: [None] * n if paths == ("a", "b") else [])
    monkeypatch.setattr(peak, "read", lambda source, tables: None)
    monkeypatch.setattr(peak.compute, "summarize", summarize)
    assert cli.main(["peak", "a", "b", "--space", "1", *given]) == console.USAGE
    assert asked == [{"space": 1, "limit": limit, "details": details or n == 1, "required": n == 1}]


@pytest.mark.parametrize(("n_lines", "height"), [(0, 40), (10, 30), (16, 24), (17, 24), (99, 24)])
def test_height_below_a_list(n_lines: int, height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("xlamem.cli.reporters.peak.screen", lambda p, layout, **k: asked.append((layout, k)) or [])
    shown = options.Output(limit=3, wide=True, verbose=True)
    peak._write_screen(Program(NONE, None, []), shown, n_lines, "p", all_spaces=False)
    assert asked == [((None, 3, True, True, height, "p"), {"all_spaces": False})]


@pytest.mark.parametrize(
    ("listed", "own", "n_failed", "memory", "fits", "code"),
    [
        (None, [True], 0, True, True, 0), (None, [False], 0, True, False, 1), (None, [None], 0, True, None, 3),
        (None, [None], 0, False, None, 0), (None, [True], 1, False, True, 3), ([True, None], [True], 0, True, None, 3),
        ([True, False], [True], 0, True, False, 1), ([False, None], [], 0, True, False, 3),
        (None, [True, None], 0, True, None, 3),
    ],
)  # fmt: skip
def test_exit_codes_of_report(
    listed: list[Any] | None, own: list[Any], n_failed: int, memory: bool, fits: bool | None, code: int
) -> None:
    made: Any = SimpleNamespace(
        failed=[{}] * n_failed, fits=fits,
        listing=None if listed is None else SimpleNamespace(verdicts={*listed}),
        programs=[SimpleNamespace(verdict=SimpleNamespace(fits=f)) for f in own],
    )  # fmt: skip
    given: Any = object() if memory else None
    assert report._exit_code(made, given) == code


@pytest.mark.parametrize(
    ("known", "grown", "unreadable", "codes"),
    [
        (True, False, False, (0, 0)), (True, True, False, (0, 1)), (False, True, False, (0, 3)),
        (False, False, True, (3, 3)), (True, True, True, (3, 3)),
    ],
)
def test_exit_codes_of_diff(known: bool, grown: bool, unreadable: bool, codes: tuple[int, int]) -> None:
    """Without the gate, only dumps that cannot be read count."""
    changes: Any = SimpleNamespace(is_known=known, has_grown=grown, unreadable=["x"] if unreadable else [])
    assert (diff._exit_code_of(changes, gate=False), diff._exit_code_of(changes, gate=True)) == codes
    if not unreadable:
        assert diff._exit_code(changes) == codes[1]


def test_what_diff_compares() -> None:
    assert diff._sides(("a", "b"), ()) == ("a", "b")
    assert diff._sides(("d",), ("k=1", "k=2")) == (("d", {"k": "1"}), ("d", {"k": "2"}))
    for paths, labels in ((("a",), ()), (("a", "b", "c"), ()), (("a", "b"), ("k=1", "k=2")), (("a",), ("k=1",)),
            (("a",), ("k=1",) * 3)):  # fmt: skip
        with pytest.raises(UsageError):
            diff._sides(paths, labels)
    assert diff._keys(" buffer,,cause ") == ("buffer", "cause")
    for wrong in ("", ",", "nothing"):
        with pytest.raises(UsageError):
            diff._keys(wrong)
    one, several = xlamem.find(SMALL), xlamem.find(SMALL) * 2
    a, b = diff._two_dumps(one, one) or NONE
    assert (a.name, b.name) == (one[0].name,) * 2
    assert diff._two_dumps(one, several) is diff._two_dumps(several, one) is diff._two_dumps(one, "d") is None


@pytest.mark.parametrize(
    ("dumps", "n_failed", "strict", "code"),
    [
        ([(False, True, True)], 0, True, 0), ([(True, True, True)], 0, False, 1), ([(True, False, True)], 0, False, 0),
        ([(False, True, True), (True, True, True)], 0, False, 1), ([(False, True, False)], 0, True, 3),
        ([(False, True, True), (False, True, False)], 0, True, 3),
        ([(False, True, False)], 0, False, 0), ([(True, True, True)], 1, False, 3), ([], 1, False, 3),
    ],
)  # fmt: skip
def test_exit_codes_of_info(
    dumps: list[tuple[bool, bool, bool]], n_failed: int, strict: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed check of a dump that is complete counts."""
    found: list[Any] = [
        SimpleNamespace(failed_checks=["x"] if failed else [], module={"complete": complete}, fully_read=read)
        for failed, complete, read in dumps
    ]
    written: list[Any] = []
    monkeypatch.setattr(info, "find", lambda *_: [])
    monkeypatch.setattr(info.inputs, "read_each", lambda *_: (found, [Failure("a", "b")] * n_failed))
    monkeypatch.setattr(info.inputs, "report", lambda _: None)
    monkeypatch.setattr(info.reporter, "write_one", lambda d: written.append(1))
    monkeypatch.setattr(info.reporter, "write_list", lambda d, n: written.append((len(d), n)))
    run: Any = info.command.callback
    assert run(paths=("a",), itself=False, as_json=False, strict=strict) == code
    assert written == ([1] if len(dumps) == 1 and not n_failed else [(len(dumps), n_failed)] if dumps else [])


def test_causes_of_the_numbers_that_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [{"name": n, "color": c, "page": 0} for n, c in (("a", 0), ("a", 1), ("b", 0))]
    monkeypatch.setattr(explain, "rows_of_space", lambda dump, rows, space: numbers)
    monkeypatch.setattr(explain.compute, "explain", lambda _: pa.table({"x": []}))
    causes = pa.table({name: [n[name] for n in numbers * 2] for name in numbers[0]})
    monkeypatch.setattr(explain.compute, "explain_causes", lambda _: causes)
    monkeypatch.setattr(explain.options, "program_json", lambda _: {})
    written: list[Any] = []
    monkeypatch.setattr(explain.console, "write_document", lambda *a: written.append(a))
    monkeypatch.setattr(explain.options.inputs, "open_dump", lambda *_: explain.options.inputs.Opened(NONE, 0))
    run: Any = explain.command.callback
    for limit in (None, 2, 1, 0):
        assert run(path="d", module=None, space=None, as_json=True, limit=limit) == 0
        shown = numbers[:limit]
        assert written.pop() == ("explain", {"numbers": shown, "n_numbers": 3, "causes": [c for c in numbers * 2 if c in
            shown]})  # fmt: skip


def test_json_of_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"rank": [0, 1, 2]})
    plan = SimpleNamespace(device_total=9, budget=7, saved=3, n=2, is_reached=True)
    monkeypatch.setattr(advise.options, "program_json", lambda _: {})
    monkeypatch.setattr(advise.compute, "device_total", lambda _: 9)
    monkeypatch.setattr(advise.options.inputs, "open_dump", lambda *_: advise.options.inputs.Opened(NONE, 0))
    written: list[Any] = []
    monkeypatch.setattr(advise.console, "write_document", lambda *a: written.append(a))
    run: Any = advise.command.callback
    for found in (None, plan):
        monkeypatch.setattr(advise.compute, "plan_advice", lambda *_, found=found: (table, found))
        run(path="d", module=None, budget=None, device=None, as_json=True, limit=2)
        assert written.pop() == ("advise", {
            "device_total": 9, "plan": None if found is None else vars(plan), "advice": [{"rank": 0}, {"rank": 1}],
            "n_rows": 3,
        })  # fmt: skip


def test_the_table_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is only said if the table is a path, and the path a table and no file."""
    monkeypatch.chdir(tmp_path)
    for name in ("dump", "peaks"):
        (tmp_path / name).touch()
    run = show._table_first(lambda table, path: (table, path))
    assert run("values", "dump") == ("values", "dump")
    assert run("dump", "peaks") == ("dump", "peaks")
    assert run("missing", "values") == ("missing", "values")
    for table in ("values", "idle", "quarantine"):
        with pytest.raises(UsageError, match=f"xlamem show {table} dump$"):
            run("dump", table)


def test_rows_of_a_dataset() -> None:
    """The first rows, and how many there are."""

    class Stored:
        def __init__(self) -> None:
            self.damage_errors = lambda _: contextlib.nullcontext()
            self.tables = ["values"]

        def __getitem__(self, name: str) -> Any:
            whole = pa.table({"a": [*range(9)], "b": [*range(9)]})
            return SimpleNamespace(
                schema=whole.schema, to_table=lambda columns: whole.select(columns), count_rows=lambda: 9,
                head=lambda n, columns: whole.slice(0, n).select(columns),
            )  # fmt: skip

    stored: Any = Stored()
    for limit, n in ((None, 9), (0, 0), (2, 2), (99, 9)):
        for names in (None, ["b"]):
            rows, n_rows = show._stored_rows(stored, "values", names, limit)
            assert (rows.num_rows, rows.column_names, n_rows) == (n, names or ["a", "b"], 9)
    for table, text in (("idle", "is computed from a dump"), ("nothing", "no table 'nothing'")):
        with pytest.raises(UsageError, match=text):
            show._stored_rows(stored, table, None, None)


def test_files_of_a_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    files = [{"table": f"t{i}", "rows": 1000 * i, "bytes": 2000 * i, "tool_version": "1", "path": f"p{i}"} for i in
        (1, 2)]  # fmt: skip
    dataset._write_long(files)
    assert [plain(line) for line in capsys.readouterr().out.splitlines()] == [
        "table rows bytes version path", "t1 1,000 2,000 1 p1", "t2 2,000 4,000 1 p2",
        "2 files, 3,000 rows, 5.86 KiB (6,000 bytes)",
    ]  # fmt: skip


def test_names_for_a_conversion() -> None:
    assert [convert._names(t) for t in (None, "", " a, b,,", "a")] == [None, [], ["a", "b"], ["a"]]


@pytest.mark.parametrize("fails", [True, False])
def test_garbage_is_collected_again(fails: bool) -> None:
    expected = pytest.raises(ValueError, match="no") if fails else contextlib.nullcontext()
    with expected, convert._without_garbage_collection():
        assert not gc.isenabled()
        if fails:
            raise ValueError("no")
    assert gc.isenabled()


@dataclass
class Result:
    """What a conversion returns, as far as the exit code depends on it."""

    unreadable: int
    cut: list[str]
    empty: list[str]


@pytest.mark.parametrize(
    ("found", "codes"),
    [((0, [], []), (0, 0)), ((1, [], []), (3, 3)), ((0, ["c"], []), (0, 3)), ((0, [], ["e"]), (0, 3))],
)  # fmt: skip
@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("json", [True, False])
def test_what_a_conversion_says(
    found: tuple[int, list[str], list[str]], codes: tuple[int, int], quiet: bool, json: bool,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Errors in any case; what is incomplete with --strict, too; notes and a summary unless it is quiet."""
    said: list[str] = []
    for name in ("report_failures", "report_incomplete", "report_notes"):
        monkeypatch.setattr(convert.reporter, name, lambda _, name=name: said.append(name.removeprefix("report_")))
    monkeypatch.setattr(convert.reporter, "summary", lambda _, to: f"wrote {to}")
    asked: list[Any] = []
    monkeypatch.setattr(convert.warehouse, "convert", lambda *sources, to, progress, **settings: asked.append(
        (sources, to, settings["tables"], settings["labels"], settings["partition_by"])) or Result(*found))  # fmt: skip
    for strict in (False, True):
        said.clear()
        flags = [flag for flag, is_on in (("--quiet", quiet), ("--json", json), ("--strict", strict)) if is_on]
        given = ["--to", "s3://me:word@x/y", "--label", "k=v", "--tables", "uses,values"]
        assert cli.main(["convert", "a", "b", *given, *flags]) == codes[strict]
        incomplete = ["incomplete"] if strict or not quiet else []
        assert said == ["failures", *incomplete, *([] if quiet else ["notes"])]
        out = capsys.readouterr().out
        assert out.startswith("{" if json else "" if quiet else "wrote s3://")
        assert bool(out) == (json or not quiet)
        assert "word" not in out
    assert asked == [(("a", "b"), "s3://me:word@x/y", ["uses", "values"], {"k": "v"}, ())] * 2


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("json", [True, False])
def test_a_log_without_a_report(
    n: int, json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Reports:
        source = "log.txt"

        def __len__(self) -> int:
            return n

        def __getattr__(self, name: str) -> pa.Table:
            return pa.table({"a": [1]})

    asked: list[Any] = []
    monkeypatch.setattr(oom.oom, "read_oom", lambda log: asked.append(log) or Reports())
    monkeypatch.setattr(oom.reporter, "write_reports", lambda *_: asked.append("written"))
    monkeypatch.setattr(console, "write_document", lambda name, data: asked.append(sorted(data)))
    run: Any = oom.command.callback
    assert run(log="-", as_json=json) == (0 if n else 3)
    assert asked == ["-", *([sorted(("source", *oom.oom.TABLES))] if json else ["written"] * n)]
    assert capsys.readouterr().err.startswith("error: log.txt: expected an" if not n else "")
    run(log="x", as_json=False)
    assert [x.__fspath__() for x in asked if hasattr(x, "__fspath__")] == ["x"]


def test_json_of_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are shortened, and their lengths are not."""
    lists = {"users": [1, 2, 3], "positions": [1], "mates": [1, 2]}
    monkeypatch.setattr(verbs_buffer, "asdict", lambda _: {"a": 1, **lists})
    monkeypatch.setattr(verbs_buffer.compute, "buffer", lambda dump, name: SimpleNamespace(namesakes=0))
    monkeypatch.setattr(verbs_buffer.options, "program_json", lambda _: {})
    monkeypatch.setattr(verbs_buffer.options.inputs, "open_dump", lambda *_: options.inputs.Opened(NONE, 0))
    written: list[Any] = []
    monkeypatch.setattr(verbs_buffer.console, "write_document", lambda name, data: written.append(data))
    run: Any = verbs_buffer.command.callback
    for limit in (None, 2, 0):
        run(path="d", module=None, name="x", as_json=True, limit=limit)
        lengths = {f"n_{name}": len(found) for name, found in lists.items()}
        assert written.pop() == {"a": 1, **{name: found[:limit] for name, found in lists.items()}, **lengths}


def test_a_search_for_packings_has_no_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.inputs, "open_dump", lambda *_: options.inputs.Opened(NONE, 0))
    run: Any = verbs_bill.command.callback
    for seconds in (0, 5.0):
        with pytest.raises(UsageError, match="--repack and --csv exclude each other"):
            run(path="d", module=None, space=None, seconds=seconds, as_json=False, as_csv=True)


@pytest.mark.parametrize(("fits", "style"), [(True, "green"), (False, "bold red"), (None, "bold red")])
def test_colors_of_verdicts(fits: bool | None, style: str) -> None:
    found = Fits(fits, "because", 5, 9, 9, device="v5e-and-a-long-name")
    assert verdict._verdict(found)[1] == style
    lines = [str(line) for line in verdict.verdict_lines(None, {}, found, None)]
    assert lines[0] == "device_total"
    assert lines[1].startswith(f"  v5e-and-a-{verdict._verdict(found)[0][:4]}")
    lines = [str(line) for line in verdict.verdict_lines(None, {}, replace(found, device=None), 40)]
    assert [line[:12].strip() for line in lines[1:]] == ["capacity", *[""] * (len(lines) - 2)]
    assert len(verdict.verdict_lines(None, {}, None, None)) == 1
    for platform, device, n in (("tpu", None, 1), ("gpu", None, 0), ("tpu", "v5e", 2), ("gpu", "v5e", 1)):
        assert len(verdict.verdict_notes(replace(found, device=device), platform)) == n
        assert verdict.verdict_notes(None, platform) == []


def test_groups_of_one_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed, but no empty ones."""
    screen = a_screen()
    monkeypatch.setattr(screen, "_header", lambda _: [])
    monkeypatch.setattr(screen, "_list", lambda rows, keys, total: [row["n"] for row in rows])
    rows = pa.table({"memory_space": ["hbm"] * 3, "bytes": [5, 1, 0], "n": ["a", "b", "c"]})
    space = {"memory_space": "hbm", "bytes": 6, "peak": 6, "time": 1}
    assert screen.groups([space], rows, ["scope"], tree=False)[2:] == ["a", "b"]


@pytest.mark.parametrize(
    ("form", "long", "json", "error"),
    [
        (None, False, False, ""), (None, True, False, ""), (None, False, True, ""), ("json", False, True, ""),
        ("list", False, False, ""), ("duckdb", False, False, ""), ("json", True, False, "--format json and --long"),
        ("list", False, True, "--format list and --json"), ("duckdb", False, True, "--format duckdb and --json"),
        ("json", True, True, "--format json and --long"), (None, True, True, "--long and --json"),
    ],
)  # fmt: skip
def test_forms_of_lists_of_files(
    form: str | None, long: bool, json: bool, error: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rows = [{"table": t, "rows": 1, "bytes": 2, "tool_version": "1", "path": f"p{t}"} for t in ("a", "b", "a")]
    found = SimpleNamespace(
        tables=["a", "b"], files=lambda: pa.Table.from_pylist(rows), duckdb_views=lambda *t: f"views of {t}\n"
    )
    monkeypatch.setattr("xlamem.warehouse.dataset.Dataset", lambda _: found)
    documents: list[Any] = []
    monkeypatch.setattr(console, "write_document", lambda name, data: documents.append(data))
    run: Any = dataset.list_files.callback

    def call(*tables: str) -> str:
        run(dest="d", tables=tables, form=form, long=long, as_json=json)
        return capsys.readouterr().out

    if error:
        with pytest.raises(UsageError, match=f"^{error} exclude each other$"):
            call()
        return
    printed, of_one = call(), call("a")
    if form == "duckdb":
        assert (printed, of_one) == ("views of ()\n", "views of ('a',)\n")
        return
    with pytest.raises(UsageError, match="no table c, d"):
        call("c", "a", "d")
    if json or form == "json":
        assert documents == [{"files": rows}, {"files": [row for row in rows if row["table"] == "a"]}]
    elif long:
        assert [plain(text.splitlines()[-1])[:7] for text in (printed, of_one)] == ["3 files", "2 files"]
    else:
        assert (printed, of_one) == ("pa\npb\npa\n", "pa\npa\n")


@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize("quarantined", [0, 1])
@pytest.mark.parametrize("single_writer", [True, False])
def test_nothing_is_dropped_without_yes(
    yes: bool, quarantined: int, single_writer: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    asked: list[Any] = []

    def drop(dest: str, where: str, *, dry_run: bool, single_writer: bool) -> Any:
        asked.append((dest, where, dry_run, single_writer))
        return SimpleNamespace(occurrences=2, contents=1, quarantined=quarantined, dry_run=dry_run)

    monkeypatch.setattr("xlamem.warehouse.drop", drop)
    run: Any = dataset.drop.callback
    run(dest="s3://key:secret@d", where="x", yes=yes, single_writer=single_writer, as_json=False)
    assert asked == [("s3://key:secret@d", "x", not yes, single_writer)]
    done = "dropped" if yes else "would be dropped; --yes drops them"
    more = ", 1 in quarantine" if quarantined else ""
    place, _, text = capsys.readouterr().out.strip().rpartition(": ")
    assert text == f"2 occurrences, 1 content found nowhere else{more} {done}"
    assert "secret" not in place


def test_what_maintenance_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def returning(**fields: Any) -> Any:
        return lambda *a, progress=None, **k: asked.append((*a, k)) or SimpleNamespace(**fields)

    monkeypatch.setattr("xlamem.warehouse.compact", returning(files=3, bytes=2048, new_files=1, new_bytes=5))
    registered = returning(tables=2, files=1, format="delta", added=1000, removed=2)
    monkeypatch.setattr("xlamem.warehouse.register", registered)
    monkeypatch.setattr("xlamem.warehouse.migrate", returning(dumps=3, contents=1, batches=2, seconds=1.25))
    compact: Any = dataset.compact.callback
    register: Any = dataset.register.callback
    migrate: Any = dataset.migrate.callback
    compact(dest="d", single_writer=True, as_json=False)
    register(dest="d", to="delta", single_writer=True, as_json=False)
    migrate(dest="d", single_writer=True, quiet=False, as_json=False)
    lines = [plain(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "d: 3 files, 2.00 KiB (2,048 bytes) to 1 file, 5 bytes", "d: 2 delta tables of 1 file; 1,000 added, 2 removed",
        "d: 2 batches, 3 dumps to 1 content, 1.2 s",
    ]  # fmt: skip
    assert asked == [("d", {"single_writer": True}), ("d", "delta", {"single_writer": True}),
        ("d", {"single_writer": True})]  # fmt: skip
    migrate(dest="d", single_writer=False, quiet=True, as_json=False)
    assert (capsys.readouterr().out, asked[-1]) == ("", ("d", {"single_writer": False}))
    documents: list[Any] = []
    monkeypatch.setattr(console, "write_document", lambda *document: documents.append(document))
    register(dest="d", to="delta", single_writer=False, as_json=True)
    sums = {"to": "delta", "tables": 2, "files": 1, "added": 1000, "removed": 2}
    assert (documents, capsys.readouterr().out) == ([("dataset-register", sums)], "")


def test_json_of_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are shortened, and their lengths are not."""
    tables = {name: pa.table({name: [*range(n)]}) for name, n in (("accounts", 2), ("bills", 3), ("buffers", 4),
        ("matches", 5))}  # fmt: skip
    plain_fields = {"verdict": "v", "is_known": True, "is_same": False, "has_grown": True, "grown": ["hbm"],
                    "device_total_change": 5, "peak_change": 7}  # fmt: skip
    modules = pa.table({"m": [1]})
    sides = [SimpleNamespace(name=name, source=SimpleNamespace(location=f"/{name}"), modules=modules) for name in "ab"]
    monkeypatch.setattr(diff, "ranked_edits", lambda _: ["e"])
    monkeypatch.setattr(diff, "describe_problems", lambda dump: [f"p{dump.name}"])
    for doubt, limit in (("", None), ("x", 2), ("x", 0)):
        d = SimpleNamespace(doubt=doubt, **plain_fields, **tables)
        c: Any = SimpleNamespace(diff=d, dumps=sides, account="hbm", by=("buffer", "cause"))
        groups = pa.table({"g": [*range(6)]})
        a, b = ({"name": s, "place": f"/{s}", "module": {"m": 1}, "problems": [f"p{s}"]} for s in "ab")
        assert diff._as_json(c, groups, options.Output(json=True, limit=limit)) == {
            "a": a, "b": b, "verdict": "v", "is_known": True, "doubt": doubt or None, "is_same": False, "grown": True,
            "grown_accounts": ["hbm"], "device_total_change": 5, "peak_change": 7, "edits": ["e"], "account": "hbm",
            "account_differences": tables["accounts"].to_pylist(), "by": ["buffer", "cause"],
            "bill_differences": tables["bills"].to_pylist(), "difference_groups": groups.to_pylist()[:limit],
            "differences": tables["buffers"].to_pylist()[:limit], "matches": tables["matches"].to_pylist()[:limit],
            "n_difference_groups": 6, "n_differences": 4, "n_matches": 5,
        }  # fmt: skip


def test_json_of_pairs() -> None:
    rows = [{"how": how} for how in ("new", "gone", "same", "gone", "new", "gone")]
    changes: Any = SimpleNamespace(ordered=rows, summary="s", changed=[1, 2], unknown=[3], is_known=False,
                                   has_grown=True, verdict="")  # fmt: skip
    for limit in (None, 1, 0):
        assert diff._changes_json(changes, options.Output(json=True, limit=limit)) == {
            "summary": "s", "n_programs": 6, "n_changed": 2, "n_unknown": 1, "n_new": 2, "n_gone": 3, "is_known": False,
            "grown": True, "largest": None, "pairs": rows[:limit],
        }  # fmt: skip
    changes.verdict = "v"
    assert diff._changes_json(changes, options.Output())["largest"] == "v"


@pytest.mark.parametrize(("n_a", "n_b"), [(1, 1), (1, 2), (2, 1), (2, 2), (0, 1)])
def test_one_program_on_each_side(n_a: int, n_b: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared; several are paired, which needs no keys."""

    class Side(list[int]):
        def read(self, number: int) -> str:
            return f"{len(self)} {number}"

    asked: list[Any] = []
    changes: Any = SimpleNamespace(changed=[], unreadable=[], is_known=True, has_grown=False, summary="s")
    monkeypatch.setattr("xlamem.compare.programs.programs_of", lambda n: Side(range(n)))
    monkeypatch.setattr("xlamem.compare.pairing.pair", lambda a, b: asked.append((len(a), len(b))))
    monkeypatch.setattr("xlamem.cli.reporters.pairs.Changes", lambda table, **_: changes)
    monkeypatch.setattr("xlamem.cli.reporters.pairs.screen", lambda *_: [])
    monkeypatch.setattr(diff, "_compare_dumps", lambda dumps, account, by, **_: asked.append((dumps, account, by)))
    by = diff._keys(diff.BY)
    sides: Any = (n_a, n_b)
    output = options.Output(wide=True)
    diff._compare_sides(sides, diff.DEVICE_TOTAL, by, gate=False, output=output)
    if n_a == n_b == 1:
        assert asked == [(("1 0", "1 0"), diff.DEVICE_TOTAL, by)]
        return
    assert asked == [(n_a, n_b)]
    for account, keys in (("hbm", by), (diff.DEVICE_TOTAL, ("buffer",))):
        with pytest.raises(UsageError, match="--by and --space need one program"):
            diff._compare_sides(sides, account, keys, gate=False, output=output)


@pytest.mark.parametrize(
    ("file", "n", "noted"),
    [("a.html", 100, False), ("a.html", 101, True), ("a.svg", 101, False), ("a.json", 999, False)],
)
def test_pages_that_are_too_large(
    file: str, n: int, noted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only pages have a limit."""
    written: Any = SimpleNamespace(stat=lambda: SimpleNamespace(st_size=n))
    programs = [SimpleNamespace(problems=["x", "y"]), SimpleNamespace(problems=["x"])]
    asked: list[Any] = []
    made: Any = SimpleNamespace(save=lambda _: written, programs=programs, failed=[{"path": "p", "error": "e"}])
    monkeypatch.setattr(report, "report", lambda *a, **k: asked.append((a, k)) or made)
    monkeypatch.setattr(report, "_exit_code", lambda *_: 7)
    run: Any = report.command.callback

    def call(*paths: str) -> Any:
        return run(paths=paths, file=file, module=None, max_size="100B", max_programs=3, as_json=False,
                   capacity=None, device=None, resident=None, fraction=1)  # fmt: skip

    assert call("d", "e") == 7
    assert asked == [(("d", "e"), {"max_bytes": 100, "max_programs": 3})]
    out, err = capsys.readouterr()
    assert out.startswith("wrote ")
    assert [line for line in err.splitlines() if "--max-size" not in line] == ["note: x", "note: y", "error: p: e"]
    assert ("--max-size" in err) is noted
    with pytest.raises(UsageError, match="not 3"):
        call("d", "e", "f")


@pytest.mark.parametrize("tables", [(), ("values",), ("values", "live_set"), ("edits", "values", "modules")])
def test_descriptions_of_some_tables(tables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, or those that are named, in each group."""
    written: list[Any] = []
    monkeypatch.setattr(console, "write_document", lambda name, data: written.append(data))
    run: Any = schema.command.callback
    run(tables=tables, document=None, as_json=True)
    every = schema.schema.as_json()
    groups = [name for name, rows in every.items() if isinstance(rows, list) and rows and "columns" in rows[0]]
    assert len(groups) == 6
    for name in every:
        rows = every[name]
        wanted = [t for t in rows if t["name"] in tables] if tables and name in groups else rows
        assert written[0][name] == wanted


@pytest.mark.parametrize("by", ["scope,layer", "layer", "buffer", "memory_space"])
def test_only_scopes_are_a_tree(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.inputs, "open_dump", lambda *_: options.inputs.Opened(NONE, 0))
    run: Any = top.command.callback
    about = {"path": "d", "module": None, "step": None, "depth": None, "fold": False, "tree": True, "space": None}
    with pytest.raises(UsageError, match=r"^--tree requires --by scope or --by function$"):
        run(by=by, as_json=False, **about)
    for name in ("json", "csv"):
        with pytest.raises(UsageError, match=f"^--tree and --{name} exclude each other$"):
            run(by="scope", as_json=name == "json", as_csv=name == "csv", **about)
