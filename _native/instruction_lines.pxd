# The lines " from instruction:" of the records: one row for each distinct text.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset

from buffer cimport (
    NO_CODE, NO_MEMORY, Buffer, allocate_zeroed, prefetch, push_code, put, put_code, release, reserve_rows,
)
from cursor cimport ShortValue, line_end, name, short_value, starts, text_end
from fault cimport INSTRUCTION_DIFFERS, NOT_UTF8, UNKNOWN_LINE, W_INSTRUCTION, W_SAME_TEXT, W_UTF8, fault
from gaps cimport MAX_TRIES, NO_ROW, Gaps, add_gap, clear_gaps, gapped_short, push_gaps
from instruction cimport InstructionCaches, Instructions, InternerP, Parser, put_instruction
from interner cimport Slot, hash_text, intern_name
from lookahead cimport NameQueue, flush_names
from text cimport Slice, equal, repeats

# Bits of `features`, in addition to those of instruction.pxd.
cdef enum:
    HAS_TEXT = 1
    HAS_BLANK = 2
    HAS_GLUE = 4

cdef enum:
    WAITING_LINES = 16
    MAX_TEXTS = 8                                 # of one name, compared one by one

cdef struct TextSpans:
    # For each instruction: begin and end of its text; int32: the previous row with its name, or -1.
    Buffer begin
    Buffer end
    Buffer previous

cdef struct InstructionTable:
    Instructions rows
    TextSpans spans
    Buffer row_of_name                            # int32 by code: last row of the name + 1, 0: none

cdef struct InstructionLine:
    int64_t line                                  # offset of its line
    int64_t begin                                 # of the text
    int64_t end
    const char* name_end
    int64_t record                                # offset in the records' names of the one that it defines
    int32_t code                                  # of its name; NO_CODE: that of the record
    bint repeated                                 # the same text as the line before

cdef struct LineReader:
    const char* base
    InstructionTable* table
    Buffer* record_names                          # codes of the records' names
    Buffer* gaps
    Buffer* faults
    InternerP* interners
    NameQueue* names
    InstructionCaches caches
    Buffer crowd                                  # Slot by hash of the text: row + 1 of each text of names with many
    size_t n_crowd                                # slots in use
    int features
    # Lines are queued until the codes of their records' names have been looked up.
    int n_waiting
    bint last_valid                               # whether the last line has the form of an instruction
    InstructionLine[WAITING_LINES] waiting
    InstructionLine last                          # read last, queued or not


cdef inline void begin_lines(LineReader* s) noexcept nogil:
    s.n_waiting = 0
    s.last_valid = False
    memset(&s.last, 0, sizeof(InstructionLine))


cdef inline const char* glued_record(
    const char* p, const char* line_stop, const char* end, ShortValue* value
) noexcept nogil:
    # Return the beginning of the next record's header if it is on the same line (E4), or else the end of the line.
    cdef const char* q = line_stop - 1
    cdef Gaps gaps
    cdef int tries = MAX_TRIES
    if q > p and q[0] == c'>':
        while q > p and q[0] != c'<':
            q -= 1
        if q[0] == c'<' and short_value(q, line_stop + 1, value) == line_stop:
            return q
    if starts(line_stop, end, b"\n positions", 11):
        # Only a header is followed by positions.
        q = line_stop - 1
        while q > p and tries:
            clear_gaps(&gaps)
            if q[0] == c'<':
                tries -= 1
                if gapped_short(q, line_stop, value, &gaps) != NULL:
                    return q
            q -= 1
    return line_stop


cdef inline bint is_text(LineReader* s, int32_t row, const char* p, size_t n) noexcept nogil:
    # Whether the row has the text at p.
    cdef TextSpans* spans = &s.table.spans
    cdef int64_t begin = (<const int64_t*> spans.begin.data)[row]
    return <size_t> ((<const int64_t*> spans.end.data)[row] - begin) == n and memcmp(p, s.base + begin, n) == 0


