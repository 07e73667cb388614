"""The graph of a small program, whatever the order of its values is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attacks
import pytest
from attacks import record, value

import xlamem
from xlamem.compare.graph import Graph, Texts
from xlamem.compute.program import program

VALUES = ["p.1", "a.2", "f{0}", "f{1}", "u.3"]
INSTRUCTIONS = {
    "p.1": "f32[2]{0} parameter(0)",
    "a.2": 'f32[2]{0} add(%p.1, %p.1), metadata={op_name="jit(f)/jvp(layer)/add"}',
    "f": "(f32[2]{0}, f32[2]{0}) fusion(%a.2), kind=kLoop, calls=%c",
}
USES = {
    "p.1": "  a.2, operand 0\n  a.2, operand 1",
    "a.2": "  f, operand 0",
    "f{0}": "  u.3, operand 0",
    "f{1}": "  a.2, operand 7",
}
STEPS = {"p.1": 0, "a.2": 1, "f": 2, "u.3": 3}


def texts(found: Texts) -> list[str | None]:
    names = found.texts.to_pylist()
    return [names[code] if code >= 0 else None for code in found.codes.tolist()]


def instruction(name: str) -> str:
    return name.partition("{")[0]


@pytest.mark.parametrize("first", range(len(VALUES)))
def test_nodes_and_edges(first: int, make: Callable[..., Path]) -> None:
    """The text of the last instruction is not printed: what it reads is not known, and its name tells its opcode."""
    order = VALUES[first:] + VALUES[:first]
    ranges = [f"{name}{'' if '{' in name else '{}'}:{STEPS[instruction(name)]}-4" for name in order]
    members = attacks.dump(
        [value(i, name, 8, 8 * i) for i, name in enumerate(order)],
        records=[
            record(i, name, INSTRUCTIONS[instruction(name)], uses=USES[name])
            for i, name in enumerate(order)
            if name in USES
        ],
        schedule=[*STEPS],
        ranges=ranges,
    )
    g = Graph(program(xlamem.read(make(members))))
    nodes = [*dict.fromkeys(map(instruction, order))]
    assert g.n == len(nodes)
    assert [nodes[node] for node in g.node_of_value.tolist()] == [instruction(name) for name in order]
    opcodes = {"p.1": "parameter", "a.2": "add", "f": "fusion", "u.3": "u"}
    assert texts(g.opcodes) == [opcodes[name] for name in nodes]
    assert texts(g.plain_names) == ["layer/add" if name == "a.2" else None for name in nodes]
    assert texts(g.numbers) == ["0" if name == "p.1" else None for name in nodes]
    assert g.is_parameter.tolist() == [name == "p.1" for name in nodes]
    assert g.unpadded.tolist() == [8] * g.n
    assert g.step.tolist() == [STEPS[name] for name in nodes]
    assert g.position.tolist() == g.step.tolist()
    edges = zip(g.edges.source.tolist(), g.edges.target.tolist(), g.edges.operand.tolist(), strict=True)
    assert {(nodes[a], nodes[b], n) for a, b, n in edges} == {
        ("p.1", "a.2", 0), ("p.1", "a.2", 1), ("a.2", "f", 0), ("f", "a.2", 7),
    }  # fmt: skip
