# The text of an instruction: "%NAME = SHAPE OPCODE(OPERANDS), key=value, …".

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memset

from buffer cimport NO_CODE, NO_INT, Buffer, put, put_code
from cursor cimport BLANK, CLASS, COMMA, IN_NAME, balanced, integer, name_end, quoted_end, skip, starts
from escape cimport unescape
from interner cimport Interner, intern
from lookahead cimport Repeat, RepeatCache, cached_repeat, is_repeat, repeat_code
from text cimport Slice, TextColumn, end_reserved_text, push_utf8

# Bits of `features`.
cdef enum:
    HAS_SHAPES = 32
    HAS_FRAME = 64
    HAS_END_LINE = 128

# The interners of the columns, in the order of `_values.POOLS`.
cdef enum:
    I_NAME
    I_INDEX
    I_SHAPE
    I_OPCODE
    I_OP_TYPE
    I_OP_NAME
    I_FILE
    I_TARGET
    I_KIND
    N_INTERNERS

cdef enum:
    RECENT_CONFIGS = 4
    MAX_PLAIN_FIELDS = 8                          # in metadata; larger metadata is read field by field

ctypedef Interner* InternerP

cdef struct Instructions:
    # The rows of distinct instructions.
    Buffer instruction
    Buffer shape
    Buffer opcode
    TextColumn operands
    Buffer op_type
    Buffer op_name
    Buffer source_file
    Buffer source_line
    Buffer stack_frame_id
    Buffer target
    Buffer kind
    TextColumn called
    TextColumn sharding
    TextColumn backend_config
    TextColumn attributes

cdef struct InstructionCaches:
    RepeatCache shapes
    RepeatCache opcodes
    Slice[RECENT_CONFIGS] configs                 # the latest first; most are printed many times
    Buffer unescaped                              # scratch memory

cdef struct Fields:
    # The attributes of one instruction that have separate columns.
    int32_t op_type
    int32_t op_name
    int32_t source_file
    int32_t target
    int32_t kind
    int64_t source_line
    int64_t stack_frame_id
    Slice sharding
    Slice backend_config

cdef struct Field:
    Slice key
    const char* value
    const char* end

cdef struct Parser:
    Instructions* columns
    InstructionCaches* caches
    InternerP* interners
    Fields fields
    size_t attributes_begin                       # of this row, in the bytes of the column
    int features
    bint invalid                                  # bytes that are not UTF-8


cdef inline bint key_is(const Slice* key, const char* text, size_t n) noexcept nogil:
    return key.n == n and memcmp(key.p, text, n) == 0


cdef inline int32_t quoted_code(Parser* s, Interner* interner, const char* p, const char* end) noexcept nogil:
    # Code of the value [p, end): a quoted string without its quotes and escapes, anything else unchanged.
    cdef Buffer* unescaped = &s.caches.unescaped
    if end - p >= 2 and p[0] == c'"' and end[-1] == c'"':
        p += 1
        end -= 1
        if memchr(p, c'\\', end - p) != NULL:
            unescape(unescaped, p, end)
            if unescaped.size:
                return intern(interner, unescaped.data, unescaped.size, &s.invalid)
            return intern(interner, p, 0, &s.invalid)
    return intern(interner, p, end - p, &s.invalid)


cdef inline void append_joined(
    Parser* s, TextColumn* column, size_t begin, const char* p, const char* end
) noexcept nogil:
    # Append to the item that begins at `begin`, after ", " unless it is empty.
    if column.bytes.size > begin:
        push_utf8(&column.bytes, b", ", 2)
    if not push_utf8(&column.bytes, p, end - p):
        s.invalid = True


cdef inline void append_metadata(Parser* s, bint first, const char* p, const char* end) noexcept nogil:
    # Append a metadata field without a column to the attributes.
    cdef TextColumn* column = &s.columns.attributes
    if not first:
        push_utf8(&column.bytes, b" ", 1)
    else:
        if column.bytes.size > s.attributes_begin:
            push_utf8(&column.bytes, b", ", 2)
        push_utf8(&column.bytes, b"metadata={", 10)
    if not push_utf8(&column.bytes, p, end - p):
        s.invalid = True


