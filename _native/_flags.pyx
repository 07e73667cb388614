"""Flags: protobuf text with one field a line."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from buffer cimport Buffer, n_columns, push, push_byte, push_bytes, release, release_columns
from cursor cimport CLASS, IN_NAME, line_end, starts
from fault cimport NOT_UTF8, UNKNOWN_LINE, W_FLAG, W_UTF8, fault
from text cimport Slice, TextColumn, end_text, push_null_text, push_text, push_utf8
from xlamem._column cimport own, own_text

cdef enum:
    MAX_DEPTH = 100                               # messages around a field, as in protobuf's own parsers

cdef enum Form:
    UNKNOWN
    FIELD
    OPENS
    CLOSES
    COMMENT

cdef struct Line:
    Form form
    Slice name
    Slice text                                    # the value of a field, or a comment

cdef struct Columns:
    TextColumn names
    TextColumn values
    TextColumn comments
    Buffer ordinals                               # int64
    Buffer faults

cdef struct Scan:
    Columns columns
    Buffer scratch
    int64_t depth                                 # messages that are open
    Slice[MAX_DEPTH] messages                     # their names
    Slice comment                                 # the comment above the next field


cdef Line line_at(const char* p, const char* e) noexcept nogil:
    # The line [p, e): spaces, then NAME: VALUE, NAME {, } or a comment.
    cdef Line line
    memset(&line, 0, sizeof(Line))
    while p < e and p[0] == c' ':
        p += 1
    line.name.p = line.text.p = p
    line.text.n = e - p
    if starts(p, e, b"#", 1):
        line.form = COMMENT
        return line
    if e - p == 1 and p[0] == c'}':
        line.form = CLOSES
        return line
    while p < e and (CLASS[<uint8_t> p[0]] & IN_NAME or p[0] == c'[' or p[0] == c']' or p[0] == c'/'):
        p += 1
    line.name.n = p - line.name.p
    if line.name.n and starts(p, e, b": ", 2):
        line.form = FIELD
        line.text.p = p + 2
        line.text.n = e - line.text.p
    elif line.name.n and e - p == 2 and starts(p, e, b" {", 2):
        line.form = OPENS
    return line


cdef void put_row(Scan* s, const Line* line, int64_t around) noexcept nogil:
    # A field, or an empty message, in `around` messages.
    cdef int64_t i
    push(&s.columns.ordinals, s.columns.values.valid.size)
    for i in range(around):
        push_bytes(&s.columns.names.bytes, s.messages[i].p, s.messages[i].n)
        push_byte(&s.columns.names.bytes, c'.')
    push_bytes(&s.columns.names.bytes, line.name.p, line.name.n)
    end_text(&s.columns.names, True)
    if line.form == FIELD:
        push_text(&s.columns.values, line.text.p, line.text.n)
    else:
        push_text(&s.columns.values, b"{}", 2)
    if s.comment.p != NULL:
        push_text(&s.columns.comments, s.comment.p, s.comment.n)
    else:
        push_null_text(&s.columns.comments)


cdef bint is_utf8(Scan* s, const Slice* text) noexcept nogil:
    s.scratch.size = 0
    return push_utf8(&s.scratch, text.p, text.n)


cdef bint put_line(Scan* s, const Line* line, const char* following, const char* end) noexcept nogil:
    # Returns False for a line that is unknown here.
    cdef int64_t around = s.depth
    cdef const char* e
    if line.form == UNKNOWN or (line.form == CLOSES and s.depth == 0):
        return False
    if line.form == CLOSES:
        s.depth -= 1
        return True
    if line.form == OPENS:
        s.depth += 1
    if s.depth > MAX_DEPTH:
        return False
    if line.form == OPENS:
        s.messages[around] = line.name
        if following == end:
            return True
        e = line_end(following, end)
        if line_at(following, e).form == CLOSES:
            put_row(s, line, around)
    elif line.form == FIELD:
        put_row(s, line, around)
    return True


cdef void scan_lines(Scan* s, const char* p, const char* end, int64_t offset) noexcept nogil:
    # `offset` is that of p.
    cdef const char* base = p - offset
    cdef const char* e
    cdef Line line
    cdef bint in_comment = False
    while p < end:
        e = line_end(p, end)
        line = line_at(p, e)
        if not put_line(s, &line, e + 1, end):
            fault(&s.columns.faults, UNKNOWN_LINE, p - base, W_FLAG)
        elif line.form in (FIELD, COMMENT) and not is_utf8(s, &line.text):
            fault(&s.columns.faults, NOT_UTF8, p - base, W_UTF8)
        if line.form != COMMENT and line.form != OPENS:   # the comment on a message is that of its first field
            s.comment.p = NULL
        elif line.form == COMMENT and s.comment.p != NULL and in_comment:
            s.comment.n = e - s.comment.p
        elif line.form == COMMENT:
            s.comment = line.text
        in_comment = line.form == COMMENT
        p = e + 1


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end):
    """Return the columns, the faults, and whether a message has no end. The text ends in a newline."""
    cdef Scan s
    cdef Columns* columns = &s.columns
    if not 0 <= begin <= end <= data.shape[0] or (begin < end and data[end - 1] != c'\n'):
        raise ValueError("a span must lie in the data and end in a newline")
    memset(&s, 0, sizeof(Scan))
    if begin < end:
        with nogil:
            scan_lines(&s, <const char*> &data[begin], <const char*> &data[0] + end, begin)
            columns.faults.failed |= s.scratch.failed
            release(&s.scratch)
    try:
        return {
            "ordinal": own(&columns.ordinals), "name": own_text(&columns.names), "value": own_text(&columns.values),
            "comment": own_text(&columns.comments),
        }, own(&columns.faults), s.depth > 0
    finally:
        release_columns(<Buffer*> columns, n_columns(columns[0]))
