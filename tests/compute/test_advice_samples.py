"""Advice to compute the gradients of samples in chunks, on small programs like ones that were recompiled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from advice_programs import Buffer, Make, Row, advice, argument, output, program

from xlamem.compute.advice import sample_gradients

PER_SAMPLE = "jit(f)/vmap(transpose(jvp()))"
X = argument("x", "f32[16,64]", 0)
W = argument("w", "f32[32,24]", 1)._replace(
    allocation="parameter 1, shape |f32[32,24]| at ShapeIndex {}, maybe-live-out:"
)
H = Buffer("h", "f32[16,400]", (1, 6), "jit(f)/vmap(jvp())/tanh")
G = Buffer("g", "f32[16,32,24]", (4, 8), f"{PER_SAMPLE}/dot_general")


def chunks(make: Make, *buffers: Buffer, platform: str = "gpu") -> list[Row]:
    return [r for r in advice(program(make, buffers, platform), "scan") if r["argument"]]


def test_gradients_of_samples(make: Make) -> None:
    """Clipped gradients of each of 256 images took most of 21 GiB; 8 chunks needed 4."""
    (row,) = chunks(make, X, W, H, G)
    assert row["action"] == (
        "Each of the 16 samples of `x` has its own gradients, such as f32[16,32,24]. Compute those of 2 samples at a "
        "time: jax.lax.scan over 8 chunks, with what is added up over the samples in the carry, such as clipped "
        "gradients."
    )
    best = G.size + H.size - (G.size + H.size) // 8
    assert row["lower"] == int(0.7 * (best - W.size))
    assert row["upper"] == min(int(1.1 * best), G.size + H.size)
    assert (row["argument"], row["parameter"], row["n_buffers"], row["confidence"]) == ("x", 0, 2, "likely")


@pytest.mark.parametrize(
    ("shape", "op_name", "n"),
    [
        ("f32[32,16,24]", f"{PER_SAMPLE}/dot_general", 1), ("bf16[24,16,32]", f"{PER_SAMPLE}/mul", 1),
        ("f32[16,32,24]", "jit(f)/transpose(jvp(vmap()))/dot_general", 0), ("f32[16,32,25]", f"{PER_SAMPLE}/mul", 0),
        ("f32[8,32,24]", f"{PER_SAMPLE}/mul", 0), ("f32[16,32]", f"{PER_SAMPLE}/mul", 0),
        ("f32[16,32,24]", f"jit(f)/jvp({PER_SAMPLE[7:]})/mul", 1),
    ],
)  # fmt: skip
def test_what_is_a_gradient_of_a_sample(shape: str, op_name: str, n: int, make: Make) -> None:
    """It has the dimensions of what is updated and of the samples. Activations of 32 positions may have them, too."""
    assert len(chunks(make, X, W, H, G._replace(shape=shape, op_name=op_name))) == n


def test_the_argument_whose_chunks_save_most_for_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = [(1, 9), (3, 4), (3, 5), (2, 7)]
    monkeypatch.setattr(sample_gradients, "batches_of", lambda a: bounds)
    monkeypatch.setattr(
        sample_gradients, "_in_chunks", lambda a, batch, computed: [SimpleNamespace(lower=batch[0], upper=batch[1])]
    )
    a: Any = SimpleNamespace(
        op_names=pa.array([f"{PER_SAMPLE}/mul"]), op_codes=np.zeros(1, np.int64), w=SimpleNamespace(in_arena=True)
    )
    (found,) = sample_gradients.gradients_of_samples(a)
    assert (found.lower, found.upper) == (3, 5)


def test_gradients_of_samples_without_temporaries(make: Make) -> None:
    """A fusion computes them in the output."""
    x, w = argument("x", "f32[64,32]", 1), argument("w", "f32[16]", 0)
    assert not chunks(make, x, w, output("o", "f32[64,16]", op_name=f"{PER_SAMPLE}/mul"), platform="cpu")


def test_gradients_of_samples_at_other_steps(make: Make) -> None:
    """The peak may be at the logits, which the chunks split as well."""
    logits = Buffer("l", "f32[16,2048]", (2, 3), "jit(f)/vmap(jvp())/dot_general")
    (row,) = chunks(make, X, W, H, G, logits)
    assert row["instruction"] == "l"


@pytest.mark.parametrize(("more", "n"), [(0, 1), (1, 0)])
def test_small_gradients_of_samples(more: int, n: int, make: Make) -> None:
    """Below a tenth of the temporaries."""
    other = Buffer("o", f"f32[{9 * G.size // 4 + more}]")
    assert len(chunks(make, X, W, H._replace(live=(1, 2)), G, other)) == n


@pytest.mark.parametrize(
    ("other", "n"),
    [
        (output("y", "f32[16,32,24]"), 0), (output("y", "f32[32,24]"), 1),
        (Buffer("k", "f32[16,16]", (8, 9), "jit(f)/dot_general"), 0),
        (Buffer("k", "f32[16,16,2]", (8, 9), "jit(f)/dot_general"), 1),
        (Buffer("s", "f32[16,32,24]", (8, 9), "jit(f)/sort"), 0), (Buffer("s", "f32[16,64]", (8, 9), "jit(f)/sort"), 1),
        (Buffer("s", "f32[16,32,24]", (8, 9), "jit(f)/mul"), 1),
    ],
)  # fmt: skip
def test_what_needs_the_gradients_of_all_samples(other: Buffer, n: int, make: Make) -> None:
    """The program returns them, compares all pairs, or computes a median."""
    assert len(chunks(make, X, W, H, G, other)) == n


@pytest.mark.parametrize(("features", "n"), [(16, 1), (8, 0)])
def test_as_many_samples_as_features(features: int, n: int, make: Make) -> None:
    """The gradients of a bias have both dimensions then, as a matrix of all pairs of samples has."""
    w, g = (b._replace(shape=b.shape.replace("24", str(features))) for b in (W, G))
    w = w._replace(allocation=w.allocation.replace("24", str(features)))
    bias = Buffer("k", "f32[16,16]", (8, 9), f"{PER_SAMPLE}/reduce_sum")
    assert len(chunks(make, X, w, H, g, bias)) == n


def test_the_argument_whose_samples_have_the_largest_gradients(make: Make) -> None:
    few, many = argument("a", "f32[12,64]", 0), argument("b", "f32[16,64]", 2)
    (row,) = chunks(make, few, W, many, H, G, G._replace(name="f", shape="f32[12,32,24]"))
    assert row["argument"] == "b"


def test_what_is_added_up_is_only_needed_while_the_loop_runs(make: Make) -> None:
    later = Buffer("later", "f32[4000]", (9, 9), "jit(f)/sort")
    (row,) = chunks(make, X, W, H, G, later)
    assert row["lower"] == int(0.7 * (G.size + H.size - later.size))


@pytest.mark.parametrize(("samples", "n"), [(16, 8), (12, 6), (14, 7), (22, 2)])
def test_the_number_of_chunks(samples: int, n: int, make: Make) -> None:
    x, h, g = (b._replace(shape=b.shape.replace("16", str(samples))) for b in (X, H, G))
    (row,) = chunks(make, x, W, h, g)
    assert f"jax.lax.scan over {n} chunks" in row["action"]


def test_what_is_rematerialized_may_be_kept_in_chunks(make: Make) -> None:
    """Where XLA computes some of them later, the clones may stay as long as their originals would."""
    clone = Buffer("c.remat", "f32[16,32,24]", (9, 9), f"{PER_SAMPLE}/mul")
    (row,) = chunks(make, X, W, H, G, clone)
    (other,) = chunks(make, X, W, H, G, clone._replace(name="c"))
    assert abs(row["lower"] - (other["lower"] - int(0.7 * clone.size / 8))) <= 1


def test_other_members_of_an_ensemble_are_no_samples(make: Make) -> None:
    """All of them have their own weights."""
    w = W._replace(shape="f32[16,32,24]", allocation=W.allocation.replace("[32", "[16,32"))
    assert chunks(make, X, w, H, G) == []