cdef inline bint take_metadata(Parser* s, Field* f, bint appended) noexcept nogil:
    # Read one field of metadata={…}; the first one counts. Returns whether any so far was appended to the attributes.
    cdef Fields* fields = &s.fields
    cdef int64_t x
    if key_is(&f.key, b"op_name", 7) and fields.op_name == NO_CODE:
        fields.op_name = quoted_code(s, s.interners[I_OP_NAME], f.value, f.end)
    elif key_is(&f.key, b"op_type", 7) and fields.op_type == NO_CODE:
        fields.op_type = quoted_code(s, s.interners[I_OP_TYPE], f.value, f.end)
    elif key_is(&f.key, b"source_file", 11) and fields.source_file == NO_CODE:
        fields.source_file = quoted_code(s, s.interners[I_FILE], f.value, f.end)
    elif key_is(&f.key, b"source_line", 11) and fields.source_line == NO_INT and integer(f.value, &x) == f.end:
        fields.source_line = x
    elif key_is(&f.key, b"stack_frame_id", 14) and fields.stack_frame_id == NO_INT and integer(f.value, &x) == f.end:
        fields.stack_frame_id = x
        s.features |= HAS_FRAME
    else:
        if key_is(&f.key, b"source_end_line", 15):
            s.features |= HAS_END_LINE
        append_metadata(s, not appended, f.key.p, f.end)
        return True
    return appended


cdef inline void metadata(Parser* s, const char* p, const char* end) noexcept nogil:
    # The fields between the braces of metadata={…}; their values may contain brackets.
    cdef Field f
    cdef const char* e
    cdef bint appended = False
    while p < end:
        f.key.p = p
        while p < end and p[0] != c'=' and p[0] != c' ':
            p += 1
        f.key.n = p - f.key.p
        if p >= end or p[0] == c' ':              # a word that is no field
            append_metadata(s, not appended, f.key.p, p)
            appended = True
            p += 1
            continue
        f.value = p + 1
        e = balanced(f.value, end, BLANK) if f.value < end else end
        while e < end and CLASS[<uint8_t> e[0]] & BLANK == 0:
            e = balanced(e + 1, end, BLANK)
        f.end = e
        appended = take_metadata(s, &f, appended)
        p = e + 1 if e < end else end
    if appended:
        push_utf8(&s.columns.attributes.bytes, b"}", 1)


cdef inline const char* plain_metadata(Parser* s, const char* p, const char* end) noexcept nogil:
    # The same without brackets to match: 'key="text" key=7 …}'. Returns the end of the attribute; NULL, with nothing
    # stored, if the metadata has another form.
    cdef Field[MAX_PLAIN_FIELDS] fields
    cdef Field* f
    cdef const char* e
    cdef int i, n = 0
    cdef bint appended = False
    while n < MAX_PLAIN_FIELDS:
        f = &fields[n]
        n += 1
        f.key.p = p
        e = name_end(p)
        f.key.n = e - p
        if f.key.n == 0 or e[0] != c'=':
            return NULL
        f.value = e + 1
        e = quoted_end(f.value, end) if f.value[0] == c'"' else name_end(f.value)
        if e == f.value or e >= end:
            return NULL
        f.end = e
        p = e + 1
        if e[0] == c'}':
            break
        if e[0] != c' ':
            return NULL
    else:
        return NULL
    if not ends_value(p, end):
        return NULL
    for i in range(n):
        appended = take_metadata(s, &fields[i], appended)
    if appended:
        push_utf8(&s.columns.attributes.bytes, b"}", 1)
    return p


