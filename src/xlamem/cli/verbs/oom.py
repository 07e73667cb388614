"""`xlamem oom`: the out-of-memory reports in a log."""

from __future__ import annotations

import click

from ...parse import oom
from .. import console, options
from ..completion import files
from ..reporters import oom as reporter


@click.command("oom")
@click.argument("log", metavar="LOG", shell_complete=files)
@options.output(limit="Buffers shown per report. JSON has all.  [default: 10]", wide=True)
def command(log: str, output: options.Output) -> int:
    """Extract XLA's out-of-memory reports from LOG (a file or URI, - for standard input; a log or a single message):
    which memory ran out, what takes it, and the largest buffers. Exit with 3 if there is no report.
    """
    # As a path it is never taken for the text of a message.
    reports = oom.read_oom(log if log == "-" else _Path(log))
    if output.json:
        tables = {name: getattr(reports, name).to_pylist() for name in oom.TABLES}
        console.write_document("oom", {"source": reports.source, **tables})
    elif len(reports):
        reporter.write_reports(reports, output.limit, output.width)
    if not len(reports):
        wanted = "an out-of-memory report of XLA ('Ran out of memory in memory space', 'Peak buffers:', …)"
        return console.error(f"{reports.source}: expected {wanted}", console.UNREADABLE)
    return console.FINE


class _Path:
    """A path or URI that is kept as it is written."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path
