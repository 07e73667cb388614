# The nodes of XLA's stack tree of its peak: connectors, a label with arbitrary text, and a tail of numbers.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp

from buffer cimport Buffer, push
from cursor cimport CLASS, DIGIT, MAX_TENTH, line_end, starts
from fault cimport NOT_UTF8, UNKNOWN_LINE, W_NODE, W_UTF8, fault
from gaps cimport Gaps, add_gap, clear_gaps, push_gaps, seek_text
from text cimport Slice, TextColumn, push_text

cdef struct StackTree:
    Buffer ordinal
    Buffer depth
    TextColumn label
    TextColumn percent
    Buffer total
    Buffer current
    Buffer remaining

cdef struct TreeReader:
    const char* base
    StackTree* columns
    Buffer* gaps
    Buffer* faults
    int64_t table                                 # of the gaps
    const char* label_begin                       # first line of a label of several lines; NULL: not in one
    int64_t ordinal                               # of the next node
    bint spaced                                   # a number has blanks between its digits
    bint finished                                 # no bytes remain after the last node

cdef struct NodeTail:
    Slice percent
    int64_t total
    int64_t current
    int64_t remaining


cdef inline const char* spaced_number_before(
    TreeReader* s, const char* begin, const char* p, int64_t* out
) noexcept nogil:
    # Read "46 137 348" (or "46137348", or negative) backwards from p. Returns its beginning.
    cdef const char* q = p
    cdef const char* r
    cdef bint spaced
    cdef int64_t n = 0
    while q > begin and (
        CLASS[<uint8_t> q[-1]] & DIGIT or (q[-1] == c' ' and q < p and q - 1 > begin and CLASS[<uint8_t> q[-2]] & DIGIT)
    ):
        q -= 1
    if q > begin and q[-1] == c'-':
        q -= 1
    r = q + (q[0] == c'-')
    if r >= p:
        return NULL
    spaced = memchr(r, c' ', p - r) != NULL
    if spaced and (p - r) % 4 == 0:
        return NULL                               # a group of more than three digits
    while r < p:
        if spaced and (p - r) % 4 == 0:
            if r[0] != c' ':
                return NULL
            s.spaced = True
        elif r[0] == c' ':
            return NULL
        elif n > MAX_TENTH or (n == MAX_TENTH and r[0] > c'7'):
            return NULL                           # more than 64 bits
        else:
            n = n * 10 + (r[0] - c'0')
        r += 1
    out[0] = -n if q[0] == c'-' else n
    return q


cdef inline const char* spaced_bytes(TreeReader* s, const char* p, const char* end, int64_t* out) noexcept nogil:
    # "46 137 348 bytes"
    cdef const char* q = p
    while q < end and (CLASS[<uint8_t> q[0]] & DIGIT or q[0] == c' ' or q[0] == c'-'):
        q += 1
    if q - p < 2 or q[-1] != c' ' or not starts(q, end, b"bytes", 5):
        return NULL
    return q + 5 if spaced_number_before(s, p, q - 1, out) == p else NULL


cdef inline const char* text_before(const char* begin, const char* p, const char* text, size_t n) noexcept nogil:
    # Return the beginning of the text if it ends at p; otherwise NULL.
    return p - n if <size_t> (p - begin) >= n and memcmp(p - n, text, n) == 0 else NULL


cdef inline const char* label_start(const char* p, const char* end, int64_t* depth) noexcept nogil:
    # Return the beginning of the label after the connectors; NULL if there are none.
    if not starts(p, end, b"  ", 2):
        return NULL
    p += 2
    depth[0] = 0
    if not starts(p, end, b"    ", 4):
        return p + 2 if starts(p, end, b"  ", 2) else NULL
    while True:
        if starts(p, end, b"    ", 4):
            p += 4
        elif starts(p, end, b"\xe2\x94\x82   ", 6):
            p += 6
        elif starts(p, end, b"\xe2\x94\x9c\xe2\x94\x80\xe2\x94\x80 ", 10) or starts(
            p, end, b"\xe2\x94\x94\xe2\x94\x80\xe2\x94\x80 ", 10
        ):
            return p + 10
        else:
            return NULL
        depth[0] += 1


cdef inline bint push_node(TreeReader* s, const char* line, const char* end, const NodeTail* tail) noexcept nogil:
    # Append the row of a node whose label ends at `end`. False if no connectors precede the label.
    cdef StackTree* columns = s.columns
    cdef int64_t depth = 0
    cdef const char* begin = label_start(line if s.label_begin == NULL else s.label_begin, end, &depth)
    if begin == NULL:
        return False
    push(&columns.ordinal, s.ordinal)
    push(&columns.depth, depth)
    if not push_text(&columns.label, begin, end - begin):
        fault(s.faults, NOT_UTF8, line - s.base, W_UTF8)
    push_text(&columns.percent, tail.percent.p, tail.percent.n)
    push(&columns.total, tail.total)
    push(&columns.current, tail.current)
    push(&columns.remaining, tail.remaining)
    s.ordinal += 1
    s.label_begin = NULL
    s.finished = tail.remaining == 0
    return True


