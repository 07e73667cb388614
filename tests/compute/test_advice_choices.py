"""Advice on choices between a donated array and the one that replaces it, on small programs like recompiled ones."""

from __future__ import annotations

import pytest
from advice_programs import Buffer, Make, Row, advice, argument, program

SHAPE = "f32[1024,64]"
SIZE = 4 * 1024 * 64
TABLE = argument("table", SHAPE, 0, uses="  new, operand 1")
DONATED = TABLE._replace(allocation=f"parameter 0, shape |{SHAPE}| at ShapeIndex {{}}, maybe-live-out:", live=(0, 8))
COPY = Buffer("copy.1", SHAPE, (2, 4), instruction="copy(%p.0)", uses="  scatter.1, operand 0")
WRITTEN = Buffer("scatter.1", SHAPE, (4, 8), "jit(f)/scatter-add", slot_of="copy.1", uses="  new, operand 0")
NEW = Buffer("new", SHAPE, (8, 10), "jit(f)/jit(_where)/select_n", "fusion(%scatter.1, %p.0)", slot_of="p.0")
OTHER = Buffer("other", "f32[256,64]", (3, 3))


def chosen(
    make: Make, *others: Buffer, table: Buffer = DONATED, written: Buffer = WRITTEN, new: Buffer = NEW, on: str = "tpu"
) -> list[Row]:
    """Return the advice for an update that a program takes back if it is not finite."""
    return advice(program(make, [table, COPY, written, new, OTHER, *others], on), "select")


def test_a_choice_between_a_donated_array_and_its_update(make: Make) -> None:
    """Without it, neither the copy of the array is needed nor what is written over it."""
    (row,) = chosen(make)
    saved = SIZE  # the other buffer of a quarter of its size is left
    assert 0.4 * saved < row["lower"] <= 0.75 * saved
    assert 1.05 * saved <= row["upper"] <= 1.2 * saved
    assert (row["confidence"], row["n_buffers"], row["bytes"]) == ("likely", 1, SIZE)
    assert (row["argument"], row["parameter"], row["instruction"]) == ("table", 0, "copy.1")
    assert row["action"].startswith("`select_n` chooses between `table`, which is donated, and the array that replaces")
    assert "optimization_barrier" in row["action"]


def test_what_is_written_last_is_named(make: Make) -> None:
    """Where a scatter writes over the copy, both are live."""
    (row,) = chosen(make, Buffer("larger", "f32[512,64]", (4, 4)))
    assert (row["instruction"], row["n_buffers"], row["bytes"]) == ("scatter.1", 1, SIZE)


@pytest.mark.parametrize("on", ["cpu", "gpu"])
def test_other_compilers_may_copy_the_array_even_so(on: str, make: Make) -> None:
    (row,) = chosen(make, on=on)
    assert (row["lower"], row["confidence"]) == (0, "try")
    assert row["upper"] == int(1.05 * SIZE)
    assert "optimization_barrier" not in row["action"]


@pytest.mark.parametrize(
    "changed",
    [
        {"table": TABLE},  # not donated
        {"table": DONATED._replace(uses="  other, operand 0")},  # the choice does not read it
        {"new": NEW._replace(op_name="jit(f)/add")},  # no choice
        {"written": WRITTEN._replace(op_name="jit(f)/mul")},  # all of it is computed
        {"written": WRITTEN._replace(uses="  other, operand 0")},  # the choice does not read it
        {"written": WRITTEN._replace(shape="f32[512,64]")},  # a part
    ],
)
def test_other_arrays_are_no_such_choices(changed: dict[str, Buffer], make: Make) -> None:
    assert chosen(make, **changed) == []


def test_several_arrays_of_an_argument(make: Make) -> None:
    """They are one row, with the line of the largest choice."""
    second = [
        argument("table[1]", SHAPE, 1, uses="  new.2, operand 1")._replace(
            allocation=f"parameter 1, shape |{SHAPE}| at ShapeIndex {{}}, maybe-live-out:", live=(0, 8)
        ),
        Buffer("scatter.2", SHAPE, (4, 8), "jit(f)/vmap()/scatter", uses="  new.2, operand 0"),
        Buffer("new.2", SHAPE, (8, 10), "jit(f)/jit(_where)/select_n", slot_of="p.1"),
    ]
    (row,) = chosen(make, *second)
    assert (row["n_buffers"], row["bytes"], row["parameter"]) == (2, 2 * SIZE, 0)
