"""Place blocks of values in an arena: each at the first or the best gap that its live ranges leave."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ._column import Column

_Ints: TypeAlias = npt.NDArray[np.int64]

def blocks(start: _Ints, end: _Ints, position: _Ints, size: _Ints) -> Column: ...
def place(
    order: npt.NDArray[np.int32],
    first: _Ints,
    start: _Ints,
    end: _Ints,
    offset: _Ints,
    size: _Ints,
    best_fit: bool,
) -> Column: ...
