"""Configurations, sweeps, protos and the wiring of a check on the smallest inputs that tell rules apart."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checks import SMALL, blessed
from variants import CUT, TEXTS, inner, larger

import xlamem
from xlamem import UsageError, check
from xlamem.errors import DumpError
from xlamem.gate import baseline, checking, compiled, config, sweep
from xlamem.gate.assignment import Assignment, _Value
from xlamem.gate.config import Config, Lines, budget_of, config_of, load_config
from xlamem.gate.curves import Curves
from xlamem.gate.dataflow import Use
from xlamem.gate.entry import Entry
from xlamem.gate.finding import Change, Checked, Finding
from xlamem.gate.hlo_module import HloModule, Instruction, elements_of, indices, without_layout
from xlamem.gate.wire import Message

MIB = 1 << 20

# -- configurations ------------------------------------------------------------------------------

TEXT = """baseline = "a"
"ratchet" = true

[[budget]]
peak = 1

  [[ budget ]]
program = "x"
 'peak' = 2
[[budget]]
growth = 1
baseline = 2
"""


@pytest.mark.parametrize(
    ("key", "budget", "line"),
    [
        ("baseline", None, 1), ("ratchet", None, 2), ("budget", None, None), ("peak", 1, 5), ("peak", 2, 9),
        ("program", 2, 8), ("peak", 3, 10), ("program", 1, 4), ("growth", 3, 11), ("baseline", 3, 12),
        ("growth", 1, 4), ("growth", 4, None), ("rat", None, None),
    ],
)  # fmt: skip
def test_lines_of_keys(key: str, budget: int | None, line: int | None) -> None:
    """That of the budget, or else of its header."""
    assert Lines(TEXT, "").of(key, budget) == line
    text = TEXT.replace("[[budget]]", "[[tool.xlamem.budget]]").replace("[[ budget ]]", "[[ tool.xlamem.budget ]]")
    assert Lines(text, "tool.xlamem.").of(key, budget) == line
    assert Lines(text, "tool1xlamem.").of(key, 1) is None


def test_a_key_behind_the_budgets() -> None:
    """In a project file, the table may follow them."""
    lines = Lines("[[tool.xlamem.budget]]\npeak = 1\n[tool.xlamem]\nbaseline = 5\n", "tool.xlamem.")
    assert [lines.of("baseline", None), lines.of("peak", 1)] == [4, 2]


def test_places_start_from_the_folder_of_the_configuration() -> None:
    assert Config().baseline_place == Path("xlamem-baseline.json")
    assert Config().sources == Path()
    config = Config(path="ci/xlamem.toml")
    assert (config.folder, config.sources) == (Path("ci"), Path())
    assert config.baseline_place == Path("ci/xlamem-baseline.json")
    config = Config(path="ci/xlamem.toml", baseline="../b.json", source_root="src")
    assert (config.baseline_place, config.sources) == (Path("ci/../b.json"), Path("ci/src"))
    assert Config(path="ci/xlamem.toml", baseline="s3://b/c").baseline_place == "s3://b/c"
    assert Config(path="ci/x.toml", baseline="/abs/b.json", source_root="/abs").baseline_place == Path("/abs/b.json")


FRACTION = "fraction must be a number above 0 and at most 1"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"budget": [{"peak": 1}, {"peek": 1}]}, "budget 2: unknown key 'peek'; did you mean 'peak'?"),
        ({"budget": [{"program": "x", "peak": True}]}, "budget 1 (program = 'x'): peak must be a size"),
        ({"budget": [{"program": 5}]}, "budget 1: program must be a text"),
        ({"budget": [{"program": "x"}]}, "budget 1 (program = 'x'): there is no limit"),
        ({"budget": [{"peak": 1}, 5]}, "budget must be an array of tables"),
        ({"budget": [{"device": "v5e", "fraction": 0}]}, f"budget 1: {FRACTION}, not 0"),
        ({"budget": [{"device": "v5e", "fraction": True}]}, f"budget 1: {FRACTION}, not True"),
        ({"baseline": ""}, "baseline must be a text that is not empty, not ''"),
        ({"baseline": "a\0"}, "baseline must not contain null characters: 'a\\x00'"),
        ({"source_root": 5}, "source_root must be a text that is not empty, not 5"),
        ({"flags_change": "no"}, "flags_change must be 'fail' or 'warn' or 'bless', not 'no'"),
    ],
)
def test_errors_of_a_table(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        config_of(table)
    assert str(raised.value).startswith(message)


def test_a_budget_may_leave_nothing_but_not_less() -> None:
    """Of the memory of a device."""
    for fraction in (1, 0.5):
        usable = xlamem.fits(SMALL, device="v5e", fraction=fraction).available
        table = {"device": "v5e", "fraction": fraction}
        assert budget_of({**table, "resident": usable}).resident == usable
        with pytest.raises(UsageError, match=r"budget 1: resident is .* GiB, more than the .* GiB of v5e$"):
            budget_of({**table, "resident": usable + 1})
    assert budget_of({"peak": 1}, 3, "mark").where == "mark: budget 3"
    assert budget_of({"peak": 1, "program": "x"}).where == "budget 1 (program = 'x')"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "xlamem.toml"
    path.write_bytes(b'baseline = "\xff"\n')
    with pytest.raises(UsageError, match=r"xlamem\.toml is not TOML: "):
        load_config(path)


# -- sweeps --------------------------------------------------------------------------------------


def swept(monkeypatch: pytest.MonkeyPatch, outcomes: dict[int, Any], **options: Any) -> sweep.Sweep:
    """Sweep over numbers, each of which has a dump or an error, or both."""
    monkeypatch.setattr(sweep, "lower", lambda function, args, kwargs, topology: (function, args, kwargs, topology))
    monkeypatch.setattr(sweep, "compile_ahead", lambda lowered, _: outcomes[lowered[1][0]])
    return sweep.sweep(lambda n: (len, n), n=list(outcomes), **options)


def test_programs_that_run_out_of_memory_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = xlamem.read(SMALL)
    error = RuntimeError("compile: RESOURCE_EXHAUSTED: 9 GiB")
    found = swept(monkeypatch, {1: (dump, None), 3: (dump, error), 2: (None, error)}, capacity="1GiB", resident="1KiB")
    total = xlamem.peak(dump).device_total
    assert found.table["device_total"].to_pylist() == [total, total, None]
    assert found.table["fits"].to_pylist() == [True, None, None]
    assert found.table["error"].to_pylist() == [None, str(error), str(error)]
    assert (found.largest, found.available, found.device) == (1, (1 << 30) - 1024, None)
    assert found.dumps == (dump, dump, None)
    assert swept(monkeypatch, {3: (dump, error)}, capacity="1KiB").table["fits"].to_pylist() == [False]
    with pytest.raises(ValueError, match="mine"):
        swept(monkeypatch, {1: (dump, ValueError("mine"))})
    with pytest.raises(UsageError, match="XLA wrote no dump"):
        swept(monkeypatch, {1: (None, None)})


@pytest.mark.parametrize(
    ("options", "device", "capacity"),
    [
        ({}, None, None),
        ({"topology": "v5e:2x2"}, "v5e", None),
        ({"topology": "v5e"}, "v5e", None),
        ({"topology": object()}, None, None),
        ({"topology": "v5e:2x2", "device": "h100"}, "h100", None),
        ({"topology": "v5e:2x2", "capacity": "1GiB"}, None, "1GiB"),
    ],
)
def test_the_memory_of_a_sweep(
    options: dict[str, Any], device: str | None, capacity: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = xlamem.read(SMALL)
    found = swept(monkeypatch, {1: (dump, None)}, **options, **({"resident": 5} if capacity or device else {}))
    assert found.device == device
    if device or capacity:
        assert found.available == xlamem.fits(dump, device=device, capacity=capacity, resident=5).available
    else:
        assert found.available is None


def test_values_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = xlamem.read(SMALL)
    one = swept(monkeypatch, {2: (dump, None), 7: (dump, None)}, capacity="1GiB")
    assert "available  1.00 GiB\n" in f"{one!r}\n"
    assert repr(one).rstrip(">").endswith("largest    n=7")
    assert "1.00 KiB" in repr(swept(monkeypatch, {2: (dump, None)}, capacity="1KiB"))
    assert "none is known to fit" in repr(swept(monkeypatch, {2: (dump, None)}, capacity="1KiB"))
    assert "of v5e" in repr(swept(monkeypatch, {2: (dump, None)}, device="v5e"))
    assert sweep._array([len, abs]).to_pylist() == [str(len), str(abs)]
    assert sweep._array(["a", None]).to_pylist() == ["a", None]
    paths = [Path("a"), Path("b/c")]
    assert sweep._array(paths).to_pylist() == ["a", "b/c"]


def test_sizes_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "device_total", lambda dump: 1 << 40)
    monkeypatch.setattr(sweep, "main_peak", lambda dump: {"peak": 1 << 41})
    rows: Any = [sweep._Row("dump", None, None), sweep._Row(None, None, True)]  # type: ignore[arg-type]
    assert sweep._table(("n",), [(1,), (2,)], rows).to_pydict() == {
        "n": [1, 2], "device_total": [1 << 40, None], "peak": [1 << 41, None], "fits": [None, True],
        "error": [None, None],
    }  # fmt: skip


# -- protos --------------------------------------------------------------------------------------


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


@pytest.mark.parametrize("n", [0, 1, 127, 128, 16383, 16384, (1 << 35) - 1, 1 << 35, (1 << 63) - 1, -1, -(1 << 63)])
def test_integers_of_any_length(n: int) -> None:
    data = b"\x08" + varint(n)
    assert Message(data, "M").number(1) == n
    packed = varint(5) + varint(n)
    assert Message(b"\x12" + varint(len(packed)) + packed, "M").numbers(2) == [5, n]
    with pytest.raises(DumpError, match="an integer"):
        Message(b"\x08" + b"\x80" * 10 + b"\x01", "M")


def test_the_last_of_several_fields_counts() -> None:
    message = Message(b"\x12\x01a\x12\x01b\x08\x05\x08\x06\x1a\x02\x08\x01\x1a\x02\x08\x02", "M")
    assert (message.text(2), message.number(1), message.message(3).number(1)) == ("b", 6, 2)
    assert [m.number(1) for m in message.messages(3)] == [1, 2]
    missing = message.message(9)
    assert (missing.number(1), missing.text(2), [*missing.messages(3)]) == (0, "", [])
    inside = Message(b"\x0a\x04\x08\x05\x10\x06\x10\x07", "M")
    assert ([inside.message(1).number(k) for k in (1, 2)], inside.number(2)) == ([5, 6], 7)


def module(*instructions: Instruction, shapes: str = "") -> HloModule:
    made = HloModule.__new__(HloModule)
    made.instructions = {i.id: i for i in instructions}
    made._lines = {i.name: (shapes, f"%{i.name} = {shapes} x()") for i in instructions}
    made.computations, made.roots, made.entry = {1: [i.id for i in instructions]}, {1: instructions[-1].id}, 1
    return made


def instruction(number: int, opcode: str = "add", *operands: int, **more: Any) -> Instruction:
    plain = {"computation": 1, "called": [], "parameter_number": 0, "tuple_index": 0}
    return Instruction(id=number, name=f"i.{number}", opcode=opcode, operands=[*operands], **{**plain, **more})


def test_shapes_of_elements() -> None:
    shape = "(f32[2,3]{1,0:T(8,128)}, (s32[], u8[4]), pred[])"
    a, get = instruction(1, "tuple"), instruction(2, "get-tuple-element", 1, tuple_index=1)
    m = module(a, get, shapes=shape)
    assert [m.shape(a, (k,)) for k in range(3)] == [*elements_of(shape)]
    assert (m.shape(a), m.shape(a, (1, 1))) == (shape, "u8[4]")
    assert (m.shape(get), m.shape(get, (0,))) == ("(s32[], u8[4])", "s32[]")
    for index in ((3,), (1, 2), (0, 0), (2, 0)):
        with pytest.raises(DumpError, match=r"an index into the shape of i\.1"):
            m.shape(a, index)
    assert without_layout(shape) == "(f32[2,3], (s32[], u8[4]), pred[])"
    assert [*indices(shape)] == [(), (0,), (1,), (1, 0), (1, 1), (2,)]


def test_parameters_and_callers() -> None:
    first, second = instruction(1, "parameter", parameter_number=1), instruction(2, "parameter")
    calls = [instruction(n, "call", called=[7]) for n in (3, 4)]
    m = module(first, second, *calls)
    assert (m.parameter(0), m.parameter(1), m.root, m[3]) == (second, first, calls[1], calls[0])
    assert m.callers() == {7: calls[1]}
    with pytest.raises(DumpError, match="a parameter 2 of the entry"):
        m.parameter(2)
    with pytest.raises(DumpError, match="an instruction with the id 9"):
        m[9]
    with pytest.raises(DumpError, match=r"the instruction i\.9 of the proto"):
        m.text(instruction(9))


def test_values_that_share_a_buffer() -> None:
    """Both of an alias, also if only one of them is listed."""
    at = {(10, ()): 1, (20, (0,)): 2, (30, ()): 3}
    made: Any = SimpleNamespace(_values=dict.fromkeys((1, 2, 3)), _at=at, _position=Assignment._position)
    aliases = b"\x12\x08\x08\x01\x12\x04\x20\x14\x18\x00" + b"\x12\x06\x08\x03\x12\x02\x20\x1e"
    assert Assignment._aliased(made, Message(aliases, "M")) == [{1, 2}, {3}]
    both = aliases[:10] + b"\x12\x06\x08\x02\x12\x02\x20\x0a"
    assert Assignment._aliased(made, Message(both, "M")) == [{1, 2}]
    with pytest.raises(DumpError, match="an alias of two values"):
        Assignment._aliased(made, Message(aliases.replace(b"\x20\x1e", b"\x20\x1f"), "M"))


def test_lines_about_values() -> None:
    """In the order of their ids."""
    first, second = instruction(1), instruction(2, "tuple", 1)
    made: Any = Assignment.__new__(Assignment)
    made._module = module(first, second, shapes="f32[2]")
    made._values = {7: _Value(7, first, (), 0), 5: _Value(5, second, (1,), 3)}
    made._callers = {}
    made._allocations = [Message(b"\x4a\x02\x08\x07", "M"), Message(b"\x4a\x02\x08\x05", "M")]
    live: Any = SimpleNamespace(schedule=[first, second], ranges={7: (0, 1), 5: (1, 2)})
    assert [*made._live_lines(live)] == [
        "HloLiveRange (max 2):", "  InstructionSequence:", "    0:i.1", "    1:i.2", "  BufferLiveRange:",
        "    i.2{1}:1-2", "    i.1{}:0-1",
    ]  # fmt: skip
    flow: Any = SimpleNamespace(
        positions={7: [(1, ())], 5: [(2, (1,)), (1, ())]},
        uses=lambda value: [Use(second, 0, ())] if value == 7 else [],
    )
    assert [*made._value_lines(flow)] == [
        "Used values:",
        "<5 i.2 @3>", " positions:", "  i.2", "  i.1", " uses:", "  (none)", " from instruction: %i.2 = f32[2] x()",
        "<7 i.1 @0>", " positions:", "  i.1", " uses:", "  i.2, operand 0", " from instruction: %i.1 = f32[2] x()",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("opcode", "caller", "is_merge"),
    [
        ("while", None, True), ("conditional", None, True), ("call", None, True), ("add", None, False),
        ("parameter", None, False), ("parameter", "while", True), ("parameter", "call", True),
        ("parameter", "fusion", False),
    ],
)  # fmt: skip
def test_values_that_merge_others(opcode: str, caller: str | None, is_merge: bool) -> None:
    made: Any = SimpleNamespace(_callers={} if caller is None else {1: instruction(9, caller)})
    assert Assignment._is_merge(made, instruction(1, opcode)) is is_merge


@pytest.mark.parametrize(
    ("platform", "wanted"), [("cpu", "cpu"), ("cuda", "gpu"), ("rocm", "gpu"), ("gpu", "gpu"), ("tpu", None)]
)
@pytest.mark.parametrize("n_modules", [0, 1, 2])
def test_programs_that_can_be_read(
    platform: str, wanted: str | None, n_modules: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one module, on a platform of which the dumps are known."""
    monkeypatch.setattr(compiled, "HloModule", lambda proto, text: SimpleNamespace(name="jit_f"))
    texts = {"buffer-assignment": "é\n"}
    monkeypatch.setattr(compiled, "Assignment", lambda proto, m: SimpleNamespace(texts=lambda: texts))
    monkeypatch.setattr(compiled, "read_program", lambda source: source)
    modules = [SimpleNamespace(as_serialized_hlo_module_proto=lambda: b"")] * n_modules
    executable = SimpleNamespace(client=SimpleNamespace(platform=platform), hlo_modules=lambda: modules)
    stats = SimpleNamespace(serialized_buffer_assignment_proto=b"\x08\x01")
    program: Any = SimpleNamespace(
        memory_analysis=lambda: stats, runtime_executable=lambda: executable, as_text=lambda: "HloModule"
    )
    if wanted is None or n_modules != 1:
        with pytest.raises(UsageError, match=r"cannot be read: use xlamem\.of"):
            compiled.read_compiled(program)
        return
    source: Any = compiled.read_compiled(program)
    assert (source.module_name, source.platform, source.derived) == ("jit_f", wanted, True)
    assert {m.role: (m.size, m.content) for m in source.members} == {
        "buffer-assignment": (3, "é\n".encode()), "hlo": (9, b"HloModule"),
    }  # fmt: skip


