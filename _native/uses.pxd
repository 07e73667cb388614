# Columns of the positions and uses of values.

from libc.stdint cimport int64_t

from buffer cimport Buffer, put, put_code, reserve_rows
from gaps cimport Use
from lookahead cimport IndexCodes, NameQueue, index_code, push_name, push_same_name
from text cimport Slice

cdef enum:
    ROWS = 64                                     # reserved at once

cdef struct Positions:
    Buffer value_id
    Buffer ordinal
    Buffer instruction
    Buffer index

cdef struct Uses:
    Buffer value_id
    Buffer ordinal
    Buffer instruction
    Buffer operand
    Buffer index

cdef struct UseWriter:
    NameQueue names
    IndexCodes indices
    int free_positions                            # rows reserved
    int free_uses


cdef inline bint put_position(
    UseWriter* writer, Positions* columns, int64_t id, int64_t ordinal, const Slice* word, const Slice* index,
    bint same_name,
) noexcept nogil:
    # `same_name`: the name equals the one pushed last. False: no memory.
    if writer.free_positions == 0:
        if not reserve_rows(columns, ROWS):
            return False
        writer.free_positions = ROWS
    writer.free_positions -= 1
    put(&columns.value_id, id)
    put(&columns.ordinal, ordinal)
    if same_name:
        push_same_name(&writer.names, &columns.instruction, word.p, word.n)
    else:
        push_name(&writer.names, &columns.instruction, word.p, word.n)
    put_code(&columns.index, index_code(&writer.indices, index))
    return True


cdef inline bint put_use(UseWriter* writer, Uses* columns, int64_t id, int64_t ordinal, const Use* use) noexcept nogil:
    if writer.free_uses == 0:
        if not reserve_rows(columns, ROWS):
            return False
        writer.free_uses = ROWS
    writer.free_uses -= 1
    put(&columns.value_id, id)
    put(&columns.ordinal, ordinal)
    push_name(&writer.names, &columns.instruction, use.word.p, use.word.n)
    put(&columns.operand, use.operand)
    put_code(&columns.index, index_code(&writer.indices, &use.index))
    return True


cdef inline void truncate_positions(Positions* columns, size_t rows) noexcept nogil:
    columns.value_id.size = columns.ordinal.size = rows * 8
    columns.instruction.size = columns.index.size = rows * 4


cdef inline void truncate_uses(Uses* columns, size_t rows) noexcept nogil:
    columns.value_id.size = columns.ordinal.size = columns.operand.size = rows * 8
    columns.instruction.size = columns.index.size = rows * 4
