"""Names that several scans met, each with codes of its own, become those of the dump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._column import Names, recode
from .arrow import POOL_OF, Codes, Pool
from .threads import Crew, Task

LOOK_UP = 1 << 14
"""Fewest names that are looked up by one thread."""


Found = tuple[Any, list[Names]]
"""What a scan gave, and the names that its codes are those of."""


def merged(crew: Crew, pools: Sequence[Pool], meanings: Sequence[str], found: Sequence[Found]) -> list[Any]:
    """What the scans gave, with the codes of these pools.

    The names of one scan go in after those of the other, so that codes do not depend on the threads.
    """
    recoding: list[Task[None]] = []
    for result, own in found:
        maps: dict[str, tuple[Codes, int]] = {}
        for meaning, pool, theirs in zip(meanings, pools, own, strict=True):
            ours = pool.names
            if ours.adopt(theirs):
                continue
            n = len(theirs) - theirs.n_base
            place = np.empty(n, np.int32)
            step = max(LOOK_UP, n // crew.threads + 1)
            ranges = [(begin, min(begin + step, n)) for begin in range(0, n, step)]
            crew.results([crew.begin(partial(ours.look_up, theirs, place, *r)) for r in ranges])
            if not ours.add(theirs, place):
                maps[meaning] = place, theirs.n_base
        if maps:
            recoding.append(crew.begin(partial(_recode, result[0], maps)))
    crew.results(recoding)
    return [result for result, _ in found]


def _recode(tables: Mapping[str, Mapping[str, Any]], maps: Mapping[str, tuple[Codes, int]]) -> None:
    """The codes of one span in its columns to those of the dump."""
    for columns in tables.values():
        for name, column in columns.items():
            pool = POOL_OF.get(name, name)
            if pool in maps and not isinstance(column, tuple):
                recode(column, *maps[pool])
