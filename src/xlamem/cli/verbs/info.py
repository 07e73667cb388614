"""`xlamem info`: what dumps contain, and whether their cross-checks hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ... import compute
from ...compute import Inspection
from ...dump import read
from ...errors import UsageError
from ...input.find import find
from .. import console, inputs, options
from ..inputs import Failure
from ..reporters import info as reporter

if TYPE_CHECKING:
    from .. import documents


@click.command("info")
@options.paths(required=False)
@click.option("--self", "itself", is_flag=True, help="Describe xlamem instead: version, build and extras.")
@options.output()
@options.strict("Exit with 3 if a dump is truncated or not understood.")
def command(paths: tuple[str, ...], itself: bool, output: options.Output, strict: bool) -> int:
    """Read the dumps at each PATH in full (files, directories, archives, URIs, - for standard input), and show what
    they contain and whether their numbers are consistent.

    The exit code is 1 if a cross-check of a complete dump fails. In a truncated one, what is missing may be the cause.
    """
    if itself:
        return _describe_installation(paths, output)
    if not paths:
        raise UsageError("info needs a PATH, or --self")
    sources = find(*paths)
    dumps, failures = inputs.read_each(sources, lambda s: compute.inspect(read(s, hashes=True)))
    if output.json:
        console.write_document("info", _as_json(dumps, failures))
    elif len(dumps) == 1 and not failures:
        reporter.write_one(dumps[0])
    elif dumps:
        reporter.write_list(dumps, len(failures))
    inputs.report(failures)
    if failures or (strict and not all(d.fully_read for d in dumps)):
        return console.UNREADABLE
    return console.CHECK_FAILED if any(d.failed_checks and d.module["complete"] for d in dumps) else console.FINE


def _describe_installation(paths: tuple[str, ...], output: options.Output) -> int:
    from ..installation import describe  # imports importlib.metadata

    if paths:
        raise UsageError("--self takes no PATH")
    if output.json:
        console.write_document("self", describe())
    else:
        from ..reporters.installation import write_installation

        write_installation(describe())
    return console.FINE


def _as_json(dumps: list[Inspection], failures: list[Failure]) -> documents.Info:
    return {
        "dumps": [
            {
                "name": d.source.name,
                "place": d.source.location,
                "module": d.module,
                "files": d.files,
                "allocated_bytes": d.allocated,
                "checks": d.checks,
                "diagnostics": d.diagnostics,
            }
            for d in dumps
        ],
        "duplicates": [[reporter.full_name(d) for d in group] for group in compute.duplicates(dumps)],
        "failed": [failure.as_json() for failure in failures],
    }
