"""The pytest plugin with real JAX on the CPU, in processes of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import with_jax  # noqa: F401  (the environment, or a skip)

from xlamem.gate import baseline as baselines

pytest_plugins = "pytester"

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytest.md"
MODEL = """
import functools
import jax, jax.numpy as jnp

def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x ** 2).sum()

@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, x):
    return [w - 0.1 * g for w, g in zip(params, jax.grad(loss)(params, x))]

def arguments(batch):
    return [jnp.ones((256, 256)) for _ in range(4)], jnp.ones((batch, 256))
"""
TESTS = """
import pytest
from jax._src import compiler
from model import arguments, train_step

original = compiler.compile_or_get_cached

def test_not_marked():
    assert len(train_step(*arguments(8))) == 4

@pytest.mark.xla_memory(donation="required", growth="0 %", device_total="4MiB")
@pytest.mark.parametrize("batch", [8, 64])
def test_step(batch):
    train_step(*arguments(batch))

def test_relations(xla_memory):
    with xla_memory() as small:
        train_step(*arguments(8))
    with xla_memory() as again:
        train_step(*arguments(8))
    with xla_memory(match="jit_train_*") as large:
        train_step(*arguments(2048))
    assert small.device_total == again.device_total < large.device_total
    assert small.peak < large.peak
    assert small.dump.source.module_name == "jit_train_step"

def test_crash(xla_memory):
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as raised, xla_memory():
        train_step(*arguments(16))
        raise error
    assert raised.value is error
    assert compiler.compile_or_get_cached is original

@pytest.mark.xla_memory
def test_ahead_of_time():
    compiled_ahead

compiled_ahead = train_step.lower(*arguments(8)).compile()
"""


def test_from_no_baseline_to_a_lost_donation_and_back(pytester: pytest.Pytester) -> None:
    """Blessed; a donation is lost, red in every worker with the line and the cause; blessed again, green."""
    pytester.makepyfile(model=MODEL, test_model=TESTS)
    blessed = pytester.runpytest_subprocess("--xlamem-bless")
    blessed.assert_outcomes(passed=5, failed=1)
    blessed.stdout.fnmatch_lines(["xla_memory: nothing was compiled in the test. *", "wrote *test_model.json: 2 tests"])
    file = pytester.path / "xlamem-baselines" / "test_model.json"
    assert [(e.test, e.name, e.n_donated) for e in baselines.load(file).entries] == [
        ("test_step[64]", "jit_train_step", 4),
        ("test_step[8]", "jit_train_step", 4),
    ]
    pytester.makepyfile(model=MODEL.replace("donate_argnums=0", ""))
    red = pytester.runpytest_subprocess("-n", "2")
    red.assert_outcomes(passed=3, failed=3)
    red.stdout.fnmatch_lines([
        "jit_train_step: 4 arguments of 1.00 MiB could be donated and are not: params*",
        "FAILED  jit_train_step *",
        "*why: 4 arguments are no longer donated: params*",
        "*model.py:*",
        "*_step?64? *FAILED",
        "*_step?8? *FAILED",
    ])  # fmt: skip
    pytester.makepyfile(test_model=TESTS.replace('donation="required", ', ""))
    accepted = pytester.runpytest_subprocess("--xlamem-bless", "-k", "step")
    accepted.assert_outcomes(passed=2)
    assert [e.n_donated for e in baselines.load(file).entries] == [0, 0]


@pytest.mark.slow
def test_the_examples_of_the_documentation_run(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.S)
    assert len(blocks) == 2
    pytester.makepyfile(test_model="\n".join(blocks))
    blessed = pytester.runpytest_subprocess("--xlamem-bless")
    blessed.assert_outcomes(passed=3)
    assert (pytester.path / "xlamem-baselines" / "test_model.json").exists()
    pytester.makepyfile(test_model="\n".join(blocks).replace("donate_argnums=0", ""))
    red = pytester.runpytest_subprocess("-k", "test_step")
    red.assert_outcomes(failed=1, deselected=2)
    red.stdout.fnmatch_lines(["*why: 8 arguments are no longer donated: params*"])
