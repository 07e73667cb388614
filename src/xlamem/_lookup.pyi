"""The instructions and values of a dump that is read span by span, as locations in its files instead of text."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

from ._column import Column, Names

_Locations = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.int32]

NEW: int
REPEAT: int
OTHER: int

def find(data: Buffer, begin: int, end: int, text: Buffer) -> int: ...
@disjoint_base
class Files:
    """The texts of a dump's files, by number. They must not change while this object exists."""

    def __new__(cls, texts: Sequence[Buffer]) -> Self: ...
    def names(self, records: _Locations) -> Column: ...
    def same_names(self, names: _Locations, others: _Locations) -> Column: ...

@disjoint_base
class Texts:
    """The distinct instructions `%NAME = …` so far."""

    def __new__(cls, files: Files) -> Self: ...
    def __len__(self) -> int: ...
    def add(self, begins: _Locations, ends: _Locations) -> Column: ...

@disjoint_base
class Values:
    """The dump's values by name and index. `locations` are those of their names, in ascending order of the ids."""

    def __new__(cls, files: Files, locations: _Locations) -> Self: ...
    def match(self, names: Names, indices: Names, instructions: _Codes, shape_indices: _Codes) -> Column: ...
