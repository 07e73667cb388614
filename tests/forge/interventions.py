"""Compile JAX programs before and after interventions that `xlamem.advise` proposes.

    python tests/forge/interventions.py {cpu,tpu} DIR [NAME...]
    python tests/forge/interventions.py store DIR tests/data/advice

The first writes DIR/PLATFORM-PROGRAM/VARIANT, the texts of each dump. `base` is the program before; the other variants
are named after what was done. It needs jax, for `tpu` libtpu too (no TPU). The second stores what the tests read of
them: all of `base` but most bodies of HLO texts, and the allocations of the others.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4"}
os.environ |= {"TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
os.environ["JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX"] = ".*/tests/"  # no path of this machine in a stored dump

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WHOLE = (
    "tpu-states", "tpu-cache", "tpu-undonated_cache", "tpu-rollout", "tpu-lookups", "tpu-dropout", "tpu-microbatches",
)  # fmt: skip
"""Programs of which the whole HLO text is stored: it has the number of iterations of their loops."""
KEPT = ("-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt", "after_optimizations.txt")

Program = tuple[Callable[..., Any], list[Any]]


class Case(NamedTuple):
    """A program, and its variants: arguments of `build`, and numbers of the arguments that are donated."""

    build: Callable[..., Program]
    variants: dict[str, tuple[dict[str, Any], tuple[int, ...]]]
    platforms: tuple[str, ...] = ("cpu", "tpu")
    sharded: int | None = None
    """The number of the argument that is sharded along its first dimension, over all devices."""


def array(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def adam(params: Any, grads: Any, state: Any) -> Any:
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, state["m"], grads)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, state["v"], grads)
    params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return params, {"m": m, "v": v}


def trained(loss: Callable[[Any, Any], jax.Array]) -> Callable[..., Any]:
    def train_step(params: Any, opt: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, batch)
        return *adam(params, grads, opt), value

    return train_step


def with_state(params: Any) -> list[Any]:
    return [params, {"m": params, "v": params}]


# -- training ------------------------------------------------------------------------------------


def layers(n: int = 4, batch: int = 12288, wide: int = 1536, how: str = "unrolled") -> Program:
    """Layers with two matrix products, one after the other or in a loop, with or without recomputation."""

    def layer(x: jax.Array, w: Any) -> jax.Array:
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"]

    def loss(params: Any, x: jax.Array) -> jax.Array:
        body = jax.checkpoint(layer) if "recomputed" in how else layer
        if "loop" in how:
            return jnp.mean(lax.scan(lambda x, w: (body(x, w), None), x, params)[0] ** 2)
        for i in range(n):
            with jax.named_scope(f"layer_{i}"):
                x = body(x, params[i])
        return jnp.mean(x**2)

    if "loop" in how:
        params: Any = {"up": array(n, wide, 2 * wide), "down": array(n, 2 * wide, wide)}
    else:
        params = [{"up": array(wide, 2 * wide), "down": array(2 * wide, wide)} for _ in range(n)]
    return trained(loss), [*with_state(params), array(batch, wide)]


def calls(n: int = 4, batch: int = 8, length: int = 1024, remat: bool = False) -> Program:
    """A transformer whose layers have no scope: a Python loop calls a function for each."""
    wide, heads = 512, 8

    def attend(x: jax.Array, w: Any) -> jax.Array:
        q, k, v = jnp.split((x @ w["qkv"]).reshape(batch, length, heads, -1), 3, axis=-1)
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), -1)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["out"]

    def block(x: jax.Array, w: Any) -> jax.Array:
        x = x + attend(x, w)
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"]

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["table"][tokens]
        for w in params["layers"]:
            x = (jax.checkpoint(block) if remat else block)(x, w)
        return jnp.mean((x @ params["table"].T) ** 2)

    weights = {"qkv": array(wide, 3 * wide), "out": array(wide, wide), "up": array(wide, 4 * wide)}
    weights |= {"down": array(4 * wide, wide)}
    params = {"layers": [weights] * n, "table": array(4096, wide)}
    return trained(loss), [*with_state(params), array(batch, length, dtype=jnp.int32)]


def vocabulary(batch: int = 8, length: int = 1024, classes: int = 32768, chunks: int = 1) -> Program:
    """A model with a large vocabulary, whose logits are computed at once or chunk by chunk."""
    wide = 512

    def loss_of_chunk(params: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
        logits = (x @ params["head"].astype(jnp.bfloat16)).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)
        return jnp.sum(jax.nn.logsumexp(logits, -1) - chosen[..., 0])

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x, labels = params["table"].astype(jnp.bfloat16)[tokens], jnp.roll(tokens, -1, axis=1)
        for w in params["layers"]:
            x = x + jax.nn.gelu(x @ w["up"].astype(jnp.bfloat16)) @ w["down"].astype(jnp.bfloat16)
        if chunks == 1:
            return loss_of_chunk(params, x, labels) / labels.size
        split = [a.reshape(batch, chunks, length // chunks, *a.shape[2:]).swapaxes(0, 1) for a in (x, labels)]
        losses = lax.map(jax.checkpoint(lambda chunk: loss_of_chunk(params, *chunk)), split)
        return losses.sum() / labels.size

    layer = {"up": array(wide, 4 * wide), "down": array(4 * wide, wide)}
    params = {"table": array(classes, wide), "head": array(wide, classes), "layers": [layer] * 2}
    return trained(loss), [*with_state(params), array(batch, length, dtype=jnp.int32)]


def attention(
    n: int = 8,
    batch: int = 16,
    length: int = 512,
    dtype: Any = jnp.float32,
    remat: bool = False,
    chunk: int = 1,
    parts: bool = False,
) -> Program:
    """A loop over layers of a transformer."""
    wide, heads = 1024, 8

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, out: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(jnp.einsum("thk,shk->hts", q, k), -1)
        return jnp.einsum("hts,shk,hkd->td", weights, v, out)

    def layer(x: jax.Array, w: Any) -> jax.Array:
        with jax.named_scope("attention"):
            q, k, v = (jnp.einsum("btd,dhk->bthk", x, w[name].astype(dtype)) for name in "qkv")
            if parts:
                out = w["o"].astype(dtype)
                x = x + lax.map(jax.checkpoint(lambda part: attend(*part, out)), (q, k, v))
            else:
                weights = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k), -1)
                x = x + jnp.einsum("bhts,bshk,hkd->btd", weights, v, w["o"].astype(dtype))
        with jax.named_scope("feed_forward"):
            return x + jax.nn.relu(x @ w["up"].astype(dtype)) @ w["down"].astype(dtype)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        body = jax.checkpoint(layer) if remat else layer

        def scan(x: jax.Array, w: Any) -> jax.Array:
            return lax.scan(lambda x, w: (body(x, w), None), x, w)[0]

        x, w = params["table"].astype(dtype)[tokens], params["layers"]
        if chunk > 1:
            w = jax.tree.map(lambda a: a.reshape(n // chunk, chunk, *a.shape[1:]), w)
            x, _ = lax.scan(lambda x, w: (jax.checkpoint(scan)(x, w), None), x, w)
        else:
            x = scan(x, w)
        return jnp.mean((x @ params["table"].astype(dtype).T).astype(jnp.float32) ** 2)

    shape = (n, wide, heads, wide // heads)
    weights = {name: array(*shape) for name in "qkv"} | {"o": array(n, heads, wide // heads, wide)}
    weights |= {"up": array(n, wide, 4 * wide), "down": array(n, 4 * wide, wide)}
    params = {"layers": weights, "table": array(4096, wide)}
    return trained(loss), [*with_state(params), array(batch, length, dtype=jnp.int32)]


def recurrent(steps: int = 256, batch: int = 512, wide: int = 512, remat: bool = False, chunk: int = 1) -> Program:
    """A recurrent network over many steps."""

    def loss(params: Any, inputs: jax.Array) -> jax.Array:
        def cell(state: Any, x: jax.Array) -> Any:
            h, c = state
            i, f, o, g = jnp.split(x @ params["x"] + h @ params["h"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        body = jax.checkpoint(cell) if remat else cell
        state = jnp.zeros((batch, wide)), jnp.zeros((batch, wide))
        if chunk > 1:
            inputs = inputs.reshape(steps // chunk, chunk, batch, wide)
            state, _ = lax.scan(jax.checkpoint(lambda s, x: lax.scan(body, s, x)), state, inputs)
        else:
            state, _ = lax.scan(body, state, inputs)
        return jnp.mean(state[0] ** 2)

    params = {"x": array(wide, 4 * wide), "h": array(wide, 4 * wide)}
    return trained(loss), [*with_state(params), array(steps, batch, wide)]


def offloaded(n: int = 16, offload: bool = False) -> Program:
    """A loop with recomputation that keeps its carry on the device, or moves it to the host."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        def body(x: jax.Array, w: Any) -> jax.Array:
            x = checkpoint_name(x, "body_input")
            return x + jax.nn.gelu(x @ w["up"]) @ w["down"]

        names = {"names_which_can_be_saved": [], "names_which_can_be_offloaded": ["body_input"]}
        to_host = jax.checkpoint_policies.save_and_offload_only_these_names(
            **names, offload_src="device", offload_dst="pinned_host"
        )
        body = jax.checkpoint(body, policy=to_host if offload else None)
        return jnp.mean(lax.scan(lambda x, w: (body(x, w), None), x, params)[0] ** 2)

    def train_step(params: Any, x: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 1e-2 * g, params, grads), value

    params = {"up": array(n, 1024, 4096), "down": array(n, 4096, 1024)}
    return train_step, [params, array(16, 512, 1024)]


