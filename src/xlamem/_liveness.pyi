"""The section HloLiveRange: schedule, live ranges, XLA's own peak list and its stack tree."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ._column import Column, Names

_Text: TypeAlias = tuple[Column, Column, Column]
_Codes: TypeAlias = npt.NDArray[np.int32]

NONE: int
SCHEDULE: int
RANGES: int
PEAK: int
TREE: int

FEATURES: dict[int, str]
GAP_TABLES: tuple[str, ...]

def scan(
    data: Buffer, begin: int, end: int, inside: int, names: Names, indices: Names, *, ordinal: int = 0, node: int = 0
) -> tuple[dict[str, dict[str, Column | _Text]], Column, int, int, int, int, int, tuple[int, int, int]]: ...
def match(
    instructions: _Codes,
    indices: _Codes,
    ids: npt.NDArray[np.int64],
    order: _Codes,
    range_instructions: _Codes,
    range_indices: _Codes,
    array_index: int,
) -> tuple[Column, Column]: ...