cdef inline bint names_computation(const Slice* key) noexcept nogil:
    return (
        key_is(key, b"calls", 5) or key_is(key, b"to_apply", 8) or key_is(key, b"body", 4)
        or key_is(key, b"condition", 9) or key_is(key, b"branch_computations", 19)
        or key_is(key, b"called_computations", 19) or key_is(key, b"true_computation", 16)
        or key_is(key, b"false_computation", 17) or key_is(key, b"select", 6) or key_is(key, b"scatter", 7)
    )


cdef inline void attributes(Parser* s, const char* p, const char* end) noexcept nogil:
    # ", key=value" up to the end; the first of a key counts. Other text is kept verbatim among the attributes.
    cdef Slice key
    cdef const char* value
    cdef const char* e
    cdef TextColumn* others = &s.columns.attributes
    cdef TextColumn* called = &s.columns.called
    cdef size_t called_begin = called.bytes.size
    s.attributes_begin = others.bytes.size
    while p < end:
        key.p = p + 2
        value = name_end(key.p) if starts(p, end, b", ", 2) else key.p
        if value == key.p or value >= end or value[0] != c'=':
            append_joined(s, others, s.attributes_begin, p, end)
            break
        key.n = value - key.p
        value += 1
        if key_is(&key, b"metadata", 8) and value[0] == c'{':
            e = plain_metadata(s, value + 1, end)
            if e != NULL:
                p = e
                continue
        e = config_end(s.caches, value, end) if key_is(&key, b"backend_config", 14) else value_end(value, end)
        if key_is(&key, b"metadata", 8) and value[0] == c'{' and e[-1] == c'}':
            metadata(s, value + 1, e - 1)
        elif key_is(&key, b"backend_config", 14) and s.fields.backend_config.p == NULL:
            s.fields.backend_config.p = value
            s.fields.backend_config.n = e - value
        elif key_is(&key, b"sharding", 8) and s.fields.sharding.p == NULL:
            s.fields.sharding.p = value
            s.fields.sharding.n = e - value
        elif key_is(&key, b"kind", 4) and s.fields.kind == NO_CODE:
            s.fields.kind = intern(s.interners[I_KIND], value, e - value, &s.invalid)
        elif key_is(&key, b"custom_call_target", 18) and s.fields.target == NO_CODE:
            s.fields.target = quoted_code(s, s.interners[I_TARGET], value, e)
        elif names_computation(&key):
            if value < e and value[0] == c'{' and e[-1] == c'}':
                append_joined(s, called, called_begin, value + 1, e - 1)
            else:
                append_joined(s, called, called_begin, value, e)
        else:
            append_joined(s, others, s.attributes_begin, key.p, e)
        p = e
    end_reserved_text(others, others.bytes.size > s.attributes_begin)
    end_reserved_text(called, called.bytes.size > called_begin)


cdef inline bint ends_value(const char* p, const char* end) noexcept nogil:
    # Whether p is the end, or followed by ", key=".
    cdef const char* k = p + 2
    if p >= end:
        return True
    if not starts(p, end, b", ", 2):
        return False
    k = name_end(k)
    return k > p + 2 and k < end and k[0] == c'='


cdef inline const char* value_end(const char* p, const char* end) noexcept nogil:
    # The end of an attribute's value: the first ", key=" outside brackets and quotes, or the end.
    while True:
        p = balanced(p, end, COMMA)
        if p >= end:
            return end
        if ends_value(p, end):
            return p
        p += 1


cdef inline const char* config_end(InstructionCaches* caches, const char* p, const char* end) noexcept nogil:
    # The same for a backend_config, which is first compared with the recent ones and then becomes the most recent.
    cdef Slice config
    cdef int i, k
    for i in range(RECENT_CONFIGS):
        config = caches.configs[i]
        if config.n and starts(p, end, config.p, config.n) and ends_value(p + config.n, end):
            break
    else:
        i = RECENT_CONFIGS - 1
        config.p = p
        config.n = value_end(p, end) - p
    for k in range(i, 0, -1):
        caches.configs[k] = caches.configs[k - 1]
    caches.configs[0] = config
    return p + config.n


