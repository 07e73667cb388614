"""Cross-checks of columns, each in one pass without temporary arrays."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ._column import Column

_Ints: TypeAlias = npt.NDArray[np.int64]
_Codes: TypeAlias = npt.NDArray[np.int32]
_Bools: TypeAlias = npt.NDArray[np.uint8]

def beyond(capacity: _Ints, owner: _Ints, offset: _Ints, size: _Ints) -> Column: ...
def agree(
    order: _Codes,
    values: tuple[_Codes, _Codes, _Bools, _Ints, _Ints],
    records: tuple[_Codes, _Codes, _Bools, _Ints, _Ints],
    first: int,
) -> bool: ...
def live_at(step: int, owner: _Codes, start: _Ints, end: _Ints, full: _Bools, seen: _Bools) -> int: ...
def unseen(wanted: _Bools, owner: _Ints, seen: _Bools) -> Column: ...
def first_gap(values: _Ints, first: int) -> int: ...
