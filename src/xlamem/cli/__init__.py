"""The command line: one module per command in `verbs`, imported when the command is called."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import __version__
from ..errors import UsageError
from . import console

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VERBS = {
    "peak": "Show what must fit in memory, and what is in use at the peak.",
    "top": "Show where the bytes are: by buffer, scope, source line, opcode, …",
    "bill": "Show why so much memory must fit.",
    "buffer": "Show what defines, reads and keeps alive one buffer.",
    "advise": "List what would make the program need less memory.",
    "report": "Write the picture: one HTML page, SVG, JSON or pprof.",
    "diff": "Compare two programs, or the programs of two directories.",
    "check": "Check programs against budgets and a baseline, for CI.",
    "explain": "Compare the peaks that XLA, JAX and XProf publish.",
    "info": "Summarize dumps: sizes, features, cross-checks.",
    "show": "Print a table of a dump or a dataset.",
    "schema": "Describe the tables.",
    "oom": "Extract out-of-memory reports from a log.",
    "convert": "Convert dumps to a Parquet dataset.",
    "dataset": "Inspect a Parquet dataset.",
    "sql": "Run an SQL query over a dataset or a dump.",
}

REPLACED = {"live": "top --by buffer", "files": "dataset files"}
"""Commands of version 0.1, with their replacements."""

GARBAGE_THRESHOLD = 1_000_000
"""Objects between two searches for reference cycles. Python's 700 cost a quick command a twentieth of its time."""


class Commands(click.Group):
    """The commands. Each one is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        with _optional_modules_hidden():
            command: click.Command = import_module(f".verbs.{cmd_name}", __name__).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take `xlamem PATH` for `xlamem peak PATH`."""
        if args[0] not in (*VERBS, *REPLACED) and _is_path(args[0]):
            args = ["peak", *args]
        if args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(_no_such_command(args[0]))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        # Not around `main`: click handles a closed pipe itself.
        return console.report_errors(lambda: super(Commands, self).invoke(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands, without importing them, options, and paths: `xlamem PATH` is a command too."""
        from .completion import item  # only for completion

        commands = [item(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*commands, *options] or [item(incomplete, type="file")]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


class _NotInstalled:
    """A finder of modules for which pandas, dateutil and cloudpickle are not installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in ("pandas", "dateutil", "cloudpickle"):
            raise ModuleNotFoundError(name=name)


@contextmanager
def _optional_modules_hidden() -> Iterator[None]:
    """Keep pyarrow from importing what it uses only if it is there: pandas takes longer than most commands."""
    if "pyarrow" in sys.modules:
        yield
        return
    sys.meta_path.insert(0, _NotInstalled)
    try:
        yield
        if "pyarrow" in sys.modules:
            sys.modules["pyarrow"].array([])
    finally:
        sys.meta_path.remove(_NotInstalled)


def _limit_memory(ctx: click.Context, parameter: click.Parameter, size: str | None) -> None:
    """Limit the memory before the command is imported, and Arrow with it."""
    if size is not None:
        try:
            console.limit_memory(size)
        except UsageError as e:
            raise click.UsageError(str(e), ctx) from e


def _is_path(name: str) -> bool:
    """Return whether a name that is no command can only be a path, a stem, a wildcard, a URI or standard input."""
    is_option = name.startswith("-") and name != "-"
    return os.path.exists(name) or not (name.isalpha() or is_option)


def _no_such_command(name: str) -> str:
    from ..formatting import closest

    match = REPLACED.get(name) or closest(name, VERBS)
    return f"No such command {name!r}. Did you mean {match!r}?" if match else f"No such command or path: {name!r}."


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--memory-limit", metavar="SIZE", callback=_limit_memory, expose_value=False,
    help="Memory that xlamem, and each of its workers, may take (4GiB).",
)  # fmt: skip
@click.version_option(__version__, "--version", message="xlamem %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Show where device memory goes in programs compiled by XLA, from the memory dumps that XLA writes.

    `xlamem PATH` is short for `xlamem peak PATH`.

    \b
    Exit codes:
      0    success
      1    a check failed, a program does not fit, or grew with diff --exit-code
      2    wrong usage, or a question that needs what the dump lacks
      3    input unreadable or skipped, or a verdict is not known; with --strict,
           also if a dump is truncated
      4    output not writable
      70   bug in xlamem
      130  interrupted
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    elif os.environ.get("FORCE_COLOR"):
        ctx.color = True


def main(args: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    # The command does no linear algebra: NumPy, imported by the verbs, need not start a thread per core for it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # names that the terminal's encoding lacks must not fail
    try:
        code = cli.main(args, prog_name="xlamem", standalone_mode=False)
    except click.Abort:
        return console.INTERRUPTED
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except OSError as e:  # from writing the help text or the version
        return console.unwritable(e)
    return code if isinstance(code, int) else console.FINE


def run() -> NoReturn:
    """Run the command line of this process, and end the process without freeing its memory object by object."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it is closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    gc.set_threshold(GARBAGE_THRESHOLD)
    code = main()
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except Exception:  # the interpreter reports it
        sys.exit(code)
    os._exit(code)
