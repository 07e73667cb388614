"""`xlamem diff`: what changed between two programs, or between the programs of two directories or datasets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from ...compare.difference import Diff, diff
from ...compare.groups import KEYS, difference_groups
from ...compare.verdict import ranked_edits
from ...compute.bills import DEVICE_TOTAL
from ...compute.wording import describe_problems
from ...dump import Dump, read
from ...errors import UsageError, XlaMemError
from ...formatting import similar
from ...input.find import find, split_modules
from ...warehouse.dataset import is_dataset
from .. import console, inputs, options
from ..completion import files, memory_spaces, one_of, some_of

if TYPE_CHECKING:
    from ...compare.points import Order
    from ...compare.programs import Dumps, Programs
    from .. import documents
    from ..reporters.diff import Comparison
    from ..reporters.pairs import Changes

BY = "buffer,cause"
LIMIT = "Groups of buffers shown, or programs.  [default: one screen; all in JSON and CSV]"


@click.command("diff")
@click.argument("paths", nargs=-1, required=True, metavar="A B", shell_complete=files)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE",
    help="Compare dumps with two labels in one dataset: give this option twice, and the dataset as the only path.",
)  # fmt: skip
@click.option(
    "--over", metavar="KEY", help="Follow the programs of one dataset over the values of a label: commits, nights."
)
@click.option(
    "--order", type=click.Choice(["seen", "name"]),
    help="Order of these values.  [default: dates by name, others as seen]",
)  # fmt: skip
@click.option("--module", metavar="N|NAME", help="Module to compare if A and B have several.")
@click.option(
    "--by", default=BY, show_default=True, metavar="KEY,KEY", help="Keys to group buffers by.",
    shell_complete=some_of(lambda: KEYS),
)  # fmt: skip
@click.option(
    "--space", "account", default=DEVICE_TOTAL, metavar="NAME", help="Divide the peak of this memory space.",
    shell_complete=one_of(memory_spaces),
)  # fmt: skip
@click.option(
    "--exit-code", "gate", is_flag=True,
    help="Exit with 1 if a program grew: its device_total or its peak; with 3 if a side is not known.",
)  # fmt: skip
@options.output(csv=True, markdown=True, limit=LIMIT, wide=True)
def command(
    paths: tuple[str, ...], labels: tuple[str, ...], over: str | None, order: Order | None, module: str | None, by: str,
    account: str, gate: bool, output: options.Output,
) -> int:  # fmt: skip
    """Show what changed from A to B: what must fit, the peak, which buffers the change consists of, and why.

    A and B are dumps, whose values are matched whatever their names, directories, or datasets. The programs of
    directories and datasets are paired: changed ones are listed, with the verdict on the largest change. If only one
    changed, all of its comparison is shown. With --over, there is one dataset, and --label KEY=VALUE selects runs.

    The keys of --by are buffer (like buffers of all layers), cause, edit, scope, layer, phase, kind, category,
    memory_space, source and element_type. --space takes the name of a memory space (hbm) instead of device_total.
    Both need one program on each side.
    """
    keys = _keys(by)
    if over is not None:
        if len(paths) != 1 or module is not None or (by, account) != (BY, DEVICE_TOTAL):
            raise UsageError("--over takes one dataset, and excludes --module, --by and --space")
        return _compare_points(paths[0], over, order, labels, gate=gate, output=output)
    if order is not None:
        raise UsageError("--order needs --over")
    sides = _sides(paths, labels)
    if module is not None:
        return _compare_dumps(_modules(sides, module), account, keys, gate=gate, output=output)
    a, b = (_found(side) for side in sides)
    dumps = _two_dumps(a, b)
    if dumps is None:
        return _compare_sides((a, b), account, keys, gate=gate, output=output)
    return _compare_dumps(dumps, account, keys, gate=gate, output=output)


def _keys(by: str) -> tuple[str, ...]:
    keys = tuple(filter(None, (key.strip() for key in by.split(","))))
    if unknown := [key for key in keys if key not in KEYS]:
        raise UsageError(f"cannot group by {', '.join(unknown)}: {similar(unknown, KEYS, 'the keys are')}")
    if not keys:
        raise UsageError(f"--by needs a key: {', '.join(KEYS)}")
    return keys


def _sides(paths: tuple[str, ...], labels: tuple[str, ...]) -> tuple[Dumps, Dumps]:
    """Return what is compared: two paths, or the dumps with two labels of one dataset."""
    if not labels:
        if len(paths) != 2:
            raise UsageError(f"diff compares two paths, A and B, not {len(paths)}")
        return paths[0], paths[1]
    if len(paths) != 1 or len(labels) != 2:
        raise UsageError("--label compares two labels of one dataset: xlamem diff DEST --label KEY=A --label KEY=B")
    first, second = (options.labels_of([text]) for text in labels)
    return (paths[0], first), (paths[0], second)


def _compare_points(
    path: str, over: str, order: Order | None, labels: tuple[str, ...], *, gate: bool, output: options.Output
) -> int:
    from ...compare.series import series
    from ..reporters.series import write  # imports rich

    return write(series(path, over, labels=options.labels_of(labels), order=order), output, gate=gate)


def _modules(sides: tuple[Dumps, Dumps], module: str) -> tuple[Dump, Dump]:
    """Return this module of each side."""
    paths = [side for side in sides if isinstance(side, str) and not is_dataset(side)]
    if len(paths) < len(sides):
        raise UsageError("--module selects a module of a dump, not of a dataset")
    a, b = (read(path, module=module, tables=inputs.ALL_SECTIONS) for path in paths)
    return a, b


def _found(side: Dumps) -> Dumps:
    """Return the dumps at a path, which is searched only once: standard input and pipes cannot be read again."""
    return find(side) if isinstance(side, str) and not is_dataset(side) else side


def _two_dumps(*sides: Dumps) -> tuple[Dump, Dump] | None:
    """Return the dumps if there is one on each side."""
    sources = [side[0] for side in sides if isinstance(side, list) and len(side) == 1]
    if len(sources) < len(sides) or any(len(split_modules(source)) > 1 for source in sources):
        return None
    a, b = (read(source, tables=inputs.ALL_SECTIONS) for source in sources)
    return a, b


# -- two dumps -----------------------------------------------------------------------------------


def _compare_dumps(
    dumps: tuple[Dump, Dump], account: str, by: tuple[str, ...], *, gate: bool, output: options.Output
) -> int:
    from ..reporters.diff import Comparison, screen  # imports rich

    try:
        d = diff(*dumps)
    except UsageError as error:  # one has no allocations
        if not gate:
            raise
        console.error(str(error), console.UNREADABLE)
        return console.UNREADABLE
    c = Comparison(d, dumps, account, by)
    groups = difference_groups(c.diff, by, account=account)
    if output.json:
        console.write_document("diff", _as_json(c, groups, output))
    elif output.csv:
        output.write_csv(groups.column_names, (row.values() for row in output.head(groups).to_pylist()))
    elif output.markdown:
        from ..reporters.markdown import comment

        console.write(comment(c, output.limit))
    else:
        console.write_lines(screen(c, output), output.width)
    return _exit_code(c.diff) if gate else console.FINE


def _exit_code(d: Diff) -> int:
    if not d.is_known:
        return console.UNREADABLE
    return console.CHECK_FAILED if d.has_grown else console.FINE


def _as_json(c: Comparison, groups: pa.Table, output: options.Output) -> documents.Diff:
    d = c.diff
    return {
        "a": _side_json(c.dumps[0]),
        "b": _side_json(c.dumps[1]),
        "verdict": d.verdict,
        "is_known": d.is_known,
        "doubt": d.doubt or None,
        "is_same": d.is_same,
        "grown": d.has_grown,
        "grown_accounts": d.grown,
        "device_total_change": d.device_total_change,
        "peak_change": d.peak_change,
        "account_differences": d.accounts.to_pylist(),
        "bill_differences": d.bills.to_pylist(),
        "edits": ranked_edits(d),
        "account": c.account,
        "by": list(c.by),
        "difference_groups": output.head(groups).to_pylist(),
        "differences": output.head(d.buffers).to_pylist(),
        "matches": output.head(d.matches).to_pylist(),
        "n_difference_groups": groups.num_rows,
        "n_differences": d.buffers.num_rows,
        "n_matches": d.matches.num_rows,
    }


def _side_json(dump: Dump) -> documents.Side:
    (module,) = dump.modules.to_pylist()
    return {
        "name": dump.name,
        "place": dump.source.location,
        "module": module,
        "problems": describe_problems(dump),
    }


# -- two sides with several programs -------------------------------------------------------------


def _compare_sides(
    sides: tuple[Dumps, Dumps], account: str, by: tuple[str, ...], *, gate: bool, output: options.Output
) -> int:
    from ...compare.pairing import pair
    from ...compare.programs import StoredPrograms, programs_of
    from ..reporters.pairs import Changes, screen  # imports rich

    a, b = (programs_of(side) for side in sides)
    if len(a) == len(b) == 1:
        return _compare_dumps((a.read(0), b.read(0)), account, by, gate=gate, output=output)
    if (by, account) != (_keys(BY), DEVICE_TOTAL):
        raise UsageError("--by and --space need one program on each side: --module selects it from dumps")
    changes = Changes(pair(a, b), are_dumps=not any(isinstance(side, StoredPrograms) for side in (a, b)))
    if changes.changed:
        changes = _with_largest(changes, a, b)
    if output.json:
        console.write_document("pairs", _changes_json(changes, output))
    elif output.csv:
        output.write_csv(changes.table.column_names, (row.values() for row in output.head(changes.ordered)))
    elif output.markdown:
        from ..reporters.markdown import pairs_comment

        console.write(pairs_comment(changes, output.limit))
    else:
        console.write_lines(screen(changes, output), output.width)
    for text in changes.unreadable:
        console.error(text, console.UNREADABLE)
    return _exit_code_of(changes, gate=gate)


def _with_largest(changes: Changes, a: Programs, b: Programs) -> Changes:
    """Add what changed in the pair with the largest change, or why that is not known."""
    from ..reporters.diff import Comparison

    pair = changes.changed[0]
    try:
        dumps = a.read(pair["program_a"]), b.read(pair["program_b"])
        d = diff(*dumps)
    except XlaMemError as error:
        return replace(changes, verdict=f"Not known: {error}")
    return replace(changes, verdict=d.verdict, largest=Comparison(d, dumps, DEVICE_TOTAL, _keys(BY)))


def _exit_code_of(changes: Changes, *, gate: bool) -> int:
    if changes.unreadable or (gate and not changes.is_known):
        return console.UNREADABLE
    return console.CHECK_FAILED if gate and changes.has_grown else console.FINE


def _changes_json(changes: Changes, output: options.Output) -> documents.Pairs:
    rows = changes.ordered
    return {
        "summary": changes.summary,
        "n_programs": len(rows),
        "n_changed": len(changes.changed),
        "n_unknown": len(changes.unknown),
        "n_new": sum(row["how"] == "new" for row in rows),
        "n_gone": sum(row["how"] == "gone" for row in rows),
        "is_known": changes.is_known,
        "grown": changes.has_grown,
        "largest": changes.verdict or None,
        "pairs": output.head(rows),
    }
