"""The pytest plugin, in runs of pytest whose tests "compile" stored dumps. Real JAX is in test_pytest_jax.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from pairs import stored
from variants import CUT, TEXTS, Texts, larger, written

from xlamem.compare import difference  # noqa: F401  (the runs share the modules of this process)
from xlamem.gate import baseline as baselines
from xlamem.gate import hook
from xlamem.gate.testing import plugin, summary  # noqa: F401

pytest_plugins = "pytester"

CONFTEST = """
import pytest
from xlamem.gate import hook
from xlamem.input.find import find

installed = hook._install, hook._uninstall

def pytest_configure():
    hook._install = hook._uninstall = lambda: None

def pytest_unconfigure():
    hook._install, hook._uninstall = installed

@pytest.fixture
def compiles():
    def call(folder, of_jax=False):
        event = hook.Compile(tuple(find({folder!r} + "/" + folder)), of_jax)
        for listener in list(hook._listeners):
            listener.compiled(event)
    return call
"""
"""A compiler that gives the dumps in a folder."""

TESTS = """
import pytest

@pytest.mark.xla_memory
@pytest.mark.parametrize("name", ["small", "big"])
def test_step(compiles, name):
    compiles(name)

class TestLimit:
    @pytest.mark.xla_memory(device_total="1MiB")
    def test_limit(self, compiles):
        compiles("small")
"""
BIG = larger(TEXTS, 128 << 10)
FILE = "xlamem-baselines/test_model.json"


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    before = hook._install, hook._uninstall
    yield
    assert hook._listeners == []
    assert (hook._install, hook._uninstall) == before


@pytest.fixture
def run(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A repository whose tests can compile the small program, a bigger one, and one whose dump is truncated."""
    monkeypatch.setenv("COLUMNS", "120")
    for variable in "CI", "BUILD_NUMBER":  # pytest's summary repeats complete messages where one is set
        monkeypatch.delenv(variable, raising=False)
    (pytester.path / ".git").mkdir()
    folder = tmp_path / "dumps"
    for name, texts in {"small": TEXTS, "big": BIG, "cut": CUT}.items():
        written(folder / name, [("jit_step", texts)])
    written(folder / "other", [("jit_other", _other_interface(BIG))])
    written(folder / "renamed", [("jit_other", _other_interface(TEXTS))])
    written(folder / "second", [("jit_step", _other_interface(BIG))], first=1)
    pytester.makeconftest(CONFTEST.replace("{folder!r}", repr(str(folder))))
    return pytester


def _other_interface(texts: Texts) -> Texts:
    return {role: text.replace("[128,128]", "[128,129]") for role, text in texts.items()}


def text(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines)


def blessed_in(path: Path) -> list[str | None]:
    return [entry.test for entry in baselines.load(path).entries]


def one_test(marker: str, body: str = "compiles('small')") -> str:
    return f"import pytest\n\n@pytest.mark.xla_memory({marker})\ndef test_step(compiles):\n    {body}\n"


def test_the_plugin_is_registered() -> None:
    assert [e.value for e in entry_points(group="pytest11", name="xlamem")] == ["xlamem_pytest"], "install xlamem again"


