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
