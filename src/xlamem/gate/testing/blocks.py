"""The fixture `xla_memory`: what a block of a test compiles, as numbers that can be compared."""

from __future__ import annotations

from types import TracebackType

import pytest

from ...compare.doubts import doubt_of_numbers, doubt_of_peak
from ...compute.program import program
from ...dump import Dump
from ...errors import UsageError, XlaMemError
from ...formatting import exact_size, wrap
from .. import hook
from ..capture import Capture
from ..entry import bill_lines, peak_of
from ..programs import program_name
from .records import Record, Row, record_of

RECORD = pytest.StashKey[Record]()
"""What was measured in a test."""
WIDTH = 76
AHEAD_OF_TIME = (
    "xla_memory calls jax.clear_caches() first, so that JAX compiles again what it has compiled before, but not what "
    "was compiled ahead of time (.lower(…).compile()): call the function from jax.jit"
)
"""What to do if nothing is captured."""


class XlaMemory:
    """What the fixture returns: a call starts a block."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __call__(self, *, match: str = "*") -> Block:
        """Return a block that captures the programs with such names."""
        return Block(self._item, match)


class Block(Capture):
    """The programs that JAX compiles in a block of a test, helpers included, and their sizes."""

    _way_out = AHEAD_OF_TIME

    def __init__(self, item: pytest.Item, match: str) -> None:
        super().__init__(None, match)
        self._item = item

    def __enter__(self) -> Block:
        hook.clear_caches()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        try:
            super().__exit__(kind, error, trace)
        except XlaMemError as e:
            raise pytest.fail.Exception(str(e)) from None
        if error is None:
            record = self._item.stash.setdefault(RECORD, record_of(self._item))
            record["rows"] += map(_row, self.programs)

    @property
    def device_total(self) -> Size:
        """What must fit, in bytes: the largest number of the programs.

        Raises UsageError if the block has no program, or the number of one is not known.
        """
        __tracebackhide__ = True
        return self._largest("device_total")

    @property
    def peak(self) -> Size:
        """The bytes in use at the peak, over the memory spaces in `device_total` together: the largest number.

        Raises UsageError like `device_total`.
        """
        __tracebackhide__ = True
        return self._largest("peak")

    def _largest(self, number: str) -> Size:
        __tracebackhide__ = True
        sizes = []
        for dump in self.programs:  # a comprehension has a frame of its own, which pytest would show
            sizes.append(Size(sizes_of(dump)[number], dump))
        if not sizes:
            raise UsageError(f"there is no {number}: nothing was captured, or the block has not ended")
        return max(sizes)


class Size(int):
    """A size in bytes that knows its program, so that an assertion that fails can say why sizes differ."""

    def __new__(cls, n: int, dump: Dump) -> Size:
        size = super().__new__(cls, n)
        size.dump = dump
        return size

    dump: Dump


def explained(op: str, left: Size, right: Size) -> list[str]:
    """Explain a comparison of sizes that is false."""
    from ...compare.difference import diff

    texts = [f"{exact_size(left)} {op} {exact_size(right)}"]
    if left.dump is not right.dump:
        texts += wrap(f"from the left to the right: {diff(left.dump, right.dump).verdict}", 0, WIDTH)
    return texts


def sizes_of(dump: Dump) -> dict[str, int]:
    """Return `device_total` and `peak` of a program. Raises UsageError if they are not known."""
    __tracebackhide__ = True
    p = program(dump)
    if reason := doubt_of_numbers(p.tables) or doubt_of_peak(p):
        raise UsageError(f"{program_name(dump)} {reason}")
    lines = bill_lines(p)
    return {"device_total": sum(lines.values()), "peak": peak_of(p, lines) or 0}


def _row(dump: Dump) -> Row:
    name = program_name(dump)
    try:
        sizes = sizes_of(dump)
    except XlaMemError:
        sizes = {}
    return Row(
        program=name, device_total=sizes.get("device_total"), device_total_baseline=None, peak=sizes.get("peak"),
        peak_baseline=None, status="", is_new=False,
    )  # fmt: skip
