"""Capturing what JAX compiles: real programs on the CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from with_jax import jax, jnp

import xlamem
from xlamem.errors import OutputError, UsageError
from xlamem.gate import hook


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """Whatever a test does, JAX's compiler is as before."""
    from jax._src import compilation_cache, compiler

    before = (compiler.compile_or_get_cached, compilation_cache.is_cache_used)
    yield
    assert (compiler.compile_or_get_cached, compilation_cache.is_cache_used) == before
    assert hook._listeners == []


def new(rows: int = 8) -> tuple[Any, Any]:
    """Return a function that was never compiled, and its argument."""

    def step(x: Any) -> Any:
        return (x @ x.T).sum()

    return jax.jit(step), jnp.ones((rows, 16))


def test_a_block_gives_the_dump_of_what_is_compiled_in_it() -> None:
    step, x = new(64)
    with xlamem.capture() as captured:
        step(x)
    assert len(captured) == 1
    assert captured.dump is captured[0] is captured["step"] is captured["jit_step"] is captured.largest
    assert captured.dump.source.module_name == "jit_step"
    assert captured.dump.verify().num_rows == 0
    assert xlamem.peak(captured.dump).device_total >= 64 * 16 * 4
    assert xlamem.live_set(captured.dump)["op_name"].null_count < xlamem.live_set(captured.dump).num_rows


def test_the_dump_stays_readable_and_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    step, x = new()
    with xlamem.capture() as captured:
        step(x)
    assert list(tmp_path.iterdir()) == []
    assert captured.dump["values"].num_rows > 0
    assert captured.dump.batches("values").read_all().num_rows == captured.dump["values"].num_rows
    assert captured.dump.source.member("hlo")


def test_helpers_of_jax_are_captured_but_not_in_the_way() -> None:
    step, _ = new()
    jax.clear_caches()
    with xlamem.capture() as captured:
        step(jnp.where(jnp.ones((3, 16)) > 0, 1.0, 2.0))
    assert len(captured) > 1
    assert captured.dump.source.module_name == "jit_step"
    assert "step" in captured
    assert "other" not in captured
    helpers = captured.table.filter(captured.table["helper"])["program"].to_pylist()
    assert "jit_broadcast_in_dim" in helpers
    assert "jit_step" not in helpers
    assert len(helpers) == len(captured) - 1
    assert repr(captured).startswith(f"<xlamem.Capture: {len(captured)} programs>\n")


def test_a_block_of_helpers_only_gives_the_only_one() -> None:
    jax.clear_caches()
    with xlamem.capture(match="jit_broadcast_in_dim") as captured:
        jnp.ones((5, 5))
    assert captured.dump.source.module_name == "jit_broadcast_in_dim"


def test_several_programs_are_listed() -> None:
    (first, x), (second, y) = new(8), new(512)
    with xlamem.capture() as captured:
        first(x)
        second(y)
    with pytest.raises(UsageError, match=r"2 programs captured(.|\n)*\[0\]  jit_step\n  \[1\]  jit_step"):
        _ = captured.dump
    with pytest.raises(UsageError, match=r"compiled 2 times: select one with \[0\], \[1\]"):
        _ = captured["step"]
    assert captured.largest is captured[1]
    assert captured[:1] == captured.dumps[:1]
    with pytest.raises(UsageError, match=r"no program 'nope' was captured(.|\n)*clear_caches(.|\n)*jit_step"):
        _ = captured["nope"]


def test_a_function_that_was_compiled_before_is_an_error_that_says_so() -> None:
    step, x = new()
    step(x)
    with pytest.raises(UsageError, match=r"nothing was compiled in the block.*jax\.clear_caches\(\)"), xlamem.capture():
        step(x)
    jax.clear_caches()
    with xlamem.capture() as captured:
        step(x)
    assert captured.dump.source.module_name == "jit_step"


