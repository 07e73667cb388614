"""`xlamem top`: where the bytes in use are, at the peak or at any step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from ... import compute
from ...compute import KEYS
from ...dump import Dump
from ...errors import UsageError
from ...formatting import similar
from .. import console, options
from ..completion import some_of

if TYPE_CHECKING:
    from .. import documents

BUFFER = "buffer"
"""Key that lists buffers instead of grouping them."""

Row = dict[str, Any]


@click.command("top")
@options.dump()
@click.option(
    "--by", default="scope", show_default=True, metavar="KEY,KEY", help="Keys to group by.",
    shell_complete=some_of(lambda: (BUFFER, *KEYS)),
)  # fmt: skip
@options.at
@click.option(
    "--depth", type=click.IntRange(min=1), metavar="N", help="Group by the first N names of a scope or function."
)
@click.option("--fold", is_flag=True, help="Group layers together: layers_17 becomes layers_*.")
@click.option("--tree", is_flag=True, help="Show scopes or functions as a tree, each with the bytes of all below it.")
@options.space
@options.output(csv=True, limit="Rows shown per memory space.  [default: 20; all in JSON and CSV]", wide=True)
def command(
    dump: Dump,
    by: str,
    step: int | None,
    depth: int | None,
    fold: bool,
    tree: bool,
    space: str | int | None,
    output: options.Output,
) -> None:
    """Show what uses the memory of the program in PATH, at the peak of each memory space or at any step.

    The keys are scope, layer, phase, kind, origin, source (file:line), function (those of the model that call each
    other there), op_name, opcode, element_type, shape, category, instruction, role and memory_space. --by buffer lists
    the live buffers, and the memory that is reserved but not live. Either way, the rows of a memory space add up to its
    bytes in use.
    """
    keys = _keys(by)
    if tree and keys not in (["scope"], ["function"]):
        raise UsageError("--tree requires --by scope or --by function")
    if tree and (output.json or output.csv):
        raise UsageError(f"--tree and {'--json' if output.json else '--csv'} exclude each other")
    table = _table(dump, keys, step, space, depth=depth, fold=fold)
    spaces = compute.spaces_in_use(dump, table, step)
    if output.json:
        document: documents.Top = {
            **options.program_json(dump),
            "by": ["memory_space", *keys],
            "time": step,
            "spaces": spaces,  # type: ignore[typeddict-item]
            "rows": _first_rows(table, output),
            "n_rows": table.num_rows,
        }
        console.write_document("top", document)
    elif output.csv:
        output.write_csv(table.column_names, (row.values() for row in _first_rows(table, output)))
    else:
        from ..reporters.top import Screen  # imports rich

        screen = Screen(dump, output.width, output.limit, wide=output.wide, step=step)
        lines = screen.buffers(spaces, table) if keys == [BUFFER] else screen.groups(spaces, table, keys, tree=tree)
        console.write_lines(lines, output.width)


def _keys(by: str) -> list[str]:
    keys = [key.strip() for key in by.split(",")]
    keys = [key for key in keys if key and key != "memory_space"]
    if not by.strip(" ,"):
        raise UsageError(f"--by needs a key: {', '.join((BUFFER, *KEYS))}")
    if unknown := [key for key in keys if key not in (*KEYS, BUFFER)]:
        raise UsageError(f"cannot group by {', '.join(unknown)}: {similar(unknown, (BUFFER, *KEYS), 'the keys are')}")
    if BUFFER in keys and len(keys) > 1:
        raise UsageError("--by buffer cannot be combined with other keys")
    return keys


def _table(
    dump: Dump, keys: list[str], step: int | None, space: str | int | None, *, depth: int | None, fold: bool
) -> pa.Table:
    if keys == [BUFFER]:
        return compute.live_set(dump, step, space=space)
    by: Any = ("memory_space", *keys)
    return compute.attribution(dump, by, time=step, space=space, depth=depth, fold=fold)


def _first_rows(table: pa.Table, output: options.Output) -> list[Row]:
    """Return the first rows of each memory space."""
    if output.limit is None:
        return table.to_pylist()  # type: ignore[no-any-return]
    counts: Counter[Any] = Counter()
    rows = []
    for row in table.to_pylist():
        space = row["memory_space"], row.get("page")
        counts[space] += 1
        if counts[space] <= output.limit:
            rows.append(row)
    return rows
