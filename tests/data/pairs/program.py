"""Training steps and a decoding step of a small transformer, one field of `Config` for each edit in `edits.py`."""

import dataclasses
import functools

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Config:
    batch: int = 8
    times: int = 256
    width: int = 256
    heads: int = 4
    features: int = 1024
    vocabulary: int = 2048
    layers: int = 4
    program: str = "train"
    dtype: str = "float32"
    scan: bool = False
    unroll: int = 1
    remat: bool = False
    saved: str = "nothing"
    optimizer: str = "adam"
    moments: str = "float32"
    donate: bool = True
    activation: str = "gelu"
    logits: bool = False
    aux: bool = False
    loss_chunks: int = 1
    microbatches: int = 1
    project_values_first: bool = False
    f32_scores: bool = False
    dropout: bool = False
    clip: bool = False
    average: bool = False
    frozen: bool = False
    offload: bool = False
    sharded: str = ""
    cache: int = 1024
    cache_returned: bool = True


def normalize(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def attention(x, p, key, c):
    batch, times, width = x.shape
    q, k, v = jnp.split(jnp.einsum("btd,de->bte", x, p["qkv"]), 3, axis=-1)
    q, k, v = (a.reshape(batch, times, c.heads, width // c.heads) for a in (q, k, v))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / 8
    if c.f32_scores:
        scores = scores.astype(jnp.float32)
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    if c.dropout:
        weights = weights * jax.random.bernoulli(key, 0.9, weights.shape)
    out = p["out"].reshape(c.heads, width // c.heads, width)
    if c.project_values_first:
        return jnp.einsum("bhts,bshe->bte", weights, jnp.einsum("bshd,hde->bshe", v, out))
    return jnp.einsum("bthd,hde->bte", jnp.einsum("bhts,bshd->bthd", weights, v), out)


def mlp(x, p, c):
    hidden = getattr(jax.nn, c.activation)(jnp.einsum("btd,df->btf", x, p["up"]))
    return jnp.einsum("btf,fd->btd", hidden, p["down"])


def constrain(x, c):
    if c.sharded in ("", "activations lost"):
        return x
    return jax.lax.with_sharding_constraint(x, jax.sharding.PartitionSpec("data", None, None))


def block(x, p, key, c):
    with jax.named_scope("attention"):
        x = constrain(x + attention(normalize(x, p["norm1"]), p, key, c), c)
    with jax.named_scope("mlp"):
        return constrain(x + mlp(normalize(x, p["norm2"]), p, c), c)


def apply_layers(x, layers, key, c):
    apply = functools.partial(block, c=c)
    if c.remat:
        apply = jax.checkpoint(apply, policy=getattr(jax.checkpoint_policies, f"{c.saved}_saveable"))
    if c.scan:
        return jax.lax.scan(lambda x, p: (apply(x, p, key), None), x, layers, unroll=c.unroll)[0]
    for i, p in enumerate(layers):
        with jax.named_scope(f"layer_{i}"):
            x = apply(x, p, key)
    return x


def cross_entropy(logits, targets):
    logits = logits.astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def chunked_loss(x, head, targets, c):
    def chunk(total, piece):
        x, targets = piece
        return total + cross_entropy(jnp.einsum("btd,dv->btv", x, head), targets) / c.loss_chunks, None

    pieces = [jnp.stack(jnp.split(a, c.loss_chunks, axis=1)) for a in (x, targets)]
    return jax.lax.scan(jax.checkpoint(chunk), jnp.float32(0), tuple(pieces))[0]


def loss(params, tokens, targets, c):
    params = jax.tree.map(lambda p: p.astype(c.dtype), params)
    with jax.named_scope("embed"):
        x = constrain(params["embedding"][tokens], c)
    x = apply_layers(x, params["layers"], jax.random.key(0), c)
    if c.loss_chunks > 1:
        with jax.named_scope("loss"):
            return chunked_loss(x, params["head"], targets, c), ()
    with jax.named_scope("head"):
        logits = jnp.einsum("btd,dv->btv", x, params["head"])
    with jax.named_scope("loss"):
        total = cross_entropy(logits, targets)
    if c.aux:
        with jax.named_scope("aux_loss"):
            total += cross_entropy(jnp.einsum("btd,vd->btv", jnp.tanh(x), params["embedding"]), tokens)
    return total, (logits,) if c.logits else ()


def gradients_of(params, kept, tokens, targets, c):
    grad = jax.value_and_grad(lambda params, *batch: loss(params | kept, *batch, c), has_aux=True)
    if c.microbatches == 1:
        return grad(params, tokens, targets)

    def accumulate(carry, piece):
        (value, _), gradients = grad(params, *piece)
        return jax.tree.map(jnp.add, carry, (value, gradients)), None

    with jax.named_scope("microbatches"):
        pieces = tuple(a.reshape(c.microbatches, -1, c.times) for a in (tokens, targets))
        start = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
        (value, gradients), _ = jax.lax.scan(accumulate, start, pieces)
    return (value, ()), gradients


def clipped(gradients):
    norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda g: g / jnp.maximum(norm, 1), gradients)


def adam(p, g, m, v):
    new_m = 0.9 * m.astype(jnp.float32) + 0.1 * g
    new_v = 0.99 * v.astype(jnp.float32) + 0.01 * g * g
    return p - 1e-3 * new_m / (jnp.sqrt(new_v) + 1e-8), new_m.astype(m.dtype), new_v.astype(v.dtype)


def updated(params, gradients, state, c):
    if c.optimizer == "sgd":
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), state
    moved = jax.tree.map(adam, params, gradients, state["m"], state["v"])
    new, m, v = jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0, 0)), moved)
    return new, {"m": m, "v": v}


