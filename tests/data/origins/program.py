"""Compiles the training steps whose dumps lie beside this file: `python program.py OUT` (needs jax and libtpu).

The dimensions tell where a buffer belongs: only `mlp` has FEATURES, only `attention` has two TIMES or HEADS, only
`unembed` has VOCABULARY.
"""

import os
import sys
from pathlib import Path

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4", "TPU_WORKER_HOSTNAMES": "localhost"}
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BATCH, TIMES, WIDTH, HEADS, FEATURES, VOCABULARY, LAYERS, EXPERTS = 4, 96, 128, 2, 640, 1152, 5, 3
SHAPES = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, FEATURES), "down": (FEATURES, WIDTH)}


def attention(x, p):
    q, k, v = jnp.split(jnp.einsum("btd,de->bte", x, p["qkv"]), 3, axis=-1)
    q, k, v = (a.reshape(BATCH, TIMES, HEADS, WIDTH // HEADS) for a in (q, k, v))
    scores = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 8, axis=-1)
    mixed = jnp.einsum("bhts,bshd->bthd", scores, v).reshape(BATCH, TIMES, WIDTH)
    return jnp.einsum("btd,de->bte", mixed, p["out"])


def mlp(x, p):
    return jnp.einsum("btf,fd->btd", jnp.tanh(jnp.einsum("btd,df->btf", x, p["up"])), p["down"])


def experts(x, p):
    gates = jax.nn.softmax(jnp.einsum("btd,dn->btn", x, p["gate"]), axis=-1)
    hidden = jnp.tanh(jnp.einsum("btd,ndf->btnf", x, p["up"]))
    return jnp.einsum("btn,btnf,nfd->btd", gates, hidden, p["down"])


def block(x, p):
    with jax.named_scope("attention"):
        x = x + attention(x, p)
    with jax.named_scope("mlp"):
        return x + (experts if "gate" in p else mlp)(x, p)


def forward(params, tokens, scan, remat):
    x = params["embedding"][tokens]
    apply = jax.checkpoint(block) if remat else block
    if scan:
        x, _ = jax.lax.scan(lambda x, p: (apply(x, p), None), x, params["layers"])
    else:
        for i, p in enumerate(params["layers"]):
            with jax.named_scope(f"layer_{i}"):
                x = apply(x, p)
    with jax.named_scope("unembed"):
        return jnp.einsum("btd,dv->btv", x, params["unembedding"])


def step(scan, remat, dtype):
    def loss(params, tokens, targets):
        params = jax.tree.map(lambda p: p.astype(dtype), params)
        logits = model(scan)(params, tokens, scan, remat).astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()

    def train_step(params, tokens, targets):
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), value

    return train_step


def arguments(scan, moe):
    experts = {k: (EXPERTS, *SHAPES[k]) for k in ("up", "down")} | {"gate": (WIDTH, EXPERTS)}
    shapes = SHAPES | experts if moe else SHAPES
    layer = {k: jax.ShapeDtypeStruct(((LAYERS,) if scan else ()) + s, jnp.float32) for k, s in shapes.items()}
    params = {
        "embedding": jax.ShapeDtypeStruct((VOCABULARY, WIDTH), jnp.float32),
        "layers": layer if scan else [layer] * LAYERS,
        "unembedding": jax.ShapeDtypeStruct((WIDTH, VOCABULARY), jnp.float32),
    }
    tokens = jax.ShapeDtypeStruct((BATCH, TIMES), jnp.int32)
    return params, tokens, tokens


def placed(args, platform, sharded):
    """Return the arguments on one device, or the batch on one axis of the mesh and the last dimensions on the other."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name=platform).devices
    mesh = Mesh(np.array(devices if sharded else devices[:1]).reshape(2 if sharded else 1, -1), ("batch", "model"))

    def place(s, *names):
        sharding = NamedSharding(mesh, PartitionSpec(*names) if sharded else PartitionSpec())
        return jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding)

    params, *tokens = args
    by_model = jax.tree.map(lambda s: place(s, *[None] * (s.ndim - 1), "model"), params)
    return by_model, *(place(s, "batch") for s in tokens)


def compile_to(folder, platform, *, scan=False, remat=False, dtype=jnp.float32, moe=False, sharded=False, donate=()):
    args = arguments(scan, moe)
    if platform != "cpu":
        args = placed(args, platform, sharded)
    options = {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True}
    jax.jit(step(scan, remat, dtype), donate_argnums=donate).lower(*args).compile(compiler_options=options)


def model(scan):
    """Return the forward pass, in a scope if the variant says so. The lines above are those of the stored dumps."""
    return jax.named_scope("model")(forward) if scan == "in a scope" else forward


VARIANTS = {
    "scan": {"scan": True},
    "scan-in-a-scope": {"scan": "in a scope"},
    "unrolled": {},
    "scan-remat": {"scan": True, "remat": True},
    "scan-bf16-donated": {"scan": True, "dtype": jnp.bfloat16, "donate": (0,)},
    "unrolled-moe": {"moe": True},
    "unrolled-sharded": {"sharded": True},
}

if __name__ == "__main__":
    for platform in ("cpu", "v5e:2x2"):
        for name, options in VARIANTS.items():
            if platform != "cpu" or not options.get("sharded"):
                compile_to(Path(sys.argv[1], f"{platform.split(':')[0]}-{name}"), platform, **options)
