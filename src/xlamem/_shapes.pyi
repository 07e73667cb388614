"""Element type and unpadded bytes of distinct shapes."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ._column import Column, Names

def sizes(data: Buffer, ends: npt.NDArray[np.int64], types: Names) -> tuple[Column, Column]: ...
