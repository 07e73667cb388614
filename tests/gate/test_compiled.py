"""Dumps that xlamem writes of programs that are compiled already, against those that XLA wrote of the same compile."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem.errors import DumpError, UsageError
from xlamem.gate.assignment import Assignment
from xlamem.gate.compiled import _source
from xlamem.gate.dataflow import Dataflow, NotKnownError
from xlamem.gate.hlo_module import HloModule, elements_of, indices
from xlamem.gate.wire import Message

EXACT = ("allocations", "values", "schedule", "live_ranges", "aliases", "frames")
SETS = ("positions", "uses")
"""Tables of which XLA's order is not known."""


def assert_same(ours: xlamem.Dump, xlas: xlamem.Dump) -> None:
    """Check the tables that both have, cell by cell, and the numbers computed from them."""
    for name in (*EXACT, *SETS):
        assert rows(ours, name) == rows(xlas, name), name
    assert ours["instructions"]["instruction"].to_pylist() == xlas["instructions"]["instruction"].to_pylist()
    assert xlamem.peak(ours).device_total == xlamem.peak(xlas).device_total
    assert xlamem.bill(ours).to_pylist() == xlamem.bill(xlas).to_pylist()
    assert xlamem.peak(ours).spaces.equals(xlamem.peak(xlas).spaces)
    assert ours.verify().num_rows == 0
    assert ours.complete


def rows(dump: xlamem.Dump, table: str) -> list[dict[str, Any]]:
    left_out = {"ordinal", "page"} if table in SETS else {"page"}  # the page is not in the proto
    found = [{k: v for k, v in row.items() if k not in left_out} for row in dump[table].to_pylist()]
    return sorted(found, key=str) if table in SETS else found


# -- protos that XLA wrote beside its dumps --------------------------------------------------------


def proto_of(folder: str) -> tuple[Path, Message, bytes, str]:
    """Return the path, the buffer assignment, the module proto and the HLO text of a stored dump."""
    (path,) = sorted((DUMPS / folder).glob("*after_optimizations.hlo.pb"))[:1]
    data = path.read_bytes()
    proto = Message(data, path.name)
    ((begin, end),) = proto._spans(1)
    text = path.with_name(path.name.replace(".hlo.pb", ".txt")).read_text()
    return path, proto.message(3), data[begin:end], text


def written(folder: str) -> xlamem.Dump:
    path, proto, module_proto, text = proto_of(folder)
    module = HloModule(module_proto, text)
    platform = "gpu" if "gpu_" in path.name else "cpu"
    return xlamem.read(_source(module.name, platform, {**Assignment(proto, module).texts(), "hlo": text}))


def of_xla(folder: str) -> xlamem.Dump:
    path = proto_of(folder)[0]
    return xlamem.read(path.with_name(path.name.replace(".hlo.pb", "-buffer-assignment.txt")))


STORED = (
    "cpu-jaxlib-0.10.2-cond_switch", "cpu-jaxlib-0.12.0-long_name", "cpu-jaxlib-0.12.0-no_output",
    "cpu-jaxlib-0.12.0-odd_tree", "cpu-jaxlib-0.12.0-scan_while", "cpu-jaxlib-0.5.3-tuple3",
    "cpu-jaxlib-0.7.2-sharded_mm", "cpu-jaxlib-0.9.1-mlp_grad", "gpu-jax-0.10.2-attn_cudnn",
    "gpu-jax-0.10.2-offload_params", "gpu-jax-0.5.3-mixed_dtypes", "gpu-jax-0.8.2-host_weights_scan",
)  # fmt: skip


@pytest.mark.parametrize("folder", STORED)
def test_stored_protos_give_what_xla_dumped(folder: str) -> None:
    assert_same(written(folder), of_xla(folder))


def test_values_of_asynchronous_computations_are_live_until_these_are_done() -> None:
    folder = "gpu-jax-0.4.35-collectives8"
    module = HloModule(*proto_of(folder)[2:])
    assert any(i.opcode == "async-done" for i in module.instructions.values())
    ours, xlas = written(folder), of_xla(folder)
    assert all(rows(ours, name) == rows(xlas, name) for name in ("allocations", "values", "schedule", "live_ranges"))


