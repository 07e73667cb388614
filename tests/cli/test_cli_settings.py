"""Limits, thresholds, patterns, default arguments and options: none changes unnoticed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from stored import check, settings

from xlamem import cli

OF_THE_BUILD = {"installation.BUILD", "installation.SIMD"}


def test_settings() -> None:
    check("cli/settings", (pair for pair in settings(cli) if pair[0] not in OF_THE_BUILD))


def described(p: click.Parameter) -> list[Any]:
    """Return how an argument or option is given, its type and its default."""
    kind, default = p.type, p.default
    bounds = [getattr(kind, name, None) for name in ("min", "max", "choices")]
    flags = [name for name in ("is_flag", "multiple", "required", "hidden", "show_default", "expose_value", "is_eager")
             if getattr(p, name, False) is True]  # fmt: skip
    value = default if isinstance(default, (str, int, float)) and default is not False else None
    return [*p.opts, *p.secondary_opts, kind.name, bounds, flags, p.nargs, p.metavar, value]


def commands(name: str, command: click.Command) -> Iterator[tuple[str, Any]]:
    for p in command.params:
        yield f"{name} {p.name}", described(p)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            inner = command.get_command(context, verb)
            assert inner is not None
            yield from commands(f"{name} {verb}", inner)


def test_options() -> None:
    check("cli/options", commands("xlamem", cli.cli))
