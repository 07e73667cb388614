"""Compile a training step for the CPU with JAX, and dump it as text and as proto.

`program.py DIR [LAYERS]`: 48 layers by default (a proto of 3 MB); 920 layers make 61 MB and take some minutes.
"""

from __future__ import annotations

import os
import sys

import jax
import jax.numpy as jnp

LAYERS, WIDTH, BATCH = 48, 256, 64


def loss(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for p in layers:
        y = x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        q, k, v = (y @ p[name] for name in ("q", "k", "v"))
        x = x + jax.nn.softmax(q @ k.T / WIDTH**0.5) @ v @ p["o"]
        x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    return jnp.mean(x * x)


def step(state: list[list[dict[str, jax.Array]]], x: jax.Array) -> list[list[dict[str, jax.Array]]]:
    """Adam: parameters and two moments, all donated."""
    p, m, v = state
    g = jax.grad(loss)(p, x)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    p = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, m, v)
    return [p, m, v]


def main(folder: str, layers: int = LAYERS) -> None:
    wide = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    shapes = dict.fromkeys("qkvo", (WIDTH, WIDTH)) | wide
    layer = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    state = [[layer] * layers] * 3
    options = {"xla_dump_to": os.path.abspath(folder), "xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
    lowered = jax.jit(step, donate_argnums=0).lower(state, jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32))
    lowered.compile(compiler_options=options)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
