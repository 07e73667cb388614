"""Parts of the pytest plugin and of `capture`, with stand-ins for JAX and pytest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import formatting
from xlamem.errors import OutputError, UsageError
from xlamem.gate import baseline as baselines
from xlamem.gate import capture, hook, programs
from xlamem.gate.baseline import Baseline
from xlamem.gate.capture import Capture
from xlamem.gate.config import Budget, Config, load_config
from xlamem.gate.entry import Entry
from xlamem.gate.testing import blocks, plugin, records, summary

SMALL, OTHER = DUMPS / "cpu-jaxlib-0.10.2-cond_switch", DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"


# -- capture -------------------------------------------------------------------------------------


def event(*folders: Path, of_jax: bool = False) -> hook.Compile:
    return hook.Compile(tuple(s for folder in folders for s in xlamem.find(folder)), of_jax)


@pytest.fixture
def no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX need not be there."""
    monkeypatch.setattr(hook, "_install", lambda: None)
    monkeypatch.setattr(hook, "_uninstall", lambda: None)


def test_what_was_captured() -> None:
    captured = Capture(None, "*")
    captured.compiled(event(SMALL, of_jax=True))
    captured.compiled(event(OTHER))
    helper, dump = captured.dumps
    assert [*captured] == [helper, dump] == [captured[-2], captured[1]]
    assert (len(captured), captured[:1]) == (2, (helper,))
    assert captured.programs == (dump,)
    assert captured.dump is dump
    name = dump.source.module_name or ""
    assert captured[name] is captured[name.removeprefix("jit_")] is dump
    assert name in captured
    assert name.removeprefix("jit_") in captured
    assert dump in captured
    assert name[1:] not in captured
    assert xlamem.read(SMALL) not in captured
    rows = captured.table.to_pylist()
    assert [(row["program"], row["helper"]) for row in rows] == [(helper.source.module_name, True), (name, False)]
    for row, own in zip(rows, captured, strict=True):
        assert row["device_total"] == xlamem.peak(own).device_total
        assert (row["peak"], row["memory_space"]) == tuple(programs.main_peak(own)[k] for k in ("peak", "memory_space"))
    assert captured.largest is max(captured, key=lambda d: xlamem.peak(d).device_total)
    helpers = Capture(None, "*")
    helpers.compiled(event(SMALL, of_jax=True))
    assert helpers.programs == helpers.dumps
    with pytest.raises(UsageError, match="no program captured"):
        _ = Capture(None, "*").largest


def test_the_largest_counts_helpers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = Capture(None, "*")
    sizes: dict[Any, int | None] = {"a": None, "b": 5, "c": 9, "d": 9}
    captured._programs = [capture._Program(d, d == "c") for d in sizes]
    monkeypatch.setattr(capture, "device_total", sizes.__getitem__)
    assert captured.largest == "c"


def test_programs_with_one_name() -> None:
    captured = Capture(None, "*")
    for folder in (SMALL, OTHER, SMALL):
        captured.compiled(event(folder))
    name = captured[0].source.module_name
    with pytest.raises(UsageError, match=rf"^{name} was compiled 2 times: select one with \[0\], \[2\]$"):
        _ = captured[str(name)]
    listed = rf"\n  \[0\]  {name}\n  \[1\]  jit_m_mlp_grad\n  \[2\]  {name}$"
    with pytest.raises(UsageError, match=f"^3 programs captured: .*{listed}"):
        _ = captured.dump