def test_every_block_must_compile_something() -> None:
    (step, x), captured = new(), xlamem.capture()
    with captured:
        step(x)
    with pytest.raises(UsageError, match="nothing was compiled in the block"), captured:
        step(x)
    assert len(captured) == 1
    selected = xlamem.capture(match="jit_step")
    (step, x), other = new(), jax.jit(lambda x: x + 1)
    with selected:
        step(x)
    with pytest.raises(UsageError, match="none of the 1 program compiled in the block"), selected:
        other(x)


def test_match_selects_by_name() -> None:
    step, x = new()
    with xlamem.capture(match="jit_st*") as captured:
        step(jnp.ones((7, 16)))
    assert len(captured) == 1
    step, x = new()
    with (
        pytest.raises(UsageError, match="none of the 1 program compiled in the block has a name like 'jit_train'"),
        xlamem.capture(match="jit_train"),
    ):
        step(x)


def test_an_error_in_the_block_propagates_unchanged() -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as raised, xlamem.capture():
        raise error
    assert raised.value is error
    assert raised.value.__context__ is None


def test_an_error_of_the_compile_propagates_unchanged() -> None:
    step, x = new()
    with pytest.raises(Exception, match="No such compile option") as raised, xlamem.capture():
        step.lower(x).compile(compiler_options={"xla_no_such_option": 1})
    assert not isinstance(raised.value, xlamem.XlaMemError)


