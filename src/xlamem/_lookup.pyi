"""What is known across the spans of a dump read piece by piece, as places in its files instead of text."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

from ._column import Column, Names

_Places = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.int32]

NEW: int
REPEAT: int
OTHER: int

def find(data: Buffer, begin: int, end: int, text: Buffer) -> int: ...
@disjoint_base
class Files:
    """The texts of a dump's files, by number; they must stay as they are as long as this lives."""

    def __new__(cls, texts: Sequence[Buffer]) -> Self: ...
    def names(self, records: _Places) -> Column: ...
    def same_names(self, names: _Places, others: _Places) -> Column: ...

@disjoint_base
class Texts:
    """The distinct instructions `%NAME = …` seen so far."""

    def __new__(cls, files: Files) -> Self: ...
    def __len__(self) -> int: ...
    def add(self, begins: _Places, ends: _Places) -> Column: ...

@disjoint_base
class Values:
    """The dump's values by name and index: `places` of their names, in ascending order of their ids."""

    def __new__(cls, files: Files, places: _Places) -> Self: ...
    def match(self, names: Names, indices: Names, instructions: _Codes, shape_indices: _Codes) -> Column: ...
