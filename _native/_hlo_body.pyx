"""The computations of the HLO text: a row for each instruction, without dimensions, constants and configurations."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from buffer cimport NO_CODE, NO_INT, Buffer, n_columns, push, push_byte, push_code, release, release_columns
from cursor cimport BLANK, balanced, line_end, name, name_end, skip, starts, text_end
from hlo_line cimport (
    CALL_KEYS, I_COMPUTATION, I_ELEMENT_TYPE, I_INSTRUCTION, I_OPCODE, N_CALLS, N_INTERNERS, Columns, Row, Scan,
    attributes, operands, take_index,
)
from instruction cimport key_is
from interner cimport intern, intern_name
from lookahead cimport Repeat, cached_repeat, flush_names, init_queue, is_repeat, push_name, repeat_code
from text cimport Slice
from xlamem._column cimport Names, own

INTERNERS = ("instruction", "computation", "opcode", "op_name", "source_file", "shape_index", "element_type")
CALLS = tuple(CALL_KEYS[i].decode() for i in range(N_CALLS))


cdef const char* definition(const char* p, const char* e, Slice* word, bint* root) noexcept nogil:
    # "  ROOT %NAME = ". Returns its end, or NULL.
    cdef const char* q
    if p[0] != c' ':
        return NULL
    while p[0] == c' ':
        p += 1
    q = skip(p, e, b"ROOT ", 5)
    root[0] = q != NULL
    p = q if q != NULL else p
    p = name(p + (p[0] == c'%'), word)
    return skip(p, e, b" = ", 3) if p != NULL else NULL


cdef bint head(const char* p, const char* e, Slice* word, bint* entry) noexcept nogil:
    # "ENTRY %NAME (PARAMETERS) -> SHAPE {" or "NAME {".
    cdef const char* q
    if e == p or e[-1] != c'{' or starts(p, e, b"HloModule ", 10):
        return False
    q = skip(p, e, b"ENTRY ", 6)
    entry[0] = q != NULL
    p = q if q != NULL else p
    p = name(p + (p[0] == c'%'), word)
    return p != NULL and p[0] == c' '


cdef const char* next_start(const char* p, const char* end) noexcept nogil:
    # The first line that no multi-line constant contains: an empty line, a definition or the head of a computation.
    cdef Slice word
    cdef bint flag
    cdef const char* e
    while p < end:
        e = line_end(p, end)
        if e == p or definition(p, e, &word, &flag) != NULL or head(p, e, &word, &flag):
            return p
        p = e + 1
    return end


cdef const char* unknown_line(Scan* s, const char* e) noexcept nogil:
    s.n_unknown += 1
    return e


cdef int32_t element_type_of(Scan* s, const char* shape) noexcept nogil:
    # Code of the element type of an array. A tuple has none.
    cdef const char* end = name_end(shape)
    if end == shape or end[0] != c'[':
        return NO_CODE
    return intern(s.interners[I_ELEMENT_TYPE], shape, end - shape, &s.invalid)


cdef const char* after_shape(Scan* s, const char* p, const char* e, int32_t* element_type) noexcept nogil:
    # The opcode after a shape and a blank, or NULL.
    cdef Repeat* repeat = cached_repeat(&s.shapes, p)
    cdef const char* q
    if is_repeat(repeat, p, e, c' '):
        element_type[0] = repeat.code
        return p + repeat.n + 1
    q = balanced(p, e, BLANK)
    if q == p or q >= e or q[0] != c' ':
        return NULL
    repeat.p = p
    repeat.n = q - p
    repeat.code = element_type[0] = element_type_of(s, p)
    return q + 1


cdef const char* instruction(
    Scan* s, const char* shape, const char* e, const char* end, const Slice* word, bint root
) noexcept nogil:
    # The row of an instruction, of which "NAME = " was read. Returns the end of its last line.
    cdef Columns* columns = &s.columns
    cdef Slice opcode
    cdef Repeat* repeat
    cdef Row row
    cdef int64_t parameter = -1
    cdef int32_t element_type
    cdef bint good = True
    cdef const char* begin
    cdef const char* close
    cdef const char* last = e                     # the end of the last line
    opcode.p = after_shape(s, shape, e, &element_type)
    if opcode.p == NULL:
        return unknown_line(s, e)
    repeat = cached_repeat(&s.opcodes, opcode.p)
    begin = opcode.p + repeat.n if is_repeat(repeat, opcode.p, e, c'(') else name_end(opcode.p)
    opcode.n = begin - opcode.p
    if opcode.n == 0 or begin[0] != c'(':
        return unknown_line(s, e)
    begin += 1
    close = balanced(begin, e, 0)
    if close >= e:
        end = next_start(e + 1, end)
        close = balanced(begin, end, 0)
        if close >= end:
            return unknown_line(s, e)
        last = line_end(close, end)
    if close[0] != c')':
        return unknown_line(s, e)
    e = text_end(close, last, end)
    row.op_name = row.source_file = NO_CODE
    row.source_line = row.stack_frame_id = NO_INT
    row.tuple_index = -1
    if key_is(&opcode, b"parameter", 9):
        good = take_index(begin, close, &parameter)
    elif not key_is(&opcode, b"constant", 8):
        good = operands(s, begin, close)
    good = attributes(s, &row, close + 1, e) and good
    s.n_unknown += not good
    push_name(&s.queue, &columns.instruction, word.p, word.n)
    push_code(&columns.computation, <int32_t> (columns.computation_name.size // 4) - 1)
    push_code(&columns.opcode, repeat_code(repeat, s.interners[I_OPCODE], opcode.p, opcode.p + opcode.n, &s.invalid))
    push_code(&columns.element_type, element_type)
    push_code(&columns.op_name, row.op_name)
    push_code(&columns.source_file, row.source_file)
    push(&columns.source_line, row.source_line)
    push(&columns.stack_frame_id, row.stack_frame_id)
    push_byte(&columns.is_root, root)
    push(&columns.parameter_number, parameter)
    push(&columns.tuple_index, row.tuple_index)
    push(&columns.operand_end, columns.operand.size // 4)
    push(&columns.call_end, columns.call.size // 4)
    return e


cdef void number_rows(Scan* s) noexcept nogil:
    # Store the row of each name of the computation. Of two rows with one name, the first counts.
    cdef int32_t code, row
    cdef int32_t* rows
    cdef const Buffer* names = &s.columns.instruction
    for row in range(s.first_row, <int32_t> (names.size // 4)):
        code = (<int32_t*> names.data)[row]
        while s.rows.size // 4 <= <size_t> code and not s.rows.failed:
            push_code(&s.rows, NO_CODE)
        if not s.rows.failed:
            rows = <int32_t*> s.rows.data
            if rows[code] < s.first_row:
                rows[code] = row


cdef void end_computation(Scan* s) noexcept nogil:
    # Find the rows of its operands.
    cdef int32_t code, row
    cdef size_t i
    cdef Columns* columns = &s.columns
    flush_names(&s.queue)
    number_rows(s)
    for i in range(columns.operand_row.size // 4, columns.operand.size // 4):
        code = (<int32_t*> columns.operand.data)[i]
        row = NO_CODE
        if code >= 0 and <size_t> code < s.rows.size // 4:
            row = (<int32_t*> s.rows.data)[code]
        push_code(&columns.operand_row, row if row >= s.first_row else NO_CODE)


cdef void begin_computation(Scan* s, const Slice* word, bint entry) noexcept nogil:
    cdef Columns* columns = &s.columns
    if s.inside:
        end_computation(s)
    if entry and s.entry < 0:
        s.entry = <int32_t> (columns.computation_name.size // 4)
    s.first_row = <int32_t> (columns.instruction.size // 4)
    push_code(&columns.computation_name, intern_name(s.interners[I_COMPUTATION], word.p, word.n))
    push(&columns.computation_begin, s.first_row)
    s.inside = True


cdef void scan_body(Scan* s, const char* p, const char* end) noexcept nogil:
    cdef Slice word
    cdef const char* e
    cdef const char* q
    cdef bint flag = False
    while p < end:
        e = line_end(p, end)
        q = definition(p, e, &word, &flag) if s.inside else NULL
        if q != NULL:
            e = instruction(s, q, e, end, &word, flag)
        elif head(p, e, &word, &flag):
            begin_computation(s, &word, flag)
        elif s.inside and p[0] == c'}':
            end_computation(s)
            s.inside = False
        elif e > p and s.columns.computation_name.size:   # the header is read elsewhere
            s.n_unknown += 1
        p = e + 1
    if s.inside:
        end_computation(s)


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, tuple names not None):
    """Read the computations in data[begin:end], whole lines of an HLO text. `names` are the INTERNERS.

    Returns a dict: Columns by name, the number of the `entry` computation or -1, the number of `unknown` lines, and
    whether the text is `complete`, that is, ends after an entry computation.
    """
    cdef Scan s
    cdef Columns* columns = &s.columns
    cdef int i
    memset(&s, 0, sizeof(Scan))
    s.entry = -1
    if len(names) != N_INTERNERS:
        raise ValueError("one interner for each meaning")
    for i in range(N_INTERNERS):
        s.interners[i] = &(<Names?> names[i]).interner
    init_queue(&s.queue, s.interners[I_INSTRUCTION])
    if begin < end:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie within the data and end in a newline")
        with nogil:
            scan_body(&s, <const char*> &data[begin], <const char*> &data[begin] + (end - begin))
            columns.instruction.failed |= s.scratch.failed | s.rows.failed
            release(&s.scratch)
            release(&s.rows)
    try:
        for i in range(N_INTERNERS):
            (<Names> names[i]).require_memory()
        return {
            "instruction": own(&columns.instruction),
            "computation": own(&columns.computation),
            "opcode": own(&columns.opcode),
            "element_type": own(&columns.element_type),
            "op_name": own(&columns.op_name),
            "source_file": own(&columns.source_file),
            "source_line": own(&columns.source_line),
            "stack_frame_id": own(&columns.stack_frame_id),
            "is_root": own(&columns.is_root),
            "parameter_number": own(&columns.parameter_number),
            "tuple_index": own(&columns.tuple_index),
            "operand_end": own(&columns.operand_end),
            "operand": own(&columns.operand),
            "operand_index": own(&columns.operand_index),
            "operand_row": own(&columns.operand_row),
            "call_end": own(&columns.call_end),
            "call": own(&columns.call),
            "call_kind": own(&columns.call_kind),
            "computation_name": own(&columns.computation_name),
            "computation_begin": own(&columns.computation_begin),
            "entry": s.entry,
            "unknown": s.n_unknown,
            "complete": bool(s.entry >= 0 and not s.inside),
        }
    finally:
        release_columns(<Buffer*> columns, n_columns(columns[0]))
