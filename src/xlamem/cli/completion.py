"""What shells complete: values of arguments and options. Completions are computed without opening a dump."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete paths, which the shell does itself."""
    return [item(incomplete, type="file")]


def item(value: str, **about: str) -> CompletionItem:
    from click.shell_completion import CompletionItem  # only for completion

    return CompletionItem(value, **about)


def one_of(names: Callable[[], Iterable[str]]) -> Complete:
    """Complete one of these names."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [item(name) for name in names() if name.startswith(incomplete)]

    return complete


def some_of(names: Callable[[], Iterable[str]]) -> Complete:
    """Complete a comma-separated list of these names."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [item(before + comma + n) for n in names() if n.startswith(last) and n not in given]

    return complete


def devices() -> Iterable[str]:
    from ..compute.devices import DEVICES

    return [device.name for device in DEVICES]


def memory_spaces() -> Iterable[str]:
    from ..schema import SPACES

    return dict.fromkeys(name for names in SPACES.values() for name in names.values())


def tables() -> Iterable[str]:
    """Return the tables of dumps and of datasets."""
    from ..compute import REGISTRY
    from ..schema import TABLES, WAREHOUSE

    return dict.fromkeys([*TABLES, *REGISTRY, *WAREHOUSE, "dumps"])


def stored_tables() -> Iterable[str]:
    from ..schema import WAREHOUSE

    return WAREHOUSE


def described_tables() -> Iterable[str]:
    from .reporters.schema import OF_DATASETS, OF_DUMPS

    return {**OF_DUMPS, **OF_DATASETS}


def documents() -> Iterable[str]:
    from ..schema import DOCUMENTS

    return DOCUMENTS
