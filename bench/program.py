"""Compile a training step with JAX, and dump it as text and as proto. No TPU is needed: libtpu compiles ahead of time.

`program.py DIR [--target v5e] [--texture sharded] [--layers 48]`; TPU targets need `pip install jax libtpu`. 100 layers
take some minutes.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost"}
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TOPOLOGIES = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "tpu7x": "tpu7x:2x2x1"}
TEXTURES = {
    "unrolled": "every layer on its own, on one device",
    "sharded": "the same on all devices of the topology, parameters and batch divided",
    "scan": "a loop over blocks of layers, whose parameters it carries in one tuple",
}
BLOCKS = 4
"""Steps of the loop."""
WIDTH, BATCH, TIME = 512, 8, 256
SHAPES = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH)) | {
    "up": (WIDTH, 4 * WIDTH),
    "down": (4 * WIDTH, WIDTH),
}
Layer = dict[str, jax.Array]


def normalised(x: jax.Array) -> jax.Array:
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer(x: jax.Array, p: Layer) -> jax.Array:
    with jax.named_scope("self_attention"):
        y = normalised(x)
        q, k, v = (y @ p[name] for name in ("query", "key", "value"))
        weights = jax.nn.softmax(jnp.einsum("btd,bsd->bts", q, k) / WIDTH**0.5)
        x = x + jnp.einsum("bts,bsd->btd", weights, v) @ p["out"]
    with jax.named_scope("mlp"):
        return x + jax.nn.gelu(normalised(x) @ p["up"]) @ p["down"]


def block(x: jax.Array, layers: list[Layer]) -> jax.Array:
    for i, p in enumerate(layers):
        with jax.named_scope(f"decoder/layers_{i}"):
            x = layer(x, p)
    return x


def train_step(state: list[list[Layer]], x: jax.Array, scan: bool) -> list[list[Layer]]:
    """Adam: parameters and two moments, all donated."""

    def loss(layers: list[Layer]) -> jax.Array:
        y = jax.lax.scan(lambda c, p: (block(c, p), None), x, layers)[0] if scan else block(x, layers)
        return jnp.mean(jnp.square(y).astype(jnp.float32))

    p, m, v = state
    g = jax.grad(loss)(p)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    p = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, m, v)
    return [p, m, v]


def devices(target: str) -> np.ndarray:
    """The devices to compile for."""
    if target == "cpu":
        return np.array(jax.devices("cpu"))
    return np.array(topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGIES[target]).devices)


def dump(folder: Path, target: str, texture: str, layers: int) -> None:
    every = devices(target)
    mesh = Mesh(every.reshape(2, -1) if texture == "sharded" else every[:1].reshape(1, 1), ("data", "model"))
    blocks = (BLOCKS,) if texture == "scan" else ()

    def array(*shape: int, spec: P) -> jax.ShapeDtypeStruct:
        kind = jnp.float32 if target == "cpu" else jnp.bfloat16
        return jax.ShapeDtypeStruct(shape, kind, sharding=NamedSharding(mesh, spec))

    spec = P(*(None for _ in blocks), "data", "model")
    parameters = [{name: array(*blocks, *shape, spec=spec) for name, shape in SHAPES.items()}] * layers
    step = jax.jit(train_step, donate_argnums=0, static_argnums=2)
    lowered = step.lower([parameters] * 3, array(BATCH, TIME, WIDTH, spec=P("data")), texture == "scan")
    options = {"xla_dump_to": str(folder.absolute()), "xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
    lowered.compile(compiler_options=options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", choices=("cpu", *TOPOLOGIES), default="cpu")
    parser.add_argument("--texture", choices=TEXTURES, default="unrolled")
    parser.add_argument("--layers", type=int, default=48)
    given = parser.parse_args()
    dump(given.folder, given.target, given.texture, given.layers)
