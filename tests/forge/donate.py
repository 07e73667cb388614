"""Compile small JAX programs twice, as they are and with the candidates of `xlamem.donation` donated.

    python tests/forge/donate.py {cpu,tpu} DIR [NAME...]

writes DIR/PLATFORM-NAME/undonated and …/donated, the texts of the two dumps. Needs jax, for `tpu` libtpu too (no TPU).
So were the pairs in tests/data/donation made, and then compressed by gzip -n.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4", "TPU_WORKER_HOSTNAMES": "localhost"}
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
os.environ["JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX"] = ".*/tests/"  # no path of this machine in a stored pair

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import xlamem

KEPT = ("-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt", "after_optimizations.txt")


def train(params: Any, m: Any, v: Any, x: jax.Array) -> Any:
    def loss(p: Any) -> jax.Array:
        return jnp.mean(jnp.tanh(jnp.tanh(x @ p[0] + p[1]) @ p[2]) ** 2)

    value, g = jax.value_and_grad(loss)(params)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
    return jax.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1e-8), params, m, v), m, v, value


def mixed(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array, e: jax.Array, f: jax.Array) -> Any:
    """f32 with s32, a reshape, a transposition; as many bytes but not elements; two arguments for one output."""
    halves = jnp.concatenate([d, d]).astype(jnp.bfloat16)
    return (a * 2).astype(jnp.int32), b.reshape(128, 32) + 1, c.T * 2, halves, e * f


def scan(w: jax.Array, h: jax.Array, xs: jax.Array) -> Any:
    def body(h: jax.Array, x: jax.Array) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h

    return jax.lax.scan(body, h, xs)


def sharded(w1: jax.Array, w2: jax.Array, x: jax.Array) -> Any:
    """In a program for several devices bytes alone count: f32[16,256] goes with bf16[16,512]."""
    return w1 + 1, (w2 * 2).T, (x @ w1).astype(jnp.bfloat16)


def host(w: jax.Array, x: jax.Array, space: Any) -> Any:
    """The output in host memory is none for the argument on the device."""
    return jax.device_put(w * 2, space), x.T + 1


def programs(platform: str) -> dict[str, tuple[Any, list[Any], dict[str, Any]]]:
    if platform == "tpu":
        from jax.experimental import topologies

        devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    else:
        devices = jax.devices()

    def place(n: int, *axes: Any, kind: str | None = None) -> NamedSharding:
        return NamedSharding(Mesh(np.array(devices[:n]), ("x",)), PartitionSpec(*axes), memory_kind=kind)

    def array(*shape: int, dtype: Any = jnp.float32, where: Any = None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=where or place(1))

    state = [[array(64, 256), array(256), array(256, 64)] for _ in range(3)]
    vectors = [array(300), array(300)]
    squares = [array(128, 128), array(128, 128)]
    found: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
        "train": (train, [*state, array(32, 64)], {}),
        "mixed": (mixed, [array(256), array(64, 64), array(128, 256), array(512), *vectors], {}),
        "swap": (lambda a, b: (b + 1, a * 2), squares, {}),
        "one": (lambda a, b: a @ b, squares, {}),
        "scan": (scan, [array(128, 128), array(16, 128), array(20, 16, 128)], {}),
    }
    rows, columns = place(4, "x", None), place(4, None, "x")
    weights = [array(256, 512, where=rows), array(512, 256, where=columns), array(64, 256, where=rows)]
    found["sharded"] = (sharded, weights, {})
    if platform == "tpu":
        there = place(1, kind="pinned_host")
        outputs = {"out_shardings": (there, place(1))}
        found["host"] = (lambda w, x: host(w, x, there), squares, outputs)
    return found


def compiled(function: Any, arguments: list[Any], donate: tuple[int, ...], folder: Path, **options: Any) -> None:
    """Leave the dump of a program in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    jitted = jax.jit(function, donate_argnums=donate, keep_unused=True, **options)
    with tempfile.TemporaryDirectory() as place:
        flags = {"xla_dump_to": place, "xla_dump_hlo_as_text": True}
        jitted.lower(*arguments).compile(compiler_options=flags)
        for path in Path(place).iterdir():
            if path.name.endswith(KEPT):
                shutil.copy(path, folder)


def main(platform: str, out: str, *names: str) -> None:
    for name, (function, arguments, options) in programs(platform).items():
        if names and name not in names:
            continue
        leaves, tree = jax.tree.flatten(tuple(arguments))

        def flat(*leaves: Any, function: Any = function, tree: Any = tree) -> Any:
            return function(*jax.tree.unflatten(tree, leaves))

        folder = Path(out, f"{platform}-{name}")
        compiled(flat, leaves, (), folder / "undonated", **options)
        found = xlamem.donation(xlamem.read(folder / "undonated")).to_pylist()
        candidates = tuple(row["parameter"] for row in found if row["candidate"])
        compiled(flat, leaves, candidates, folder / "donated", **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
