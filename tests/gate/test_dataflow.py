"""Where values appear and when they are live, in modules of a few instructions."""

from __future__ import annotations

from typing import Any

import pytest

from xlamem.gate.dataflow import Dataflow, LiveRanges, NotKnownError, Position, _forwarded, _reads, _scheduled
from xlamem.gate.hlo_module import HloModule, Instruction

F, P = "f32[2]", "(f32[2], f32[2])"


class Module:
    """A module of instructions with their shapes; computation 1 is the entry, and the last instruction a root."""

    def __init__(
        self, *instructions: tuple[int, str, list[int], str] | tuple[int, str, list[int], str, dict[str, Any]],
        aliased: set[Any] = frozenset(),  # type: ignore[assignment]
    ) -> None:
        plain = {"computation": 1, "called": [], "parameter_number": 0, "tuple_index": 0}
        self.shapes = {i: shape for i, _, _, shape, *_ in instructions}
        self.instructions = {
            i: Instruction(id=i, name=f"i{i}", opcode=opcode, operands=operands, **plain)
            for i, opcode, operands, *_ in instructions
        }
        for i, _, _, _, *more in instructions:
            self.instructions[i] = self.instructions[i]._replace(**(more[0] if more else {}))
        self.computations: dict[int, list[int]] = {}
        for each in self.instructions.values():
            self.computations.setdefault(each.computation, []).append(each.id)
        self.roots = {number: own[-1] for number, own in self.computations.items()}
        self.schedule, self.entry, self.aliased = self.computations, 1, aliased

    def __getitem__(self, number: int) -> Instruction:
        return self.instructions[number]

    def shape(self, instruction: Instruction, index: Any = ()) -> str:
        return self.shapes[instruction.id]

    def callers(self) -> dict[int, Instruction]:
        return HloModule.callers(self)  # type: ignore[arg-type]


def flow_of(module: Module, *defined: Position) -> Dataflow:
    """Return the positions of values, which are numbered from 1 in this order."""
    return Dataflow(module, {at: i for i, at in enumerate(defined, 1)})  # type: ignore[arg-type]


def instruction(opcode: str, **more: Any) -> Instruction:
    plain = {"computation": 1, "called": [], "parameter_number": 0, "tuple_index": 2}
    return Instruction(id=1, name="i", opcode=opcode, operands=[], **{**plain, **more})


@pytest.mark.parametrize(
    ("opcode", "index", "source"),
    [
        ("get-tuple-element", (), (0, (2,))), ("get-tuple-element", (1,), (0, (2, 1))), ("bitcast", (), (0, ())),
        ("while", (1, 2), (0, (1, 2))), ("domain", (3,), (0, (3,))), ("all-reduce-done", (1,), (0, (1,))),
        ("tuple", (1,), (1, ())), ("tuple", (2, 3), (2, (3,))), ("copy-start", (1,), (0, ())),
        ("copy-start", (1, 4), (0, (4,))), ("copy-done", (), (0, (0,))), ("copy-done", (5,), (0, (0, 5))),
        ("async-done", (5,), (0, (1, 5))), ("async-start", (0, 3), (3, ())), ("async-start", (0, 3, 1), (3, (1,))),
        ("all-gather-start", (0,), (0, ())), ("all-gather-start", (0, 2, 1), (2, (1,))),
        ("collective-permute-start", (0, 1), (1, ())), ("all-gather-done", (1,), (0, (1, 1))), ("send", (0,), (0, ())),
        ("send", (0, 1), (0, (1,))), ("recv-done", (0, 1), (0, (0, 1))), ("opt-barrier", (1,), (0, (1,))),
    ],
)  # fmt: skip
def test_where_the_value_of_a_result_comes_from(opcode: str, index: Any, source: Any) -> None:
    assert _forwarded(instruction(opcode), index) == source


@pytest.mark.parametrize(
    ("opcode", "index"),
    [
        ("add", ()), ("tuple", ()), ("copy-start", (0,)), ("copy-start", ()), ("copy-start", (2,)), ("send", (1,)),
        ("async-start", (0,)), ("async-start", (2,)), ("recv-done", (1,)), ("all-gather-start", (1,)), ("new", (0,)),
    ],
)  # fmt: skip
def test_results_that_are_values_of_their_own(opcode: str, index: Any) -> None:
    with pytest.raises(NotKnownError):
        _forwarded(instruction(opcode), index)