def maps(n: int = 8, heads: int = 8, length: int = 512, wide: int = 512, reduced: bool = False) -> Program:
    """Attention in a loop that also returns the weights of each layer, whose mean over the heads is in the loss."""

    def layer(x: jax.Array, w: Any) -> tuple[jax.Array, jax.Array]:
        q, k, v = jnp.split((x @ w["qkv"]).reshape(*x.shape[:2], heads, -1), 3, -1)
        weights = jax.nn.softmax(jnp.einsum("bthc,bshc->bhts", q, k), -1)
        x = x + jnp.einsum("bhts,bshc->bthc", weights, v).reshape(x.shape) @ w["out"]
        return x, weights.mean(1) if reduced else weights

    def loss(params: Any, x: jax.Array) -> jax.Array:
        x, weights = lax.scan(jax.checkpoint(layer), x, params)
        means = weights if reduced else weights.mean(2)
        return jnp.square(x).mean() + jnp.square(means[-1] - means[0]).mean()

    def train_step(params: Any, x: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return train_step, [{"qkv": array(n, wide, 3 * wide), "out": array(n, wide, wide)}, array(8, length, wide)]


def states(steps: int = 512, batch: int = 8, wide: int = 512, n: int = 16, reduced: bool = False) -> Program:
    """A linear state space, of which the output is computed step by step, or from the states of all steps."""

    def output(state: jax.Array, c: jax.Array) -> jax.Array:
        return jnp.einsum("...dn,...n->...d", state, c)

    def scan(x: jax.Array, decay: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        def step(state: jax.Array, inputs: Any) -> Any:
            x, b, c = inputs
            state = state * decay + x[..., None] * b[:, None]
            return state, output(state, c) if reduced else state

        _, found = lax.scan(step, jnp.zeros((batch, wide, n)), (x, b, c))
        return found if reduced else output(found, c)

    return scan, [array(steps, batch, wide), array(wide, n), array(steps, batch, n), array(steps, batch, n)]


def rollout(steps: int = 256, batch: int = 64, vocab: int = 16384, wide: int = 512, keys: bool = False) -> Program:
    """Sampling from a recurrent language model, with noise of all steps, or a key for each."""

    def sample(params: Any, key: jax.Array) -> jax.Array:
        def step(carry: Any, x: jax.Array) -> Any:
            state, token = carry
            state = jnp.tanh(params["embedding"][token] + state @ params["state"])
            noise = jax.random.gumbel(x, (batch, vocab)) if keys else x
            token = jnp.argmax(jax.nn.log_softmax(state @ params["logits"]) + noise, -1).astype(jnp.int32)
            return (state, token), token

        start = jnp.zeros((batch, wide)), jnp.zeros(batch, jnp.int32)
        xs = jax.random.split(key, steps) if keys else jax.random.gumbel(key, (steps, batch, vocab))
        return lax.scan(step, start, xs)[1]

    params = {"embedding": array(vocab, wide), "state": array(wide, wide), "logits": array(wide, vocab)}
    return sample, [params, array(2, dtype=jnp.uint32)]


def lookups(steps: int = 512, batch: int = 256, vocab: int = 32768, wide: int = 512, inside: bool = False) -> Program:
    """A recurrent network over tokens, of which the embeddings are looked up before, or step by step."""

    def forward(params: Any, tokens: jax.Array) -> jax.Array:
        def step(state: jax.Array, x: jax.Array) -> Any:
            x = params["embedding"][x] if inside else x
            state = jnp.tanh(x @ params["input"] + state @ params["state"])
            return state, state.max(-1)

        xs = tokens.T if inside else params["embedding"][tokens.T]
        return lax.scan(step, jnp.zeros((batch, wide)), xs)[1]

    params = {"embedding": array(vocab, wide), "input": array(wide, wide), "state": array(wide, wide)}
    return forward, [params, array(batch, steps, dtype=jnp.int32)]


def dropout(n: int = 8, batch: int = 8192, wide: int = 512, keys: bool = False) -> Program:
    """Layers in a loop, with masks of all layers made before, or a key for each."""

    def mask(key: jax.Array, *shape: int) -> jax.Array:
        return jax.random.bernoulli(key, 0.9, shape) / 0.9

    def masked(x: jax.Array, key: jax.Array) -> jax.Array:
        return x * mask(key, *x.shape)

    def loss(params: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        def layer(x: jax.Array, xs: Any) -> Any:
            w, m = xs
            h = jax.nn.gelu(x @ w["up"])
            h = jax.checkpoint(masked)(h, m) if keys else h * m
            return x + h @ w["down"], None

        masks = jax.random.split(key, n) if keys else mask(key, n, batch, 4 * wide)
        return jnp.mean(lax.scan(layer, x, (params, masks))[0] ** 2)

    def train_step(params: Any, x: jax.Array, key: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, key)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = {"up": array(n, wide, 4 * wide), "down": array(n, 4 * wide, wide)}
    return train_step, [params, array(batch, wide), array(2, dtype=jnp.uint32)]


def microbatches(n: int = 4, batch: int = 24576, wide: int = 512, swapped: bool = False) -> Program:
    """Gradients that a loop accumulates, over parts of a batch of all devices or of each device."""

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        x = batch
        for w in params:
            x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
        return (x**2).mean()

    def accumulated(params: Any, batch: jax.Array) -> Any:
        def add(total: Any, part: jax.Array) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, part)), None

        parts = batch.reshape(-1, n, wide).swapaxes(0, 1) if swapped else batch.reshape(n, -1, wide)
        return lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)[0]

    layer = {"up": array(wide, 4 * wide), "down": array(4 * wide, wide)}
    return accumulated, [[layer] * 4, array(batch, wide)]


