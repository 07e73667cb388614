"""The computations of the HLO text: a row for each instruction, without dimensions, constants and configurations."""

from typing import TypedDict

from typing_extensions import Buffer

from ._column import Column, Names

class _Body(TypedDict):
    instruction: Column
    computation: Column
    opcode: Column
    element_type: Column
    op_name: Column
    source_file: Column
    source_line: Column
    stack_frame_id: Column
    is_root: Column
    parameter_number: Column
    tuple_index: Column
    operand_end: Column
    operand: Column
    operand_index: Column
    operand_row: Column
    call_end: Column
    call: Column
    call_kind: Column
    computation_name: Column
    computation_begin: Column
    entry: int
    unknown: int
    complete: bool

INTERNERS: tuple[str, ...]
CALLS: tuple[str, ...]

def scan(data: Buffer, begin: int, end: int, names: tuple[Names, ...]) -> _Body: ...
