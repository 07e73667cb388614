"""The buffer assignment of a compiled program in the form in which XLA dumps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import DumpError
from ..input.names import Role
from .dataflow import Dataflow, LiveRanges, NotKnownError, Position
from .hlo_module import HloModule, Index, Instruction, is_tuple, without_layout
from .wire import Message

_MERGING = {"while", "conditional", "call"}


class _Value(NamedTuple):
    """A LogicalBufferProto."""

    id: int
    instruction: Instruction
    at: Index
    color: int


class Assignment:
    """A BufferAssignmentProto, with the names and shapes of its module."""

    def __init__(self, proto: Message, module: HloModule) -> None:
        """Read the proto. Raises DumpError if it is damaged or not that of the module."""
        self._module, self._callers = module, module.callers()
        self._values = {value.id: value for value in map(self._value, proto.messages(1))}
        self._at = {(value.instruction.id, value.at): value.id for value in self._values.values()}
        self._allocations = list(proto.messages(3))
        self._buffers = self._aliased(proto)
        self._flow, self._live = self._followed()

    def texts(self) -> dict[Role, str]:
        """Return the files of a dump; those of values and live ranges only if they are known."""
        lines: dict[Role, Iterator[str]] = {"buffer-assignment": self._allocation_lines()}
        if self._flow is not None:
            lines["buffer-assignment-values"] = self._value_lines(self._flow)
        if self._live is not None:
            lines["live-range"] = self._live_lines(self._live)
        return {role: "".join(f"{line}\n" for line in text) for role, text in lines.items()}

    # -- the proto -------------------------------------------------------------------------------

    def _value(self, proto: Message) -> _Value:
        index = self._position(place := proto.message(3))[1]
        return _Value(proto.number(1), self._module[place.number(4)], index, proto.number(4))

    @staticmethod
    def _position(location: Message) -> Position:
        """Return the id of an instruction and the index of a LogicalBufferProto.Location."""
        return location.number(4), tuple(location.numbers(3))

    def _aliased(self, proto: Message) -> list[set[int]]:
        """Return the sets of values that share a buffer by definition."""
        buffers: dict[int, set[int]] = {}
        for alias in proto.messages(2):
            value, at = alias.number(1), self._position(alias.message(2))
            if value not in self._values or at not in self._at:
                raise DumpError("BufferAssignmentProto", "an alias of two values")
            buffers.setdefault(value, {value}).add(self._at[at])
        return list({frozenset(values): values for values in buffers.values()}.values())

    def _followed(self) -> tuple[Dataflow | None, LiveRanges | None]:
        flow = None
        try:
            flow = Dataflow(self._module, self._at)
            return flow, LiveRanges(self._module, flow, self._buffers)
        except (NotKnownError, LookupError, StopIteration, RecursionError):  # also other operands than known
            return flow, None

    # -- allocations -----------------------------------------------------------------------------

    def _allocation_lines(self) -> Iterator[str]:
        yield "BufferAssignment:"
        output = self._output()
        for allocation in self._allocations:
            assigned = sorted((a.number(1), a.number(3), a.number(2)) for a in allocation.messages(9))
            attributes = ", ".join(self._attributes(allocation, assigned, output))
            yield f"allocation {allocation.number(1)}: {attributes}:"
            for number, size, offset in assigned:
                value = self._get(number)
                shape = self._module.shape(value.instruction, value.at)
                yield f" value: {self._short(number)} (size={size},offset={offset}): {shape}"

    def _attributes(
        self, allocation: Message, assigned: list[tuple[int, int, int]], output: int | None
    ) -> Iterator[str]:
        """Return what a line says of an allocation; `output` is the value of the root."""
        thread_local, is_parameter, live_out, constant = (bool(allocation.number(field)) for field in (3, 5, 7, 12))
        yield f"size {allocation.number(2)}"
        if color := allocation.number(8):
            yield f"color {color}"
        if is_parameter:
            parameter, index = allocation.number(6), tuple(allocation.numbers(10))
            shape = without_layout(self._module.shape(self._module.parameter(parameter), index))
            yield f"parameter {parameter}, shape |{shape}| at ShapeIndex {_printed(index)}"
        if any(value == output for value, _, _ in assigned):
            yield f"output shape is |{without_layout(self._module.shape(self._module.root))}|"
        flags = {"constant": constant, "thread-local": thread_local, "maybe-live-out": live_out}
        yield from (flag for flag, is_set in flags.items() if is_set)
        if not (thread_local or is_parameter or live_out or constant):
            yield "preallocated-temp"

    def _output(self) -> int | None:
        """Return the value of the entry root; None if it is not known."""
        root = self._module.root.id, ()
        return self._at.get(root) if self._flow is None else self._flow.value(root)

    def _get(self, value: int) -> _Value:
        try:
            return self._values[value]
        except KeyError:
            raise DumpError("BufferAssignmentProto", f"a logical buffer with the id {value}") from None

    def _short(self, number: int) -> str:
        """Return the head of a value, such as ``<45 tuple.7{} @0>``."""
        value = self._get(number)
        phi = " (phi)" if self._is_merge(value.instruction) else ""
        return f"<{number} {value.instruction.name}{self._index(value.instruction, value.at)}{phi} @{value.color}>"

    def _index(self, instruction: Instruction, index: Index, before: str = "") -> str:
        return before + _printed(index) if is_tuple(self._module.shape(instruction)) else ""

    def _is_merge(self, instruction: Instruction) -> bool:
        """Return whether values that an instruction defines merge others."""
        if instruction.opcode == "parameter":
            caller = self._callers.get(instruction.computation)
            return caller is not None and caller.opcode in _MERGING
        return instruction.opcode in _MERGING

    # -- values ----------------------------------------------------------------------------------

    def _value_lines(self, flow: Dataflow) -> Iterator[str]:
        yield "Used values:"
        used = {a.number(1) for allocation in self._allocations for a in allocation.messages(9)}
        for value in sorted(used):
            yield self._short(value)
            yield " positions:"
            for number, index in flow.positions[value]:
                yield f"  {self._module[number].name}{self._index(self._module[number], index, ' ')}"
            yield " uses:"
            yield from self._use_lines(flow, value) or ["  (none)"]
            yield f" from instruction: {self._module.text(self._get(value).instruction)}"

    def _use_lines(self, flow: Dataflow, value: int) -> list[str]:
        operands = ((use, self._module[use.user.operands[use.operand]]) for use in flow.uses(value))
        return [
            f"  {use.user.name}, operand {use.operand}{self._index(operand, use.at, ' ')}"
            for use, operand in operands
        ]

    # -- live ranges -----------------------------------------------------------------------------

    def _live_lines(self, live: LiveRanges) -> Iterator[str]:
        yield f"HloLiveRange (max {len(live.schedule)}):"
        yield "  InstructionSequence:"
        yield from (f"    {step}:{instruction.name}" for step, instruction in enumerate(live.schedule))
        yield "  BufferLiveRange:"
        for number, (start, end) in sorted(live.ranges.items()):
            value = self._get(number)
            yield f"    {value.instruction.name}{_printed(value.at)}:{start}-{end}"


def _printed(index: Index) -> str:
    return f"{{{','.join(map(str, index))}}}"
