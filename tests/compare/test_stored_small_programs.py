"""Differences of small random programs, and edits of them, compared with what they were before."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import attacks
import pytest
from attacks import Members, record, value
from stored import check

import xlamem

SCOPES = (
    "layer_0/mlp", "layer_1/mlp", "layer_2/attn", "head", "jvp(layer_0)/mlp", "transpose(jvp(layer_0))/mlp",
    "transpose(jvp())/checkpoint/rematted_computation", "jvp()/while/body", "",
)  # fmt: skip
LEAVES = ("dot_general", "add", "tanh", "convert_element_type", "reduce_precision", "dynamic_update_slice", "pjit")
OPCODES = ("add", "dot", "fusion", "copy", "convert", "all-reduce", "while", "copy-start")
WIDTHS = {"f32": 4, "bf16": 2, "s32": 4, "f8e4m3fn": 1, "pred": 1}
TEMP, ARGUMENT, DONATED, OUTPUT, CONSTANT = range(5)


@dataclass(frozen=True)
class Op:
    name: str
    opcode: str
    kind: str
    dims: tuple[int, ...]
    path: str
    operands: tuple[int, ...] = ()
    place: int = TEMP
    color: int = 0
    line: int = 1
    more: int = 0
    """Steps that it lives longer than it is read."""

    @property
    def shape(self) -> str:
        return f"{self.kind}[{','.join(map(str, self.dims))}]"

    @property
    def size(self) -> int:
        return WIDTHS[self.kind] * math.prod(self.dims)


def a_program(chance: random.Random) -> list[Op]:
    ops: list[Op] = []
    for i in range(chance.randint(1, 3)):
        place = chance.choice((ARGUMENT, ARGUMENT, DONATED))
        dims = chance.choice(((16, 64), (64,), (4, 16, 64)))
        ops.append(Op(f"p.{i}", f"parameter({i})", "f32", dims, f"params['w{i}']", place=place))
    if chance.random() < 0.4:
        ops.append(Op("c.9", "constant({...})", "f32", (256, 64), "const", place=CONSTANT))
    for i in range(chance.randint(3, 9)):
        opcode = chance.choice(OPCODES)
        operands = tuple(chance.randrange(len(ops)) for _ in range(chance.randint(1, 2)))
        dims = chance.choice(((16, 64), (16, 128), (24, 16, 64), (), (64,)))
        path = f"{chance.choice(SCOPES)}/{chance.choice(LEAVES)}".lstrip("/") if chance.random() < 0.9 else ""
        kind = chance.choice(("f32", "f32", "bf16")) if dims else "pred"
        ops.append(Op(f"{opcode}.{i}", opcode, kind, dims, path, operands, line=chance.randint(1, 5)))
    return [replace(op, place=OUTPUT) if k >= len(ops) - chance.randint(0, 2) else op for k, op in enumerate(ops)]


# -- edits ---------------------------------------------------------------------------------------


def renumbered(ops: list[Op], chance: random.Random) -> list[Op]:
    return [replace(op, name=f"{op.name.partition('.')[0]}.{k + 40}") for k, op in enumerate(ops)]


def resized(ops: list[Op], chance: random.Random) -> list[Op]:
    a, b = chance.choice(((16, 32), (64, 48), (24, 12)))
    return [replace(op, dims=tuple(b if n == a else n for n in op.dims)) for op in ops]


def retyped(ops: list[Op], chance: random.Random) -> list[Op]:
    some, kind = chance.random() < 0.5, chance.choice(("bf16", "f32", "s32", "f8e4m3fn"))
    return [replace(op, kind=kind) if some or chance.random() < 0.3 else op for op in ops]


def one_changed(**choices: Any) -> Callable[[list[Op], random.Random], list[Op]]:
    """Return an edit of one operation."""

    def edit(ops: list[Op], chance: random.Random) -> list[Op]:
        k = chance.randrange(len(ops))
        found = {name: chance.choice(values) for name, values in choices.items()}
        return [replace(op, **found) if i == k else op for i, op in enumerate(ops)]

    return edit


def without_one(ops: list[Op], chance: random.Random) -> list[Op]:
    k = chance.randrange(len(ops))
    kept = [op for i, op in enumerate(ops) if i != k]
    number = {i: n for n, i in enumerate(i for i in range(len(ops)) if i != k)}
    return [replace(op, operands=tuple(number[o] for o in op.operands if o in number)) for op in kept]


def with_another(ops: list[Op], chance: random.Random) -> list[Op]:
    path = f"layer_3/mlp/{chance.choice(LEAVES)}"
    place = chance.choice((TEMP, TEMP, OUTPUT))
    return [*ops, Op("new.7", chance.choice(OPCODES), "f32", (16, 64), path, (0, len(ops) - 1), place)]


def with_an_argument(ops: list[Op], chance: random.Random) -> list[Op]:
    n = sum(op.place in (ARGUMENT, DONATED) for op in ops)
    return [*ops, Op("p.77", f"parameter({n})", "f32", (16, 32), "batch['x']", place=ARGUMENT)]


def other_scopes(ops: list[Op], chance: random.Random) -> list[Op]:
    a, b = chance.choice((("mlp", "ffn"), ("layer_1", "layer_4"), ("jvp", "checkpoint/jvp"), ("tanh", "relu")))
    return [replace(op, path=op.path.replace(a, b)) for op in ops]


def other_order(ops: list[Op], chance: random.Random) -> list[Op]:
    arguments = [op for op in ops if op.place in (ARGUMENT, DONATED)]
    names = [op.path for op in arguments][::-1]
    return [replace(op, path=names[k]) if k < len(names) else op for k, op in enumerate(ops)]


EDITS = (
    renumbered, resized, retyped, one_changed(place=(TEMP, OUTPUT, DONATED)), one_changed(color=(0, 1)),
    one_changed(more=(1, 4)), one_changed(dims=((8,), (16, 64), (512, 64))), one_changed(opcode=OPCODES), without_one,
    with_another, with_an_argument, other_scopes, other_order, one_changed(line=(9,)),
)  # fmt: skip


# -- dumps ---------------------------------------------------------------------------------------

ALLOCATED = {
    ARGUMENT: "parameter {n}, shape |{shape}| at ShapeIndex {{}}:", OUTPUT: "maybe-live-out:", CONSTANT: "constant:",
    DONATED: "parameter {n}, shape |{shape}| at ShapeIndex {{}}, maybe-live-out:",
}  # fmt: skip


def written(ops: list[Op]) -> Members:
    """Return the dump of a program: temporaries of each memory space have a place each."""
    allocations, records, ranges, n_arguments = [], [], [], 0
    temps: dict[int, list[tuple[int, Op]]] = {}
    for i, op in enumerate(ops):
        users = [k for k, other in enumerate(ops) if i in other.operands]
        end = len(ops) if op.place in (ARGUMENT, DONATED, OUTPUT) else min(max([*users, i]) + op.more, len(ops))
        start = 0 if op.place in (ARGUMENT, DONATED, CONSTANT) else i
        ranges.append(f"{op.name}{{}}:{start}-{end}")
        uses = "\n".join(f"  {ops[k].name}, operand {ops[k].operands.index(i)}" for k in users)
        metadata = f'metadata={{op_name="{op.path}" source_file="train.py" source_line={op.line}}}' if op.path else ""
        call = op.opcode if "(" in op.opcode else f"{op.opcode}({', '.join('%' + ops[o].name for o in op.operands)})"
        text = ", ".join(filter(None, [f"{op.shape} {call}", metadata]))
        records.append(record(i, op.name, text, uses=uses).replace(" @0>", f" @{op.color}>"))
        if op.place == TEMP:
            temps.setdefault(op.color, []).append((i, op))
            continue
        about = ALLOCATED[op.place].format(n=n_arguments, shape=op.shape)
        n_arguments += op.place in (ARGUMENT, DONATED)
        color = f"color {op.color}, " if op.color else ""
        allocations.append(f"allocation {len(allocations)}: size {op.size}, {color}{about}\n"
                           + value(i, op.name, op.size, 0, op.shape, op.color))  # fmt: skip
    for color, own in sorted(temps.items()):
        offset, texts = 0, []
        for i, op in own:
            texts.append(value(i, op.name, op.size, offset, op.shape, color))
            offset += op.size
        about = f"color {color}, " if color else ""
        allocations.append(f"allocation {len(allocations)}: size {offset}, {about}preallocated-temp:\n{''.join(texts)}")
    return attacks.dump(
        [], allocations="".join(allocations), records=records, schedule=[op.name for op in ops], ranges=ranges
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_differences(platform: str, seed: int, make: Callable[..., Path]) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(f"{platform} {seed}")
        for n in range(7):
            a = a_program(chance)
            b = a
            for edit in chance.sample(EDITS, chance.randint(1, 3)):
                b = edit(b, chance)
            members = [written(ops) for ops in (a, b)]
            if n % 4 == 3:
                del members[n // 4 % 2]["live-range"]
            d = xlamem.diff(*(xlamem.read(make(m, f"{platform}_after_optimizations")) for m in members))
            yield f"{n} verdict", d.verdict
            yield f"{n} edits", [{**row, "edit": None} for row in d.edits.to_pylist()]
            tables = (d.accounts, d.bills, d.buffers, d.matches)
            yield f"{n} tables", [table.to_pylist() for table in tables]

    check(f"compare/small-{platform}-{seed}", results())