def test_where_jax_keeps_the_buffer_assignment() -> None:
    """Until JAX 0.5 in the HloProto."""
    old = SimpleNamespace(serialized_hlo_proto=b"\x0a\x02\x08\x01\x1a\x02\x08\x05")
    new = SimpleNamespace(serialized_buffer_assignment_proto=b"\x08\x05")
    for stats in (old, new):
        assert compiled._buffer_assignment(SimpleNamespace(memory_analysis=lambda s=stats: s)).number(1) == 5
    for stats in (None, SimpleNamespace(serialized_buffer_assignment_proto=b"")):
        with pytest.raises(UsageError, match="JAX gives no buffer assignment"):
            compiled._buffer_assignment(SimpleNamespace(memory_analysis=lambda s=stats: s))


# -- a check -------------------------------------------------------------------------------------


def test_settings_of_a_call() -> None:
    config = Config(ratchet=True)
    assert checking._config(config, None) is config
    assert checking._config(config, False).ratchet is False
    assert checking._config({"ratchet": False}, True).ratchet is True


def test_the_place_of_a_baseline() -> None:
    config, labels = Config(baseline="b", path="x/y.toml"), {"a": "1"}
    assert checking._place(None, None, config) is checking._place(None, {}, config) is None
    assert checking._place("here", labels, config) == ("here", labels)
    assert checking._place(None, labels, config) == (Path("x/b"), labels)
    for place in (None, ["a", "b"], 5):
        with pytest.raises(UsageError, match="labels select dumps of a dataset"):
            checking._place(place, labels, Config())