def test_from_no_baseline_to_a_failure_with_its_cause(run: pytest.Pytester, tmp_path: Path) -> None:
    """Growth needs a baseline; blessed, green; a donation is lost, red with the cause; blessed, green."""
    next(p for p in stored() if p.name == "cpu-donation-removed-decode").unpack(tmp_path / "dumps")
    run.makepyfile(test_model=one_test("growth='0 %'", "compiles('a')"))
    first = run.runpytest()
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines([f"*growth needs a baseline, and {FILE} has", "*--xlamem-bless writes it"])
    blessed = run.runpytest("--xlamem-bless")
    blessed.assert_outcomes(passed=1)
    blessed.stdout.fnmatch_lines([f"wrote {FILE}: 1 test"])
    assert run.runpytest().ret == 0
    run.makepyfile(test_model=one_test("growth='0 %'", "compiles('b')"))
    red = run.runpytest()
    red.assert_outcomes(failed=1)
    red.stdout.fnmatch_lines([
        "*_ test_step _*",
        "jit_decode_step: what must fit grew by 64.00 MiB (66.4 %) to 160.34 MiB; at most 98.65 KiB is allowed",
        "FAILED  jit_decode_step *+64.00 MiB*",
        "  why: 8 arguments are no longer donated: cache*",
        "  at: *.py:*",
        "* device memory (xlamem) *",
        "test_model.py::test_step  jit_decode_step  160.34 MiB  +64.00 MiB *FAILED",
        "FAILED test_model.py::test_step - Failed: jit_decode_step: what must fit*",
    ])  # fmt: skip
    assert "plugin.py" not in text(red)
    assert "During handling" not in text(red)
    accepted = run.runpytest("--xlamem-bless")
    accepted.assert_outcomes(passed=1)
    green = run.runpytest()
    green.assert_outcomes(passed=1)
    green.stdout.fnmatch_lines(["test_model.py::test_step  jit_decode_step  160.34 MiB      ±0*ok"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("device_total='1KiB'", "jit_step: 256.25 KiB must fit, 255.25 KiB more than the limit of 1.00 KiB"),
        ("peak='1KiB'", "*in use at the peak, * more than the limit of 1.00 KiB*"),
        ("device='v5e'", "*not known whether it fits: it is compiled for a CPU; compiled for*"),
        ("named='100 %'", "*of temporaries at the peak have no name*"),
    ],
)
def test_limits_are_those_of_a_budget(run: pytest.Pytester, marker: str, message: str) -> None:
    run.makepyfile(test_model=one_test(marker))
    result = run.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])


def test_every_marker_is_a_budget(run: pytest.Pytester) -> None:
    source = (
        "import pytest\npytestmark = pytest.mark.xla_memory(peak='1KiB')\n"
        "@pytest.mark.xla_memory(device_total='1KiB')\nclass TestA:\n"
        "    @pytest.mark.xla_memory(device='v5e')\n"
        "    def test_step(self, compiles): compiles('small')\n"
        "def test_other(compiles): compiles('small')"
    )
    run.makepyfile(test_model=source)
    result = run.runpytest()
    result.assert_outcomes(failed=2)
    assert re.findall(r"^  (\w+) \(budget (\d)\)", text(result), re.M) == [
        ("peak", "1"), ("device_total", "2"), ("peak", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("devise_total='1KiB'", "unknown key 'devise_total'; did you mean 'device_total'?"),
        ("'1KiB'", "takes limits by name, such as device_total='12GiB', not '1KiB'"),
        ("device_total='1'", "'1' has no unit"),
        ("device_total='1KiB', fraction=0.5", "fraction needs device"),
        ("program='', device_total='1KiB'", "program must be a text that is not empty"),
    ],
)
def test_wrong_limits_are_errors_of_the_test(run: pytest.Pytester, marker: str, message: str) -> None:
    run.makepyfile(test_model=one_test(marker) + "\ndef test_other(): pass\n")
    result = run.runpytest()
    result.assert_outcomes(errors=1, passed=1)
    shown = " ".join(text(result).split())
    assert "@pytest.mark.xla_memory" in shown
    assert message in shown
    assert "During handling" not in shown


def test_programs_are_selected_by_name(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test("program='jit_train_*', device_total='1KiB'"))
    result = run.runpytest()
    result.assert_outcomes(failed=1)
    assert "(program = 'jit_train_*') matches no program; there are jit_step" in " ".join(text(result).split())
    marker = "program='jit_st*', device_total='300KiB'"
    run.makepyfile(test_model=one_test(marker, "compiles('small'); compiles('other')"))
    selected = run.runpytest()
    selected.assert_outcomes(passed=1)
    assert "jit_other" not in text(selected)


def test_helpers_of_jax_do_not_count(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test("device_total='300KiB'", "compiles('small'); compiles('big', of_jax=True)"))
    result = run.runpytest()
    result.assert_outcomes(passed=1)
    assert text(result).count("jit_step") == 1