cdef inline bint is_percentage(const char* p, const char* end) noexcept nogil:
    cdef const char* q
    if p < end and p[0] == c'-':
        p += 1
    if end - p == 3 and (starts(p, end, b"nan", 3) or starts(p, end, b"inf", 3)):
        return True
    q = p
    while q < end and CLASS[<uint8_t> q[0]] & DIGIT:
        q += 1
    return q > p and end - q == 2 and q[0] == c'.' and CLASS[<uint8_t> q[1]] & DIGIT != 0


cdef inline bint percent_before(const char* line, const char* p, Slice* out) noexcept nogil:
    # The percentage that ends at p: "N.N", "nan" or "inf", perhaps negative. False if there is none.
    out.p = p
    while out.p > line and out.p[-1] != c'(' and out.p[-1] != c' ':
        out.p -= 1
    out.n = p - out.p
    return is_percentage(out.p, p)


cdef inline bint node_line(TreeReader* s, const char* line, const char* e) noexcept nogil:
    # "  {"    " | "│   "}("  " | "├── " | "└── ")LABEL (P%, total: N bytes, current: N bytes, remaining: N bytes)", read
    # from the right because a label can contain anything. False if the line has no such tail.
    cdef const char* p = text_before(line, e, b" bytes)", 7)
    cdef NodeTail tail
    if p != NULL:
        p = spaced_number_before(s, line, p, &tail.remaining)
    if p != NULL:
        p = text_before(line, p, b" bytes, remaining: ", 19)
    if p != NULL:
        p = spaced_number_before(s, line, p, &tail.current)
    if p != NULL:
        p = text_before(line, p, b" bytes, current: ", 17)
    if p != NULL:
        p = spaced_number_before(s, line, p, &tail.total)
    if p != NULL:
        p = text_before(line, p, b"%, total: ", 10)
    if p == NULL or not percent_before(line, p, &tail.percent):
        return False
    p = tail.percent.p
    if p - 2 < line or p[-1] != c'(' or p[-2] != c' ':
        return False
    return push_node(s, line, p - 2, &tail)


cdef inline bint gapped_node(TreeReader* s, const char* line, const char* e) noexcept nogil:
    # The same with gaps in the tail, which begins at the last "%, total: ".
    cdef NodeTail tail
    cdef Gaps gaps
    cdef const char* p = e - 10
    cdef const char* q
    clear_gaps(&gaps)
    while p > line and not starts(p, e, b"%, total: ", 10):
        p -= 1
    if p <= line or not percent_before(line, p, &tail.percent):
        return False
    q = tail.percent.p
    while q > line + 1 and not (q[-1] == c'(' and q[-2] == c' '):
        q -= 1
    if q <= line + 1:
        return False
    add_gap(&gaps, q, tail.percent.p)
    p = spaced_bytes(s, p + 10, e, &tail.total)
    if p != NULL:
        p = seek_text(b", current: ", 11, p, e, &gaps)
    if p != NULL:
        p = spaced_bytes(s, p, e, &tail.current)
    if p != NULL:
        p = seek_text(b", remaining: ", 13, p, e, &gaps)
    if p != NULL:
        p = spaced_bytes(s, p, e, &tail.remaining)
    if p != NULL:
        p = seek_text(b")", 1, p, e, &gaps)
    if p == NULL:
        return False
    add_gap(&gaps, p, e)
    if gaps.overflow or not push_node(s, line, q - 2, &tail):
        return False
    push_gaps(s.gaps, &gaps, s.base, s.table, s.columns.ordinal.size // 8 - 1)
    return True


cdef inline bint has_tail(const char* p, const char* e) noexcept nogil:
    while p < e:
        if starts(p, e, b"%, total: ", 10):
            return True
        p += 1
    return False


cdef inline void report_label(TreeReader* s, const char* stop) noexcept nogil:
    # The lines up to `stop` are not a label, because a complete node follows: report each as unknown.
    cdef const char* p = s.label_begin
    while p < stop:
        fault(s.faults, UNKNOWN_LINE, p - s.base, W_NODE)
        p = line_end(p, stop) + 1
    s.label_begin = NULL


cdef inline void tree_line(TreeReader* s, const char* p, const char* e) noexcept nogil:
    # A line of the tree: a node, or a line of a label of several lines.
    cdef bint spaced = s.spaced
    cdef int64_t depth = 0
    if s.label_begin != NULL and label_start(p, e, &depth) != NULL and depth and has_tail(p, e):
        report_label(s, p)
    if node_line(s, p, e):
        return
    s.spaced = spaced
    if gapped_node(s, p, e):
        return
    s.spaced = spaced
    if s.label_begin == NULL and label_start(p, e, &depth) != NULL:
        s.label_begin = p
    elif s.label_begin == NULL:
        fault(s.faults, UNKNOWN_LINE, p - s.base, W_NODE)