cdef inline void put_text(Parser* s, TextColumn* column, const Slice* text) noexcept nogil:
    if text.p != NULL and not push_utf8(&column.bytes, text.p, text.n):
        s.invalid = True
    end_reserved_text(column, text.p != NULL)


cdef inline void put_config(Parser* s, Slice* config) noexcept nogil:
    # A quoted string without its quotes and escapes, anything else unchanged.
    cdef Buffer* unescaped = &s.caches.unescaped
    if config.n >= 2 and config.p[0] == c'"' and config.p[config.n - 1] == c'"':
        unescape(unescaped, config.p + 1, config.p + config.n - 1)
        config.n = unescaped.size
        if config.n:                              # or else there may be no memory to point to
            config.p = unescaped.data
    put_text(s, &s.columns.backend_config, config)


cdef inline bint has_shapes(const char* p, const char* end) noexcept nogil:
    # Whether an operand list has the older form "SHAPE %NAME".
    while p + 1 < end:
        if p[0] == c' ' and p[1] == c'%' and p[-1] != c',':
            return True
        p += 1
    return False


cdef inline bint put_instruction(
    Parser* s, const char* after_name, const char* end, int32_t code
) noexcept nogil:
    # Append the row of an instruction, given the code of its name and the name's end. Returns False if the text has
    # another form. Sets s.invalid and adds to s.features.
    cdef Instructions* columns = s.columns
    cdef const char* p
    cdef const char* shape
    cdef const char* opcode
    cdef const char* operands
    cdef const char* e
    cdef Repeat* shape_repeat
    cdef Repeat* opcode_repeat
    cdef Fields* fields = &s.fields
    shape = skip(after_name, end, b" = ", 3)
    if shape == NULL:
        return False
    shape_repeat = cached_repeat(&s.caches.shapes, shape)
    e = shape + shape_repeat.n if is_repeat(shape_repeat, shape, end, c' ') else balanced(shape, end, BLANK)
    if e >= end or e == shape or e[0] != c' ':
        return False
    opcode = e + 1
    opcode_repeat = cached_repeat(&s.caches.opcodes, opcode)
    operands = opcode + opcode_repeat.n if is_repeat(opcode_repeat, opcode, end, c'(') else name_end(opcode)
    if operands == opcode or operands >= end or operands[0] != c'(':
        return False
    operands += 1
    p = balanced(operands, end, 0)
    if p >= end or p[0] != c')':
        return False
    s.invalid = False
    memset(fields, 0, sizeof(Fields))
    fields.op_type = fields.op_name = fields.source_file = fields.target = fields.kind = NO_CODE
    fields.source_line = fields.stack_frame_id = NO_INT
    put_code(&columns.instruction, code)
    put_code(&columns.shape, repeat_code(shape_repeat, s.interners[I_SHAPE], shape, e, &s.invalid))
    put_code(&columns.opcode, repeat_code(opcode_repeat, s.interners[I_OPCODE], opcode, operands - 1, &s.invalid))
    if not push_utf8(&columns.operands.bytes, operands, p - operands):
        s.invalid = True
    end_reserved_text(&columns.operands, True)
    if p > operands and operands[0] != c'%' and CLASS[<uint8_t> p[-1]] & IN_NAME and has_shapes(operands, p):
        s.features |= HAS_SHAPES
    attributes(s, p + 1, end)
    put_code(&columns.op_type, fields.op_type)
    put_code(&columns.op_name, fields.op_name)
    put_code(&columns.source_file, fields.source_file)
    put(&columns.source_line, fields.source_line)
    put(&columns.stack_frame_id, fields.stack_frame_id)
    put_code(&columns.target, fields.target)
    put_code(&columns.kind, fields.kind)
    put_text(s, &columns.sharding, &fields.sharding)
    put_config(s, &fields.backend_config)
    return True
