"""The section Used values: positions, uses and the instructions that define them."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ._column import Column, Names

_Text: TypeAlias = tuple[Column, Column, Column]
_Offsets: TypeAlias = npt.NDArray[np.int64]

FEATURES: dict[int, str]
TREE_BITS: int
POOLS: tuple[str, ...]
GAP_TABLES: tuple[str, ...]

def scan(
    data: Buffer, begin: int, end: int, pools: tuple[Names, ...], demand: bool, last: bool
) -> tuple[dict[str, dict[str, Column | _Text]], Column, int, int]: ...
def texts(data: Buffer, begins: _Offsets, ends: _Offsets) -> _Text: ...
def line_starts(data: Buffer, offsets: _Offsets) -> Column: ...
def same(
    data: Buffer, begins: _Offsets, ends: _Offsets, others: Buffer, other_begins: _Offsets, other_ends: _Offsets
) -> Column: ...
