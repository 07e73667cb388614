"""Unknown text in known lines: the column `attributes`, and the kinds of such text."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ._column import Column, Names

_Ints = npt.NDArray[np.int64]

def kinds(data: Buffer, gaps: _Ints, words: Names) -> Column: ...
def attributes(data: Buffer, gaps: _Ints, n: int) -> tuple[Column, Column, Column]: ...
def line_ends(data: Buffer, begins: _Ints) -> Column: ...