def test_a_dump_that_is_truncated_never_passes(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test("device_total='1GiB'", "compiles('cut')"))
    for arguments in ([], ["--xlamem-bless"]):
        result = run.runpytest(*arguments)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["NOT KNOWN  jit_step*", "test_model.py::test_step *NOT KNOWN"])
    assert not (run.path / FILE).exists()


def test_nothing_compiled_is_a_failure_that_says_so(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test("device_total='1GiB'", "pass"))
    result = run.runpytest()
    result.assert_outcomes(failed=1)
    shown = " ".join(text(result).split())
    assert "nothing was compiled in the test" in shown
    assert "jax.clear_caches()" in shown
    assert "device memory" not in shown


def test_without_jax_one_sentence_says_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.modules['jax'] = None")
    pytester.makepyfile("import pytest\n@pytest.mark.xla_memory(peak=1)\ndef test_step(): pass\n")
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["xla_memory: capture needs JAX: pip install 'xlamem?jax?'"])


# -- errors in the test --------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["marker", "fixture"])
def test_an_error_in_the_test_is_reported_as_without_the_plugin(run: pytest.Pytester, where: str) -> None:
    lines = {
        "marker": "@pytest.mark.xla_memory\ndef test_step(compiles):\n    compiles('small')\n"
                  "    raise KeyError('mine')",
        "fixture": "def test_step(compiles, xla_memory):\n    with xla_memory():\n        compiles('small')\n"
                   "        raise KeyError('mine')",
    }  # fmt: skip
    run.makepyfile(test_model=f"import pytest\n\n{lines[where]}\n")
    result = run.runpytest("--xlamem-bless")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*KeyError: 'mine'", "test_model.py:*: KeyError"])
    assert "device memory" not in text(result)
    assert not (run.path / FILE).exists()


def test_skips_and_expected_failures_stay_what_they_are(run: pytest.Pytester) -> None:
    run.makepyfile(
        test_model=one_test("device_total='1GiB'", "pytest.skip()")
        + "@pytest.mark.xfail(strict=True)\n@pytest.mark.xla_memory(peak=1)\n"
        "def test_large(compiles): compiles('small')\n"
    )
    run.runpytest().assert_outcomes(skipped=1, xfailed=1)


# -- the fixture ---------------------------------------------------------------------------------

BLOCKS = """
def test_sizes(compiles, xla_memory):
    with xla_memory() as a:
        compiles("small")
    with xla_memory() as b:
        compiles("small")
        compiles("big")
    assert a.device_total < b.device_total == a.device_total + 131072
    assert (type(a.peak + 0), a.peak <= b.peak) == (int, True)
    assert (len(a.programs), len(b.programs)) == (1, 2)
    assert a.dump.source.module_name == "jit_step"
    assert a.dump is a["step"]

def test_relation(compiles, xla_memory):
    with xla_memory() as a:
        compiles("small")
    with xla_memory() as b:
        compiles("big")
    assert b.device_total < a.device_total

def test_empty(xla_memory):
    with xla_memory():
        pass

def test_not_known(compiles, xla_memory):
    with xla_memory() as a:
        compiles("cut")
    assert a.peak

def test_early(compiles, xla_memory):
    with xla_memory() as a:
        a.device_total
"""


def test_blocks_give_sizes_that_can_be_compared(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=BLOCKS)
    result = run.runpytest()
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines([
        ">       assert b.device_total < a.device_total",
        "E       assert 384.25 KiB (393,472 bytes) < 256.25 KiB (262,400 bytes)",
        "E         from the left to the right: -128.00 KiB must fit*",
        ">       with xla_memory():",
        "E       Failed: nothing was compiled in the block. *ahead of time*",
        "E*UsageError: jit_step is truncated",
        "E*UsageError: there is no device_total: nothing was captured, or the block has not ended",
        "* device memory (xlamem) *",
        "test_model.py::test_not_known  jit_step           ?                   ?",
        "test_model.py::test_sizes      jit_step  384.25 KiB*",
    ])  # fmt: skip
    assert "blocks.py" not in text(result)


