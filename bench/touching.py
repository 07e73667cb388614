"""Reading with xlamem: which tables are touched, in which order, with how many threads. Imports no rival."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import xlamem
from xlamem import schema

Result = tuple[int, list[Any]]
"""The number of rows, and the objects that are kept."""
Reader = Callable[[Iterable[str | Path]], Result]

TINY = Path(__file__).parent.parent / "tests" / "dumps" / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
SECTIONS = [table.name for table in schema.SECTION_TABLES if table.name in schema.TABLES]
REST = [name for name in schema.TABLES if name not in SECTIONS]
"""Tables about the dump itself. They need all others: touched first, they read everything at once."""
ORDERS = {
    "all at once": [*REST, *SECTIONS],
    "in schema order": [*SECTIONS, *REST],
    "values first": ["values", *(name for name in SECTIONS if name != "values"), *REST],
    "in reverse": [*reversed(SECTIONS), *REST],
}


def read(folders: Iterable[str | Path], tables: Iterable[str] = schema.TABLES, threads: int = 1) -> Result:
    """Touch these tables of a new `Dump` of them for each folder, one after the other."""
    rows, kept = 0, []
    tables = list(tables)
    for folder in folders:
        dump = xlamem.read(folder, tables=tables, threads=threads)
        kept = [dump[name] for name in tables]
        rows += sum(table.num_rows for table in kept)
    return rows, kept


READERS: dict[str, Reader] = {
    f"{order}, {threads}": partial(read, tables=tables, threads=threads)
    for order, tables in ORDERS.items()
    for threads in (1, 2)
}
HELD: list[Any] = []


def prepare(_: str) -> None:
    """Import what reading imports later."""
    read([TINY])


def _work(reader: Reader) -> Callable[[list[str]], None]:
    def work(folders: list[str]) -> None:
        HELD.extend(reader(folders)[1])

    return work


WORKS = {name: _work(reader) for name, reader in READERS.items()}
