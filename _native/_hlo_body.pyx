"""The computations of the HLO text: a row for each instruction. Shapes, constants and configurations are skipped."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memset, strlen

from buffer cimport NO_CODE, NO_INT, Buffer, push, push_byte, push_code, release
from cursor cimport (
    BLANK, CLASS, COMMA, DIGIT, IN_NAME, balanced, integer, line_end, name, name_end, quoted_end, skip, starts,
)
from escape cimport unescape
from instruction cimport InternerP, ends_value, key_is, value_end
from interner cimport Interner, intern, intern_name
from lookahead cimport (
    NameQueue, Repeat, RepeatCache, cached_repeat, flush_names, init_queue, is_repeat, push_name, repeat_code,
)
from text cimport Slice
from xlamem._column cimport Names, own

INTERNERS = ("instruction", "computation", "opcode", "op_name", "source_file", "shape_index")

cdef enum:
    RECENT_CONFIGS = 8

cdef enum:
    I_INSTRUCTION
    I_COMPUTATION
    I_OPCODE
    I_OP_NAME
    I_FILE
    I_INDEX
    N_INTERNERS

cdef extern from *:
    """
    static const char *const xla_calls[] = {
        "calls", "to_apply", "condition", "body", "branch_computations", "called_computations",
        "true_computation", "false_computation", "select", "scatter",
    };
    enum { xla_n_calls = sizeof xla_calls / sizeof *xla_calls };
    """
    const char* const* CALL_KEYS "xla_calls"
    int N_CALLS "xla_n_calls"

CALLS = tuple(CALL_KEYS[i].decode() for i in range(N_CALLS))

cdef struct Columns:
    Buffer instruction
    Buffer computation                            # int32: number of the computation
    Buffer opcode
    Buffer op_name
    Buffer source_file
    Buffer source_line
    Buffer stack_frame_id
    Buffer is_root
    Buffer parameter_number
    Buffer tuple_index
    Buffer operand_end                            # int64: end of the instruction's operands
    Buffer operand
    Buffer operand_index
    Buffer operand_row                            # int32: the row that defines the operand
    Buffer call_end                               # int64: end of the instruction's calls
    Buffer call
    Buffer call_kind                              # uint8: index in CALLS
    Buffer computation_name
    Buffer computation_begin                      # int64: first row of each computation

cdef struct Row:
    # The attributes of an instruction.
    int32_t op_name
    int32_t source_file
    int64_t source_line
    int64_t stack_frame_id
    int64_t tuple_index

cdef struct Scan:
    Columns columns
    InternerP[N_INTERNERS] interners
    NameQueue queue                               # names of instructions
    RepeatCache shapes                            # without codes
    RepeatCache opcodes
    Slice[RECENT_CONFIGS] configs
    int next_config                               # the oldest of them
    Buffer rows                                   # int32, by code of an instruction: its latest row
    Buffer scratch                                # scratch memory
    int32_t first_row                             # of the computation
    int64_t n_unknown                             # lines that were not understood entirely
    int32_t entry                                 # number of the entry computation
    bint inside                                   # a computation is open
    bint invalid                                  # bytes that are not UTF-8


# -- attributes --------------------------------------------------------------------------------------

cdef int32_t quoted_code(Scan* s, Interner* interner, const char* p, const char* end) noexcept nogil:
    # Code of the quoted string [p, end), without its quotes and escapes.
    p += 1
    end -= 1
    if memchr(p, c'\\', end - p) != NULL:
        unescape(&s.scratch, p, end)
        if s.scratch.size:
            return intern(interner, s.scratch.data, s.scratch.size, &s.invalid)
        end = p
    return intern(interner, p, end - p, &s.invalid)


cdef bint take_text(Scan* s, int interner, const char* p, const char* end, int32_t* out) noexcept nogil:
    if end - p < 2 or p[0] != c'"' or end[-1] != c'"':
        return False
    out[0] = quoted_code(s, s.interners[interner], p, end)
    return True


cdef bint take_integer(const char* p, const char* end, int64_t* out) noexcept nogil:
    cdef int64_t x
    if integer(p, &x) != end:
        return False
    out[0] = x
    return True


cdef bint take_field(Scan* s, Row* row, const Slice* key, const char* p, const char* end) noexcept nogil:
    # Store a field of the metadata, if it has a column. Returns False if its value has another form.
    if key_is(key, b"op_name", 7):
        return take_text(s, I_OP_NAME, p, end, &row.op_name)
    if key_is(key, b"source_file", 11):
        return take_text(s, I_FILE, p, end, &row.source_file)
    if key_is(key, b"source_line", 11):
        return take_integer(p, end, &row.source_line)
    if key_is(key, b"stack_frame_id", 14):
        return take_integer(p, end, &row.stack_frame_id)
    return True


cdef const char* metadata(Scan* s, Row* row, const char* p, const char* end) noexcept nogil:
    # 'key="text" key=7 …}'. Returns its end, or NULL if it has another form.
    cdef Slice key
    cdef const char* value
    while p < end and p[0] != c'}':
        key.p = p
        value = name_end(p)
        key.n = value - p
        if key.n == 0 or value[0] != c'=':
            return NULL
        value += 1
        p = quoted_end(value, end) if value[0] == c'"' else balanced(value, end, BLANK)
        if p >= end or (p[0] != c' ' and p[0] != c'}') or not take_field(s, row, &key, value, p):
            return NULL
        p += p[0] == c' '
    return p + 1 if p < end else NULL


cdef int call_kind(const Slice* key) noexcept nogil:
    # Index of the attribute in CALLS, or -1.
    cdef int i
    for i in range(N_CALLS):
        if key.p[0] == CALL_KEYS[i][0] and key_is(key, CALL_KEYS[i], strlen(CALL_KEYS[i])):
            return i
    return -1


cdef bint calls(Scan* s, int kind, const char* p, const char* end) noexcept nogil:
    # "%a" or "{%a, %b}". Returns False at anything else.
    cdef Slice word
    if p < end and p[0] == c'{' and end[-1] == c'}':
        p += 1
        end -= 1
        if p >= end:
            return True
    while True:
        p = name(p + (p[0] == c'%'), &word)
        if p == NULL:
            return False
        push_code(&s.columns.call, intern_name(s.interners[I_COMPUTATION], word.p, word.n))
        push_byte(&s.columns.call_kind, <uint8_t> kind)
        if p >= end:
            return True
        p = skip(p, end, b", ", 2)
        if p == NULL:
            return False


cdef const char* config_end(Scan* s, const char* p, const char* end) noexcept nogil:
    # The end of a backend_config, which is often that of a recent one.
    cdef const char* e
    cdef Slice* config
    cdef int i
    for i in range(RECENT_CONFIGS):
        config = &s.configs[i]
        if config.n and starts(p, end, config.p, config.n) and ends_value(p + config.n, end):
            return p + config.n
    e = balanced(p + 1, end, 0) + 1
    if p[0] != c'{' or e > end or not ends_value(e, end):
        return value_end(p, end)
    config = &s.configs[s.next_config]
    config.p = p
    config.n = e - p
    s.next_config = (s.next_config + 1) % RECENT_CONFIGS
    return e


cdef bint attributes(Scan* s, Row* row, const char* p, const char* end) noexcept nogil:
    # ", key=value" up to the end. Returns whether all were understood.
    cdef Slice key
    cdef const char* value
    cdef const char* e
    cdef int kind
    cdef bint good = True
    while p < end:
        key.p = p + 2
        value = name_end(key.p) if starts(p, end, b", ", 2) else key.p
        if value == key.p or value >= end or value[0] != c'=':
            return False
        key.n = value - key.p
        value += 1
        if key_is(&key, b"metadata", 8) and value[0] == c'{':
            e = metadata(s, row, value + 1, end)
            if e != NULL:
                p = e
                continue
            good = False
        p = config_end(s, value, end) if key_is(&key, b"backend_config", 14) else value_end(value, end)
        kind = call_kind(&key)
        if kind >= 0:
            good = calls(s, kind, value, p) and good
        elif key_is(&key, b"index", 5):
            good = take_integer(value, p, &row.tuple_index) and good
    return good


# -- operands ----------------------------------------------------------------------------------------

cdef const char* projections(Scan* s, const char* p, int32_t* index) noexcept nogil:
    # "#0#1": element {0,1} of an operand; may be empty. Returns its end.
    cdef Buffer* text = &s.scratch
    index[0] = NO_CODE
    if p[0] != c'#':
        return p
    text.size = 0
    while p[0] == c'#' and CLASS[<uint8_t> p[1]] & DIGIT:
        push_byte(text, c',' if text.size else c'{')
        p += 1
        while CLASS[<uint8_t> p[0]] & DIGIT:
            push_byte(text, <uint8_t> p[0])
            p += 1
    push_byte(text, c'}')
    if not text.failed and text.data[0] == c'{':
        index[0] = intern_name(s.interners[I_INDEX], text.data, text.size)
    return p


cdef const char* last_word(const char* p, const char* end) noexcept nogil:
    # The begin of the name at the end of "SHAPE %NAME#0".
    cdef const char* q = end
    while q > p and (CLASS[<uint8_t> q[-1]] & IN_NAME or q[-1] == c'#' or q[-1] == c'%'):
        q -= 1
    return q if q == p or q[-1] == c' ' or q[-1] == c'/' else end


cdef bint operands(Scan* s, const char* p, const char* end) noexcept nogil:
    # "SHAPE %NAME, …", in newer texts "%NAME" or "NAME", with comments before it or elements "#0" after it. Returns
    # whether all were understood.
    cdef Slice word
    cdef int32_t index
    cdef const char* q
    cdef const char* e
    cdef bint good = True
    while p < end:
        p += p[0] == c' '
        e = NULL
        q = name(p + (p[0] == c'%'), &word)
        if q != NULL:
            q = e = projections(s, q, &index)
        if q == NULL or (q < end and q[0] != c','):
            e = balanced(p, end, COMMA)
            q = last_word(p, e)
            q = name(q + (q[0] == c'%'), &word)
            if q != NULL:
                q = projections(s, q, &index)
        if q == e:
            push_name(&s.queue, &s.columns.operand, word.p, word.n)
            push_code(&s.columns.operand_index, index)
        else:
            push_code(&s.columns.operand, NO_CODE)
            push_code(&s.columns.operand_index, NO_CODE)
            good = False
        p = e + 1
    return good


# -- lines -------------------------------------------------------------------------------------------

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


cdef const char* after_shape(RepeatCache* cache, const char* p, const char* e) noexcept nogil:
    # The opcode after a shape and a blank, or NULL.
    cdef Repeat* repeat = cached_repeat(cache, p)
    cdef const char* q
    if is_repeat(repeat, p, e, c' '):
        return p + repeat.n + 1
    q = balanced(p, e, BLANK)
    if q == p or q >= e or q[0] != c' ':
        return NULL
    repeat.p = p
    repeat.n = q - p
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
    cdef bint good = True
    cdef const char* begin
    cdef const char* close
    cdef const char* last = e                     # the end of the last line
    opcode.p = after_shape(&s.shapes, shape, e)
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
    e = last
    row.op_name = row.source_file = NO_CODE
    row.source_line = row.stack_frame_id = NO_INT
    row.tuple_index = -1
    if key_is(&opcode, b"parameter", 9):
        good = take_integer(begin, close, &parameter)
    elif not key_is(&opcode, b"constant", 8):
        good = operands(s, begin, close)
    good = attributes(s, &row, close + 1, e) and good
    s.n_unknown += not good
    push_name(&s.queue, &columns.instruction, word.p, word.n)
    push_code(&columns.computation, <int32_t> (columns.computation_name.size // 4) - 1)
    push_code(&columns.opcode, repeat_code(repeat, s.interners[I_OPCODE], opcode.p, opcode.p + opcode.n, &s.invalid))
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
    cdef bint failed = False
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
            failed = s.scratch.failed or s.rows.failed
            release(&s.scratch)
            release(&s.rows)
    if failed:
        raise MemoryError("no memory for the rows of the HLO text")
    return {
        "instruction": own(&columns.instruction),
        "computation": own(&columns.computation),
        "opcode": own(&columns.opcode),
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
