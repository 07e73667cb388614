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


@pytest.mark.parametrize(("more", "text"), [(4, "4 % larger"), (9, "9 % larger"), (10, "1.1 times as large")])
def test_how_much_larger_an_array_is(more: int, text: str, make: Make) -> None:
    class Larger(Buffer):
        @property
        def size(self) -> int:
            return super().size * (100 + more) // 100

    (row,) = advice(program(make, [Larger("fusion.0", "f32[64,100]{1,0:T(8,128)}")], "tpu"), "shape")
    assert f"makes f32[64,100] {text}" in row["action"]