cdef inline bint find_text(LineReader* s, const char* p, size_t n, int32_t row, bint* crowded) noexcept nogil:
    # Whether this row or a previous row with the same name has the text at p. Repeated texts are compared in full and
    # not parsed again. Sets crowded[0] if there are MAX_TEXTS rows.
    cdef int32_t first = row
    cdef int _
    for _ in range(MAX_TEXTS):
        if row < 0:
            return False
        if is_text(s, row, p, n):
            return True
        row = (<const int32_t*> s.table.spans.previous.data)[row]
    crowded[0] = True
    if row < 0:                                   # no more than these, which are not in the table yet
        while first >= 0:
            add_to_crowd(s, first)
            first = (<const int32_t*> s.table.spans.previous.data)[first]
        return False
    return crowd_slot(s, p, n, hash_text(p, n)).code != 0


# A table of texts, for names with many: a valid dump has one text of each.

cdef inline Slot* crowd_slot(LineReader* s, const char* p, size_t n, uint32_t key) noexcept nogil:
    # The slot of a text, or the empty one that it would take. The table must not be empty.
    cdef Slot* slots = <Slot*> s.crowd.data
    cdef uint64_t mask = s.crowd.size // sizeof(Slot) - 1, i = key & mask
    while slots[i].code and not (slots[i].key == key and is_text(s, slots[i].code - 1, p, n)):
        i = (i + 1) & mask
    return &slots[i]


cdef inline void grow_crowd(LineReader* s) noexcept nogil:
    cdef Buffer before = s.crowd
    cdef Slot* slots
    cdef Slot* old = <Slot*> before.data
    cdef size_t n = before.size // sizeof(Slot), i
    cdef uint64_t k, mask = max(n * 2, <size_t> 1024) - 1
    if not allocate_zeroed(&s.crowd, (mask + 1) * sizeof(Slot)):
        s.crowd = before
        s.table.spans.previous.failed = NO_MEMORY
        return
    slots = <Slot*> s.crowd.data
    for i in range(n):
        if old[i].code:
            k = old[i].key & mask
            while slots[k].code:
                k = (k + 1) & mask
            slots[k] = old[i]
    release(&before)


cdef inline void add_to_crowd(LineReader* s, int32_t row) noexcept nogil:
    cdef const char* p = s.base + (<const int64_t*> s.table.spans.begin.data)[row]
    cdef size_t n = <size_t> ((<const int64_t*> s.table.spans.end.data)[row] - (p - s.base))
    cdef Slot* slot
    if (s.n_crowd + 1) * sizeof(Slot) * 2 > s.crowd.size:
        grow_crowd(s)
    if (s.n_crowd + 1) * sizeof(Slot) > s.crowd.size:
        return                                    # no memory
    slot = crowd_slot(s, p, n, hash_text(p, n))
    slot.key = hash_text(p, n)
    slot.code = row + 1
    s.n_crowd += 1


cdef inline int32_t last_row(const Buffer* row_of_name, int32_t code) noexcept nogil:
    return (<const int32_t*> row_of_name.data)[code] - 1 if <size_t> code * 4 < row_of_name.size else -1


cdef inline void set_last_row(Buffer* row_of_name, int32_t code, int32_t row) noexcept nogil:
    while row_of_name.size <= <size_t> code * 4 and not row_of_name.failed:
        push_code(row_of_name, 0)
    if not row_of_name.failed:
        (<int32_t*> row_of_name.data)[code] = row + 1


