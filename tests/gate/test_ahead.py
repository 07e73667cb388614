"""Compiling ahead of time: on the CPU, and for a TPU that is not attached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from with_jax import jax, jnp, tpu

import xlamem
from xlamem.errors import UsageError


def loss(weights: Any, x: Any) -> Any:
    return jnp.tanh(x @ weights).sum()


def shapes(rows: int = 64) -> tuple[Any, Any]:
    return jax.ShapeDtypeStruct((32, 32), "float32"), jax.ShapeDtypeStruct((rows, 32), "float32")


def total(dump: xlamem.Dump) -> int:
    found = xlamem.peak(dump).device_total
    assert found is not None
    return found


def test_functions_and_what_lower_returned_give_the_same_program() -> None:
    given = [
        xlamem.of(loss, *shapes()),
        xlamem.of(jax.jit(loss), *shapes()),
        xlamem.of(jax.jit(loss).lower(*shapes())),
        xlamem.of(loss, jnp.ones((32, 32)), x=jnp.ones((64, 32))),
    ]
    assert {dump.source.module_name for dump in given} == {"jit_loss"}
    prints = {xlamem.read(dump.source, hashes=True)["modules"]["program_fp"][0].as_py() for dump in given}
    assert len(prints) == 1
    assert None not in prints
    assert all(dump.platform == "cpu" and dump.verify().num_rows == 0 for dump in given)


def test_a_function_that_was_compiled_before_is_compiled_again() -> None:
    jitted, x = jax.jit(lambda x: x * 2), jnp.ones(16)
    jitted(x)
    lowered = jitted.lower(x)
    assert total(xlamem.of(jitted, x)) == total(xlamem.of(lowered)) == total(xlamem.of(lowered)) == 128


def test_of_inside_a_block_is_captured_too() -> None:
    with xlamem.capture() as captured:
        dump = xlamem.of(loss, *shapes())
    assert captured.dump.name == dump.name


def test_compiler_options_are_those_of_xla() -> None:
    fast = xlamem.of(loss, *shapes(), compiler_options={"xla_cpu_enable_fast_math": True})
    assert fast.source.module_name == "jit_loss"
    with pytest.raises(Exception, match="No such compile option") as raised:
        xlamem.of(loss, *shapes(), compiler_options={"xla_no_such_option": 1})
    assert not isinstance(raised.value, xlamem.XlaMemError)


def test_arguments_that_do_not_go_together() -> None:
    lowered = jax.jit(loss).lower(*shapes())
    with pytest.raises(UsageError, match="has its arguments"):
        xlamem.of(lowered, *shapes())
    with pytest.raises(UsageError, match="a function is needed, not int"):
        xlamem.of(1)
    with pytest.raises(UsageError, match=r"cannot compile for the topology 'nonsense'(.|\n)*(libtpu|'v5e:2x2')"):
        xlamem.of(loss, *shapes(), topology="nonsense")


def test_the_dump_shows_the_first_screen() -> None:
    dump = xlamem.of(loss, *shapes())
    text, html = repr(dump), dump._repr_html_()
    for shown in (text, html):
        assert "xlamem.Dump jit_loss (cpu)" in shown
        assert "must fit" in shown
        assert "weights" in shown
        assert "test_ahead.py:" in shown
    assert "<svg" in html
    assert len(text.splitlines()) < 40


def test_an_error_of_the_function_propagates() -> None:
    with pytest.raises(TypeError, match="dot_general"):
        xlamem.of(loss, jnp.ones((2, 3)), jnp.ones((2, 3)))


@tpu
def test_a_tpu_that_is_not_there() -> None:
    dump = xlamem.of(loss, *shapes(), topology="v5e:2x2")
    assert dump.platform == "tpu"
    assert dump.verify().num_rows == 0
    from_arrays = xlamem.of(loss, jnp.ones((32, 32)), jnp.ones((64, 32)), topology="v5e:2x2")
    assert total(from_arrays) == total(dump)
    assert xlamem.of(lambda: jnp.ones((64, 64)), topology="v4:2x2x1").platform == "tpu"


def test_an_argument_for_a_topology_keeps_its_weak_type() -> None:
    """A Python number that became an array does not make the arrays wider that it is multiplied with."""
    topology = SimpleNamespace(devices=jax.devices())
    dump = xlamem.of(jnp.multiply, jnp.asarray(2.0), jnp.ones(4, "bfloat16"), topology=topology)
    shapes = {text.partition("{")[0] for text in dump.values["shape"].to_pylist()}
    assert {"bf16[4]", "f32[4]"} & shapes == {"bf16[4]"}


@tpu
def test_shardings_over_a_topology() -> None:
    import numpy as np
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    mesh = jax.sharding.Mesh(np.array(topology.devices), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x = jax.ShapeDtypeStruct((1 << 20, 32), "float32")
    sharded = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows)
    whole, quarter = xlamem.of(jnp.sin, x, topology=topology), xlamem.of(jnp.sin, sharded, topology=topology)
    assert total(whole) == 4 * total(quarter)
    assert total(xlamem.of(jnp.sin, sharded)) == total(quarter)
    both = xlamem.of(jnp.add, sharded, jnp.ones(32), topology=topology)
    assert total(both) < total(whole)
    with pytest.raises(UsageError, match="sharded over 4 devices that are not of the topology"):
        xlamem.of(jnp.sin, sharded, topology="v4:2x2x1")


@tpu
def test_a_program_that_does_not_fit_raises_the_error_of_xla_and_can_be_captured() -> None:
    x = jax.ShapeDtypeStruct((100_000, 100_000), "float32")
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED") as raised, xlamem.capture() as captured:
        xlamem.of(lambda x: jnp.sin(x) @ x, x, topology="v5e:2x2")
    assert raised.value.__notes__[-1].endswith("GiB must fit")
    assert total(captured.dump) > 2 * 40_000_000_000
    assert xlamem.fits(captured.dump, device="v5e").fits is False
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED") as raised:
        xlamem.of(lambda x: jnp.sin(x) @ x, x, topology="v5e:2x2")
    assert "GiB must fit. `with xlamem.capture() as captured:`" in raised.value.__notes__[-1]


@tpu
def test_sweep_over_a_tpu_finds_the_largest_value_that_fits() -> None:
    def make(batch: int) -> tuple[Any, ...]:
        return jnp.sin, jax.ShapeDtypeStruct((batch, 1 << 20), "float32")

    result = xlamem.sweep(make, batch=[512, 1024, 4096], topology="v5e:2x2")
    assert result.device == "v5e"
    assert result.table["fits"].to_pylist() == [True, True, False]
    assert result.largest == 1024
    errors = result.table["error"].to_pylist()
    assert errors[:2] == [None, None]
    assert errors[2].startswith("RESOURCE_EXHAUSTED")
    assert result.table["device_total"].to_pylist() == [2 * 4 * batch << 20 for batch in (512, 1024, 4096)]
    assert "out of memory" in repr(result)
