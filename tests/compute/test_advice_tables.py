"""Advice on gradients of tables, on small programs like ones that were recompiled."""

from __future__ import annotations

import pytest
from advice_programs import Buffer, Make, Row, advice, argument, output, program

BACKWARD = "jit(f)/transpose(jvp())"
GRADIENT = Buffer("scatter.1", "f32[1024,64]", (5, 8), f"{BACKWARD}/scatter-add")
ROWS = Buffer("rows", "f32[16,64]", (4, 5), f"{BACKWARD}/mul", uses="  scatter.1, operand 2")


def step(
    make: Make, *others: Buffer, gradient: Buffer = GRADIENT, rows: Buffer = ROWS, name: str = "table"
) -> list[Row]:
    """Return the advice for a training step that updates a table."""
    table = argument(name, "f32[1024,64]", 0, uses="  new, operand 0")
    update = output("new", "f32[1024,64]", op_name="jit(f)/sub", instruction="fusion(%p.0), kind=kLoop, calls=%f")
    return advice(program(make, [table, rows, gradient, update, *others], "tpu"), "sparse")


def test_a_gradient_of_few_rows(make: Make) -> None:
    """At best, it is gone, and all temporaries with it; at worst, XLA copies the tables."""
    (row,) = step(make)
    size = GRADIENT.size
    assert (row["lower"], row["upper"], row["confidence"]) == (-size, size + ROWS.size, "try")
    assert (row["n_buffers"], row["argument"], row["instruction"]) == (1, "table", "scatter.1")
    assert row["action"].startswith("Gradients such as f32[1024,64] have all rows of a table, of which a step reads")
    assert "at most 16. Differentiate" in row["action"]


@pytest.mark.parametrize(
    ("gradient", "rows"),
    [
        (GRADIENT, ROWS._replace(shape="f32[256,64]")),  # of many rows
        (GRADIENT, ROWS._replace(shape="f32[8]")),  # of unknown ones
        (GRADIENT._replace(shape="f32[64,1024]"), ROWS._replace(shape="f32[16,1024]")),  # of a quarter
        (GRADIENT, ROWS._replace(uses="  other, operand 2")),
        (GRADIENT._replace(op_name=f"{BACKWARD}/dot_general"), ROWS),  # of another operation
        (GRADIENT._replace(op_name="jit(f)/jvp()/scatter-add"), ROWS),  # of the forward pass
        (GRADIENT._replace(shape="f32[1000,64]"), ROWS),  # of activations, such as labels
    ],
)
def test_other_arrays_are_no_gradients_of_few_rows(gradient: Buffer, rows: Buffer, make: Make) -> None:
    assert step(make, gradient=gradient, rows=rows) == []


@pytest.mark.parametrize(("shape", "n"), [("f32[64,1024]", 0), ("f32[1024,64]", 0), ("f32[1024,32]", 1)])
def test_a_table_that_logits_are_computed_with(shape: str, n: int, make: Make) -> None:
    """Its gradient has all rows anyway."""
    assert len(step(make, Buffer("dot.1", shape, (5, 8), f"{BACKWARD}/dot_general"))) == n


def test_several_gradients_of_a_table(make: Make) -> None:
    """Zeros, and a copy, are part of it. If one adds up many rows, there is no advice."""
    zeros = Buffer("broadcast.1", GRADIENT.shape, (5, 8), GRADIENT.op_name)
    (row,) = step(make, zeros)
    assert (row["n_buffers"], row["lower"], row["upper"]) == (2, -2 * GRADIENT.size, 2 * GRADIENT.size + ROWS.size)
    few = ROWS._replace(name="few", shape="f32[8,64]", uses="  scatter.2, operand 2")
    (row,) = step(make, GRADIENT._replace(name="scatter.2"), few)
    assert "at most 16. Differentiate" in row["action"]
    many = ROWS._replace(name="many", shape="f32[512,64]", uses="  scatter.2, operand 2")
    assert step(make, GRADIENT._replace(name="scatter.2"), many) == []


@pytest.mark.parametrize(("name", "found"), [("opt[0].mu", "opt"), ("", None)])
def test_the_argument_of_a_table(name: str, found: str | None, make: Make) -> None:
    """No name if there is none, or if arrays of several arguments have these dimensions."""
    (row,) = step(make, name=name)
    assert row["argument"] == found
    (row,) = step(make, argument("other", "f32[1024,64]", 1))
    assert row["argument"] is None
