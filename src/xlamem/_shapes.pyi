"""Shape texts: element type and bytes without padding, once for each distinct shape."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ._column import Column, Names

def sizes(data: Buffer, ends: npt.NDArray[np.int64], types: Names) -> tuple[Column, Column]: ...
