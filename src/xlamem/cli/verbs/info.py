"""`xlamem info`: what dumps contain, and whether their cross-checks hold."""

from __future__ import annotations

from typing import Any

import click

from ... import compute, schema
from ...compute import Inspection
from ...dump import read
from ...input.find import find
from .. import console, inputs, options
from ..inputs import Failure
from ..reporters import info as reporter


@click.command("info")
@options.paths
@options.output()
@options.strict("Exit with 3 if a dump is truncated or not understood.")
def command(paths: tuple[str, ...], output: options.Output, strict: bool) -> int:
    """Read the dumps at each PATH in full (files, directories, archives, URIs, - for standard input), and show what
    they contain and whether their numbers are consistent.
    """
    sources = find(*paths)
    dumps, failures = inputs.read_each(sources, lambda s: compute.inspect(read(s, hashes=True)))
    if output.json:
        console.write_json(_as_json(dumps, failures))
    elif len(dumps) == 1 and not failures:
        reporter.write_one(dumps[0])
    elif dumps:
        reporter.write_list(dumps, len(failures))
    inputs.report(failures)
    if failures or (strict and not all(d.fully_read for d in dumps)):
        return console.UNREADABLE
    return console.CHECK_FAILED if any(d.failed_checks and d.module["complete"] for d in dumps) else console.FINE


def _as_json(dumps: list[Inspection], failures: list[Failure]) -> dict[str, Any]:
    return {
        "schema_version": schema.VERSION,
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
        "failed": [failure._asdict() for failure in failures],
    }
