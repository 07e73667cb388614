"""`xlamem top`: where the bytes are, flat or as a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ... import compute, schema
from ...compute import KEYS
from ...errors import UsageError
from .. import console
from ..buffers import KINDS
from ..program import MAIN, NEEDED, Row, module_option, one, output_options, space_of, states, title

if TYPE_CHECKING:
    from rich.text import Text

    from ...dump import Dump

LIMIT = 20
BAR = 16
LEAST = 0.005
"""Nodes of the tree below this part of their memory space are summed up."""


@dataclass
class Node:
    """A scope: its own bytes and those of all below it."""

    bytes: int = 0
    n: int = 0
    below: dict[str, Node] = field(default_factory=dict)


@click.command("top", short_help="Say where the bytes are: by scope, source line, opcode, …")
@click.argument("path", metavar="PATH")
@click.option("--by", default="scope", show_default=True, metavar="A,B", help="What to add up by; see below.")
@click.option("--at", type=int, metavar="N", help="Step of the schedule; by default each memory space's own peak.")
@click.option("--depth", type=click.IntRange(min=1), help="Only the first parts of a scope.")
@click.option("--fold", is_flag=True, help="Take layers together: layers_17 becomes layers_*.")
@click.option("--tree", is_flag=True, help="Scopes as a tree, each with all that is below it.")
@output_options(LIMIT, "Rows shown per memory space.")
@module_option
def command(
    path: str,
    by: str,
    at: int | None,
    depth: int | None,
    fold: bool,
    tree: bool,
    space: str | None,
    limit: int | None,
    wide: bool,
    as_json: bool,
    as_csv: bool,
    module: str | None,
) -> int:
    """Add up the bytes in use at a step of the program in PATH by scope, source (file:line), op_name, opcode,
    element_type, shape, category, instruction, role or memory_space, or by several of them. The rows of a memory
    space add up to what is in use of it.
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    keys = [k.strip() for k in by.split(",") if k.strip() and k.strip() != "memory_space"]
    if unknown := [k for k in keys if k not in KEYS]:
        raise UsageError(f"cannot add up by {', '.join(unknown)}: there are {', '.join(KEYS)}")
    if tree and keys != ["scope"]:
        raise UsageError("--tree goes with --by scope")
    dump = one(path, module, NEEDED)
    wanted: Any = ("memory_space", *keys)
    found = compute.attribution(dump, wanted, time=at, space=space_of(space), depth=depth, fold=fold)
    head = dump.modules.to_pylist()[0]
    rows = found.to_pylist()
    if as_json:
        kept = rows if limit is None else rows[:limit]
        said = {"by": ["memory_space", *keys], "time": at, "rows": kept, "n_rows": len(rows)}
        console.out_json({"schema_version": schema.VERSION, "name": dump.name, "module": head, **said})
    elif as_csv:
        names = found.column_names
        console.out_csv(names, ([row[n] for n in names] for row in (rows if limit is None else rows[:limit])))
    else:
        _print(
            dump, head, rows, keys, at, LIMIT if limit is None else limit, None if wide else console.width(), tree=tree
        )
    return console.FINE


def _print(
    dump: Dump,
    head: Row,
    rows: list[Row],
    keys: list[str],
    at: int | None,
    limit: int,
    width: int | None,
    *,
    tree: bool,
) -> None:
    from rich.text import Text

    texts = title(dump.source, head, width, states(dump))
    steps = {s["memory_space"]: s["first_step"] for s in compute.peak(dump).spaces.to_pylist()}
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["memory_space"]] = totals.get(row["memory_space"], 0) + row["bytes"]
    for name in sorted(totals, key=lambda s: (s not in MAIN, -totals[s])):
        total = totals[name]
        if not total:
            continue
        step = steps[name] if at is None else at
        texts += [Text(), Text.assemble((name, "bold"), f"  {console.exact(total)} in use at step {step:,}")]
        own = [r for r in rows if r["memory_space"] == name]
        texts += _tree(own, total, limit, width) if tree else _flat(own, keys, total, limit, width)
    console.rich_out(*texts, width=width)


def _flat(rows: list[Row], keys: list[str], total: int, limit: int, width: int | None) -> list[Text]:
    from rich.text import Text

    texts = []
    shown = [r for r in rows if r["bytes"]][:limit]
    counts = max((len(f"{r['n']:,}") for r in shown), default=1)
    for r in shown:
        start = f"  {console.size(r['bytes']).rjust(11)}  {console.percent(r['bytes'], total).rjust(7)}  "
        bar = console.bar(r["bytes"], total, BAR).ljust(BAR)
        number = f"{r['n']:,}"
        n = f"  {number.rjust(counts)}×  "
        room = width and width - len(start) - len(bar) - len(n)
        said = {k: KINDS.get(r[k], r[k]) if k == "category" else r[k] for k in keys}
        what = "  ".join(
            console.visible(str(v)).replace("\n", "\\n") if v is not None else f"(no {k})" for k, v in said.items()
        )
        texts.append(Text.assemble(start, (bar, "cyan"), (n, "dim"), console.tail(what, room)))
    left = [r for r in rows if r["bytes"]][limit:]
    if left:
        size = sum(r["bytes"] for r in left)
        start = f"  {console.size(size).rjust(11)}  {console.percent(size, total).rjust(7)}  "
        texts.append(Text(f"{start}in {len(left):,} more; --limit shows more", "dim"))
    return texts


def _tree(rows: list[Row], total: int, limit: int, width: int | None) -> list[Text]:
    root = Node()
    for r in rows:
        path = (
            ("(no scope)",)
            if r["scope"] is None
            else tuple(console.visible(r["scope"]).replace("\n", "\\n").split("/"))
        )
        at = root
        for part in path:
            at = at.below.setdefault(part, Node())
            at.bytes += r["bytes"]
            at.n += r["n"]
    texts: list[Text] = []
    _branch(root, total, limit, width, "", texts)
    return texts


def _branch(node: Node, total: int, limit: int, width: int | None, indent: str, texts: list[Text]) -> None:
    from rich.text import Text

    ordered = sorted(((n, p) for p, n in node.below.items() if n.bytes), key=lambda p: -p[0].bytes)
    kept = [p for i, p in enumerate(ordered) if i < limit and p[0].bytes >= LEAST * total]
    for i, (below, part) in enumerate(kept):
        while len(below.below) == 1 and next(iter(below.below.values())).bytes == below.bytes:
            (name, below), *_ = below.below.items()
            part = f"{part}/{name}"
        last = i == len(kept) - 1 and len(kept) == len(ordered)
        start = f"  {console.size(below.bytes).rjust(11)}  {console.percent(below.bytes, total).rjust(7)}  "
        twig = f"{indent}{'└─ ' if last else '├─ '}"
        room = width and width - len(start) - len(twig)
        texts.append(Text.assemble(start, (twig, "dim"), console.tail(part, room)))
        _branch(below, total, limit, width, indent + ("   " if last else "│  "), texts)
    if left := ordered[len(kept) :]:
        size = sum(n.bytes for n, _ in left)
        start = f"  {console.size(size).rjust(11)}  {console.percent(size, total).rjust(7)}  "
        texts.append(Text(f"{start}{indent}└─ … {len(left):,} more", "dim"))