def test_a_module_without_a_schedule_has_no_live_ranges_and_no_peak() -> None:
    ours, xlas = written("cpu-jaxlib-0.4.13-donate_adam"), of_xla("cpu-jaxlib-0.4.13-donate_adam")
    assert rows(ours, "allocations") == rows(xlas, "allocations")
    assert rows(ours, "values") == rows(xlas, "values")
    assert ours.schedule_length is None
    assert xlamem.peak(ours).device_total == xlamem.peak(xlas).device_total
    assert xlamem.peak(ours).spaces["peak"].to_pylist() == [None]
    with pytest.raises(UsageError, match="has no live ranges"):
        xlamem.live_set(ours)


def test_an_instruction_that_is_not_known_leaves_out_uses_and_live_ranges() -> None:
    folder = "cpu-jaxlib-0.10.2-cond_switch"
    _, proto, module_proto, text = proto_of(folder)
    renamed = HloModule(module_proto.replace(b"\x12\x11get-tuple-element", b"\x12\x11new-tuple-element"), text)
    assert any(i.opcode == "new-tuple-element" for i in renamed.instructions.values())
    assert set(Assignment(proto, renamed).texts()) == {"buffer-assignment"}
    with pytest.raises(NotKnownError):
        Dataflow(renamed, {})
    dump = xlamem.read(_source(renamed.name, "cpu", Assignment(proto, renamed).texts()))
    ours, xlas = (d["values"].drop_columns("uses_known").to_pylist() for d in (dump, of_xla(folder)))
    assert ours == xlas
    assert dump["uses"].num_rows == dump["live_ranges"].num_rows == dump.verify().num_rows == 0


def test_damaged_protos_are_errors_that_name_them() -> None:
    path = proto_of("cpu-jaxlib-0.10.2-cond_switch")[0]
    data, chance, errors = path.read_bytes(), random.Random(1), []
    for _ in range(150):
        damaged = bytearray(data)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        proto = bytes(damaged[: chance.choice((len(data), chance.randrange(len(data))))])
        try:
            hlo = Message(proto, "HloProto")
            ((begin, end),) = hlo._spans(1) or [(0, 0)]
            module = HloModule(proto[begin:end], proto_of("cpu-jaxlib-0.10.2-cond_switch")[3])
            Assignment(hlo.message(3), module).texts()
        except DumpError as error:
            errors.append(str(error))
    assert len(errors) > 50
    assert all("Proto" in error or "as_text()" in error for error in errors)


# -- the wire format and shapes --------------------------------------------------------------------


def test_fields_of_messages() -> None:
    # 1: 300, 1: -1, 2: "é", 3: packed 1, 2 and then 3, 4: fixed64, 5: fixed32, 6: {1: 7}
    data = bytes.fromhex("08ac02 08ffffffffffffffffff01 1202c3a9 1a020102 1803 210000000000000000 2d00000000 32020807")
    message = Message(data, "M")
    assert message.numbers(1) == [300, -1]
    assert message.number(1) == -1
    assert message.text(2) == "é"
    assert message.numbers(3) == [1, 2, 3]
    assert [m.number(1) for m in message.messages(6)] == [message.message(6).number(1)] == [7]
    assert (message.number(9), message.text(9), message.message(9).number(1)) == (0, "", 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x08", r"^M \(byte 1\): expected an integer of a protobuf message"),
        (b"\x08" + b"\xff" * 11, r"\(byte 1\): expected an integer"),
        (b"\x12\x05abc", r"\(byte 2\): expected a field of 5 bytes, not 3"),
        (b"\x0b", r"\(byte 1\): expected a field of a protobuf message"),
        (b"\x08\x01", r"expected bytes in field 1"),
    ],
)
def test_damaged_messages(data: bytes, error: str) -> None:
    with pytest.raises(DumpError, match=error):
        Message(data, "M").text(1)


def test_elements_of_shapes() -> None:
    shape = "(f32[2,3]{1,0:T(8,128)}, (s32[], u8[4]{0}), pred[], f32[], f32[], /*index=5*/(bf16[1]{0}))"
    assert elements_of(shape)[::5] == ("f32[2,3]{1,0:T(8,128)}", "(bf16[1]{0})")
    assert elements_of(shape)[1] == "(s32[], u8[4]{0})"
    assert elements_of("()") == elements_of("f32[2]{0}") == ()
    assert [*indices(shape)][:5] == [(), (0,), (1,), (1, 0), (1, 1)]


# -- what JAX compiled ------------------------------------------------------------------------------

HAS_JAX = importlib.util.find_spec("jax") is not None
needs_jax = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
if HAS_JAX:
    from with_jax import jax, jnp, tpu
else:
    tpu = needs_jax


def donated(state: Any, gradient: Any) -> Any:
    return {name: state[name] - 0.1 * gradient[name] for name in state}, sum(jnp.sum(g) for g in gradient.values())


