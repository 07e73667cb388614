"""Bytes in unions of address ranges over time: what NumPy cannot do in O(n log n)."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ._column import Column

_Ints: TypeAlias = npt.NDArray[np.int64]

def covered(
    group: _Ints, start: _Ints, end: _Ints, offset: _Ints, size: _Ints, space: _Ints, n_spaces: int, steps: int
) -> tuple[Column, Column]: ...
def charge(group: _Ints, ids: _Ints, offset: _Ints, size: _Ints) -> tuple[Column, Column]: ...
def inside(
    start: _Ints, end: _Ints, offset: _Ints, size: _Ints, candidate: npt.NDArray[np.uint8], occupied: _Ints
) -> Column: ...
