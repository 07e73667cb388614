"""Kill what writes to a dataset at a given write, in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from xlamem.warehouse.storage import Storage

WRITES = ("create", "sync", "publish", "write", "delete")
"""The methods of `Storage` that change files: a ledger entry, new files, their names, small files, deletions."""


class Stop(BaseException):
    """As a kill, but in this process."""


ALL_WRITES = tuple((Storage, name) for name in WRITES)


def killed(
    call: Callable[[], object], write: int, when: str, methods: Iterable[tuple[Any, str]] = ALL_WRITES
) -> str:
    """Call until the given write; stop "before" or "after" it. Return its method; "" if there was no such write.

    `methods` are those that write, with their classes.
    """
    writes = itertools.count()
    last = ""

    def dying(name: str, method: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal last
            n = next(writes)
            if n <= write:
                last = name
            if n > write or (n == write and when == "before"):
                raise Stop
            result = method(*args, **options)
            if n == write:
                raise Stop
            return result

        return run

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in methods:
            patch.setattr(owner, name, dying(name, getattr(owner, name)))
        try:
            call()
        except Stop:
            return last
    return ""