def scanned(carry: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda c, x: (jnp.tanh(c @ x), (c * 2).sum()), carry, xs)


def looped(x: Any) -> Any:
    return jax.lax.while_loop(lambda s: s[0].sum() < 1e6, lambda s: (s[0] @ s[0], s[1], s[1] + s[2]), (x, x, x))


def chosen(x: Any, which: Any) -> Any:
    return jax.lax.switch(which, [jnp.sin, lambda x: x @ x, lambda x: jnp.sort(x, axis=0)], x), x


def constants(x: Any) -> Any:
    import numpy as np

    return x + jnp.asarray(np.random.default_rng(0).normal(size=(32, 32)).astype("float32")), jnp.ones(5), x


def backward(x: Any, xs: Any) -> Any:
    return jax.grad(lambda x, xs: jax.checkpoint(scanned)(x, xs)[0].sum(), argnums=(0, 1))(x, xs)


def square() -> Any:
    return jax.ShapeDtypeStruct((32, 32), "float32")


def stacked() -> Any:
    return jax.ShapeDtypeStruct((4, 32, 32), "float32")


PROGRAMS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "donated": lambda: (donated, {"a": square(), "b": stacked()}, {"a": square(), "b": stacked()}),
    "scanned": lambda: (scanned, square(), stacked()),
    "looped": lambda: (looped, square()),
    "chosen": lambda: (chosen, square(), jax.ShapeDtypeStruct((), "int32")),
    "constants": lambda: (constants, square()),
    "backward": lambda: (backward, square(), stacked()),
    "identity": lambda: (lambda x: (x, x, ()), square()),
}


@needs_jax
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_has_the_dump_of_its_compile(name: str) -> None:
    function, *args = PROGRAMS[name]()
    lowered = jax.jit(function, donate_argnums=0).lower(*args)
    with xlamem.capture() as captured:
        compiled = lowered.compile(compiler_options={"xla_cpu_enable_fast_math": True})
    ours = xlamem.of(compiled)
    assert_same(ours, captured.dump)
    assert (ours.source.module_name, ours.platform) == (captured.dump.source.module_name, "cpu")
    assert ours.modules["total_bytes"].to_pylist() == ours.modules["printed_peak_time"].to_pylist() == [None]
    assert "must fit" in repr(ours)


SHARDED = """
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from with_jax import jax, jnp
from test_compiled import assert_same
import xlamem

mesh = Mesh(np.array(jax.devices()), ("x",))
x = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P("x")))
with xlamem.capture() as captured:
    compiled = jax.jit(lambda x: (x @ x.T, x.sum())).lower(x).compile()
assert len(jax.devices()) == 4
assert_same(xlamem.of(compiled), captured.dump)
"""


@needs_jax
def test_a_program_for_several_devices() -> None:
    environment = {
        **os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": os.pathsep.join([str(DUMPS.parent), str(Path(__file__).parent), *sys.path]),
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", SHARDED], env=environment, check=True)


@needs_jax
def test_a_program_that_was_loaded_has_the_dump_of_its_compile() -> None:
    from jax.experimental import serialize_executable

    compiled = jax.jit(looped).lower(square()).compile()
    loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    if not getattr(loaded.memory_analysis(), "serialized_buffer_assignment_proto", b""):
        pytest.skip("this JAX gives no buffer assignment of a program that was loaded")
    ours, xlas = xlamem.of(loaded), xlamem.of(compiled)
    assert all(rows(ours, name) == rows(xlas, name) for name in ("allocations", "values", "schedule", "live_ranges"))


@needs_jax
def test_a_compiled_program_has_everything_already() -> None:
    compiled = jax.jit(looped).lower(square()).compile()
    for given in ({"topology": "v5e:2x2"}, {"compiler_options": {}}):
        with pytest.raises(UsageError, match="has its arguments, its devices and its options already"):
            xlamem.of(compiled, **given)
    with pytest.raises(UsageError, match="compiled already: return the function"):
        xlamem.sweep(lambda n: compiled, n=[1])


@tpu
def test_a_program_compiled_for_a_tpu_says_what_to_do_instead() -> None:
    from jax.experimental import topologies

    device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
    x = jax.ShapeDtypeStruct((64, 64), "float32", sharding=jax.sharding.SingleDeviceSharding(device))
    with pytest.raises(UsageError, match=r"no buffer assignment of this compiled program: use xlamem\.of\(function"):
        xlamem.of(jax.jit(jnp.sin).lower(x).compile())