def test_what_reads_an_operand() -> None:
    opcodes = ("add", "tuple", "get-tuple-element", "copy", "domain")
    assert [[_reads(opcode, index) for opcode in opcodes] for index in ((), (1,))] == [
        [True, False, True, True, False], [True, False, False, False, False],
    ]  # fmt: skip
    assert _scheduled(instruction("while", called=[5, 6])) == [6, 5]
    assert _scheduled(instruction("call", called=[5])) == [5]
    assert _scheduled(instruction("async-start", called=[5])) == [5]
    assert _scheduled(instruction("fusion", called=[5])) == []


def test_a_value_may_be_at_several_places_of_a_tuple() -> None:
    m = Module((1, "parameter", [], F), (2, "tuple", [1, 1], P), (3, "get-tuple-element", [2], F, {"tuple_index": 1}),
               (4, "neg", [3], F))  # fmt: skip
    flow = flow_of(m, (1, ()), (2, ()), (4, ()))
    assert flow.positions == {1: [(1, ()), (2, (0,)), (2, (1,)), (3, ())], 2: [(2, ())], 3: [(4, ())]}
    assert flow.value((2, (1,))) == 1
    assert [(u.user.id, u.operand, u.at) for u in flow.uses(2)] == [(3, 0, ())]
    assert [(u.user.id, u.operand, u.at) for u in flow.uses(1)] == [(4, 0, ())]


def test_operands_of_calls() -> None:
    """Branches get the operands after the first, and bodies of loops their carry."""
    m = Module(
        (1, "parameter", [], F), (2, "add", [1], F), (3, "sub", [1], F),
        (4, "conditional", [1, 2, 3], F, {"called": [7, 8]}), (5, "while", [3], F, {"called": [9, 10]}),
        (71, "parameter", [], F, {"computation": 7}), (81, "parameter", [], F, {"computation": 8}),
        (91, "parameter", [], F, {"computation": 9}), (101, "parameter", [], F, {"computation": 10}),
    )  # fmt: skip
    flow = flow_of(m, (1, ()), (2, ()), (3, ()))
    assert [flow.value((n, ())) for n in (71, 81, 91, 101)] == [2, 3, 3, 3]
    called = Module((1, "parameter", [], F), (2, "add", [1], F), (3, "call", [1, 2], F, {"called": [7]}),
                    (71, "parameter", [], F, {"computation": 7, "parameter_number": 1}))  # fmt: skip
    flow = flow_of(called, (1, ()), (2, ()))
    assert (flow.value((71, ())), flow.value((3, ()))) == (2, 2)


@pytest.mark.parametrize(
    "module",
    [
        Module((1, "bitcast", [2], F), (2, "bitcast", [1], F)),
        Module((1, "tuple", [], P)),
        Module((1, "parameter", [], F)),
        Module((1, "add", [], F)),
    ],
)
def test_values_that_come_from_nowhere(module: Module) -> None:
    with pytest.raises(NotKnownError):
        flow_of(module)


def live(module: Module, *defined: Position, shared: tuple[set[int], ...] = ()) -> dict[int, tuple[int, int]]:
    return LiveRanges(module, flow_of(module, *defined), list(shared)).ranges  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("aliased", "ends"),
    [(set(), (6, 6, 6)), ({(0, (0,))}, (6, 4, 6)), ({(0, (1,))}, (6, 6, 5)), ({(0, ())}, (2, 6, 6))],
)
def test_arguments_are_live_to_the_end_unless_they_are_donated(aliased: Any, ends: Any) -> None:
    """Each element of a tuple on its own."""
    m = Module(
        (1, "parameter", [], P), (2, "get-tuple-element", [1], F), (3, "get-tuple-element", [1], F, {"tuple_index": 1}),
        (4, "add", [2], F), (5, "neg", [2], F), (6, "sub", [3], F), aliased=aliased,
    )  # fmt: skip
    ranges = live(m, (1, ()), (1, (0,)), (1, (1,)), (4, ()), (5, ()), (6, ()))
    assert [ranges[n] for n in (1, 2, 3)] == [(0, end) for end in ends]
    assert (ranges[4], ranges[5], ranges[6]) == ((3, 3), (4, 4), (5, 6))


