"""Bytes in unions of address ranges over time, in O(n log n)."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._column import Column

_Ints: TypeAlias = npt.NDArray[np.int64]
_Codes: TypeAlias = npt.NDArray[np.int32]

def covered(
    rows: _Codes,
    group: _Codes,
    start: npt.NDArray[np.signedinteger[Any]],
    end: npt.NDArray[np.signedinteger[Any]],
    offset: _Ints,
    size: _Ints,
    space: _Ints,
    changes: _Ints,
) -> tuple[Column, Column]: ...
def charge(group: _Ints, ids: _Ints, offset: _Ints, size: _Ints) -> tuple[Column, Column]: ...
def inside(
    start: _Ints, end: _Ints, offset: _Ints, size: _Ints, candidate: npt.NDArray[np.uint8], occupied: _Ints
) -> Column: ...
