"""The command line: one file per verb, loaded when it is called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from .. import __version__
from . import console

VERBS = {
    "info": "Say what is in dumps: sizes, features, checks.",
    "peak": "Say what must fit, how much is in use at the peak, and by what.",
    "live": "List what holds an instant.",
    "top": "Say where the bytes are: by scope, source line, opcode, …",
    "explain": "Put every published number side by side, and say why they differ.",
    "oom": "Show out-of-memory reports in a log.",
    "convert": "Write dumps to Parquet.",
    "sql": "Query a dataset, or a dump, by SQL.",
    "files": "List the files of a dataset.",
    "schema": "Describe the tables.",
}


class Verbs(click.Group):
    """The verbs; importing one is left until it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f".verbs.{cmd_name}", __name__).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        # Here and not around all: click has an answer of its own to a closed pipe.
        return console.guarded(lambda: super(Verbs, self).invoke(ctx))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", message="xlamem %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Where device memory goes in programs compiled by XLA: reads the memory dumps that XLA writes.

    \b
    Exit codes: 0 fine; 1 a check failed or a program does not fit; 2 wrong usage; 3 input unreadable, or
    not known whether a program fits (with --strict also: truncated); 4 output not writable; 70 a bug of
    xlamem; 130 interrupted.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main(args: list[str] | None = None) -> int:
    """Run one command line and give its exit code; errors become one sentence on stderr."""
    # The command does no linear algebra: NumPy, imported by the verbs, need not start a thread per core for it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show is no reason to fail
    try:
        code = cli.main(args, prog_name="xlamem", standalone_mode=False)
    except click.Abort:
        return console.INTERRUPTED
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except OSError as e:  # the help text, or the version
        return console.unwritable(e)
    return code if isinstance(code, int) else console.FINE