def test_no_file_of_another_process_is_overwritten(tmp_path: Path) -> None:
    code = (
        "import jax, sys, xlamem\n"
        "def step(x): return (x @ x.T).sum()\n"
        "x = jax.ShapeDtypeStruct((int(sys.argv[1]), 16), 'float32')\n"
        "with xlamem.capture(dir='dd'): jax.jit(step).lower(x).compile()"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, n], cwd=tmp_path, capture_output=True, text=True)
        for n in ("8", "64")
    ]
    assert runs[0].returncode == 0
    assert runs[1].returncode == 1
    assert re.search(r"UsageError: \S*/dd/module_\d+\.jit_step\.\S* exists: .* give each its own dir", runs[1].stderr)
    (dump,) = xlamem.find(tmp_path / "dd")
    assert "f32[8,16]" in xlamem.read(dump)["values"]["shape"].cast("string").to_pylist()[0]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which no dump can be kept."""

    def copy(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", copy)


@pytest.mark.usefixtures("full_disk")
def test_a_dump_that_cannot_be_written_does_not_change_the_result_of_the_call(tmp_path: Path) -> None:
    step, x = new(3)
    results = []
    with pytest.raises(OutputError, match="No space left"), xlamem.capture(dir=tmp_path):
        results += [step(x), step(x)]
    assert [float(result) for result in results] == [9 * 16, 9 * 16]
    step, x = new(3)
    captured = xlamem.capture(dir=tmp_path)
    with pytest.raises(KeyError, match="mine"), captured:
        raise KeyError("mine", step(x))
    with pytest.raises(UsageError, match="compiled in the block"), captured:
        step(x)
    with pytest.raises(Exception, match="No such compile option"), xlamem.capture(dir=tmp_path):
        step.lower(x).compile(compiler_options={"xla_no_such_option": 1})


def test_a_dump_that_cannot_be_read_is_an_error_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    (step, x), captured = new(3), xlamem.capture()
    with monkeypatch.context() as patch:
        patch.setattr(hook, "in_memory", lambda source: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            xlamem.of(step, x)
        with pytest.raises(ZeroDivisionError), captured:
            step(x)
    step, x = new(4)
    with captured:
        step(x)
    assert len(captured) == 1


def test_as_a_decorator_it_collects_over_all_calls() -> None:
    captured = xlamem.capture()
    step, x = new()

    @captured
    def train() -> str:
        step(x)
        return "done"

    assert (train(), train()) == ("done", "done")
    assert train.__name__ == "train"
    assert len(captured) == 1


def test_nested_blocks_each_get_their_programs() -> None:
    (first, x), (second, y) = new(), new()
    with xlamem.capture() as outer:
        first(x)
        with xlamem.capture() as inner, inner:
            second(y)
    assert (len(outer), len(inner)) == (2, 1)


def test_a_block_captures_what_its_threads_compile() -> None:
    steps = [new(rows) for rows in (3, 4, 5, 6)]
    with xlamem.capture() as captured:
        threads = [threading.Thread(target=step, args=(x,)) for step, x in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    sizes = {dump["modules"]["total_bytes"][0].as_py() for dump in captured}
    assert (len(captured), len(sizes)) == (4, 4)


def test_dir_keeps_the_files(tmp_path: Path) -> None:
    import pickle

    step, x = new()
    with xlamem.capture(dir=tmp_path / "a" / "b") as captured:
        step(x)
    (found,) = xlamem.find(tmp_path)
    assert found.name == captured.dump.name
    assert pickle.loads(pickle.dumps(captured.dump))["values"].equals(xlamem.read(found)["values"])
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to"), xlamem.capture(dir=tmp_path / "file" / "b"):
        pass


def test_the_persistent_cache_does_not_swallow_a_compile(tmp_path: Path) -> None:
    from jax.experimental.compilation_cache import compilation_cache

    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    compilation_cache.reset_cache()
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        step, x = new(9)
        step(x)
        cached = sorted(path.name for path in tmp_path.iterdir())
        assert cached
        jax.clear_caches()
        with xlamem.capture() as captured:
            step(x)
        assert captured.dump.source.module_name == "jit_step"
        assert xlamem.of(step, x)["modules"]["module_name"].to_pylist() == ["jit_step"]
        assert sorted(path.name for path in tmp_path.iterdir()) == cached
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_the_flags_of_the_process_do_not_matter(tmp_path: Path) -> None:
    """Even those with which XLA would dump nothing, or elsewhere."""
    code = (
        "import jax, xlamem\n"
        "def step(x): return (x @ x.T).sum()\n"
        "def other(x): return x * 2\n"
        "with xlamem.capture() as captured: jax.jit(step)(jax.numpy.ones((4, 4))), jax.jit(other)(1.0)\n"
        "dumps = [captured['step'], captured['other'], xlamem.of(step, 2 * jax.numpy.ones((4, 4)))]\n"
        "print([dump.complete for dump in dumps])"
    )
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_proto --xla_dump_hlo_module_re=x --xla_dump_max_hlo_modules=1"
    environment = {**os.environ, "XLA_FLAGS": flags}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == "[True, True, True]\n"


def test_the_table_is_shown_in_a_terminal_and_a_notebook() -> None:
    step, x = new()
    with xlamem.capture() as captured:
        step(x)
    assert repr(captured).startswith("<xlamem.Capture: 1 program>\n  program")
    assert "jit_step" in repr(captured)
    assert "<td" in captured._repr_html_()
    row = captured.table.to_pylist()[0]
    peak = xlamem.peak(captured.dump)
    assert row["device_total"] == peak.device_total
    assert row["peak"] == peak.spaces["peak"][0].as_py()


def test_without_jax_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    uses: list[Callable[[], Any]] = [xlamem.capture().__enter__, lambda: xlamem.of(len, [])]
    for use in uses:
        with pytest.raises(UsageError, match=r"needs JAX: pip install 'xlamem\[jax\]'"):
            use()


@pytest.mark.parametrize("name", ["compile_or_get_cached", "is_cache_used"])
def test_a_jax_that_is_not_known_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from jax._src import compilation_cache, compiler

    module = compiler if hasattr(compiler, name) else compilation_cache
    with monkeypatch.context() as patch:
        patch.delattr(module, name)
        with pytest.raises(UsageError, match=rf"cannot capture what JAX {jax.__version__}"), xlamem.capture():
            pass
