# The text of an instruction in the HLO text: "OPCODE(OPERANDS), key=value, …".

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, strlen

from buffer cimport NO_CODE, Buffer, push_byte, push_code
from cursor cimport BLANK, CLASS, COMMA, DIGIT, IN_NAME, balanced, integer, name, name_end, quoted_end, skip, starts
from escape cimport unescape
from instruction cimport InternerP, ends_value, key_is, value_end
from interner cimport Interner, intern, intern_name
from lookahead cimport NameQueue, RepeatCache, push_name
from text cimport Slice

cdef enum:
    RECENT_CONFIGS = 8

cdef enum:
    I_INSTRUCTION
    I_COMPUTATION
    I_OPCODE
    I_OP_NAME
    I_FILE
    I_INDEX
    I_ELEMENT_TYPE
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

cdef struct Columns:
    Buffer instruction
    Buffer computation                            # int32: number of the computation
    Buffer opcode
    Buffer element_type
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
    RepeatCache shapes                            # with the codes of their element types
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


cdef inline int32_t quoted_code(Scan* s, Interner* interner, const char* p, const char* end) noexcept nogil:
    # Code of the quoted string [p, end), without its quotes and escapes.
    p += 1
    end -= 1
    if memchr(p, c'\\', end - p) != NULL:
        unescape(&s.scratch, p, end)
        if s.scratch.size:
            return intern(interner, s.scratch.data, s.scratch.size, &s.invalid)
        end = p
    return intern(interner, p, end - p, &s.invalid)


cdef inline bint take_text(Scan* s, int interner, const char* p, const char* end, int32_t* out) noexcept nogil:
    if end - p < 2 or p[0] != c'"' or end[-1] != c'"':
        return False
    out[0] = quoted_code(s, s.interners[interner], p, end)
    return True


cdef inline bint take_integer(const char* p, const char* end, int64_t* out) noexcept nogil:
    cdef int64_t x
    if integer(p, &x) != end:
        return False
    out[0] = x
    return True


cdef inline bint take_index(const char* p, const char* end, int64_t* out) noexcept nogil:
    return p[0] != c'-' and take_integer(p, end, out)


cdef inline bint take_field(Scan* s, Row* row, const Slice* key, const char* p, const char* end) noexcept nogil:
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


cdef inline const char* metadata(Scan* s, Row* row, const char* p, const char* end) noexcept nogil:
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


cdef inline int call_kind(const Slice* key) noexcept nogil:
    # Index of the attribute in CALLS, or -1.
    cdef int i
    for i in range(N_CALLS):
        if key.p[0] == CALL_KEYS[i][0] and key_is(key, CALL_KEYS[i], strlen(CALL_KEYS[i])):
            return i
    return -1


cdef inline bint calls(Scan* s, int kind, const char* p, const char* end) noexcept nogil:
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


cdef inline const char* config_end(Scan* s, const char* p, const char* end) noexcept nogil:
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


cdef inline bint attributes(Scan* s, Row* row, const char* p, const char* end) noexcept nogil:
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
            good = take_index(value, p, &row.tuple_index) and good
    return good


cdef inline const char* projections(Scan* s, const char* p, int32_t* index) noexcept nogil:
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


cdef inline const char* last_word(const char* p, const char* end) noexcept nogil:
    # The begin of the name at the end of "SHAPE %NAME#0".
    cdef const char* q = end
    while q > p and (CLASS[<uint8_t> q[-1]] & IN_NAME or q[-1] == c'#' or q[-1] == c'%'):
        q -= 1
    return q if q == p or q[-1] == c' ' or q[-1] == c'/' else end


cdef inline bint operands(Scan* s, const char* p, const char* end) noexcept nogil:
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
