"""Advice on shapes with padding, on small programs."""

from __future__ import annotations

import pytest
from advice_programs import Buffer, Make, advice, argument, program


class Padded(Buffer):
    """A buffer that its layout makes twice as large."""

    @property
    def size(self) -> int:
        return 2 * super().size


@pytest.mark.parametrize(("is_argument", "scope"), [(False, "layer_*"), (True, "w['up']")])
def test_a_padded_shape_has_the_name_of_its_place(is_argument: bool, scope: str, make: Make) -> None:
    """Of most buffers, not of one that the compiler adds; or of an argument, which others are computed from."""
    shape = "f32[64,64]{1,0:T(8,128)}"
    buffers = [Padded("fusion.9", shape)]
    buffers += [Padded(f"fusion.{i}", shape, op_name=f"jit(f)/layer_{i}/mul") for i in range(2)]
    if is_argument:
        buffers.append(Padded(*argument("w['up']", shape, 0)))
    (row,) = advice(program(make, buffers, "tpu"), "shape")
    assert (row["scope"], row["n_buffers"]) == (scope, len(buffers))
    assert row["instruction"] == ("p.0" if is_argument else "fusion.0")


def test_values_of_the_same_shape_without_padding_do_not_count(make: Make) -> None:
    """XLA may say that they have no more bytes than their elements."""
    shape = "f32[64,64]{1,0:T(8,128)}"
    buffers = [Padded("fusion.0", shape), Buffer("fusion.1", shape), Padded("fusion.2", shape)]
    (row,) = advice(program(make, buffers, "tpu"), "shape")
    assert (row["n_buffers"], row["bytes"]) == (2, buffers[0].size + buffers[2].size)
    assert "makes f32[64,64] 2.0 times as large" in row["action"]
    assert not advice(program(make, buffers[1:2], "tpu"), "shape")
