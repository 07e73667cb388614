"""The HLO of a compiled program: its instructions, from the proto, with their shapes, from the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ..errors import DumpError
from .wire import Message

Index = tuple[int, ...]
"""Index into a tuple shape, () for all of a result."""

_LINE = re.compile(r"^ +(?:ROOT )?(%?([\w.-]+) = (.*?) [a-z][a-z0-9-]*\(.*)$", re.MULTILINE)
_LAYOUT = re.compile(r"\{[^{}]*\}")
_COMMENT = re.compile(r"/\*index=\d+\*/")


class Instruction(NamedTuple):
    """An instruction as in HloInstructionProto. Ids are those of the proto."""

    id: int
    name: str
    opcode: str
    computation: int
    operands: list[int]
    called: list[int]
    """Ids of the computations that it calls."""
    parameter_number: int
    tuple_index: int
    """`index` of a get-tuple-element."""


class HloModule:
    """The instructions and computations of a module, as dictionaries by id, and the schedule."""

    def __init__(self, proto: bytes, text: str) -> None:
        """Read a HloModuleProto and the HLO text of the same module. Raises DumpError if a proto is damaged."""
        module = Message(proto, "HloModuleProto")
        self.name, self.entry = module.text(1), module.number(6)
        self.instructions: dict[int, Instruction] = {}
        self.computations: dict[int, list[int]] = {}
        """Instructions of each computation."""
        self.roots: dict[int, int] = {}
        for computation in module.messages(3):
            self._add(computation)
        sequences = module.message(7).messages(1)
        self.schedule = {entry.number(1): entry.message(2).numbers(1) for entry in sequences}
        """Instructions of each scheduled computation, in their order."""
        aliases = module.message(8).messages(1)
        self.aliased = {(entry.number(2), tuple(entry.numbers(3))) for entry in aliases}
        """Entry parameters, by number and index, that are aliased with an output."""
        self._lines = {match[2]: (match[3], match[1]) for match in _LINE.finditer(text)}

    def _add(self, computation: Message) -> None:
        number = computation.number(5)
        added = [_instruction(message, number) for message in computation.messages(2)]
        self.instructions |= {instruction.id: instruction for instruction in added}
        self.computations[number] = [instruction.id for instruction in added]
        self.roots[number] = computation.number(6)

    def __getitem__(self, number: int) -> Instruction:
        """Return an instruction by id."""
        try:
            return self.instructions[number]
        except KeyError:
            raise DumpError("HloModuleProto", f"an instruction with the id {number}") from None

    @property
    def root(self) -> Instruction:
        """The root of the entry computation."""
        return self[self.roots.get(self.entry, -1)]

    def parameter(self, number: int) -> Instruction:
        """Return a parameter of the entry computation."""
        for each in map(self.instructions.__getitem__, self.computations.get(self.entry, ())):
            if each.opcode == "parameter" and each.parameter_number == number:
                return each
        raise DumpError("HloModuleProto", f"a parameter {number} of the entry computation")

    def text(self, instruction: Instruction) -> str:
        """Return the line of an instruction."""
        return self._line(instruction)[1]

    def shape(self, instruction: Instruction, index: Index = ()) -> str:
        """Return the shape of a result, or of an element of it, with its layout."""
        if instruction.opcode == "get-tuple-element":  # which JAX may leave out of the text, from 0.11
            return self.shape(self[instruction.operands[0]], (instruction.tuple_index, *index))
        shape = self._line(instruction)[0]
        for i in index:
            elements = elements_of(shape)
            if i >= len(elements):
                raise DumpError("BufferAssignmentProto", f"an index into the shape of {instruction.name}, not {index}")
            shape = elements[i]
        return shape

    def _line(self, instruction: Instruction) -> tuple[str, str]:
        try:
            return self._lines[instruction.name]
        except KeyError:
            raise DumpError("as_text()", f"the instruction {instruction.name} of the proto") from None

    def callers(self) -> dict[int, Instruction]:
        """Return the last instruction that calls each computation."""
        return {called: each for each in self.instructions.values() for called in each.called}


def _instruction(message: Message, computation: int) -> Instruction:
    return Instruction(
        id=message.number(35),
        name=message.text(1),
        opcode=message.text(2),
        computation=computation,
        operands=message.numbers(36),
        called=message.numbers(38),
        parameter_number=message.number(9),
        tuple_index=message.number(13),
    )


# -- shapes --------------------------------------------------------------------------------------


def is_tuple(shape: str) -> bool:
    return shape.startswith("(")


def without_layout(shape: str) -> str:
    return _LAYOUT.sub("", shape)


def indices(shape: str, index: Index = ()) -> Iterator[Index]:
    """Return the index of a shape and of everything in it."""
    yield index
    for i, element in enumerate(elements_of(shape)):
        yield from indices(element, (*index, i))


@lru_cache(maxsize=1024)
def elements_of(shape: str) -> tuple[str, ...]:
    """Return the elements of a tuple shape; none of another shape."""
    if not is_tuple(shape):
        return ()
    ends, depth = [], 0
    for match in re.finditer(r"[(\[{]|[)\]}]|, ", shape[1:-1]):
        depth += {"(": 1, "[": 1, "{": 1, ", ": 0}.get(match[0], -1)
        if match[0] == ", " and not depth:
            ends.append(match.start() + 1)
    starts = [1, *(end + 2 for end in ends)]
    parts = [shape[start:end] for start, end in zip(starts, [*ends, len(shape) - 1], strict=True)]
    return tuple(_COMMENT.sub("", part, 1) if part.startswith("/*") else part for part in parts if part)