def train_step(params, state, tokens, targets, *, c):
    trained = {k: v for k, v in params.items() if not (c.frozen and k == "embedding")}
    kept = {k: v for k, v in params.items() if k not in trained}
    (value, extra), gradients = gradients_of(trained, kept, tokens, targets, c)
    if c.offload:
        state = jax.device_put(state, jax.memory.Space.Device)
    if c.clip:
        with jax.named_scope("clip"):
            gradients = clipped(gradients)
    with jax.named_scope("optimizer"):
        new, moments = updated(trained, gradients, state["adam"], c)
    result = {"adam": moments}
    if c.average:
        with jax.named_scope("average"):
            result["average"] = jax.tree.map(lambda a, p: 0.999 * a + 0.001 * p, state["average"], new)
    if c.offload:
        result = jax.device_put(result, jax.memory.Space.Host)
    return new | kept, result, value, *extra


def decode_step(params, cache, tokens, position, *, c):
    """Append one token to the cache of keys and values and return the logits of the next."""
    params = jax.tree.map(lambda p: p.astype(c.dtype), params)
    x = params["embedding"][tokens]
    new = []
    for i, (p, (keys, values)) in enumerate(zip(params["layers"], cache, strict=True)):
        with jax.named_scope(f"layer_{i}"), jax.named_scope("attention"):
            q, k, v = jnp.split(jnp.einsum("bd,de->be", normalize(x, p["norm1"]), p["qkv"]), 3, axis=-1)
            q, k, v = (a.reshape(c.batch, c.heads, -1) for a in (q, k, v))
            keys = jax.lax.dynamic_update_slice(keys, k[:, None], (0, position, 0, 0))
            values = jax.lax.dynamic_update_slice(values, v[:, None], (0, position, 0, 0))
            weights = jax.nn.softmax(jnp.einsum("bhd,bshd->bhs", q, keys) / 8, axis=-1)
            x = x + jnp.einsum("bhs,bshd->bhd", weights, values).reshape(c.batch, c.width) @ p["out"]
        with jax.named_scope(f"layer_{i}"), jax.named_scope("mlp"):
            x = x + mlp(normalize(x, p["norm2"])[:, None], p, c)[:, 0]
        new.append((keys, values))
    with jax.named_scope("head"):
        return new if c.cache_returned else [], x @ params["head"]


def parameters(c):
    shapes = {"qkv": (c.width, 3 * c.width), "out": (c.width, c.width), "up": (c.width, c.features)}
    shapes |= {"down": (c.features, c.width), "norm1": (c.width,), "norm2": (c.width,)}
    layer = {k: jax.ShapeDtypeStruct(((c.layers,) if c.scan else ()) + s, jnp.float32) for k, s in shapes.items()}
    return {
        "embedding": jax.ShapeDtypeStruct((c.vocabulary, c.width), jnp.float32),
        "layers": layer if c.scan else [layer] * c.layers,
        "head": jax.ShapeDtypeStruct((c.width, c.vocabulary), jnp.float32),
    }


def train_arguments(c):
    params = parameters(c)
    trained = {k: v for k, v in params.items() if not (c.frozen and k == "embedding")}
    moments = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, c.moments), trained)
    state = {"adam": {"m": moments, "v": moments} if c.optimizer == "adam" else {}}
    if c.average:
        state["average"] = trained
    tokens = jax.ShapeDtypeStruct((c.batch, c.times), jnp.int32)
    return params, state, tokens, tokens


def decode_arguments(c):
    part = jax.ShapeDtypeStruct((c.batch, c.cache, c.heads, c.width // c.heads), c.dtype)
    tokens = jax.ShapeDtypeStruct((c.batch,), jnp.int32)
    return parameters(c), [(part, part)] * c.layers, tokens, jax.ShapeDtypeStruct((), jnp.int32)


def step_and_arguments(c):
    """Return the jitted step of a configuration and the shapes of its arguments."""
    if c.program == "decode":
        step, arguments, donated = decode_step, decode_arguments(c), (1,)
    else:
        step, arguments, donated = train_step, train_arguments(c), (0, 1)
    return jax.jit(step, static_argnames="c", donate_argnums=donated if c.donate else ()), arguments
