"""Arguments and options that commands share, declared once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ..dump import Dump
from ..errors import UsageError
from . import console, inputs
from .completion import files, memory_spaces, one_of

if TYPE_CHECKING:
    from . import documents

RAW = "Print the text of CSV verbatim, without escapes for terminals and spreadsheets."

MAX_LIMIT = 1 << 62
"""Maximum of --limit: more rows than any table has."""
MAX_DIGITS = 18
"""Maximum number of digits of the color of a memory space."""

Command = Callable[..., Any]
Rows = TypeVar("Rows", bound=Sequence[Any])


class Output(NamedTuple):
    """Format and extent of the output, from --json, --csv, --raw, --markdown, --limit, --wide and --verbose."""

    json: bool = False
    csv: bool = False
    markdown: bool = False
    limit: int | None = None
    wide: bool = False
    verbose: bool = False
    raw: bool = False

    def write_csv(self, names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
        """Write CSV to stdout; text is verbatim with --raw only."""
        console.write_csv(names, rows, raw=self.raw)

    @property
    def width(self) -> int | None:
        """Width of the output; None if it is not limited."""
        return None if self.wide else console.width()

    def head(self, rows: Rows, default: int | None = None) -> Rows:
        """Return the first rows: --limit of them, or else all for JSON and CSV, or else `default`."""
        limit = self.limit
        if limit is None and not self.json and not self.csv:
            limit = default
        return rows if limit is None else rows[:limit]  # type: ignore[return-value]


def output(
    *, csv: bool = False, markdown: bool = False, limit: str = "", wide: bool = False, verbose: str = ""
) -> Callable[[Command], Command]:
    """Pass --json, and where wanted --csv, --raw, --markdown, --limit, --wide and --verbose, as argument ``output``.

    `limit` and `verbose` are the help texts of these options.
    """
    options = [click.option("--json", "as_json", is_flag=True, help="Print JSON.")]
    if csv:
        options.insert(0, click.option("--raw", is_flag=True, help=RAW))
        options.insert(0, click.option("--csv", "as_csv", is_flag=True, help="Print CSV."))
    if markdown:
        options.insert(0, click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown."))
    if wide:
        options.append(click.option("--wide", is_flag=True, help="Do not shorten lines."))
    if verbose:
        options.append(click.option("--verbose", "-v", is_flag=True, help=verbose))
    if limit:
        options.append(click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help=limit))

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(
            as_json: bool,
            as_csv: bool = False,
            as_markdown: bool = False,
            limit: int | None = None,
            wide: bool = False,
            verbose: bool = False,
            raw: bool = False,
            **arguments: Any,
        ) -> Any:
            chosen = {"--json": as_json, "--csv": as_csv, "--markdown": as_markdown}
            if sum(chosen.values()) > 1:
                raise UsageError(f"{' and '.join(k for k, v in chosen.items() if v)} exclude each other")
            if raw and not as_csv:
                raise UsageError("--raw changes only the output of --csv")
            limit = None if limit is None else min(limit, MAX_LIMIT)
            output = Output(as_json, as_csv, as_markdown, limit, wide, verbose, raw)
            return command(output=output, **arguments)

        return functools.reduce(lambda wrapped, option: option(wrapped), options, run)

    return decorate


def dump(tables: Iterable[str] = inputs.ALL_SECTIONS) -> Callable[[Command], Command]:
    """Pass the dump at PATH, selected with --module, as ``dump``."""
    return _opened("dump", lambda path, module: inputs.open_dump(path, module, tables))


def source() -> Callable[[Command], Command]:
    """Pass the dataset or the dump at PATH as ``source``."""
    return _opened("source", inputs.open_source)


def _opened(name: str, opener: Callable[[str, str | None], inputs.Opened]) -> Callable[[Command], Command]:
    """Pass the result of `opener`; exit with 3 if it skipped unreadable inputs at PATH."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(path: str, module: str | None, **arguments: Any) -> int:
            opened = opener(path, module)
            command(**{name: opened.source}, **arguments)
            return console.UNREADABLE if opened.n_skipped else console.FINE

        help_text = "Module to read if PATH has several; by default the largest."
        with_module = click.option("--module", metavar="N|NAME", help=help_text)(run)
        return click.argument("path", metavar="PATH", shell_complete=files)(with_module)

    return decorate


def paths(*, required: bool = True) -> Callable[[Command], Command]:
    """Declare the PATHs of dumps."""
    metavar = "PATH..." if required else "[PATH]..."
    return click.argument("paths", nargs=-1, required=required, metavar=metavar, shell_complete=files)


at = click.option(
    "--at", "step", type=int, metavar="STEP", help="Step of the schedule; by default each memory space's peak."
)


def _space(_: click.Context, __: click.Parameter, text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= MAX_DIGITS else text


space = click.option(
    "--space", metavar="NAME", callback=_space, shell_complete=one_of(memory_spaces),
    help="Only this memory space, by name (hbm) or color (0).",
)  # fmt: skip


def strict(effect: str) -> Callable[[Command], Command]:
    """Declare --strict, which has this effect."""
    return click.option("--strict", is_flag=True, help=effect)


def program_json(dump: Dump) -> documents.Program:
    """Return the name and the row of `modules` of a program, with which documents about it begin."""
    (module,) = dump.modules.to_pylist()
    return {"name": dump.name, "module": module}


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the labels KEY=VALUE. Raises UsageError for other texts, and for a key that is given twice."""
    labels: dict[str, str] = {}
    for text in texts:
        key, equal, value = text.partition("=")
        if not equal or not key:
            raise UsageError(f"a label has the form KEY=VALUE, not {text!r}")
        if key in labels:
            raise UsageError(f"the label {key!r} is given twice")
        labels[key] = value
    return labels