def test_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `jit_`, once."""
    captured = Capture(None, "*")
    names: Any = ["jit_tiny", "jit_jit_it", "it"]
    captured._programs = [capture._Program(name, of_jax=False) for name in names]
    monkeypatch.setattr(capture, "program_name", str)
    for name, wanted in (("tiny", ["jit_tiny"]), ("jit_it", ["jit_jit_it"]), ("it", ["it"]), ("ny", []), ("jit_", [])):
        assert captured._all_named(name) == wanted
        assert (name in captured) == bool(wanted)


def test_what_matches() -> None:
    name = xlamem.find(OTHER)[0].module_name
    for pattern, n in (("*", 2), (name, 1), (f"{name}*", 1), ("jit_x", 0), (name.upper(), 0), ("module_*", 0)):
        captured = Capture(None, pattern)
        captured.compiled(event(SMALL, OTHER))
        assert len(captured) == n


def block(captured: Capture, *events: hook.Compile, errors: tuple[Exception, ...] = (), fails: bool = False) -> None:
    """Run a block in which this is compiled, with errors of dumps, and which may fail itself."""
    with captured:
        for error in errors:
            captured.failed(error)
        for each in events:
            captured.compiled(each)
        if fails:
            raise KeyError("mine")


@pytest.mark.usefixtures("no_jax")
def test_every_block_counts_from_its_beginning() -> None:
    captured = Capture(None, "jit_m_mlp*")
    block(captured, event(OTHER), event(SMALL))
    with pytest.raises(UsageError, match="none of the 1 program compiled in the block has a name like 'jit_m_mlp"):
        block(captured, event(SMALL))
    with pytest.raises(UsageError, match="nothing was compiled in the block"):
        block(captured)
    captured.require()
    with pytest.raises(UsageError, match="XLA wrote no dump of the 2 programs compiled in the block"):
        block(Capture(None, "*"), event(), event())
    with captured:
        block(captured, event(OTHER))
    assert len(captured) == 2


@pytest.mark.usefixtures("no_jax")
def test_the_first_error_of_a_dump_is_raised_once() -> None:
    captured, first = Capture(None, "*"), OSError("first")
    with pytest.raises(OSError, match="first"):
        block(captured, event(SMALL), errors=(first, OSError("second")))
    block(captured, event(SMALL))
    with pytest.raises(KeyError, match="mine"):
        block(captured, errors=(first,), fails=True)
    block(captured, event(SMALL))
    assert hook._listeners == []


@pytest.mark.usefixtures("no_jax")
def test_a_decorated_function_may_be_called_again() -> None:
    captured = Capture(None, "*")
    sources = [event(SMALL), None]

    @captured
    def train(fails: bool = False) -> str:
        if found := sources.pop(0):
            captured.compiled(found)
        if fails:
            raise KeyError("mine")
        return "done"

    assert (train(), train()) == ("done", "done")
    sources += [None]
    with pytest.raises(KeyError, match="mine"):
        train(True)
    assert hook._listeners == []


def test_files_are_kept_once(tmp_path: Path) -> None:
    source = xlamem.find(SMALL)[0]
    kept = capture._copy(source, str(tmp_path))
    assert {Path(m.uri).name for m in kept.members} == {Path(m.uri).name for m in source.members}
    assert all(Path(m.uri).parent == tmp_path for m in kept.members)
    assert [Path(m.uri).read_bytes() for m in kept.members] == [Path(m.uri).read_bytes() for m in source.members]
    with pytest.raises(UsageError, match="exists: a dump of another process or run"):
        capture._copy(source, str(tmp_path))
    with pytest.raises(OutputError):
        capture._copy(source, str(tmp_path / "missing"))


# -- the hook ------------------------------------------------------------------------------------


class Listener:
    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[hook.Compile] = []
        self.errors: list[Exception] = []
        self.error = error

    def compiled(self, event: hook.Compile) -> None:
        self.events.append(event)
        if self.error:
            raise self.error

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


def test_listeners_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each compile, in a folder of its own; the options of the caller stay, and come back afterwards."""
    installed: list[str] = []
    monkeypatch.setattr(hook, "_install", lambda: installed.append("in"))
    monkeypatch.setattr(hook, "_uninstall", lambda: installed.append("out"))
    given: list[list[Any]] = []
    options = SimpleNamespace(env_option_overrides=[("xla_a", 1)])

    def compile_or_get_cached(backend: str, compile_options: Any, fails: bool = False) -> str:
        given.append(compile_options.env_option_overrides)
        folder = dict(compile_options.env_option_overrides)["xla_dump_to"]
        for path in SMALL.iterdir():
            (Path(folder) / path.name).write_bytes(path.read_bytes())
        if fails:
            raise MemoryError
        return backend

    wrapped = hook._wrap(compile_or_get_cached)
    first, second = Listener(), Listener(ValueError("mine"))
    for listener in (first, second, first):
        hook.add(listener)
    assert hook.is_used()
    assert wrapped("cpu", compile_options=options) == "cpu"
    with pytest.raises(MemoryError):
        wrapped("cpu", options, True)
    assert [len(x.events) for x in (first, second)] == [2, 2]
    assert [e.sources[0].module_name for e in first.events] == [xlamem.find(SMALL)[0].module_name] * 2
    assert (first.errors, second.errors) == ([], [second.error] * 2)
    assert options.env_option_overrides == [("xla_a", 1)]
    (a, b) = ([*map(tuple, overrides)] for overrides in given)
    assert a[0] == b[0] == ("xla_a", 1)
    assert set(a[2:]) == set(hook.OPTIONS.items())
    assert a[1][1] != b[1][1]
    assert not Path(a[1][1]).exists()
    hook.remove(first)
    hook.remove(second)
    assert (hook.is_used(), installed) == (True, ["in"])
    hook.remove(first)
    assert (hook.is_used(), installed) == (False, ["in", "out"])
    options.env_option_overrides = [("xla_dump_to", "/tmp/mine-missing")]
    monkeypatch.setattr(Path, "write_bytes", lambda *_: 0)
    assert wrapped("cpu", options) == "cpu"
    assert given[-1] == [("xla_dump_to", "/tmp/mine-missing")]


