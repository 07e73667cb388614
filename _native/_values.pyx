"""The section Used values: positions, uses and the instructions that define them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memset

from buffer cimport (
    LONG_SPAN, NO_CODE, NO_INT, SAMPLED, SAMPLES, Buf, drop, foresee, line_with, make_rows, prefetch, push_byte,
    push_code, put, put_byte, put_code, sample_at,
)
from interner cimport Pool, intern, intern_name, pool_drop, pool_foresee
from lookahead cimport (
    Indices, Memo, Met, Queue, code_of, index_code, indices_init, is_met, memo_at, push_name, push_same, queue_init,
    settle,
)
from text cimport Part, Text, equal, push_utf8, text_drop, text_push
from cursor cimport (
    BLANK, CLASS, COMMA, IN_NAME, Short, balanced, behind_name, integer, line_end, name, name_end, position,
    quoted_end, short_value, skip, starts, use,
)
from escape cimport unescape
from fault cimport (
    INSTRUCTION_DIFFERS, NOT_UTF8, UNKNOWN_LINE, W_INSTRUCTION, W_LINE, W_POSITION, W_RECORD, W_RECORD_BEFORE,
    W_RECORD_REST, W_SAME_TEXT, W_USE, W_UTF8, fault,
)
from gaps cimport (
    NO_ROW, TRIES, Gaps, Label, Use, gap, head_any, is_led, position_any, push_gaps, seek_text, short_any, use_any,
)
from xlamem._column cimport Names, own, own_text

# Bits of `features`.
cdef enum:
    HAS_TEXT = 1
    HAS_BLANK = 2
    HAS_GLUE = 4
    HAS_NONE = 8
    HAS_UNKNOWN = 16
    HAS_SHAPES = 32
    HAS_FRAME = 64
    HAS_END_LINE = 128

FEATURES = {
    HAS_TEXT: "from_instruction", HAS_BLANK: "from_instruction_blank", HAS_GLUE: "glued", HAS_NONE: "uses_none",
    HAS_UNKNOWN: "uses_unknown", HAS_SHAPES: "operand_shapes",
}
TREE_BITS = HAS_FRAME | HAS_END_LINE

# Tables of the rows whose lines have gaps.
cdef enum:
    G_POSITIONS
    G_USES

GAP_TABLES = ("positions", "uses")

# The pools that `scan` takes, in this order.
POOLS = (
    "instruction", "shape_index", "shape", "opcode", "op_type", "op_name", "source_file", "custom_call_target",
    "fusion_kind",
)

cdef enum:
    P_NAME
    P_INDEX
    P_SHAPE
    P_OPCODE
    P_OP_TYPE
    P_OP_NAME
    P_FILE
    P_TARGET
    P_KIND
    N_POOLS

cdef enum:
    CONFIGS = 4

cdef struct Out:
    # records (for the check against `values`, and instead of them where they are missing)
    Buf value_id
    Buf r_instruction
    Buf r_index
    Buf r_phi
    Buf r_color
    Buf r_uses_known
    Buf r_offset
    # positions
    Buf p_value_id
    Buf p_ordinal
    Buf p_instruction
    Buf p_index
    # uses
    Buf u_value_id
    Buf u_ordinal
    Buf u_instruction
    Buf u_operand
    Buf u_index
    # instructions
    Buf instruction
    Buf shape
    Buf opcode
    Text operands
    Buf op_type
    Buf op_name
    Buf source_file
    Buf source_line
    Buf stack_frame_id
    Buf target
    Buf kind
    Text called
    Text sharding
    Text backend_config
    Text attributes
    Buf text_begin
    Buf text_end
    Buf before                 # int32: the row before with the same name and another text, or -1
    Buf row_of                 # int32 by code of the name: its last row + 1, 0 for none
    Text scratch
    Buf gaps
    Buf faults
    int features
    Memo shapes
    Memo opcodes
    Part[CONFIGS] configs      # backend_config: the last ones, most are printed again and again
    int64_t open               # offset of the last record's header if the end broke it off, else -1

ctypedef Pool* PoolP


cdef inline bint key_is(const char* p, size_t n, const char* text, size_t m) noexcept nogil:
    return n == m and memcmp(p, text, m) == 0


cdef int32_t quoted_code(Pool* pool, Buf* scratch, const char* p, const char* end, bint* bad) noexcept nogil:
    # Code of the value [p, end): a quoted string without its quotes and escapes, anything else as it is.
    if end - p >= 2 and p[0] == c'"' and end[-1] == c'"':
        p += 1
        end -= 1
        if memchr(p, c'\\', end - p) != NULL:
            unescape(scratch, p, end)
            return intern(pool, scratch.data, scratch.size, bad) if scratch.size else intern(pool, p, 0, bad)
    return intern(pool, p, end - p, bad)


cdef inline void piece(Text* t, size_t begin, const char* p, const char* end, bint* bad) noexcept nogil:
    # Appends a piece to the open item that began at `begin`, with ", " before all but the first.
    if t.bytes.size > begin:
        push_utf8(&t.bytes, b", ", 2)
    if not push_utf8(&t.bytes, p, end - p):
        bad[0] = True


cdef struct Row:
    # What the attributes of one instruction gave; pushed at the end, one item a column.
    int32_t op_type
    int32_t op_name
    int32_t source_file
    int32_t target
    int32_t kind
    int64_t source_line
    int64_t stack_frame_id
    Part sharding
    Part backend_config


cdef struct Field:
    const char* key
    size_t n                   # length of the key
    const char* value
    const char* end

cdef enum:
    FIELDS = 8                 # so many are found in one go; more of them one by one


cdef bint field(
    Field* f, bint left, Row* row, Out* out, PoolP* pools, size_t begin, bint* bad
) noexcept nogil:
    # One field of metadata={…}. Those without a column go on as an attribute: returns whether there were such.
    cdef const char* key = f.key
    cdef size_t n = f.n
    cdef int64_t x
    if key_is(key, n, b"op_name", 7):
        row.op_name = quoted_code(pools[P_OP_NAME], &out.scratch.bytes, f.value, f.end, bad)
    elif key_is(key, n, b"op_type", 7):
        row.op_type = quoted_code(pools[P_OP_TYPE], &out.scratch.bytes, f.value, f.end, bad)
    elif key_is(key, n, b"source_file", 11):
        row.source_file = quoted_code(pools[P_FILE], &out.scratch.bytes, f.value, f.end, bad)
    elif key_is(key, n, b"source_line", 11) and integer(f.value, &x) == f.end:
        row.source_line = x
    elif key_is(key, n, b"stack_frame_id", 14) and integer(f.value, &x) == f.end:
        row.stack_frame_id = x
        out.features |= HAS_FRAME
    else:
        if key_is(key, n, b"source_end_line", 15):
            out.features |= HAS_END_LINE
        return push_left(&out.attributes, begin, left, key, f.end, bad)
    return left


cdef void metadata(
    const char* p, const char* end, Row* row, Out* out, PoolP* pools, size_t begin, bint* bad
) noexcept nogil:
    # The fields between the braces of metadata={…}.
    cdef Field f
    cdef const char* e
    cdef bint left = False
    while p < end:
        f.key = p
        while p < end and p[0] != c'=' and p[0] != c' ':
            p += 1
        f.n = p - f.key
        f.value = p + 1 if p < end else p
        e = balanced(f.value, end, BLANK) if f.value < end else end
        while e < end and CLASS[<uint8_t> e[0]] & BLANK == 0:
            e = balanced(e + 1, end, BLANK)
        f.end = e
        left = field(&f, left, row, out, pools, begin, bad)
        p = e + 1 if e < end else end
    if left:
        push_utf8(&out.attributes.bytes, b"}", 1)


cdef const char* plain_metadata(
    const char* p, const char* end, Row* row, Out* out, PoolP* pools, size_t begin, bint* bad
) noexcept nogil:
    # The same where no bracket needs to be matched: 'key="text" key=7 …}' and the end of the attribute, which is
    # returned. NULL, and nothing was taken, if the metadata are of another form.
    cdef Field[FIELDS] fields
    cdef Field* f
    cdef const char* e
    cdef int i, n = 0
    cdef bint left = False
    while n < FIELDS:
        f = &fields[n]
        n += 1
        f.key = p
        e = name_end(p)
        f.n = e - p
        if f.n == 0 or e[0] != c'=':
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
        left = field(&fields[i], left, row, out, pools, begin, bad)
    if left:
        push_utf8(&out.attributes.bytes, b"}", 1)
    return p


cdef bint push_left(Text* t, size_t begin, bint left, const char* p, const char* end, bint* bad) noexcept nogil:
    if left:
        push_utf8(&t.bytes, b" ", 1)
    else:
        if t.bytes.size > begin:
            push_utf8(&t.bytes, b", ", 2)
        push_utf8(&t.bytes, b"metadata={", 10)
    if not push_utf8(&t.bytes, p, end - p):
        bad[0] = True
    return True


cdef inline bint names_computation(const char* key, size_t n) noexcept nogil:
    return (
        key_is(key, n, b"calls", 5) or key_is(key, n, b"to_apply", 8) or key_is(key, n, b"body", 4)
        or key_is(key, n, b"condition", 9) or key_is(key, n, b"branch_computations", 19)
        or key_is(key, n, b"called_computations", 19) or key_is(key, n, b"true_computation", 16)
        or key_is(key, n, b"false_computation", 17) or key_is(key, n, b"select", 6) or key_is(key, n, b"scatter", 7)
    )


cdef void attributes(const char* p, const char* end, Row* row, Out* out, PoolP* pools, bint* bad) noexcept nogil:
    # ", key=value" up to the end. Text that is none of that is kept as it is among the attributes.
    cdef const char* key
    cdef const char* value
    cdef const char* e
    cdef size_t n
    cdef size_t left = out.attributes.bytes.size, called = out.called.bytes.size
    while p < end:
        key = p + 2
        value = name_end(key) if starts(p, end, b", ", 2) else key
        if value == key or value >= end or value[0] != c'=':
            piece(&out.attributes, left, p, end, bad)
            break
        n = value - key
        value += 1
        if key_is(key, n, b"metadata", 8) and value[0] == c'{':
            e = plain_metadata(value + 1, end, row, out, pools, left, bad)
            if e != NULL:
                p = e
                continue
        e = config_end(value, end, out) if key_is(key, n, b"backend_config", 14) else value_end(value, end)
        if key_is(key, n, b"metadata", 8) and value[0] == c'{' and e[-1] == c'}':
            metadata(value + 1, e - 1, row, out, pools, left, bad)
        elif key_is(key, n, b"backend_config", 14):
            row.backend_config.p = value
            row.backend_config.n = e - value
        elif key_is(key, n, b"sharding", 8):
            row.sharding.p = value
            row.sharding.n = e - value
        elif key_is(key, n, b"kind", 4):
            row.kind = intern(pools[P_KIND], value, e - value, bad)
        elif key_is(key, n, b"custom_call_target", 18):
            row.target = quoted_code(pools[P_TARGET], &out.scratch.bytes, value, e, bad)
        elif names_computation(key, n):
            if value < e and value[0] == c'{' and e[-1] == c'}':
                piece(&out.called, called, value + 1, e - 1, bad)
            else:
                piece(&out.called, called, value, e, bad)
        else:
            piece(&out.attributes, left, key, e, bad)
        p = e
    put_text(&out.attributes, out.attributes.bytes.size > left)
    put_text(&out.called, out.called.bytes.size > called)


cdef inline bint ends_value(const char* p, const char* end) noexcept nogil:
    # Whether ", key=" or the end stands at p.
    cdef const char* k = p + 2
    if p >= end:
        return True
    if not starts(p, end, b", ", 2):
        return False
    k = name_end(k)
    return k > p + 2 and k < end and k[0] == c'='


cdef const char* value_end(const char* p, const char* end) noexcept nogil:
    # Where an attribute's value ends: before ", key=" outside brackets and quotes, or at the end.
    while True:
        p = balanced(p, end, COMMA)
        if p >= end:
            return end
        if ends_value(p, end):
            return p
        p += 1


cdef const char* config_end(const char* p, const char* end, Out* out) noexcept nogil:
    # The same for a backend_config: one of the last ones is known by its text. It is the first of them from now on.
    cdef Part met
    cdef int i, k
    for i in range(CONFIGS):
        met = out.configs[i]
        if met.n and starts(p, end, met.p, met.n) and ends_value(p + met.n, end):
            break
    else:
        i = CONFIGS - 1
        met.p = p
        met.n = value_end(p, end) - p
    for k in range(i, 0, -1):
        out.configs[k] = out.configs[k - 1]
    out.configs[0] = met
    return p + met.n


cdef inline void put_text(Text* t, bint valid) noexcept nogil:
    # Closes the item whose bytes were appended to t.bytes.
    if t.offsets.size == 0:
        put_code(&t.offsets, 0)
    put_code(&t.offsets, <int32_t> <uint32_t> t.bytes.size)
    put_byte(&t.valid, valid)


cdef inline void text_item(Text* t, Part* part, bint* bad) noexcept nogil:
    if part.p != NULL and not push_utf8(&t.bytes, part.p, part.n):
        bad[0] = True
    put_text(t, part.p != NULL)


cdef bint instruction(
    const char* base, const char* p, const char* end, const char* name_stop, int32_t code, int32_t before,
    int64_t line, Out* out, PoolP* pools,
) noexcept nogil:
    # "%NAME = SHAPE OPCODE(OPERANDS), ATTRIBUTES": one row. Returns whether it has that form.
    cdef const char* begin = p
    cdef const char* shape
    cdef const char* opcode
    cdef const char* operands
    cdef const char* e
    cdef Met* met_shape
    cdef Met* met_opcode
    cdef Row row
    cdef bint bad = False
    shape = skip(name_stop, end, b" = ", 3)
    if shape == NULL:
        return False
    met_shape = memo_at(&out.shapes, shape)
    e = shape + met_shape.n if is_met(met_shape, shape, end, c' ') else balanced(shape, end, BLANK)
    if e >= end or e == shape or e[0] != c' ':
        return False
    opcode = e + 1
    met_opcode = memo_at(&out.opcodes, opcode)
    operands = opcode + met_opcode.n if is_met(met_opcode, opcode, end, c'(') else name_end(opcode)
    if operands == opcode or operands >= end or operands[0] != c'(':
        return False
    operands += 1
    p = balanced(operands, end, 0)
    if p >= end or p[0] != c')':
        return False
    memset(&row, 0, sizeof(Row))
    row.op_type = row.op_name = row.source_file = row.target = row.kind = NO_CODE
    row.source_line = row.stack_frame_id = NO_INT
    put_code(&out.instruction, code)
    put_code(&out.shape, code_of(met_shape, pools[P_SHAPE], shape, e, &bad))
    put_code(&out.opcode, code_of(met_opcode, pools[P_OPCODE], opcode, operands - 1, &bad))
    if not push_utf8(&out.operands.bytes, operands, p - operands):
        bad = True
    put_text(&out.operands, True)
    if p > operands and operands[0] != c'%' and CLASS[<uint8_t> p[-1]] & IN_NAME and has_shapes(operands, p):
        out.features |= HAS_SHAPES
    attributes(p + 1, end, &row, out, pools, &bad)
    put_code(&out.op_type, row.op_type)
    put_code(&out.op_name, row.op_name)
    put_code(&out.source_file, row.source_file)
    put(&out.source_line, row.source_line)
    put(&out.stack_frame_id, row.stack_frame_id)
    put_code(&out.target, row.target)
    put_code(&out.kind, row.kind)
    text_item(&out.sharding, &row.sharding, &bad)
    if row.backend_config.n >= 2 and row.backend_config.p[0] == c'"':
        unescape(&out.scratch.bytes, row.backend_config.p + 1, row.backend_config.p + row.backend_config.n - 1)
        row.backend_config.p = out.scratch.bytes.data
        row.backend_config.n = out.scratch.bytes.size
    text_item(&out.backend_config, &row.backend_config, &bad)
    put(&out.text_begin, begin - base)
    put(&out.text_end, end - base)
    put_code(&out.before, before)
    if bad:
        fault(&out.faults, NOT_UTF8, line, W_UTF8)
    return True


cdef bint has_shapes(const char* p, const char* end) noexcept nogil:
    # Whether an operand list is of the older form "SHAPE %NAME".
    while p + 1 < end:
        if p[0] == c' ' and p[1] == c'%' and p[-1] != c',':
            return True
        p += 1
    return False


cdef const char* glued(const char* p, const char* line_stop, const char* end, Short* s) noexcept nogil:
    # Where the next record's header begins if it is glued to the end of this line (E4), else the end of the line.
    cdef const char* q = line_stop - 1
    cdef Gaps gaps
    cdef int tries = TRIES
    if q > p and q[0] == c'>':
        while q > p and q[0] != c'<':
            q -= 1
        if q[0] == c'<' and short_value(q, line_stop + 1, s) == line_stop:
            return q
    if starts(line_stop, end, b"\n positions", 11):
        # Only a header is followed by positions.
        q = line_stop - 1
        while q > p and tries:
            gaps.n = 0
            gaps.full = False
            if q[0] == c'<':
                tries -= 1
                if short_any(q, line_stop, s, &gaps) != NULL:
                    return q
            q -= 1
    return line_stop


cdef int32_t find_text(const char* base, const char* p, size_t n, int32_t row, Out* out) noexcept nogil:
    # The row among those of one name whose text is that at p; -1 if there is none. A repeat is compared over its
    # whole length and never parsed again.
    cdef const int64_t* begins = <const int64_t*> out.text_begin.data
    cdef const int64_t* ends = <const int64_t*> out.text_end.data
    while row >= 0:
        if <size_t> (ends[row] - begins[row]) == n and memcmp(p, base + begins[row], n) == 0:
            return row
        row = (<const int32_t*> out.before.data)[row]
    return -1


cdef int32_t last_row(Buf* row_of, int32_t code) noexcept nogil:
    return (<const int32_t*> row_of.data)[code] - 1 if <size_t> code * 4 < row_of.size else -1


cdef void set_last_row(Buf* row_of, int32_t code, int32_t row) noexcept nogil:
    while row_of.size <= <size_t> code * 4 and not row_of.failed:
        push_code(row_of, 0)
    if not row_of.failed:
        (<int32_t*> row_of.data)[code] = row + 1


# An instruction's text waits until the codes of some records' names are there, which are looked up together.

cdef enum:
    LINES = 16

cdef struct Line:
    int64_t line               # where its line begins
    int64_t begin              # of the text
    int64_t end
    const char* name_end
    int64_t record             # in bytes of the column: the record whose name defines it
    int32_t code               # NO_CODE: that of the record
    bint again                 # the same text as the line before

cdef struct Lines:
    int n
    bint good                  # whether the line taken last has the form of an instruction
    Line[LINES] items
    Line last                  # met last, waiting or not


cdef const char* instruction_line(
    const char* base, const char* line, const char* p, const char* end, Part* header, Out* out, Lines* lines,
    Queue* names,
) noexcept nogil:
    # The text behind " from instruction:". Returns where the next line, or the glued header, begins.
    cdef const char* stop
    cdef const char* e
    cdef Part word
    cdef Short s
    cdef Line* waits
    cdef size_t n
    cdef Gaps gaps
    out.features |= HAS_TEXT
    if p[0] == c' ':
        out.features |= HAS_BLANK
        p += 1
    if p[0] != c'%':
        stop = line_end(p, end)
        e = <const char*> memchr(p, c'%', stop - p)
        if e != NULL:
            gaps.n = 0
            gap(&gaps, p, e)
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
            p = e
    waits = &lines.items[lines.n]
    n = <size_t> (lines.last.end - lines.last.begin)
    if n and n < <size_t> (end - p) and memcmp(p, base + lines.last.begin, n) == 0 and p[n] == c'\n':
        # Most repeats follow each other, and can be long: they are looked at once.
        waits[0] = lines.last
        waits.line = line - base
        waits.again = True
        lines.n += 1
        return p + n + 1
    stop = line_end(p, end)
    e = glued(p, stop, end, &s)
    if p[0] == c'%' and name(p + 1, &word) != NULL:
        waits.line = line - base
        waits.begin = p - base
        waits.end = e - base
        waits.name_end = word.p + word.n
        waits.record = out.r_instruction.size - 4
        waits.code = NO_CODE
        waits.again = False
        if word.n != header.n or not equal(word.p, header.p, word.n) or out.r_instruction.failed:
            settle(names)
            waits.code = intern_name(names.pool, word.p, word.n)
        lines.last = waits[0]
        lines.n += 1
    else:
        fault(&out.faults, UNKNOWN_LINE, line - base, W_INSTRUCTION)
    if e == stop:
        return e + 1
    out.features |= HAS_GLUE
    return e


cdef void take_lines(const char* base, Lines* lines, Out* out, PoolP* pools, Queue* names) noexcept nogil:
    # The instructions that wait: one row for each text that is new.
    cdef Line* line
    cdef int i
    cdef int32_t row
    settle(names)
    for i in range(lines.n):
        line = &lines.items[i]
        if line.again:
            continue
        if line.code == NO_CODE:
            line.code = (<int32_t*> (out.r_instruction.data + line.record))[0]
        if <size_t> line.code * 4 < out.row_of.size:
            prefetch(out.row_of.data + 4 * line.code)
    if not make_rows(&out.instruction, (<char*> &out.row_of - <char*> &out.instruction) // sizeof(Buf), LINES):
        lines.n = 0
    for i in range(lines.n):
        line = &lines.items[i]
        if line.again:
            if not lines.good:
                fault(&out.faults, UNKNOWN_LINE, line.line, W_INSTRUCTION)
            continue
        lines.good = True
        row = last_row(&out.row_of, line.code)
        if row >= 0 and find_text(base, base + line.begin, line.end - line.begin, row, out) >= 0:
            continue
        if instruction(base, base + line.begin, base + line.end, line.name_end, line.code, row, line.line, out, pools):
            if row >= 0:
                fault(&out.faults, INSTRUCTION_DIFFERS, line.line, W_SAME_TEXT)
            set_last_row(&out.row_of, line.code, <int32_t> (out.instruction.size // 4) - 1)
        else:
            lines.good = False
            fault(&out.faults, UNKNOWN_LINE, line.line, W_INSTRUCTION)
    lines.n = 0


cdef struct Mark:
    # How long the columns were when a record began.
    size_t records
    size_t positions
    size_t uses
    size_t gaps


cdef enum Stage:
    NONE                       # before the first record, or behind a bad header
    HEADER
    POSITIONS
    USES
    DONE


cdef enum:
    ROWS = 64

cdef struct Room:
    # How many rows the columns have room for, made ROWS at a time.
    int records
    int positions
    int uses


cdef bint begin(
    Out* out, Short* s, Mark* mark, int64_t offset, Queue* names, Indices* indices, Room* room
) noexcept nogil:
    # Opens a record: puts its row. Returns whether there was memory for it.
    if room.records == 0:
        if not make_rows(&out.value_id, 7, ROWS):
            return False
        room.records = ROWS
    room.records -= 1
    mark.records = out.r_phi.size
    mark.positions = out.p_index.size // 4
    mark.uses = out.u_index.size // 4
    mark.gaps = out.gaps.size
    put(&out.value_id, s.id)
    push_name(names, &out.r_instruction, s.name.p, s.name.n)
    put_code(&out.r_index, index_code(indices, &s.index))
    put_byte(&out.r_phi, s.phi)
    put(&out.r_color, s.color)
    put_byte(&out.r_uses_known, True)
    put(&out.r_offset, offset)
    return True


cdef inline bint repeats(const char* p, const char* end, const Part* word) noexcept nogil:
    # Whether this name stands at p.
    return word.n < <size_t> (end - p) and equal(p, word.p, word.n) and CLASS[<uint8_t> p[word.n]] & IN_NAME == 0


cdef const char* positions(
    const char* p, const char* end, Short* s, int64_t* ordinal, Out* out, Queue* names, Indices* indices, Room* room
) noexcept nogil:
    # The lines "  NAME[ SIDX]" from p on. Returns where the first line of another form begins.
    cdef const char* e
    cdef Part word, sub
    cdef int64_t i = ordinal[0]
    cdef bint same
    while p < end and p[0] == c' ' and p[1] == c' ':
        # Nearly always the first one has the name that the record's header has.
        same = i == 0 and repeats(p + 2, end, &s.name)
        e = behind_name(p + 2 + s.name.n, &sub) if same else position(p + 2, &word, &sub)
        if e == NULL:
            break
        if room.positions == 0:
            if not make_rows(&out.p_value_id, 4, ROWS):
                break
            room.positions = ROWS
        room.positions -= 1
        put(&out.p_value_id, s.id)
        put(&out.p_ordinal, i)
        if same:
            push_same(names, &out.p_instruction, s.name.p, s.name.n)
        else:
            push_name(names, &out.p_instruction, word.p, word.n)
        put_code(&out.p_index, index_code(indices, &sub))
        i += 1
        p = e + 1
    ordinal[0] = i
    return p


cdef const char* uses(
    const char* p, const char* end, Short* s, int64_t* ordinal, Out* out, Queue* names, Indices* indices, Room* room
) noexcept nogil:
    # The same for "  NAME, operand N[ SIDX]".
    cdef const char* e
    cdef Part word, sub
    cdef int64_t operand, i = ordinal[0]
    while p < end and p[0] == c' ' and p[1] == c' ':
        e = use(p + 2, end, &word, &operand, &sub)
        if e == NULL:
            break
        if room.uses == 0:
            if not make_rows(&out.u_value_id, 5, ROWS):
                break
            room.uses = ROWS
        room.uses -= 1
        put(&out.u_value_id, s.id)
        put(&out.u_ordinal, i)
        push_name(names, &out.u_instruction, word.p, word.n)
        put(&out.u_operand, operand)
        put_code(&out.u_index, index_code(indices, &sub))
        i += 1
        p = e + 1
    ordinal[0] = i
    return p


cdef void take_back(Out* out, Mark* mark) noexcept nogil:
    out.value_id.size = out.r_color.size = out.r_offset.size = mark.records * 8
    out.r_instruction.size = out.r_index.size = mark.records * 4
    out.r_phi.size = out.r_uses_known.size = mark.records
    out.p_value_id.size = out.p_ordinal.size = mark.positions * 8
    out.p_instruction.size = out.p_index.size = mark.positions * 4
    out.u_value_id.size = out.u_ordinal.size = out.u_operand.size = mark.uses * 8
    out.u_instruction.size = out.u_index.size = mark.uses * 4
    out.gaps.size = mark.gaps


cdef bint put_position(Out* out, int64_t id, int64_t ordinal, Label* label, Queue* names, Indices* indices, Room* room) noexcept nogil:
    # A row; False: no memory.
    if room.positions == 0:
        if not make_rows(&out.p_value_id, 4, ROWS):
            return False
        room.positions = ROWS
    room.positions -= 1
    put(&out.p_value_id, id)
    put(&out.p_ordinal, ordinal)
    push_name(names, &out.p_instruction, label.word.p, label.word.n)
    put_code(&out.p_index, index_code(indices, &label.index))
    return True


cdef bint put_use(Out* out, int64_t id, int64_t ordinal, Use* row, Queue* names, Indices* indices, Room* room) noexcept nogil:
    if room.uses == 0:
        if not make_rows(&out.u_value_id, 5, ROWS):
            return False
        room.uses = ROWS
    room.uses -= 1
    put(&out.u_value_id, id)
    put(&out.u_ordinal, ordinal)
    push_name(names, &out.u_instruction, row.word.p, row.word.n)
    put(&out.u_operand, row.operand)
    put_code(&out.u_index, index_code(indices, &row.index))
    return True


cdef bint gapped_row(
    const char* base, const char* p, const char* e, bint in_positions, int64_t id, int64_t* ordinal, Out* out,
    Queue* names, Indices* indices, Room* room,
) noexcept nogil:
    # A line of the positions or of the uses that has gaps; e is its newline. False if it has another form.
    cdef Gaps gaps
    cdef Label label
    cdef Use read
    gaps.n = 0
    gaps.full = False
    if in_positions:
        if not position_any(p + 2, e, &label, &gaps):
            return False
        push_gaps(&out.gaps, &gaps, base, G_POSITIONS, out.p_value_id.size // 8)
        if not put_position(out, id, ordinal[0], &label, names, indices, room):
            return False
    else:
        if not use_any(p + 2, e, &read, &gaps):
            return False
        push_gaps(&out.gaps, &gaps, base, G_USES, out.u_value_id.size // 8)
        if not put_use(out, id, ordinal[0], &read, names, indices, room):
            return False
    ordinal[0] += 1
    return True


cdef bint gapped_head(const char* base, const char* p, const char* e, Out* out) noexcept nogil:
    # Whether what follows the word of a head is its colon with gaps.
    cdef Gaps gaps
    gaps.n = 0
    gaps.full = False
    if not head_any(p, e, &gaps):
        return False
    push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
    return True


cdef void finish(Out* out, Mark* mark, Stage stage, int64_t offset, bint demand, bint at_end) noexcept nogil:
    # Closes a record: takes its rows back if it broke off.
    if stage == NONE:
        return
    if stage < USES or (at_end and demand and stage != DONE):
        fault(&out.faults, UNKNOWN_LINE, offset, W_RECORD_REST)
        take_back(out, mark)
        if at_end:
            out.open = offset


cdef inline void look_ahead(const char* p) noexcept nogil:
    # About as much as a record is called into the cache early: the processor does not do so from page to page.
    cdef int i
    for i in range(7):
        prefetch(p + 2048 + 64 * i)


cdef void scan_nogil(const char* base, const char* p, const char* end, Out* out, PoolP* pools,
                     bint demand) noexcept nogil:
    cdef const char* e
    cdef const char* q
    cdef Short s, next
    cdef Mark mark
    cdef Room room
    cdef Queue names
    cdef Lines lines
    cdef Indices indices
    cdef Stage stage = NONE
    cdef Gaps gaps
    cdef int64_t ordinal = 0, offset = 0
    cdef bint known = True
    cdef bint foreign = False                     # in a list that is not known
    memset(&room, 0, sizeof(Room))
    queue_init(&names, pools[P_NAME])
    indices_init(&indices, pools[P_INDEX])
    memset(&lines, 0, sizeof(Lines))
    while p < end:
        if p[0] == c'<':
            look_ahead(p)
            e = short_value(p, end, &next)
            finish(out, &mark, stage, offset, demand, False)
            gaps.n = 0
            if e == NULL or e[0] != c'\n':
                gaps.full = False
                e = line_end(p, end)
                q = short_any(p, e, &next, &gaps)
                gap(&gaps, q, e)
                if q == NULL or gaps.full:
                    e = NULL
            foreign = False
            if e != NULL:
                s = next
                stage = HEADER
                known = True
                offset = p - base
                if not begin(out, &s, &mark, offset, &names, &indices, &room):
                    return
                if gaps.n:
                    push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
            else:
                e = line_end(p, end)
                stage = NONE
                fault(&out.faults, UNKNOWN_LINE, p - base, W_RECORD)
        elif stage == HEADER and starts(p, end, b" positions:\n", 12):
            stage = POSITIONS
            foreign = False
            ordinal = 0
            p = positions(p + 12, end, &s, &ordinal, out, &names, &indices, &room)
            continue
        elif stage == POSITIONS and starts(p, end, b" uses:\n", 7):
            stage = USES
            foreign = False
            ordinal = 0
            p = uses(p + 7, end, &s, &ordinal, out, &names, &indices, &room)
            continue
        elif stage == USES and starts(p, end, b" from instruction:", 18):
            stage = DONE
            if lines.n == LINES:
                take_lines(base, &lines, out, pools, &names)
            p = instruction_line(base, p, p + 18, end, &s.name, out, &lines, &names)
            continue
        elif p[0] == c' ' and p[1] == c' ':
            e = line_end(p, end)
            if stage == USES and known and not foreign and ordinal == 0 and starts(p, end, b"  (none)", 8):
                gaps.n = 0
                gap(&gaps, p + 8, e)
                push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
                out.features |= HAS_NONE
            elif foreign or not (stage == POSITIONS or (stage == USES and known)) or not gapped_row(
                base, p, e, stage == POSITIONS, s.id, &ordinal, out, &names, &indices, &room
            ):
                fault(&out.faults, UNKNOWN_LINE, p - base,
                      W_POSITION if stage == POSITIONS else W_USE if stage == USES else W_LINE)
            if stage == POSITIONS and not foreign:
                p = positions(e + 1, end, &s, &ordinal, out, &names, &indices, &room)
                continue
            if stage == USES and known and not foreign:
                p = uses(e + 1, end, &s, &ordinal, out, &names, &indices, &room)
                continue
        elif stage == POSITIONS and starts(p, end, b" uses are not initialized yet.", 30):
            e = line_end(p, end)
            gaps.n = 0
            gap(&gaps, p + 30, e)
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
            stage = USES
            known = False
            foreign = False
            out.features |= HAS_UNKNOWN
            if out.r_uses_known.size:
                out.r_uses_known.data[out.r_uses_known.size - 1] = 0
        else:
            e = line_end(p, end)
            if stage == HEADER and starts(p, end, b" positions", 10) and gapped_head(base, p + 10, e, out):
                stage = POSITIONS
                foreign = False
                ordinal = 0
                p = positions(e + 1, end, &s, &ordinal, out, &names, &indices, &room)
                continue
            if stage == POSITIONS and starts(p, end, b" uses", 5) and gapped_head(base, p + 5, e, out):
                stage = USES
                foreign = False
                ordinal = 0
                p = uses(e + 1, end, &s, &ordinal, out, &names, &indices, &room)
                continue
            if stage == USES and starts(p, end, b" from instruction", 17) and p[17] == c' ':
                gaps.n = 0
                gaps.full = False
                q = seek_text(b":", 1, p + 17, e, &gaps)
                if q != NULL:
                    push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
                    stage = DONE
                    if lines.n == LINES:
                        take_lines(base, &lines, out, pools, &names)
                    p = instruction_line(base, p, q, end, &s.name, out, &lines, &names)
                    continue
            if p[0] != c' ' and starts(e, end, b"\n positions", 11):
                # Only a header is followed by positions.
                q = <const char*> memchr(p, c'<', e - p)
                gaps.n = 0
                gaps.full = False
                gap(&gaps, p, q)
                if q != NULL:
                    q = short_any(q, e, &next, &gaps)
                gap(&gaps, q, e)
                if q != NULL and not gaps.full and not is_led(&gaps, p):
                    finish(out, &mark, stage, offset, demand, False)
                    s = next
                    stage = HEADER
                    known = True
                    foreign = False
                    offset = p - base
                    if not begin(out, &s, &mark, offset, &names, &indices, &room):
                        return
                    push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
                    p = e + 1
                    continue
            # A line that ends in a colon heads a list of its own.
            foreign = foreign or (e > p and e[-1] == c':')
            # Behind a whole record, where a span may begin, as before the first one.
            fault(&out.faults, UNKNOWN_LINE, p - base, W_RECORD_BEFORE if stage in (NONE, DONE) else W_RECORD_REST)
        p = e + 1
    take_lines(base, &lines, out, pools, &names)
    finish(out, &mark, stage, offset, demand, True)


cdef size_t n_columns(Out* out) noexcept nogil:
    # How many Bufs stand before the first number.
    return (<char*> &out.features - <char*> out) // sizeof(Buf)


cdef inline size_t between(Buf* first, Buf* behind) noexcept nogil:
    return (<char*> behind - <char*> first) // sizeof(Buf)


cdef void size_ahead(const char* base, const char* p, const char* end, Out* out, Pool* names) noexcept nogil:
    # Sizes the columns and the pool of names from a few samples, scanned into columns and pools that are thrown away.
    cdef Out sample
    cdef Pool[N_POOLS] scratch
    cdef PoolP[N_POOLS] pools
    cdef const char* q
    cdef const char* stop
    cdef int i
    cdef size_t k, seen = 0
    cdef double times
    memset(&sample, 0, sizeof(Out))
    sample.shapes.two = True
    memset(scratch, 0, sizeof(scratch))
    for i in range(N_POOLS):
        pools[i] = &scratch[i]
    for i in range(SAMPLES):
        q = sample_at(p, end, i, b"<", 1)
        stop = line_with(min(q + (end - p) // (SAMPLED * SAMPLES), end - 1), end, b"<", 1)
        if q < stop:
            scan_nogil(base, q, stop, &sample, pools, False)
            seen += stop - q
    if seen:
        times = (end - p) / <double> seen
        # The first and the last ones, which only the checks want, lie apart: they go before the rest.
        foresee(&out.value_id, between(&out.value_id, &out.p_value_id), &sample.value_id, times)
        foresee(&out.p_value_id, between(&out.p_value_id, &out.text_begin), &sample.p_value_id, times)
        k = between(<Buf*> out, &out.text_begin)
        foresee(&out.text_begin, n_columns(out) - k, &sample.text_begin, times)
        pool_foresee(names, &scratch[P_NAME], sample.value_id.size // 8 * times, times)
    for k in range(n_columns(out)):
        drop(<Buf*> &sample + k)
    for i in range(N_POOLS):
        pool_drop(&scratch[i])


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, tuple pools not None,
         bint demand, bint last):
    """Tokenise data[begin:end], whole lines below `Used values:`, from one record's header to another's.

    `pools` holds one `Names` for each of POOLS. `demand`: a last record without an instruction is
    unfinished. Returns (Columns per table, faults, bits of `features`, offset of a record that the end
    broke off or -1). Integers are int64 (null: the least), codes int32 (null: -1), faults int64 triples.
    """
    cdef Out out
    cdef PoolP[N_POOLS] p
    cdef const char* base
    cdef int i
    memset(&out, 0, sizeof(Out))
    out.open = -1
    out.shapes.two = True
    for i in range(N_POOLS):
        p[i] = &(<Names?> pools[i]).pool
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie in the data and end in a newline")
        base = <const char*> &data[0]
        with nogil:
            if end - begin >= LONG_SPAN:
                size_ahead(base, base + begin, base + end, &out, p[P_NAME])
            scan_nogil(base, base + begin, base + end, &out, p, demand and last)
            drop(&out.row_of)
            text_drop(&out.scratch)
    return {
        "records": {
            "value_id": own(&out.value_id), "instruction": own(&out.r_instruction), "shape_index": own(&out.r_index),
            "is_phi": own(&out.r_phi), "color": own(&out.r_color), "uses_known": own(&out.r_uses_known),
            "offset": own(&out.r_offset),
        },
        "positions": {
            "value_id": own(&out.p_value_id), "ordinal": own(&out.p_ordinal),
            "instruction": own(&out.p_instruction), "shape_index": own(&out.p_index),
        },
        "uses": {
            "value_id": own(&out.u_value_id), "ordinal": own(&out.u_ordinal),
            "instruction": own(&out.u_instruction), "operand": own(&out.u_operand),
            "operand_shape_index": own(&out.u_index),
        },
        "instructions": {
            "instruction": own(&out.instruction), "shape": own(&out.shape), "opcode": own(&out.opcode),
            "operands": own_text(&out.operands), "op_type": own(&out.op_type), "op_name": own(&out.op_name),
            "source_file": own(&out.source_file), "source_line": own(&out.source_line),
            "stack_frame_id": own(&out.stack_frame_id), "custom_call_target": own(&out.target),
            "fusion_kind": own(&out.kind), "called_computations": own_text(&out.called),
            "sharding": own_text(&out.sharding), "backend_config": own_text(&out.backend_config),
            "attributes": own_text(&out.attributes), "text_begin": own(&out.text_begin),
            "text_end": own(&out.text_end), "before": own(&out.before),
        },
        "gaps": {"gap": own(&out.gaps)},
    }, own(&out.faults), out.features, out.open


def texts(const unsigned char[::1] data not None, const long long[::1] begins not None,
          const long long[::1] ends not None):
    """The texts data[begins[i]:ends[i]], copied: (bytes, int32 offsets, valid)."""
    cdef Text out
    cdef Py_ssize_t i
    cdef const char* base = <const char*> &data[0] if data.shape[0] else NULL
    memset(&out, 0, sizeof(Text))
    for i in range(begins.shape[0]):
        if not 0 <= begins[i] <= ends[i] <= data.shape[0]:
            raise ValueError("a text must lie in the data")
    with nogil:
        for i in range(begins.shape[0]):
            text_push(&out, base + begins[i], ends[i] - begins[i])
    return own_text(&out)


def same(const unsigned char[::1] data not None, const long long[::1] begins not None,
         const long long[::1] ends not None, const unsigned char[::1] others not None,
         const long long[::1] other_begins not None, const long long[::1] other_ends not None):
    """For each i whether data[begins[i]:ends[i]] equals others[other_begins[i]:other_ends[i]]: one byte each."""
    cdef Buf out
    cdef Py_ssize_t i
    cdef long long n
    memset(&out, 0, sizeof(Buf))
    for i in range(begins.shape[0]):
        if not (0 <= begins[i] <= ends[i] <= data.shape[0] and 0 <= other_begins[i] <= other_ends[i] <= others.shape[0]):
            raise ValueError("a text must lie in the data")
    with nogil:
        for i in range(begins.shape[0]):
            n = ends[i] - begins[i]
            push_byte(&out, n == other_ends[i] - other_begins[i] and (
                n == 0 or memcmp(&data[begins[i]], &others[other_begins[i]], n) == 0))
    return own(&out)
