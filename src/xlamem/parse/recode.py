"""Merges the interners of independently scanned spans and recodes their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._column import Names, recode
from .arrays import INTERNER_OF, Codes
from .batch import Batch
from .interners import Interners
from .threads import Task, ThreadPool

LOOK_UP_NAMES = 1 << 14
"""Minimum number of names that one thread looks up."""

Scanned = tuple[Batch, list[Names]]
"""A batch and the native interners that its codes refer to."""


def merge(pool: ThreadPool, interners: Interners, meanings: Sequence[str], scanned: Iterable[Scanned]) -> list[Batch]:
    """Recode batches to `interners`. Names are added span by span, so codes do not depend on the threads."""
    tasks: list[Task[None]] = []
    batches: list[Batch] = []
    for batch, names in scanned:
        batches.append(batch)
        maps: dict[str, tuple[Codes, int]] = {}
        for meaning, source in zip(meanings, names, strict=True):
            target = interners[meaning].names
            if target.adopt(source):
                continue
            n = len(source) - source.n_base
            code_map = np.empty(n, np.int32)
            step = max(LOOK_UP_NAMES, n // pool.threads + 1)
            if n > step:
                ranges = [(begin, min(begin + step, n)) for begin in range(0, n, step)]
                pool.run([pool.submit(partial(target.look_up, source, code_map, *r)) for r in ranges])
            else:  # a job costs more than it takes
                target.look_up(source, code_map, 0, n)
            if not target.add(source, code_map):
                maps[meaning] = code_map, source.n_base
        if maps:
            tasks.append(pool.submit(partial(_recode, batch.tables, maps)))
    pool.run(tasks)
    return batches


def _recode(tables: Mapping[str, Mapping[str, Any]], maps: Mapping[str, tuple[Codes, int]]) -> None:
    for columns in tables.values():
        for name, column in columns.items():
            meaning = INTERNER_OF.get(name, name)
            if meaning in maps and not isinstance(column, tuple):
                recode(column, *maps[meaning])