# -- baselines -----------------------------------------------------------------------------------


def test_baselines_are_beside_the_tests_and_keep_what_did_not_run(run: pytest.Pytester) -> None:
    (run.path / "tests").mkdir()
    model = run.path / "tests" / "test_model.py"
    model.write_text(TESTS)
    file = run.path / "tests" / FILE
    assert run.runpytest("--xlamem-bless", "-k", "small or limit").ret == 0
    assert blessed_in(file) == ["TestLimit::test_limit", "test_step[small]"]
    before = {e.test: e for e in baselines.load(file).entries}
    model.write_text(TESTS.replace('compiles("small")', 'compiles("big")'))
    assert run.runpytest("--xlamem-bless", "-k", "big").ret == 0
    assert blessed_in(file) == ["TestLimit::test_limit", "test_step[big]", "test_step[small]"]
    after = {e.test: e for e in baselines.load(file).entries}
    assert {name: after[name] for name in before} == before
    assert json.loads(file.read_text())["format"] == "xlamem-baseline"
    stored_text = file.read_text()
    grown = run.runpytest()
    assert file.read_text() == stored_text
    grown.assert_outcomes(passed=2, failed=1)
    grown.stdout.fnmatch_lines(["tests/test_model.py::TestLimit::test_limit *+128.00 KiB*FAILED"])


def test_prune_removes_tests_that_are_gone(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=TESTS)
    run.runpytest("--xlamem-bless")
    fewer = TESTS.replace(', "big"', "").replace("        compiles", "        pytest.skip()")
    run.makepyfile(test_model=f"{fewer}\ndef test_fails(): assert 0\n")
    failed = run.runpytest("--xlamem-prune")
    failed.stdout.fnmatch_lines(["not every test passed: nothing was removed from the baselines"])
    assert len(blessed_in(run.path / FILE)) == 3
    run.makepyfile(test_model=fewer)
    pruned = run.runpytest("--xlamem-prune")
    pruned.assert_outcomes(passed=1, skipped=1)
    pruned.stdout.fnmatch_lines([f"wrote {FILE}: 0 tests, 1 test removed"])
    assert blessed_in(run.path / FILE) == ["TestLimit::test_limit", "test_step[small]"]