def test_several_dumps_in_a_list(write: Callable[..., Path]) -> None:
    config = {"budget": [{"device_total": "1GiB"}]}
    folders = [write(jit_f=TEXTS), write(jit_g=inner(1))]
    assert check(folders, config=config).programs["module_name"].to_pylist() == ["jit_f", "jit_g"]
    assert check(tuple(folders[1:]), config=config).programs["module_name"].to_pylist() == ["jit_g"]


def test_a_missing_baseline_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    budget = [{"device_total": "1GiB"}]
    assert check(SMALL, config={"budget": budget}).baseline is None
    for options in (
        {"baseline": "b.json"}, {"config": {"baseline": "b.json", "budget": budget}}, {"prune": True},
    ):  # fmt: skip
        with pytest.raises(UsageError, match=r"there is no baseline (b|xlamem-baseline)\.json: xlamem check"):
            check(SMALL, **{"config": {"budget": budget}, **options})
    assert check(SMALL, config={}, baseline="b.json", bless=True).written == "b.json"


def test_dumps_of_a_baseline_without_a_name_or_that_cannot_be_read(tmp_path: Path, write: Callable[..., Path]) -> None:
    """If its name is known, the others can be compared; and so if all can be read."""
    base = write(jit_f=TEXTS)
    (path,) = base.glob("*jit_f*-buffer-assignment.txt")
    cut = base / path.name.replace("module_0000.jit_f", "module_0001.jit_g")
    cut.with_suffix(".txt.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    found = check(write(jit_f=TEXTS, jit_g=inner(1)), config={}, baseline=base)
    assert [(r["module_name"], r["rule"]) for r in found.rows("not known")] == [("jit_g", "growth")]
    unnamed = tmp_path / "unnamed"
    unnamed.mkdir()
    (unnamed / "log.txt").write_text(TEXTS["buffer-assignment"])
    rows = check(SMALL, config={}, baseline=unnamed).rows()
    assert [(r["rule"], r["status"]) for r in rows] == [("new", "note"), ("gone", "note")]


def test_budgets_and_what_they_match(write: Callable[..., Path]) -> None:
    config = {"budget": [{"peak": 1}, {"program": "jit_h", "peak": 1}]}
    with pytest.raises(UsageError, match=r"^budget 2 \(program = 'jit_h'\) matches no program; did you mean 'jit_g'"):
        check(write(jit_f=TEXTS, jit_g=inner(1)), config=config)
    names = ("jit_f.3", None, "jit_train.7", "jit_f.4")
    run: Any = SimpleNamespace(
        programs=SimpleNamespace(programs=[SimpleNamespace(module_name=name, platform="cpu") for name in names]),
        config=config_of({"budget": [{"program": "jit_f", "peak": 1}, {"program": "jit_*", "peak": 2}]}),
        _for_platform=lambda budget, _: budget,
    )
    assert [[b.number for b in own] for own in checking._Check._budgets(run)] == [[1, 2], [], [2], [1, 2]]
    run.config = config_of({"budget": [{"program": "xyz", "peak": 1}]})
    with pytest.raises(UsageError, match=r"matches no program; there are jit_f, jit_train$"):
        checking._Check._budgets(run)


def checked(**about: Any) -> Checked:
    described: Any = SimpleNamespace(module_name="jit_f", module_id=3, platform="cpu", uri="/x", occurrences=2,
                                     program_fp="p", interface_fp="i")  # fmt: skip
    return Checked(4, described, **about)


def entry(total: int, peak: int | None, name: str = "jit_f") -> Entry:
    return Entry(name, "cpu", "p", "i", total, peak)


def test_rows_of_a_program() -> None:
    c = checked(entry=entry(5, None), base=entry(7, 8, "jit_old"), how="same", why="because", known_total=6)
    c.findings = [Finding("fits", "passed", ""), Finding("flags", "warning", "")]
    row = checking._program_row(c)
    assert row == {
        "program": 4, "module_name": "jit_f", "module_id": 3, "platform": "cpu", "uri": "/x", "occurrences": 2,
        "program_fp": "p", "interface_fp": "i", "status": "warning", "device_total": 5, "peak": None,
        "device_total_baseline": 7, "peak_baseline": 8, "name_baseline": "jit_old", "how": "same",
        "doubt": "has no live ranges, so its peak is not known", "why": "because",
    }  # fmt: skip
    row = checking._program_row(checked(known_total=6, problem="is truncated"))
    assert [row[name] for name in ("device_total", "peak", "device_total_baseline", "doubt", "why", "status")] == [
        6, None, None, "is truncated", None, "passed",
    ]  # fmt: skip


def test_rows_of_findings() -> None:
    """The worst first, in their order; those about sizes with the cause and its line."""
    c = checked(why="because", source=("m.py", 3))
    c.findings = [
        Finding("growth", "passed", "a"), Finding("new", "note", "b"), Finding("growth", "failed", "c"),
        Finding("donation", "failed", "d", source_file="n.py", source_line=4), Finding("fits", "not known", "e"),
    ]  # fmt: skip
    rows = [*checking._finding_rows(c)]
    assert [(r["message"], r.get("why"), r["source_file"], r["source_line"]) for r in rows] == [
        ("c", "because", "m.py", 3), ("d", None, "n.py", 4), ("e", "because", "m.py", 3), ("b", None, None, None),
        ("a", None, None, None),
    ]  # fmt: skip
    assert {(r["program"], r["module_name"], r["platform"], r["uri"]) for r in rows} == {(4, "jit_f", "cpu", "/x")}
    c.why = ""
    assert [r["why"] for r in checking._finding_rows(c) if "why" in r] == [None, None]
    assert checking._source_lines(c) == {("m.py", 3), ("n.py", 4)}
    c.source = (None, None)
    c.findings = [Finding("donation", s, "", source_file=f"{s}.py") for s in ("passed", "warning")]
    assert checking._source_lines(c) == {("warning.py", None)}


@pytest.mark.parametrize(
    ("rule", "status", "base", "entries", "how", "why"),
    [
        ("growth", "failed", True, True, "same", "since"),
        ("growth", "passed", True, True, "same", None),
        ("donation", "failed", True, True, "same", None),
        ("growth", "warning", True, False, "interface", "compared"),
        ("growth", "failed", True, False, "same", "largest"),
        ("growth", "warning", True, False, "same", ""),
        ("fits", "not known", False, False, None, "largest"),
        ("improved", "note", True, True, "name", "since"),
        ("fits", "note", False, True, None, ""),
    ],
)
def test_what_explains_a_program(
    rule: str, status: str, base: bool, entries: bool, how: str | None, why: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The change since the baseline: from its file, or from its dump if that differs; or else the largest buffers."""
    change = Change("new", "w", "temp", 0, 1, 0, 1, 1, None, "m.py", 3)
    monkeypatch.setattr(checking, "program", lambda dump: dump)
    monkeypatch.setattr(checking, "usage_curve", lambda dump: (dump,))
    monkeypatch.setattr(checking, "changes_since", lambda a, b: [change] * 30)
    monkeypatch.setattr(checking, "why_since", lambda a, b, changes: "since")
    monkeypatch.setattr(checking, "compared", lambda a, b: ("compared", [change._replace(name=f"{a}, {b}")]))
    monkeypatch.setattr(checking, "largest", lambda e: "largest")
    run: Any = SimpleNamespace(entries=() if entries else None, base=SimpleNamespace(read=lambda n: f"base {n}"))
    c = checked(entry=entry(5, 4), base=entry(4, 4) if base else None)
    c.findings = [Finding(rule, status, "")]
    partner: Any = how and SimpleNamespace(number=7, how=how)
    checking._Check._explain(run, c, "now", partner)  # type: ignore[arg-type]
    if why is None:
        assert (c.why, c.curves, c.changes) == ("", Curves(), ())
        return
    assert c.why == why
    assert c.curves == (("now",), ("base 7",) if why == "compared" else ())
    wanted = {"since": [change] * 20, "compared": [change._replace(name="base 7, now")]}
    assert list(c.changes) == wanted.get(why, [])
    c.entry, c.why = None, ""
    checking._Check._explain(run, c, "now", partner)  # type: ignore[arg-type]
    assert c.why == ""


def test_a_program_and_its_doubts(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Every budget that fails for certain is told, and nothing else of a truncated dump."""
    budgets = [{"device_total": 1}, {"peak": 1}, {"device_total": 2}, {"device_total": "1TiB"}]
    result = check(write(jit_f=CUT), config={"budget": budgets})
    assert [(r["rule"], r["status"], r["budget"]) for r in result.rows()] == [
        ("device_total", "failed", 1), ("device_total", "failed", 3), ("unreadable", "not known", None),
    ]  # fmt: skip
    assert result.rows()[-1]["message"] == "the dump is truncated"


def test_what_is_improved(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=larger(TEXTS, MIB)), tmp_path / "b.json")
    better = write(jit_f=TEXTS)
    for options, end in (({}, "; --bless tightens the baseline"), ({"bless": True}, "; the baseline is tightened")):
        (row,) = [r for r in check(better, config={}, baseline=base, **options).rows() if r["rule"] == "improved"]
        assert row["message"].startswith("what must fit fell by 1.00 MiB (80.0 %) to 256.25 KiB and peak fell by 1.")
        assert row["message"].endswith(end)


def test_files_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is all of their beginning read."""
    monkeypatch.setattr(config, "MAX_SIZE", 100)
    monkeypatch.setattr(baseline, "MAX_SIZE", 100)
    with pytest.raises(UsageError, match="/dev/zero: a configuration has at most 100 characters"):
        load_config("/dev/zero")
    with pytest.raises(UsageError, match="/dev/zero: a baseline has at most 100 bytes"):
        baseline.load(Path("/dev/zero"))
