# Columns of the section BufferAssignment, and the state of its scan.

from libc.stdint cimport int32_t, int64_t, uint8_t

from allocation_line cimport IS_FLAG, AllocationLine
from buffer cimport NO_CODE, NO_INT, Buffer, push, push_byte, push_code, put, put_byte, put_code, reserve_rows
from cursor cimport ShortValue
from fault cimport NOT_UTF8, W_UTF8, fault
from gaps cimport Extent, Gaps, push_gaps
from interner cimport Interner, intern
from lookahead cimport Repeat, RepeatCache, cached_repeat, index_code, push_name, repeat_code
from text cimport Slice, TextColumn, push_null_text, push_text
from uses cimport ROWS, Positions, UseWriter, Uses

# Bits of `features`.
cdef enum:
    HAS_ADDRESS = 1
    HAS_PAGE = 2
    HAS_E0 = 4
    HAS_E1 = 8
    HAS_CROSS = 16
    HAS_TILES = 32

# Tables whose rows may have gaps.
cdef enum:
    G_ALLOCATIONS
    G_VALUES
    G_CROSS_COLOR
    G_POSITIONS
    G_USES

cdef struct Allocations:
    Buffer allocation
    Buffer size
    Buffer color
    Buffer page
    TextColumn address
    Buffer parameter_number
    Buffer parameter_shape_index
    Buffer parameter_shape
    Buffer output_shape
    Buffer flags
    Buffer fields                                 # pairs: begin and end of the text after the size

cdef struct Values:
    Buffer value_id
    Buffer instruction
    Buffer index
    Buffer phi
    Buffer color
    Buffer allocation
    Buffer offset
    Buffer size
    Buffer shape
    Buffer name_offset                            # in the text; filled on request

cdef struct CrossColor:
    Buffer allocation
    Buffer ordinal
    Buffer value_id
    Buffer instruction
    Buffer index
    Buffer phi
    Buffer value_color
    Buffer printed_color

cdef struct Columns:
    Allocations allocations
    Values values
    CrossColor cross_color
    Positions positions                           # E1 only, like the uses
    Uses uses
    Buffer gaps
    Buffer faults

cdef struct Scan:
    const char* base
    Columns columns
    UseWriter writer
    Interner* shapes
    RepeatCache shape_cache
    int free_values                               # rows reserved
    bint want_name_offsets
    int features
    int64_t open                                  # offset of an E1 block that the end truncates, or -1
    # State at the beginning of the span, and after the scan at its end.
    int64_t allocation                            # NO_INT: before the first one
    bint in_cross_color                           # in the block of values of other colors
    int64_t ordinal                               # of the next line of that block


cdef inline int32_t optional_code(Interner* interner, const Slice* text, bint* invalid) noexcept nogil:
    return intern(interner, text.p, text.n, invalid) if text.p != NULL else NO_CODE


cdef inline void push_allocation(Scan* s, const AllocationLine* line, const Gaps* gaps, int64_t offset) noexcept nogil:
    cdef Allocations* columns = &s.columns.allocations
    cdef bint invalid = False
    push_gaps(&s.columns.gaps, gaps, s.base, G_ALLOCATIONS, columns.allocation.size // 8)
    push(&columns.allocation, line.allocation)
    push(&columns.size, line.size)
    push(&columns.color, line.color)
    push(&columns.page, line.page)
    push(&columns.parameter_number, line.parameter)
    push_code(&columns.parameter_shape_index, index_code(&s.writer.indices, &line.parameter_index))
    push_code(&columns.parameter_shape, optional_code(s.shapes, &line.parameter_shape, &invalid))
    push_code(&columns.output_shape, optional_code(s.shapes, &line.output_shape, &invalid))
    push_byte(&columns.flags, <uint8_t> (line.flags & IS_FLAG))
    push(&columns.fields, line.fields.p - s.base)
    push(&columns.fields, line.fields.p - s.base + <int64_t> line.fields.n)
    if line.page != NO_INT:
        s.features |= HAS_PAGE
    if line.address.p != NULL:
        s.features |= HAS_ADDRESS
        if not push_text(&columns.address, line.address.p, line.address.n):
            invalid = True
    else:
        push_null_text(&columns.address)
    if invalid:
        fault(&s.columns.faults, NOT_UTF8, offset, W_UTF8)


cdef inline void push_value(
    Scan* s, const ShortValue* value, const Extent* extent, Repeat* cached, const char* shape, const char* end,
    int64_t offset,
) noexcept nogil:
    # A value of the current allocation; `offset` is the offset of its line.
    cdef Values* columns = &s.columns.values
    cdef bint invalid = False
    if s.free_values == 0:
        if not reserve_rows(columns, ROWS):
            return
        s.free_values = ROWS
    s.free_values -= 1
    put(&columns.value_id, value.id)
    push_name(&s.writer.names, &columns.instruction, value.name.p, value.name.n)
    put_code(&columns.index, index_code(&s.writer.indices, &value.index))
    put_byte(&columns.phi, value.phi)
    put(&columns.color, value.color)
    put(&columns.allocation, s.allocation)
    put(&columns.offset, extent.offset)
    put(&columns.size, extent.size)
    put_code(&columns.shape, repeat_code(cached, s.shapes, shape, end, &invalid))
    if s.want_name_offsets:
        put(&columns.name_offset, value.name.p - s.base)
    if invalid:
        fault(&s.columns.faults, NOT_UTF8, offset, W_UTF8)


cdef inline void push_gapped_value(
    Scan* s, const ShortValue* value, const Extent* extent, const char* shape, const char* end, const Gaps* gaps,
    int64_t offset,
) noexcept nogil:
    push_gaps(&s.columns.gaps, gaps, s.base, G_VALUES, s.columns.values.value_id.size // 8)
    push_value(s, value, extent, cached_repeat(&s.shape_cache, shape), shape, end, offset)


cdef inline void push_cross_color(Scan* s, const ShortValue* value, int64_t color) noexcept nogil:
    cdef CrossColor* columns = &s.columns.cross_color
    push(&columns.allocation, s.allocation)
    push(&columns.ordinal, s.ordinal)
    push(&columns.value_id, value.id)
    push_name(&s.writer.names, &columns.instruction, value.name.p, value.name.n)
    push_code(&columns.index, index_code(&s.writer.indices, &value.index))
    push_byte(&columns.phi, value.phi)
    push(&columns.value_color, value.color)
    push(&columns.printed_color, color)
    s.ordinal += 1
    s.features |= HAS_CROSS