def test_the_directory_of_baselines_is_a_setting(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\nxlamem_baselines = memory\n")
    (run.path / "tests").mkdir()
    (run.path / "tests" / "test_model.py").write_text(TESTS)
    assert run.runpytest("--xlamem-bless").ret == 0
    assert len(blessed_in(run.path / "memory" / "tests" / "test_model.json")) == 3
    run.runpytest().assert_outcomes(passed=3)


def test_a_program_that_the_baseline_does_not_have_cannot_hide_growth(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test("device_total='1GiB'"))
    run.runpytest("--xlamem-bless")
    run.makepyfile(test_model=one_test("device_total='1GiB'", "compiles('renamed')"))
    renamed = run.runpytest()
    renamed.assert_outcomes(failed=1)
    renamed.stdout.fnmatch_lines(["no program of this test is in its baseline: --xlamem-bless writes it"])
    run.makepyfile(test_model=one_test("", "compiles('other')"))
    grown = run.runpytest()
    grown.assert_outcomes(failed=1)
    grown.stdout.fnmatch_lines(["jit_other: *jit_step is gone: if it was renamed, what must fit grew by 128.00 KiB*"])
    assert run.runpytest("--xlamem-bless").ret == 0
    assert [e.name for e in baselines.load(run.path / FILE).entries] == ["jit_other"]
    run.runpytest().assert_outcomes(passed=1)


@pytest.mark.parametrize("content", ["{", '{"format": "xlamem-baseline", "version": 9}', "[]"])
def test_a_damaged_baseline_is_an_error_that_names_it(run: pytest.Pytester, content: str) -> None:
    run.makepyfile(test_model=one_test("device_total='1GiB'"))
    (run.path / FILE).parent.mkdir()
    (run.path / FILE).write_text(content)
    result = run.runpytest()
    result.assert_outcomes(failed=1)
    assert FILE in text(result).replace("\n", "")


def test_a_baseline_that_cannot_be_written_fails_the_run(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test(""))
    (run.path / FILE).parent.write_text("a file")
    result = run.runpytest("--xlamem-bless")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_model.json: the baseline cannot be written: *"])


def test_policies_are_those_of_the_configuration(run: pytest.Pytester, tmp_path: Path) -> None:
    next(p for p in stored() if p.name == "cpu-flag-fusion").unpack(tmp_path / "dumps")
    run.makepyfile(test_model=one_test("", "compiles('a')"))
    run.runpytest("--xlamem-bless")
    run.makepyfile(test_model=one_test("", "compiles('b')"))
    run.runpytest().assert_outcomes(failed=1)
    (run.path / "xlamem.toml").write_text('flags_change = "warn"\n')
    warned = run.runpytest()
    warned.assert_outcomes(passed=1)
    warned.stdout.fnmatch_lines(["*warning", "warning: test_model.py::test_step: *flag*"])
    (run.path / "xlamem.toml").write_text('flags_change = "bless"\n[[budget]]\nprogram = "x"\npeak = 1\n')
    run.runpytest().stdout.fnmatch_lines(["*ok", f"wrote {FILE}: 1 test"])


# -- the run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "programs"),
    [
        ([], 3),
        (["-q"], 1),
        (["-q", "--xlamem-table=all"], 3),
        (["--xlamem-table=failed"], 1),
        (["--xlamem-table=none"], 0),
    ],
)
def test_the_table_can_be_shorter(run: pytest.Pytester, options: list[str], programs: int) -> None:
    run.makepyfile(test_model=TESTS)
    run.runpytest("--xlamem-bless")
    run.makepyfile(test_model=TESTS.replace('    compiles("small")', '    compiles("big")'))
    result = run.runpytest(*options)
    lines = [line for line in result.outlines if re.match(r"test_model\.py::.*  jit_step  ", line)]
    assert len(lines) == programs
    assert ("device memory (xlamem)" in text(result)) == bool(programs)


@pytest.mark.parametrize("width", [70, 80, 200])
def test_the_table_fits_the_terminal(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"test_{'x' * 60}_{end}" for end in ("one", "two")]
    marker = "@pytest.mark.xla_memory(peak='1GiB', program='jit_*')\n"
    tests = [f"{marker}def {name}(compiles): compiles('big')\n" for name in names]
    run.makepyfile(test_model="".join(["import pytest\n", *tests]))
    result = run.runpytest("--xlamem-bless")
    lines = text(result).split("device memory (xlamem)")[1].splitlines()
    assert re.match(r"test +program +must fit +change +peak +change$", lines[1])
    cells = ["jit_step", "384.25", "KiB", "new", "384.07", "KiB", "new", "ok"]
    assert [line.split()[1:] for line in lines[2:4]] == [cells] * 2
    assert lines[2].split()[0] != lines[3].split()[0]
    assert max(map(len, lines)) <= width
    shown = {line.split()[0] for line in lines[2:4]}
    assert ({f"test_model.py::{n}" for n in names} == shown) == (width == 200)