@pytest.mark.parametrize(
    ("module", "frames", "of_jax"),
    [
        ("jax._src.numpy", ("jax.a", "jax.b"), True),
        ("jax.numpy", ("jax.a", "jax.b"), True),
        ("jaxtyping", ("jax.a", "jax.b"), False),
        ("model", ("jax.a", "jax.b"), False),
        (None, ("jax.a", "jax.b"), False),
        ("jax.numpy", ("jax.a", "model"), False),
        ("jax.numpy", ("model", "jax.b"), False),
    ],
)
def test_functions_of_jax(module: str | None, frames: tuple[str, str], of_jax: bool) -> None:
    """By the function that the innermost call of JAX compiles."""
    compiler, caller = ({"__name__": name} for name in frames)
    exec("def compile(check):\n    return check()", compiler)
    exec("def cache_miss(fun, compile, check):\n    return compile(check)", caller)
    check = lambda: hook._compiles_function_of_jax()  # noqa: E731  (a frame of its own)
    assert caller["cache_miss"](SimpleNamespace(__module__=module), compiler["compile"], check) is of_jax


# -- blocks --------------------------------------------------------------------------------------


def test_the_largest_size_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"a": {"device_total": 5, "peak": 4}, "b": {"device_total": 7, "peak": 3}}
    monkeypatch.setattr(blocks, "sizes_of", sizes.__getitem__)
    item: Any = None
    block = blocks.Block(item, "*")
    block._programs = [capture._Program(name, of_jax=False) for name in sizes]  # type: ignore[arg-type]
    assert (block.device_total, block.device_total.dump, block.peak, block.peak.dump) == (7, "b", 4, "a")


def test_sizes_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (SMALL, OTHER):
        dump = xlamem.read(folder)
        found = blocks.sizes_of(dump)
        spaces = xlamem.peak(dump).spaces.to_pylist()
        assert found["device_total"] == xlamem.peak(dump).device_total
        assert found["peak"] <= sum(s["peak"] or 0 for s in spaces)
        assert found["peak"] >= max(s["peak"] or 0 for s in spaces if s["memory_space"] in ("memory", "hbm"))
    row = blocks._row(dump)
    assert (row["device_total"], row["peak"], row["status"], row["is_new"]) == (*found.values(), "", False)
    for doubts in (("doubt_of_numbers", "is odd"), ("doubt_of_peak", "has none")):
        with monkeypatch.context() as patch:
            patch.setattr(blocks, doubts[0], lambda _, text=doubts[1]: text)
            with pytest.raises(UsageError, match=doubts[1]):
                blocks.sizes_of(dump)
            row = blocks._row(dump)
            assert (row["device_total"], row["peak"]) == (None, None)


def test_a_comparison_that_is_false() -> None:
    a, b = (xlamem.read(folder) for folder in (SMALL, OTHER))
    big, small = blocks.Size(3 << 20, a), blocks.Size(5, a)
    assert blocks.explained("<", big, small) == ["3.00 MiB (3,145,728 bytes) < 5 bytes"]
    texts = blocks.explained("<", big, blocks.Size(5, b))
    assert texts[0] == "3.00 MiB (3,145,728 bytes) < 5 bytes"
    assert " ".join(texts[1:]).startswith(f"from the left to the right: {xlamem.diff(a, b).verdict[:40]}")
    measuring: Any = SimpleNamespace()
    compare = plugin.Measuring.pytest_assertrepr_compare
    assert compare(measuring, "<", big, small) == blocks.explained("<", big, small)
    assert compare(measuring, "<", big, 5) is compare(measuring, "<", 5, big) is None