def test_values_of_one_buffer_follow_each_other() -> None:
    m = Module((1, "parameter", [], F), (2, "neg", [1], F), (3, "abs", [2], F), (4, "add", [2, 3], F),
               (5, "sub", [3, 4], F))  # fmt: skip
    at = [(n, ()) for n in (1, 2, 3, 4, 5)]
    assert live(m, *at) == {1: (0, 5), 2: (1, 3), 3: (2, 4), 4: (3, 4), 5: (4, 5)}
    assert live(m, *at, shared=({2, 3},)) == {1: (0, 5), 2: (1, 2), 3: (2, 4), 4: (3, 4), 5: (4, 5)}
    assert live(m, *at, shared=({2, 4},)) == {1: (0, 5), 2: (1, 3), 3: (2, 4), 4: (3, 4), 5: (4, 5)}
    inside = Module((1, "neg", [], F), (2, "abs", [], F), (3, "add", [2], F), (4, "sub", [1], F))
    at = [(n, ()) for n in (1, 2, 3, 4)]
    assert live(inside, *at)[1] == (0, 3)
    assert live(inside, *at, shared=({1, 2},)) == {1: (0, 1), 2: (1, 3), 3: (2, 2), 4: (3, 4)}


def test_the_schedule_has_called_computations_first() -> None:
    """The condition of a loop before its body; a carried value is live until the body begins."""
    m = Module(
        (1, "parameter", [], F), (2, "neg", [1], F), (3, "while", [2], F, {"called": [8, 9]}), (4, "abs", [3], F),
        (81, "parameter", [], F, {"computation": 8}), (82, "neg", [81], F, {"computation": 8}),
        (91, "parameter", [], F, {"computation": 9}), (92, "neg", [91], F, {"computation": 9}),
    )  # fmt: skip
    flow = flow_of(m, (1, ()), (2, ()), (3, ()), (4, ()), (81, ()), (82, ()), (91, ()), (92, ()))
    made = LiveRanges(m, flow, [])  # type: ignore[arg-type]
    assert [i.id for i in made.schedule] == [1, 2, 91, 92, 81, 82, 3, 4]
    assert made.ranges == {
        1: (0, 8), 2: (1, 4), 3: (6, 7), 4: (7, 8), 5: (4, 5), 6: (5, 6), 7: (2, 3), 8: (3, 4),
    }  # fmt: skip
    m.schedule = {1: m.schedule[1]}
    with pytest.raises(NotKnownError):
        LiveRanges(m, flow, [])  # type: ignore[arg-type]


def test_values_of_fusions_have_no_positions() -> None:
    m = Module((1, "parameter", [], F), (2, "fusion", [1], F, {"called": [7]}),
               (71, "parameter", [], F, {"computation": 7}))  # fmt: skip
    assert flow_of(m, (1, ()), (2, ())).positions == {1: [(1, ())], 2: [(2, ())]}


def test_positions_are_in_the_order_of_ids() -> None:
    """Whatever the order of the instructions in the proto is."""
    m = Module((1, "parameter", [], F), (3, "bitcast", [1], F), (2, "bitcast", [1], F), (4, "neg", [3], F))
    assert flow_of(m, (1, ()), (4, ())).positions == {1: [(1, ()), (2, ()), (3, ())], 2: [(4, ())]}
    chain = Module((3, "parameter", [], F), (2, "bitcast", [3], F), (1, "bitcast", [2], F))  # through all of them
    assert flow_of(chain, (3, ())).positions == {1: [(3, ()), (1, ()), (2, ())]}


def test_what_runs_meanwhile_is_live_until_it_is_done() -> None:
    """Also what a computation defines that the asynchronous one calls."""
    m: Any = Module(
        (1, "parameter", [], F), (2, "neg", [1], F), (3, "async-start", [2], f"(({F}), {F}, s32[])", {"called": [7]}),
        (4, "abs", [1], F), (5, "async-done", [3], F), (6, "add", [4, 5], F),
        (71, "parameter", [], F, {"computation": 7}), (72, "call", [71], F, {"computation": 7, "called": [8]}),
        (81, "parameter", [], F, {"computation": 8}), (82, "neg", [81], F, {"computation": 8}),
        (83, "abs", [82], F, {"computation": 8}),
    )  # fmt: skip
    flow = flow_of(m, (1, ()), (2, ()), (3, ()), (3, (0,)), (3, (2,)), (4, ()), (6, ()), (82, ()), (83, ()))
    made = LiveRanges(m, flow, [])
    assert [i.id for i in made.schedule] == [1, 2, 71, 81, 82, 83, 72, 3, 4, 5, 6]
    assert made.ranges[8] == (4, 9)