def test_warnings_are_wrapped(run: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    next(p for p in stored() if p.name == "cpu-flag-fusion").unpack(tmp_path / "dumps")
    run.makepyfile(test_model=one_test("", "compiles('a')"))
    run.runpytest("--xlamem-bless")
    (run.path / "xlamem.toml").write_text('flags_change = "warn"\n')
    run.makepyfile(test_model=one_test("", "compiles('b')"))
    lines = text(run.runpytest()).split("device memory (xlamem)")[1].splitlines()
    assert any(line.startswith("warning: ") for line in lines)
    assert max(map(len, lines)) <= 80


def test_without_the_plugin_other_tests_run_as_before(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test("device_total=1") + "\ndef test_fixture(xla_memory): pass\n")
    result = run.runpytest_subprocess("-p", "no:xlamem")
    result.assert_outcomes(passed=1, errors=1, warnings=1)
    result.stdout.fnmatch_lines(["*fixture 'xla_memory' not found*", "*Unknown pytest.mark.xla_memory*"])
    run.runpytest_subprocess("-p", "no:xlamem", "--strict-markers").assert_outcomes(errors=1)
    run.makeini("[pytest]\nmarkers = xla_memory: not checked here\n")
    run.runpytest_subprocess("-p", "no:xlamem", "--strict-markers").assert_outcomes(passed=1, errors=1)


def test_a_run_that_does_not_use_the_plugin_imports_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_a():\n    heavy = {'xlamem', 'numpy', 'pyarrow', 'jax'}\n"
        "    assert 'xlamem_pytest' in sys.modules\n    assert not heavy & set(sys.modules)\n"
    )
    result = pytester.runpytest_subprocess("-p", "no:benchmark")
    result.assert_outcomes(passed=1)
    assert "xlamem)" not in text(result)


def test_import_xlamem_gains_nothing() -> None:
    code = "import sys, xlamem; print({'xlamem_pytest', 'pytest', 'xlamem.gate'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"


WORKERS_MUST_NOT_WRITE = """
def pytest_sessionstart(session):
    if hasattr(session.config, "workerinput"):
        from xlamem.gate import baseline
        baseline.write = lambda *args: open("worker-wrote", "w").close()
"""
XDIST = TESTS + """
@pytest.mark.xdist_group("one")
@pytest.mark.xla_memory
def test_grouped(compiles):
    compiles("big")
"""


def test_with_xdist_the_controller_writes_the_same_baselines(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=XDIST, test_other=one_test(""))
    run.runpytest("--xlamem-bless").assert_outcomes(passed=5)
    before = {path.name: path.read_text() for path in (run.path / FILE).parent.iterdir()}
    assert set(before) == {"test_model.json", "test_other.json"}
    for name in before:
        (run.path / FILE).with_name(name).unlink()
    run.makeconftest((run.path / "conftest.py").read_text() + WORKERS_MUST_NOT_WRITE)
    spread = run.runpytest_subprocess("--xlamem-bless", "-n", "2", "--dist", "loadgroup")
    spread.assert_outcomes(passed=5)
    assert {path.name: path.read_text() for path in (run.path / FILE).parent.iterdir()} == before
    assert not (run.path / "worker-wrote").exists()
    table = [line for line in text(spread).splitlines() if re.search("::test.*  jit_step  ", line)]
    assert [line.split()[0] for line in table] == sorted(
        f"test_{file}.py::{e.test}"
        for file in ("model", "other")
        for e in baselines.load((run.path / FILE).with_name(f"test_{file}.json")).entries
    )


def test_a_worker_that_dies_in_a_block_loses_only_its_test(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=TESTS)
    run.runpytest("--xlamem-bless")
    before = (run.path / FILE).read_text()
    run.makepyfile(test_model="import os\n" + TESTS.replace('        compiles("small")', "        os._exit(3)"))
    result = run.runpytest_subprocess("--xlamem-bless", "--xlamem-prune", "-n", "2", timeout=60)
    result.assert_outcomes(passed=2, failed=1)
    assert "crashed while running" in text(result)
    assert (run.path / FILE).read_text() == before


def test_a_second_program_of_a_name_must_not_be_larger(run: pytest.Pytester) -> None:
    run.makepyfile(test_model=one_test("device_total='1GiB'"))
    assert run.runpytest("--xlamem-bless").ret == 0
    run.makepyfile(test_model=one_test("device_total='1GiB'", "compiles('small'); compiles('second')"))
    red = run.runpytest()
    red.assert_outcomes(failed=1)
    red.stdout.fnmatch_lines(["jit_step: what must fit: *, 128.00 KiB more than the largest jit_step of the baseline"])
    assert run.runpytest("--xlamem-bless").ret == 0
    assert run.runpytest().ret == 0
