"""Where the values of a compiled program appear, and when they are live.

The definitions are those of XLA's HloDataflowAnalysis and HloLiveRange, for a module whose values are known: each
result, or element of a result, defines a value or has that of another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from .hlo_module import HloModule, Index, Instruction, indices

Position = tuple[int, Index]
"""Id of an instruction, and an index into its shape."""
Range = tuple[int, int]

_KEEPING = {"bitcast", "opt-barrier", "domain", "add-dependency", "while", "async-update", "all-reduce-done"}
"""Instructions that have the value of their first operand at the same index."""
_FORWARDING = {"get-tuple-element", "copy", "tuple", "domain"}
"""Instructions that read no element of an operand; the first two read the operand itself."""
_CALLING = {"call", "conditional"}


class NotKnownError(Exception):
    """Where a value comes from is not known: an instruction that this version of xlamem does not know."""


class Use(NamedTuple):
    """An operand of an instruction, and the index in it."""

    user: Instruction
    operand: int
    at: Index


class Dataflow:
    """Positions and uses of values. Raises NotKnownError."""

    def __init__(self, module: HloModule, defined: dict[Position, int]) -> None:
        """Find the value at every position. `defined` has the ids of the values, by their defining positions."""
        self._module, self._value, self._callers = module, dict(defined), module.callers()
        self.positions: dict[int, list[Position]] = {value: [at] for at, value in defined.items()}
        fused = {called for i in module.instructions.values() if i.opcode == "fusion" for called in i.called}
        for computation, numbers in module.computations.items():
            if computation not in fused:
                self._add_positions(numbers)
        self._users: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        """Of each instruction, the instructions with it as operand, and the numbers of these operands."""
        self._readers: dict[int, list[int]] = defaultdict(list)
        """Of each instruction, those among its users that read elements of it."""
        for instruction in module.instructions.values():
            for operand, number in enumerate(instruction.operands):
                self._users[number][instruction.id].append(operand)
                if instruction.opcode not in _FORWARDING:
                    self._readers[number].append(instruction.id)

    def _add_positions(self, numbers: list[int]) -> None:
        for number in sorted(numbers):
            for index in indices(self._module.shape(self._module[number])):
                value = self.value((number, index))
                if self.positions[value][0] != (number, index):
                    self.positions[value].append((number, index))

    def value(self, at: Position) -> int:
        """Return the value at a position."""
        path = [at]
        while (value := self._value.get(path[-1])) is None:
            path.append(self._source(self._module[path[-1][0]], path[-1][1]))
            if len(path) > len(self._module.instructions):
                raise NotKnownError
        self._value.update(dict.fromkeys(path, value))
        return value

    def _source(self, at: Instruction, index: Index) -> Position:
        """Return the position whose value a position has that defines none."""
        if at.opcode == "parameter":
            return self._argument(at, index)
        if at.opcode in _CALLING and at.called:
            return self._module.roots[at.called[0]], index
        if at.opcode == "async-start" and at.called and index[:1] == (1,):
            return self._module.roots[at.called[0]], index[1:]
        operand, source = _forwarded(at, index)
        if operand >= len(at.operands):
            raise NotKnownError
        return at.operands[operand], source

    def _argument(self, parameter: Instruction, index: Index) -> Position:
        """Return what a parameter of a called computation gets from its caller."""
        caller = self._callers.get(parameter.computation)
        if caller is None:
            raise NotKnownError
        if caller.opcode == "while":
            return caller.operands[0], index
        if caller.opcode == "conditional":
            return caller.operands[1 + caller.called.index(parameter.computation)], index
        if caller.opcode in ("call", "async-start"):
            return caller.operands[parameter.parameter_number], index
        raise NotKnownError

    def uses(self, value: int) -> Iterator[Use]:
        """Return the operands that read a value. The root of a computation counts as a user."""
        module, positions = self._module, self.positions[value]
        roots = {number for number, _ in positions if number == module.roots[module[number].computation]}
        for number, index in positions:
            users = self._users[number]
            for user in dict.fromkeys([*(self._readers[number] if index else users), *(roots & users.keys())]):
                if user in roots or _reads(module[user].opcode, index):
                    yield from (Use(module[user], operand, index) for operand in users[user])

    def done(self, async_start: Instruction) -> Instruction:
        """Return the instruction that waits for an asynchronous one."""
        at = async_start
        while at.opcode in ("async-start", "async-update"):
            at = self._module[next(iter(self._users[at.id]))]
        return at


def _forwarded(at: Instruction, index: Index) -> tuple[int, Index]:
    """Return the number of the operand whose value an instruction has at an index, and the index in the operand."""
    first, rest = index[:1], index[1:]
    match at.opcode, first:
        case "get-tuple-element", _:
            return 0, (at.tuple_index, *index)
        case opcode, _ if opcode in _KEEPING:
            return 0, index
        case "tuple", (i,):
            return i, rest
        case "copy-start", (1,):
            return 0, rest
        case "copy-done", _:
            return 0, (0, *index)
        case "async-done", _:
            return 0, (1, *index)
        case "async-start", (0,) if rest:
            return rest[0], rest[1:]
        case ("all-gather-start" | "collective-permute-start"), (0,):
            return (rest[0], rest[1:]) if rest else (0, ())
        case ("all-gather-done" | "collective-permute-done"), _:
            return 0, (1, *index)
        case ("send", (0,)):
            return 0, rest
        case ("recv-done", (0,)):
            return 0, index
    raise NotKnownError


def _reads(opcode: str, index: Index) -> bool:
    """Return whether an instruction reads what is at this index of its operand."""
    return opcode not in _FORWARDING or (not index and opcode in ("get-tuple-element", "copy"))


class LiveRanges:
    """The schedule, with called computations before their callers, and the live range of each value."""

    def __init__(self, module: HloModule, flow: Dataflow, buffers: list[set[int]]) -> None:
        """Compute the live ranges. `buffers` are the values that must share memory."""
        self._module, self._flow = module, flow
        self.schedule: list[Instruction] = []
        self._time: dict[int, int] = {}
        self._spans: dict[int, Range] = {}
        self._async_start: dict[int, Instruction] = {}
        """Instruction that runs a computation, or one that calls it, while others run."""
        self._flatten(module.entry)
        self.ranges = {value: self._range(value) for value in flow.positions if self._first(value).id in self._time}
        for values in buffers:
            self._separate(sorted((*self.ranges[value], value) for value in values & self.ranges.keys()))

    def _first(self, value: int) -> Instruction:
        return self._module[self._flow.positions[value][0][0]]

    def _flatten(self, computation: int, async_start: Instruction | None = None) -> None:
        if computation in self._spans:
            return
        if computation not in self._module.schedule:
            raise NotKnownError
        if async_start is not None:
            self._async_start[computation] = async_start
        begin = len(self.schedule)
        for instruction in map(self._module.__getitem__, self._module.schedule[computation]):
            for called in _scheduled(instruction):
                self._flatten(called, instruction if instruction.opcode == "async-start" else async_start)
            self._time[instruction.id] = len(self.schedule)
            self.schedule.append(instruction)
        self._spans[computation] = begin, len(self.schedule)

    def _range(self, value: int) -> Range:
        first, positions = self._first(value), self._flow.positions[value]
        is_parameter = first.opcode == "parameter"
        start = self._spans[first.computation][0] if is_parameter else self._time[first.id]
        read_only = (first.parameter_number, positions[0][1]) not in self._module.aliased
        if is_parameter and first.computation == self._module.entry and read_only:
            return start, len(self.schedule)
        ends = [self._end(number) for number, _ in positions]
        ends += [self._last_use(use.user) for use in self._flow.uses(value)]
        if async_start := self._async_start.get(first.computation):
            ends.append(self._time[self._flow.done(async_start).id])
        return start, max(ends)

    def _end(self, number: int) -> int:
        """Return until when an instruction keeps its value live: the root, to the end of its computation."""
        computation = self._module[number].computation
        if number == self._module.roots[computation]:
            return self._spans.get(computation, (-1, -1))[1]
        return self._time.get(number, -1)

    def _last_use(self, user: Instruction) -> int:
        """Return when an instruction reads an operand: a loop, and a call, when the called computation does."""
        if user.opcode == "call":
            return -1
        if user.opcode == "while":
            body = self._module.computations[user.called[0]]
            return self._time[next(i for i in body if self._module[i].opcode == "parameter")]
        return self._time.get(user.id, -1)

    def _separate(self, ranges: list[tuple[int, int, int]]) -> None:
        """Let the live ranges of one buffer, in their order, end where the next one begins."""
        for (start, end, value), (next_start, next_end, next_value) in pairwise(ranges):
            end = self.ranges[value][1]
            self.ranges[next_value] = next_start, max(end, next_end)
            self.ranges[value] = start, min(end, next_start)


def _scheduled(at: Instruction) -> list[int]:
    """Return the computations that are in the schedule before an instruction that calls them."""
    if at.opcode == "while":
        return at.called[::-1]  # the condition, then the body
    return at.called if at.opcode in (*_CALLING, "async-start") else []