cdef inline const char* instruction_line(
    LineReader* s, const char* line, const char* p, const char* end, const Slice* header
) noexcept nogil:
    # Queue the text after " from instruction:". Returns the beginning of the next line or header.
    cdef const char* stop
    cdef const char* e
    cdef Slice word
    cdef ShortValue value
    cdef InstructionLine* waiting
    cdef Buffer* names = s.record_names
    cdef size_t n
    cdef Gaps gaps
    s.features |= HAS_TEXT
    if p[0] == c' ':
        s.features |= HAS_BLANK
        p += 1
    if p[0] != c'%':
        stop = line_end(p, end)
        e = <const char*> memchr(p, c'%', stop - p)
        if e != NULL:
            clear_gaps(&gaps)
            add_gap(&gaps, p, e)
            push_gaps(s.gaps, &gaps, s.base, NO_ROW, 0)
            p = e
    waiting = &s.waiting[s.n_waiting]
    n = <size_t> (s.last.end - s.last.begin)
    if n and n < <size_t> (end - p) and repeats(p, s.base + s.last.begin, n) and p[n] == c'\n':
        # Most repeats are consecutive and may be long, so they are compared first.
        waiting[0] = s.last
        waiting.line = line - s.base
        waiting.repeated = True
        s.n_waiting += 1
        return p + n + 1
    stop = text_end(p, line_end(p, end), end)
    e = glued_record(p, stop, end, &value)
    if p[0] == c'%' and name(p + 1, &word) != NULL:
        waiting.line = line - s.base
        waiting.begin = p - s.base
        waiting.end = e - s.base
        waiting.name_end = word.p + word.n
        waiting.record = names.size - 4
        waiting.code = NO_CODE
        waiting.repeated = False
        if word.n != header.n or not equal(word.p, header.p, word.n) or names.failed:
            flush_names(s.names)
            waiting.code = intern_name(s.names.interner, word.p, word.n)
        s.last = waiting[0]
        s.n_waiting += 1
    else:
        fault(s.faults, UNKNOWN_LINE, line - s.base, W_INSTRUCTION)
    if e == stop:
        return e + 1
    s.features |= HAS_GLUE
    return e


cdef inline bint put_row(LineReader* s, const InstructionLine* line, int32_t previous) noexcept nogil:
    # The row of an instruction with a new text. False if it has another form.
    cdef Parser parser
    cdef TextSpans* spans = &s.table.spans
    parser.columns = &s.table.rows
    parser.caches = &s.caches
    parser.interners = s.interners
    parser.features = 0
    if not put_instruction(&parser, line.name_end, s.base + line.end, line.code):
        return False
    s.features |= parser.features
    put(&spans.begin, line.begin)
    put(&spans.end, line.end)
    put_code(&spans.previous, previous)
    if parser.invalid:
        fault(s.faults, NOT_UTF8, line.line, W_UTF8)
    return True


cdef inline void take_lines(LineReader* s) noexcept nogil:
    # Process the queued instruction lines: append one row for each new text.
    cdef InstructionTable* table = s.table
    cdef InstructionLine* line
    cdef int i
    cdef int32_t row
    cdef bint crowded
    flush_names(s.names)
    for i in range(s.n_waiting):
        line = &s.waiting[i]
        if line.repeated:
            continue
        if line.code == NO_CODE:
            line.code = (<int32_t*> (s.record_names.data + line.record))[0]
        if <size_t> line.code * 4 < table.row_of_name.size:
            prefetch(table.row_of_name.data + 4 * line.code)
    if not reserve_rows(&table.rows, WAITING_LINES) or not reserve_rows(&table.spans, WAITING_LINES):
        s.n_waiting = 0
    for i in range(s.n_waiting):
        line = &s.waiting[i]
        if line.repeated:
            if not s.last_valid:
                fault(s.faults, UNKNOWN_LINE, line.line, W_INSTRUCTION)
            continue
        s.last_valid = True
        row = last_row(&table.row_of_name, line.code)
        crowded = False
        if row >= 0 and find_text(s, s.base + line.begin, line.end - line.begin, row, &crowded):
            continue
        if put_row(s, line, row):
            if row >= 0:
                fault(s.faults, INSTRUCTION_DIFFERS, line.line, W_SAME_TEXT)
            set_last_row(&table.row_of_name, line.code, <int32_t> (table.rows.instruction.size // 4) - 1)
            if crowded:
                add_to_crowd(s, <int32_t> (table.rows.instruction.size // 4) - 1)
        else:
            s.last_valid = False
            fault(s.faults, UNKNOWN_LINE, line.line, W_INSTRUCTION)
    s.n_waiting = 0