def convolutions(batch: int = 64, remat: bool = False) -> Program:
    """Stages of a convolutional network, of which recomputation only costs memory on a TPU."""

    def convolve(x: jax.Array, w: jax.Array, stride: int) -> jax.Array:
        return lax.conv_general_dilated(x, w, (stride,) * 2, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def stage(x: jax.Array, w: Any, stride: int) -> jax.Array:
        x = jax.nn.relu(convolve(x, w[0], stride))
        x = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
        return jax.nn.relu(convolve(x, w[1], 1) + x)

    def loss(params: Any, images: jax.Array) -> jax.Array:
        x = images
        for i, w in enumerate(params):
            with jax.named_scope(f"stage_{i}"):
                body = partial(stage, stride=2 if i else 1)
                x = (jax.checkpoint(body) if remat else body)(x, w)
        return jnp.mean(x**2)

    widths = (3, 64, 128, 256)
    params = [[array(3, 3, a, b), array(3, 3, b, b)] for a, b in pairwise(widths)]
    return trained(loss), [*with_state(params), array(batch, 64, 64, 3)]


# -- programs without a backward pass ------------------------------------------------------------


def decoding(n: int = 3, batch: int = 24, length: int = 2048) -> Program:
    """One step of decoding with a cache, which is written in place if it is donated."""
    wide, heads = 1024, 8

    def decode(params: Any, cache: Any, x: jax.Array, position: jax.Array) -> Any:
        updated = []
        for w, (keys, values) in zip(params, cache, strict=True):
            q, k, v = (jnp.einsum("bd,dhk->bhk", x, w[name]) for name in "qkv")
            keys = lax.dynamic_update_slice(keys, k[:, None], (0, position, 0, 0))
            values = lax.dynamic_update_slice(values, v[:, None], (0, position, 0, 0))
            weights = jax.nn.softmax(jnp.einsum("bhk,bthk->bht", q, keys))
            x = x + jnp.einsum("bht,bthk,hkd->bd", weights, values, w["o"])
            updated.append((keys, values))
        return x, updated

    half = jnp.bfloat16
    shape = (batch, length, heads, wide // heads)
    weights = {name: array(wide, heads, wide // heads, dtype=half) for name in "qkv"}
    params = [weights | {"o": array(heads, wide // heads, wide, dtype=half)} for _ in range(n)]
    cache = [(array(*shape, dtype=half), array(*shape, dtype=half)) for _ in range(n)]
    return decode, [params, cache, array(batch, wide, dtype=half), array(dtype=jnp.int32)]


def cache(n: int = 8, batch: int = 4, length: int = 1024, carried: bool = False) -> Program:
    """One step of decoding by a loop over layers, which stacks the updated caches, or carries and updates all."""
    wide, heads = 1024, 8

    def layer(x: jax.Array, w: Any, cache: Any, position: jax.Array) -> Any:
        q, k, v = (jnp.einsum("bd,dhk->bhk", x, w[name]) for name in "qkv")
        keys = lax.dynamic_update_slice(cache["k"], k[:, None], (0, position, 0, 0))
        values = lax.dynamic_update_slice(cache["v"], v[:, None], (0, position, 0, 0))
        weights = jax.nn.softmax(jnp.einsum("bhk,bthk->bht", q, keys))
        return x + jnp.einsum("bht,bthk,hkd->bd", weights, values, w["o"]), {"k": keys, "v": values}

    def decode(params: Any, caches: Any, x: jax.Array, position: jax.Array) -> Any:
        if not carried:
            return lax.scan(lambda x, xs: layer(x, *xs, position), x, (params, caches))

        def body(carry: Any, xs: Any) -> Any:
            (x, caches), (w, i) = carry, xs
            x, updated = layer(x, w, jax.tree.map(lambda c: c[i], caches), position)
            return (x, jax.tree.map(lambda c, u: c.at[i].set(u), caches, updated)), None

        return lax.scan(body, (x, caches), (params, jnp.arange(n)))[0]

    weights = {name: array(n, wide, heads, wide // heads) for name in "qkv"}
    weights["o"] = array(n, heads, wide // heads, wide)
    caches = {name: array(n, batch, length, heads, wide // heads) for name in "kv"}
    return decode, [weights, caches, array(batch, wide), array(dtype=jnp.int32)]


def averages(n: int = 5, dtype: Any = jnp.float32) -> Program:
    """Moving averages of parameters."""

    def update(averages: Any, params: Any) -> Any:
        return jax.tree.map(lambda a, p: (0.99 * a.astype(p.dtype) + 0.01 * p).astype(a.dtype), averages, params)

    return update, [[array(2048, 4096, dtype=dtype)] * n, [array(2048, 4096)] * n]


def small_arrays(n: int = 250, joined: bool = False) -> Program:
    """Many small arrays, or one."""

    def update(params: Any, x: jax.Array) -> Any:
        if joined:
            return jnp.tanh(params * x), jnp.sum(params * x)
        return [jnp.tanh(p * x) for p in params], sum(jnp.sum(p * x) for p in params)

    return update, [array(n, 96) if joined else [array(96)] * n, array(96)]


def pixels(n: int = 1 << 21, merged: bool = False) -> Program:
    """Three colors, which a TPU pads to four, or one dimension."""

    def brighten(image: jax.Array, other: jax.Array) -> Any:
        return jnp.tanh(image) + other, jnp.sum(other)

    shape = (3 * n,) if merged else (n, 3)
    return brighten, [array(*shape), array(*shape)]


def tables(sparse: bool = False, batch: int = 4096, width: int = 128) -> Program:
    """A recommender: two tables, of which each step reads few rows, with accumulated squares of gradients (Adagrad)."""

    def loss(rows: Any, weights: Any, clicked: jax.Array) -> jax.Array:
        user, item = (jnp.tanh(row @ w) for row, w in zip(rows, weights, strict=True))
        return jnp.mean(jax.nn.softplus(-clicked * (user * item).sum(-1)))

    def read(params: Any, ids: jax.Array) -> Any:
        return [table[ids[:, i]] for i, table in enumerate(params)]

    def updated(table: jax.Array, squares: jax.Array, gradient: jax.Array) -> Any:
        squares = squares + gradient * gradient
        return table - 0.01 * gradient / (jnp.sqrt(squares) + 1e-6), squares

    def step(params: Any, squares: Any, weights: Any, ids: jax.Array, clicked: jax.Array) -> Any:
        if not sparse:
            gradients = jax.grad(lambda params: loss(read(params, ids), weights, clicked))(params)
            return [updated(*each) for each in zip(params, squares, gradients, strict=True)]
        gradients = jax.grad(loss)(read(params, ids), weights, clicked)
        found = []
        for i, (table, square) in enumerate(zip(params, squares, strict=True)):
            rows = updated(table[ids[:, i]], square[ids[:, i]], gradients[i])
            found.append([a.at[ids[:, i]].set(b) for a, b in zip((table, square), rows, strict=True)])
        return found

    params = [array(300_000, width), array(200_000, width)]
    return step, [params, params, [array(width, 64)] * 2, array(batch, 2, dtype=jnp.int32), array(batch)]


def choices(rows: int = 262_144, width: int = 256, batch: int = 512, dropped: bool = False) -> Program:
    """An update of a table that is undone if it is not finite."""

    def update(table: jax.Array, ids: jax.Array, gradients: jax.Array) -> tuple[jax.Array, jax.Array]:
        updated = table.at[ids].add(-0.1 * gradients)
        ok = jnp.isfinite(updated[ids]).all()
        return updated if dropped else jnp.where(ok, updated, table), ok

    return update, [array(rows, width), array(batch, dtype=jnp.int32), array(batch, width)]


def inference(batch: int = 6144, wide: int = 2048) -> Program:
    """A control: donating the input saves nothing, because no output has its size."""

    def forward(weights: Any, x: jax.Array) -> jax.Array:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x.sum(-1)

    return forward, [[array(wide, wide)] * 4, array(batch, wide)]


NOTHING: tuple[dict[str, Any], tuple[int, ...]] = ({}, ())

CASES = {
    "layers": Case(
        layers,
        {
            "base": NOTHING,
            "donate": ({}, (0, 1)),
            "batch": ({"batch": 6144}, ()),
            "recompute": ({"how": "recomputed"}, ()),
            "recompute-loop": ({"how": "recomputed loop"}, ()),
        },
    ),
    "calls": Case(calls, {"base": NOTHING, "recompute": ({"remat": True}, ())}, ("tpu",)),
    "vocabulary": Case(vocabulary, {"base": NOTHING, "loss": ({"chunks": 8}, ())}),
    "attention": Case(
        attention,
        {
            "base": NOTHING,
            "donate": ({}, (0, 1)),
            "batch": ({"batch": 8}, ()),
            "recompute": ({"remat": True}, ()),
            "scan": ({"chunk": 2}, ()),
            "attention": ({"parts": True}, ()),
            "dtype": ({"dtype": jnp.bfloat16}, ()),
        },
    ),
    "recurrent": Case(
        recurrent,
        {
            "base": NOTHING,
            "batch": ({"batch": 256}, ()),
            "recompute": ({"remat": True}, ()),
            "scan": ({"chunk": 16}, ()),
        },
    ),
    "offloaded": Case(offloaded, {"base": NOTHING, "offload": ({"offload": True}, ())}, ("tpu",)),
    "maps": Case(maps, {"base": NOTHING, "reduce": ({"reduced": True}, ())}),
    "states": Case(states, {"base": NOTHING, "reduce": ({"reduced": True}, ())}),
    "rollout": Case(rollout, {"base": NOTHING, "slice": ({"keys": True}, ())}),
    "lookups": Case(lookups, {"base": NOTHING, "slice": ({"inside": True}, ())}),
    "dropout": Case(dropout, {"base": ({}, (0,)), "slice": ({"keys": True}, (0,))}),
    "microbatches": Case(microbatches, {"base": NOTHING, "shard": ({"swapped": True}, ())}, ("tpu",), sharded=1),
    "convolutions": Case(
        convolutions, {"base": NOTHING, "batch": ({"batch": 32}, ()), "recompute": ({"remat": True}, ())}
    ),
    "decoding": Case(decoding, {"base": NOTHING, "donate": ({}, (1,))}),
    "cache": Case(cache, {"base": ({}, (1,)), "carry": ({"carried": True}, (1,))}),
    "undonated_cache": Case(cache, {"base": NOTHING, "carry": ({"carried": True}, (1,))}, ("tpu",)),
    "averages": Case(averages, {"base": NOTHING, "donate": ({}, (0,)), "dtype": ({"dtype": jnp.bfloat16}, ())}),
    "small_arrays": Case(small_arrays, {"base": NOTHING, "slots": ({"joined": True}, ())}, ("tpu",)),
    "tables": Case(tables, {"base": ({}, (0, 1)), "sparse": ({"sparse": True}, (0, 1))}),
    "choices": Case(choices, {"base": ({}, (0,)), "select": ({"dropped": True}, (0,))}),
    "pixels": Case(pixels, {"base": NOTHING, "shape": ({"merged": True}, ())}, ("tpu",)),
    "inference": Case(inference, {"base": NOTHING, "donate": ({}, (1,))}),
}


def placed(arguments: list[Any], platform: str, sharded: int | None) -> list[Any]:
    """Put the arguments on the first device of a platform, or on all if one of them is sharded."""
    if platform == "tpu":
        from jax.experimental import topologies

        devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    else:
        devices = jax.devices()
    mesh = Mesh(np.array(devices[:1] if sharded is None else devices), ("x",))
    where = [NamedSharding(mesh, PartitionSpec(*("x",) * (i == sharded))) for i in range(len(arguments))]
    return [
        jax.tree.map(lambda a, at=at: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=at), argument)
        for argument, at in zip(arguments, where, strict=True)
    ]


def compiled(
    program: Program, donated: tuple[int, ...], platform: str, folder: Path, sharded: int | None = None
) -> None:
    """Leave the dump of a program in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    function, arguments = program
    with tempfile.TemporaryDirectory() as place:
        flags = {"xla_dump_to": place, "xla_dump_hlo_as_text": True}
        lowered = jax.jit(function, donate_argnums=donated).lower(*placed(arguments, platform, sharded))
        lowered.compile(compiler_options=flags)
        for path in Path(place).iterdir():
            if path.name.endswith(KEPT):
                shutil.copy(path, folder)


def store(made: str, out: str) -> None:
    """Compress dumps, without what the tests do not read, into another folder."""
    for path in sorted(Path(made).glob("*/*/*.txt")):
        role, folder = path.name.rpartition("optimizations")[2], Path(out, path.parent.relative_to(made))
        if path.parent.name != "base" and role != "-buffer-assignment.txt":
            continue
        text = path.read_bytes()
        if role == ".txt" and path.parts[-3] not in WHOLE:
            text = text.partition(b"\n}\n")[0] + b"\n}\n"  # up to the first computation
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(text, mtime=0))


def main(platform: str, out: str, *names: str) -> None:
    if platform == "store":
        return store(out, *names)
    for name, case in CASES.items():
        if (names and name not in names) or platform not in case.platforms:
            continue
        for variant, (options, donated) in case.variants.items():
            folder = Path(out, f"{platform}-{name}", variant)
            compiled(case.build(**options), donated, platform, folder, case.sharded)


if __name__ == "__main__":
    main(*sys.argv[1:])