# -- markers -------------------------------------------------------------------------------------


def test_budgets_of_markers() -> None:
    def mark(*args: Any, **limits: Any) -> Any:
        return SimpleNamespace(args=args, kwargs=limits)

    assert plugin._budget(mark(peak=5), 3) == Budget(number=3, peak=5)
    for limits in ({}, {"program": "jit_*"}):
        found = plugin._budget(mark(**limits), 1)
        assert (found.growth.text if found.growth else None, found.program) == ("0 %", limits.get("program", "*"))
    assert plugin._budget(mark(program="jit_*", peak=5), 1) == Budget(program="jit_*", peak=5)
    with pytest.raises(UsageError, match="not 7"):
        plugin._budget(mark(7, peak=5), 1)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [("*", "abc"), ("a", "a"), ("a b", "ab"), ("c a", "ac"), ("a x", "abc"), ("x", "abc"), ("a *", "abc")],
)
def test_selected_programs(patterns: str, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All if a budget is for none, which is reported."""
    monkeypatch.setattr(plugin, "program_name", str)
    dumps: Any = list("abc")
    budgets = [Budget(program=pattern) for pattern in patterns.split()]
    assert plugin._selected(dumps, budgets) == list(names)


def rows(*found: tuple[str, str | None, str, str]) -> Any:
    names = ("status", "module_name", "rule", "message")
    made = [{**dict(zip(names, f, strict=True)), "program": i} for i, f in enumerate(found)]
    programs = [{"program": i, "module_name": f[1], "status": f[0], "device_total": i, "peak": 2 * i,
                 "device_total_baseline": 3 * i, "peak_baseline": 4 * i} for i, f in enumerate(found)]  # fmt: skip
    return SimpleNamespace(
        rows=lambda *s: [r for r in made if not s or r["status"] in s],
        programs=SimpleNamespace(to_pylist=lambda: programs),
    )


def test_the_first_finding_of_a_failure() -> None:
    failed = ("failed", "f", "growth", "grew")
    assert plugin._first(rows(("not known", "g", "fits", "unknown"), failed)) == "f: grew"
    assert plugin._first(rows(("warning", "w", "flags", "x"), ("not known", None, "fits", "unknown"))) == "?: unknown"


def test_what_is_reported_of_a_test() -> None:
    record: Any = {"rows": [], "warnings": ["before"]}
    found = rows(("passed", "f", "fits", "a"), ("warning", None, "flags", "b"), ("note", "h", "new", "c"))
    plugin._report(record, found)
    assert record["warnings"] == ["before", "?: b"]
    assert [(r["program"], r["status"], r["is_new"]) for r in record["rows"]] == [
        ("f", "passed", False), ("?", "warning", False), ("h", "note", True),
    ]  # fmt: skip
    assert [list(r.values())[1:5] for r in record["rows"]] == [[0, 0, 0, 0], [1, 3, 2, 4], [2, 6, 4, 8]]


# -- records and their end -----------------------------------------------------------------------


class File(pytest.File):
    def collect(self) -> list[Any]:
        return []


def item(path: Path, root: Path, setting: str = "", nodeid: str = "test_a.py::T::test_b[1]@gw") -> Any:
    nodes = [object(), File.__new__(File), SimpleNamespace(name="T"), SimpleNamespace(name="test_b[1]")]
    config = SimpleNamespace(rootpath=root, getini=lambda name: setting if name == "xlamem_baselines" else None)
    return SimpleNamespace(path=path, config=config, listchain=lambda: nodes, nodeid=nodeid)


@pytest.mark.parametrize(
    ("path", "setting", "file"),
    [
        ("/r/test_a.py", "", "xlamem-baselines/test_a.json"),
        ("/r/x/y/test_a.py", "", "x/y/xlamem-baselines/test_a.json"),
        ("/r/x/y/test_a.py", "mem/ory", "mem/ory/x/y/test_a.json"),
        ("/else/test_a.py", "", "/else/xlamem-baselines/test_a.json"),
        ("/r/test_a.py", "/abs", "/abs/test_a.json"),
    ],
)
def test_where_the_baseline_of_a_test_is(path: str, setting: str, file: str) -> None:
    found = records.record_of(item(Path(path), Path("/r"), setting))
    assert found == {"file": file, "test": "T::test_b[1]", "nodeid": "test_a.py::T::test_b[1]", "rows": [],
                     "warnings": [], "baseline": None}  # fmt: skip


def entries(*tests: str) -> list[Entry]:
    return [Entry("jit_f", "cpu", "1", "2", i, None, test=test) for i, test in enumerate(tests)]


def record(test: str, file: str = "b.json", total: int | None = None) -> Any:
    changed = None if total is None else Baseline.of([replace(entries(test)[0], device_total=total)]).dumps()
    return {"file": file, "test": test, "nodeid": f"t.py::{test}", "rows": [], "warnings": [], "baseline": changed}


@pytest.mark.parametrize(
    ("ran", "prune", "text", "left"),
    [
        ([("a", None)], False, "", {"a": 0, "b": 1, "c": 2}),
        ([("a", 9)], False, "1 test", {"a": 9, "b": 1, "c": 2}),
        ([("a", 9), ("d", 8)], False, "2 tests", {"a": 9, "b": 1, "c": 2, "d": 8}),
        ([("a", None)], True, "0 tests, 2 tests removed", {"a": 0}),
        ([("a", 9), ("b", None)], True, "1 test, 1 test removed", {"a": 9, "b": 1}),
        ([("a", None), ("b", None), ("c", None)], True, "", {"a": 0, "b": 1, "c": 2}),
    ],
)
def test_what_is_written(
    ran: list[tuple[str, int | None]], prune: bool, text: str, left: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "b.json"
    baselines.write(path, Baseline.of(entries("a", "b", "c")))
    assert summary._write(path, [record(test, total=total) for test, total in ran], prune) == text
    assert {e.test: e.device_total for e in baselines.load(path).entries} == left
    missing = tmp_path / "new" / "b.json"
    assert bool(summary._write(missing, [record(t, total=n) for t, n in ran], prune)) == any(n for _, n in ran)


@pytest.mark.parametrize("status", [pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED])
@pytest.mark.parametrize("prune", [False, True])
def test_the_end_of_a_run(prune: bool, status: pytest.ExitCode, tmp_path: Path) -> None:
    """Nothing is removed unless all tests passed, and a file that cannot be written fails the run."""
    for name in ("a.json", "b.json"):
        baselines.write(tmp_path / name, Baseline.of(entries("a", "b")))
    config = SimpleNamespace(rootpath=tmp_path, stash={}, getoption=lambda name: prune and name == "xlamem_prune")
    session: Any = SimpleNamespace(config=config, exitstatus=status)
    summary.finish([record("a", "b.json"), record("a", "a.json", 5)], session)
    lines = [text for text, _ in config.stash[summary.NOTES]]
    kept = "not every test passed: nothing was removed from the baselines"
    wrote = ["wrote a.json: 1 test", "wrote b.json: 0 tests"]
    if prune and status == pytest.ExitCode.OK:
        assert lines == [f"{line}, 1 test removed" for line in wrote]
    else:
        assert lines == [*([kept] if prune else []), wrote[0]]
    assert session.exitstatus == status
    (tmp_path / "a.json").write_text("{")
    summary.finish([record("a", "a.json", 5)], session)
    assert session.exitstatus == pytest.ExitCode.TESTS_FAILED
    assert config.stash[summary.NOTES][-1][1]


def test_the_last_run_of_a_test_counts() -> None:
    again = [record("b"), record("a", total=1), record("a", total=2)]
    assert summary._last(again) == [again[2], again[0]]


@pytest.mark.parametrize(
    ("nodeids", "room", "shown"),
    [
        (["a.py::test_b", "c.py::test_d"], 20, ["a.py::test_b", "c.py::test_d"]),
        (["long_name.py::test_b", "long_name.py::test_d"], 12, ["…::test_b", "…::test_d"]),
        (["long_name.py::test_b", "other_name.py::test_b"], 12, None),
        (["long_name.py::test_b"] * 2, 12, ["…::test_b"] * 2),
    ],
)
def test_long_names_of_tests(nodeids: list[str], room: int, shown: list[str] | None) -> None:
    """Their files are left out, unless the tests would have the same name."""
    found = summary._shortened(nodeids, room)
    assert max(map(len, found)) <= room
    assert len(set(found)) == len(set(nodeids))
    assert shown is None or found == shown


@pytest.mark.parametrize(("width", "program"), [(12, 9), (30, 15), (47, 23), (50, 24), (200, 24)])
def test_names_of_tests_and_programs_fit(width: int, program: int) -> None:
    """Programs get at most half of the width, tests what is left."""
    rows = [(f"tests/test_{x * 20}.py::test_{x}", {"program": f"jit_{x * 30}"}) for x in "ab"]
    head, *lines = summary._names(rows, width)
    programs = [formatting.shorten(row["program"], program) for _, row in rows]
    assert [line.split()[1] for line in lines] == programs
    assert {len(line) for line in lines} == {len(head)}
    if width > 12:
        assert len(head) <= width
        tests = [nodeid if width == 200 else f"…::{nodeid.partition('::')[2]}" for nodeid, _ in rows]
        assert [line.split()[0] for line in lines] == tests


class Reporter:
    def __init__(self, verbosity: int = 0) -> None:
        self.verbosity = verbosity
        self.lines: list[tuple[str, dict[str, bool]]] = []

    def write_sep(self, sep: str, title: str) -> None:
        self.lines.append((title, {}))

    def write_line(self, text: str, **colors: bool) -> None:
        self.lines.append((text, {k: v for k, v in colors.items() if v}))


@pytest.mark.parametrize(
    ("option", "verbosity", "names"),
    [
        (None, 0, "abc"), (None, 1, "abc"), (None, -1, "bc"), ("all", -1, "abc"), ("failed", 0, "bc"), ("none", 0, ""),
    ],
)  # fmt: skip
def test_the_table_at_the_end(option: str | None, verbosity: int, names: str) -> None:
    made = [record("b"), record("a"), record("c")]
    for r, status in zip(made, ("failed", "passed", "warning"), strict=True):
        r["rows"] = [{"program": "jit_f", "device_total": 5, "device_total_baseline": 3, "peak": None,
                      "peak_baseline": 2, "status": status, "is_new": False}]  # fmt: skip
    made[2]["warnings"] = ["flags differ"]
    first = record("c")  # it ran again
    first["warnings"] = ["in the first run"]
    notes = [("wrote it", False), ("cannot", True)]
    writer = SimpleNamespace(fullwidth=80)
    config: Any = SimpleNamespace(
        getoption=lambda name: option, stash={summary.NOTES: notes}, get_terminal_writer=lambda: writer
    )
    reporter = Reporter(verbosity)
    summary.summarize([first, *made], reporter, config)
    table = {"a": ("t.py::a  jit_f         5 B    +2 B     ?          ok", {}),
             "b": ("t.py::b  jit_f         5 B    +2 B     ?          FAILED", {"red": True}),
             "c": ("t.py::c  jit_f         5 B    +2 B     ?          warning", {"yellow": True})}  # fmt: skip
    head = [("test     program  must fit  change  peak  change", {})]
    warning = [("warning: t.py::c: flags differ", {"yellow": True})]
    shown = [*head, *(table[name] for name in names), *warning] if names else []
    assert reporter.lines == [("device memory (xlamem)", {}), *shown, ("wrote it", {}), ("cannot", {"red": True})]
    config.stash = {}
    reporter.lines = []
    summary.summarize([], reporter, config)
    assert reporter.lines == []


def test_when_a_record_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the teardown of a test that was measured."""
    config: Any = SimpleNamespace()
    measuring = plugin.Measuring(config)
    for measured in (True, False):
        monkeypatch.setattr(plugin, "_is_used", lambda _, measured=measured: measured)
        for stash in ({}, {plugin.RECORD: "record"}):
            item: Any = SimpleNamespace(stash=stash)
            found = []
            for when in ("setup", "call", "teardown"):
                steps = measuring.pytest_runtest_makereport(item)
                next(steps)
                with pytest.raises(StopIteration) as ended:
                    steps.send(SimpleNamespace(when=when))  # type: ignore[arg-type]
                found.append(getattr(ended.value.value, plugin.NAME, None))
            assert found == [None, None, "record" if stash and measured else None]


def test_policies_of_tests(tmp_path: Path) -> None:
    """Those of the configuration, but its budgets and its baseline are for `xlamem check`."""
    config: Any = SimpleNamespace(rootpath=tmp_path)
    (tmp_path / ".git").mkdir()
    assert plugin.Measuring(config)._policies == Config()
    path = tmp_path / "xlamem.toml"
    path.write_text("baseline = 'b.json'\nratchet = true\n[[budget]]\npeak = '1GiB'\n")
    assert (load_config(path).baseline, len(load_config(path).budgets)) == ("b.json", 1)
    policies = plugin.Measuring(config)._policies
    assert (policies.baseline, policies.budgets, policies.ratchet) == (None, (), True)
