"""The section HloLiveRange: schedule, live ranges, XLA's own peak list and its stack tree."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset

from buffer cimport NO_CODE, NO_INT, Buf, drop, foresee, make_rows, outlook, push, push_code, put, put_code, zeros
from lookahead cimport Indices, Queue, index_code, indices_init, push_name, queue_init, settle
from text cimport Part, Text, text_push
from cursor cimport CLASS, DIGIT, MOST, index, integer, line_end, name, starts
from fault cimport (
    NOT_UTF8, UNKNOWN_LINE, W_LINE, W_NODE, W_PEAK, W_RANGE, W_STEP, W_UTF8, Wanted, fault,
)
from gaps cimport (
    NO_ROW, Gaps, Label, gap, head_any, indexed_element, is_led, label_element, name_element, number_element, push_gaps, seek,
    seek_text,
)
from xlamem._column cimport Names, own, own_text

# The lists of the section; a head line switches from one to the next.
cdef enum:
    L_NONE
    L_SCHEDULE
    L_RANGES
    L_PEAK
    L_TREE
    L_OTHER                    # a list that is not known
    L_END                      # behind the last node of the tree

NONE, SCHEDULE, RANGES, PEAK, TREE = L_NONE, L_SCHEDULE, L_RANGES, L_PEAK, L_TREE

# Tables of the rows whose lines have gaps.
cdef enum:
    G_SCHEDULE
    G_RANGES
    G_PEAK
    G_STACK

GAP_TABLES = ("schedule", "live_ranges", "printed_peak", "printed_stack")

# Bits of `features`.
cdef enum:
    HAS_PEAK_A = 1
    HAS_PEAK_B = 2
    HAS_PEAK_C = 4
    HAS_TREE = 8
    HAS_SPACED = 16

FEATURES = {
    HAS_PEAK_A: "peak_a", HAS_PEAK_B: "peak_b", HAS_PEAK_C: "peak_c", HAS_TREE: "tree", HAS_SPACED: "tree_spaced",
}

cdef struct Out:
    Buf s_time
    Buf s_instruction
    Buf r_instruction
    Buf r_index
    Buf r_start
    Buf r_end
    Buf p_ordinal
    Buf p_instruction
    Buf p_index
    Buf p_bytes
    Buf p_cumulative
    Buf n_ordinal
    Buf n_depth
    Text label
    Text percent
    Buf n_total
    Buf n_current
    Buf n_remaining
    Buf gaps
    Buf faults
    int features
    int lists                  # bit 1 << L_… for each head seen
    int list                   # the list at the end of the span
    int64_t peak_time
    int64_t tree_total
    const char* label_begin    # first line of a label that goes on over newlines
    int64_t ordinal
    int64_t node
    int steps                  # for how many rows of the two long lists the columns have room, made ROWS at a time
    int ranges

cdef enum:
    ROWS = 64


cdef const char* step_line(const char* p, Out* out, Queue* names) noexcept nogil:
    # "    STEP:NAME"; returns the newline, NULL if the line has another form.
    cdef int64_t time
    cdef Part word
    p = integer(p, &time)
    if p == NULL or p[0] != c':':
        return NULL
    p = name(p + 1, &word)
    if p == NULL or p[0] != c'\n':
        return NULL
    return p if put_step(time, &word, out, names) else NULL


cdef inline bint put_step(int64_t time, Part* word, Out* out, Queue* names) noexcept nogil:
    if out.steps == 0:
        if not make_rows(&out.s_time, 2, ROWS):
            return False
        out.steps = ROWS
    out.steps -= 1
    put(&out.s_time, time)
    push_name(names, &out.s_instruction, word.p, word.n)
    return True


cdef struct Step:
    int64_t time
    Label label


cdef const char* step_element(const char* p, const char* end, void* out) noexcept nogil:
    # "STEP:NAME"
    p = integer(p, &(<Step*> out).time)
    return name_element(p + 1, end, &(<Step*> out).label) if p != NULL and p[0] == c':' else NULL


cdef bint step_any(const char* base, const char* p, const char* end, Out* out, Queue* names) noexcept nogil:
    # The same with gaps.
    cdef Step step
    cdef Gaps gaps
    cdef const char* e
    gaps.n = 0
    gaps.full = False
    e = number_element(p, end, &step.time)
    if e != NULL:
        e = seek_text(b":", 1, e, end, &gaps)
        if e != NULL:
            e = seek(name_element, e, end, &step.label, &gaps)
    else:
        e = seek(step_element, p, end, &step, &gaps)
    if e == NULL:
        return False
    gap(&gaps, e, end)
    if gaps.full or is_led(&gaps, p):
        return False
    push_gaps(&out.gaps, &gaps, base, G_SCHEDULE, out.s_time.size // 8)
    return put_step(step.time, &step.label.word, out, names)


cdef const char* range_line(const char* p, Out* out, Queue* names, Indices* indices) noexcept nogil:
    # "    NAME{INDEX}:START-END"; the same.
    cdef Part word, sub
    cdef int64_t start, stop
    p = name(p, &word)
    if p == NULL:
        return NULL
    p = index(p, &sub)
    if p == NULL or p[0] != c':':
        return NULL
    p = integer(p + 1, &start)
    if p == NULL or p[0] != c'-':
        return NULL
    p = integer(p + 1, &stop)
    if p == NULL or p[0] != c'\n':
        return NULL
    return p if put_range(&word, &sub, start, stop, out, names, indices) else NULL


cdef inline bint put_range(
    Part* word, Part* sub, int64_t start, int64_t stop, Out* out, Queue* names, Indices* indices
) noexcept nogil:
    if out.ranges == 0:
        if not make_rows(&out.r_instruction, 4, ROWS):
            return False
        out.ranges = ROWS
    out.ranges -= 1
    push_name(names, &out.r_instruction, word.p, word.n)
    put_code(&out.r_index, index_code(indices, sub))
    put(&out.r_start, start)
    put(&out.r_end, stop)
    return True


cdef struct Span:
    int64_t start
    int64_t end


cdef const char* span_element(const char* p, const char* end, void* out) noexcept nogil:
    # "START-END"
    p = integer(p, &(<Span*> out).start)
    return number_element(p + 1, end, &(<Span*> out).end) if p != NULL and p[0] == c'-' else NULL


cdef bint range_any(
    const char* base, const char* p, const char* end, Out* out, Queue* names, Indices* indices
) noexcept nogil:
    # The same with gaps.
    cdef Label label
    cdef Span span
    cdef Gaps gaps
    cdef const char* e
    gaps.n = 0
    gaps.full = False
    e = seek(indexed_element, p, end, &label, &gaps)
    if e != NULL:
        e = seek_text(b":", 1, e, end, &gaps)
    if e != NULL:
        e = seek(span_element, e, end, &span, &gaps)
    if e == NULL:
        return False
    gap(&gaps, e, end)
    if gaps.full or is_led(&gaps, p):
        return False
    push_gaps(&out.gaps, &gaps, base, G_RANGES, out.r_start.size // 8)
    return put_range(&label.word, &label.index, span.start, span.end, out, names, indices)


cdef bint peak_line(const char* p, const char* e, Out* out, Queue* names, Indices* indices) noexcept nogil:
    # "    NAME[{INDEX}]: N bytes[ (cumulative: N bytes)]"
    cdef Part word, sub
    cdef int64_t n, cumulative = NO_INT
    cdef int form = HAS_PEAK_A
    sub.p = NULL
    p = name(p, &word)
    if p != NULL and p[0] == c'{':
        form = HAS_PEAK_B
        p = index(p, &sub)
    if p == NULL or not starts(p, e, b": ", 2):
        return False
    p = integer(p + 2, &n)
    if p == NULL or not starts(p, e, b" bytes", 6):
        return False
    p += 6
    if p != e:
        if form == HAS_PEAK_A or not starts(p, e, b" (cumulative: ", 14):
            return False
        p = integer(p + 14, &cumulative)
        if p == NULL or e - p != 7 or memcmp(p, b" bytes)", 7) != 0:
            return False
        form = HAS_PEAK_C
    push_peak(&word, &sub, n, cumulative, form, out, names, indices)
    return True


cdef void push_peak(
    Part* word, Part* sub, int64_t n, int64_t cumulative, int form, Out* out, Queue* names, Indices* indices
) noexcept nogil:
    push(&out.p_ordinal, out.ordinal)
    push_name(names, &out.p_instruction, word.p, word.n)
    push_code(&out.p_index, index_code(indices, sub))
    push(&out.p_bytes, n)
    push(&out.p_cumulative, cumulative)
    out.features |= form
    out.ordinal += 1


cdef const char* bytes_element(const char* p, const char* end, void* out) noexcept nogil:
    # "N bytes"
    p = integer(p, <int64_t*> out)
    return p + 6 if p != NULL and starts(p, end, b" bytes", 6) else NULL


cdef struct Peak:
    Label label
    int64_t bytes_


cdef const char* peak_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME[{INDEX}]: N bytes"
    p = label_element(p, end, &(<Peak*> out).label)
    return bytes_element(p + 2, end, &(<Peak*> out).bytes_) if p != NULL and starts(p, end, b": ", 2) else NULL


cdef const char* indexed_peak_element(const char* p, const char* end, void* out) noexcept nogil:
    p = peak_element(p, end, out)
    return p if p != NULL and (<Peak*> out).label.index.p != NULL else NULL


cdef const char* bytes_any(const char* p, const char* end, int64_t* out, Gaps* gaps) noexcept nogil:
    # ": N bytes" with gaps; returns where it ends.
    cdef const char* e
    p = seek_text(b": ", 2, p, end, gaps)
    if p == NULL:
        return NULL
    e = number_element(p, end, out)
    return seek_text(b" bytes", 6, e, end, gaps) if e != NULL else seek(bytes_element, p, end, out, gaps)


cdef bint peak_any(
    const char* base, const char* p, const char* end, Out* out, Queue* names, Indices* indices
) noexcept nogil:
    # The same with gaps.
    cdef Peak peak
    cdef Gaps gaps, before
    cdef int64_t cumulative = NO_INT
    cdef int form = HAS_PEAK_A
    cdef const char* e
    cdef const char* begin = p
    gaps.n = 0
    gaps.full = False
    e = seek(indexed_peak_element, p, end, &peak, &gaps)
    if e == NULL:
        gaps.n = 0
        e = seek(indexed_element, p, end, &peak.label, &gaps)
        if e == NULL:
            gaps.n = 0
            e = seek(peak_element, p, end, &peak, &gaps)
        else:
            e = bytes_any(e, end, &peak.bytes_, &gaps)
    if e == NULL:
        gaps.n = 0
        e = seek(name_element, p, end, &peak.label, &gaps)
        if e != NULL:
            e = bytes_any(e, end, &peak.bytes_, &gaps)
    if e == NULL:
        return False
    if peak.label.index.p != NULL:
        form = HAS_PEAK_B
        before = gaps
        p = seek_text(b" (", 2, e, end, &gaps)
        if p != NULL:
            p = seek_text(b"cumulative: ", 12, p, end, &gaps)
        if p != NULL:
            p = seek(bytes_element, p, end, &cumulative, &gaps)
        if p != NULL:
            p = seek_text(b")", 1, p, end, &gaps)
        if p != NULL:
            form = HAS_PEAK_C
            e = p
        else:
            gaps = before
            cumulative = NO_INT
    gap(&gaps, e, end)
    if gaps.full or is_led(&gaps, begin):
        return False
    push_gaps(&out.gaps, &gaps, base, G_PEAK, out.p_ordinal.size // 8)
    push_peak(&peak.label.word, &peak.label.index, peak.bytes_, cumulative, form, out, names, indices)
    return True


cdef const char* spaced_back(const char* begin, const char* p, int64_t* x, bint* blanks) noexcept nogil:
    # Reads "46 137 348" (or "46137348", or negative) backwards from p; returns where it begins.
    cdef const char* q = p
    cdef const char* r
    cdef int64_t n = 0
    while q > begin and (
        CLASS[<uint8_t> q[-1]] & DIGIT or (q[-1] == c' ' and q < p and q - 1 > begin and CLASS[<uint8_t> q[-2]] & DIGIT)
    ):
        q -= 1
    if q > begin and q[-1] == c'-':
        q -= 1
    if q == p or p - q > 26:
        return NULL
    r = q + (q[0] == c'-')
    while r < p:
        if r[0] == c' ':
            blanks[0] = True
        elif n > MOST or (n == MOST and r[0] > c'7'):
            return NULL                               # more than 64 bits
        else:
            n = n * 10 + (r[0] - c'0')
        r += 1
    x[0] = -n if q[0] == c'-' else n
    return q


cdef inline const char* back(const char* begin, const char* p, const char* text, size_t n) noexcept nogil:
    # p moved to before `text`, which must stand there.
    return p - n if <size_t> (p - begin) >= n and memcmp(p - n, text, n) == 0 else NULL


cdef bint node_line(const char* line, const char* e, Out* out) noexcept nogil:
    # "  {"    " | "│   "}("  " | "├── " | "└── ")LABEL (P%, total: N bytes, current: N bytes, remaining: N
    # bytes)", read from the right: a label can hold anything. Returns whether the line has the tail.
    cdef const char* p = e
    cdef Node node
    node.blanks = False
    p = back(line, p, b" bytes)", 7)
    if p != NULL:
        p = spaced_back(line, p, &node.remaining, &node.blanks)
    if p != NULL:
        p = back(line, p, b" bytes, remaining: ", 19)
    if p != NULL:
        p = spaced_back(line, p, &node.current, &node.blanks)
    if p != NULL:
        p = back(line, p, b" bytes, current: ", 17)
    if p != NULL:
        p = spaced_back(line, p, &node.total, &node.blanks)
    if p != NULL:
        p = back(line, p, b"%, total: ", 10)
    if p == NULL:
        return False
    node.percent.n = 0
    node.percent.p = p
    while node.percent.p > line and node.percent.p[-1] != c'(' and node.percent.p[-1] != c' ':
        node.percent.p -= 1
    node.percent.n = p - node.percent.p
    p = node.percent.p
    if node.percent.n == 0 or p - 2 < line or p[-1] != c'(' or p[-2] != c' ':
        return False
    return push_node(line, p - 2, &node, out)


cdef struct Node:
    # The tail of a node.
    Part percent
    int64_t total
    int64_t current
    int64_t remaining
    bint blanks


cdef bint push_node(const char* line, const char* end, Node* node, Out* out) noexcept nogil:
    # A row, if connectors stand before the label, which ends at `end`.
    cdef int64_t depth = 0
    cdef bint good
    cdef const char* begin = prefix(line if out.label_begin == NULL else out.label_begin, end, &depth)
    if begin == NULL:
        return False
    push(&out.n_ordinal, out.node)
    push(&out.n_depth, depth)
    good = text_push(&out.label, begin, end - begin)
    text_push(&out.percent, node.percent.p, node.percent.n)
    push(&out.n_total, node.total)
    push(&out.n_current, node.current)
    push(&out.n_remaining, node.remaining)
    out.node += 1
    if node.blanks:
        out.features |= HAS_SPACED
    out.label_begin = NULL
    if node.remaining == 0:
        out.list = L_END
    return good or not_utf8(out)


cdef const char* spaced_element(const char* p, const char* end, int64_t* out, bint* blanks) noexcept nogil:
    # "46 137 348 bytes"
    cdef const char* q = p
    while q < end and (CLASS[<uint8_t> q[0]] & DIGIT or q[0] == c' ' or q[0] == c'-'):
        q += 1
    if q - p < 2 or q[-1] != c' ' or not starts(q, end, b"bytes", 5):
        return NULL
    return q + 5 if spaced_back(p, q - 1, out, blanks) == p else NULL


cdef bint node_any(const char* base, const char* line, const char* e, Out* out) noexcept nogil:
    # The same with gaps in the tail, which begins at the last "%, total: ".
    cdef Node node
    cdef Gaps gaps
    cdef const char* p = e - 10
    cdef const char* q
    gaps.n = 0
    gaps.full = False
    node.blanks = False
    while p > line and not starts(p, e, b"%, total: ", 10):
        p -= 1
    if p <= line:
        return False
    node.percent.p = p
    while node.percent.p > line and node.percent.p[-1] != c'(' and node.percent.p[-1] != c' ':
        node.percent.p -= 1
    node.percent.n = p - node.percent.p
    q = node.percent.p
    while q > line + 1 and not (q[-1] == c'(' and q[-2] == c' '):
        q -= 1
    if node.percent.n == 0 or q <= line + 1:
        return False
    gap(&gaps, q, node.percent.p)
    p = spaced_element(p + 10, e, &node.total, &node.blanks)
    if p != NULL:
        p = seek_text(b", current: ", 11, p, e, &gaps)
    if p != NULL:
        p = spaced_element(p, e, &node.current, &node.blanks)
    if p != NULL:
        p = seek_text(b", remaining: ", 13, p, e, &gaps)
    if p != NULL:
        p = spaced_element(p, e, &node.remaining, &node.blanks)
    if p != NULL:
        p = seek_text(b")", 1, p, e, &gaps)
    if p == NULL:
        return False
    gap(&gaps, p, e)
    if gaps.full or not push_node(line, q - 2, &node, out):
        return False
    push_gaps(&out.gaps, &gaps, base, G_STACK, out.n_ordinal.size // 8 - 1)
    return True


cdef bint not_utf8(Out* out) noexcept nogil:
    out.features |= 1 << 30
    return True


cdef const char* prefix(const char* p, const char* end, int64_t* depth) noexcept nogil:
    # Steps over the connectors; returns where the label begins, NULL if they are not there.
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


cdef bint ends_node(const char* p, const char* e) noexcept nogil:
    # Whether the line has a node's tail.
    while p < e:
        if starts(p, e, b"%, total: ", 10):
            return True
        p += 1
    return False


cdef void unlabel(const char* base, const char* stop, Out* out) noexcept nogil:
    # The lines before this one, which is a whole node, are no label: their newlines are not a label's.
    cdef const char* p = out.label_begin
    while p < stop:
        fault(&out.faults, UNKNOWN_LINE, p - base, W_NODE)
        p = line_end(p, stop) + 1
    out.label_begin = NULL


cdef const char* head(const char* base, const char* p, const char* e, Out* out) noexcept nogil:
    # Switches the list if the line is a head, which may have gaps; returns NULL if it is none.
    cdef bint blanks = False
    cdef const char* q = NULL
    cdef int64_t n
    cdef Gaps gaps
    cdef int list_ = L_NONE
    gaps.n = 0
    gaps.full = False
    if starts(p, e, b"  InstructionSequence", 21) and head_any(p + 21, e, &gaps):
        list_ = L_SCHEDULE
    elif starts(p, e, b"  BufferLiveRange", 17) and head_any(p + 17, e, &gaps):
        list_ = L_RANGES
    elif starts(p, e, b"  Live ranges at ", 17):
        q = seek(number_element, p + 17, e, &n, &gaps)
        if q != NULL:
            q = seek_text(b" (", 2, q, e, &gaps)
        if q != NULL:
            q = seek_text(b"peak", 4, q, e, &gaps)
        if q != NULL:
            q = seek_text(b")", 1, q, e, &gaps)
        if q == NULL or not head_any(q, e, &gaps):
            return NULL
        list_ = L_PEAK
        out.peak_time = n
        out.ordinal = 0
    elif starts(p, e, b"  Stack trace breakdown for peak usage", 38):
        q = seek_text(b": ", 2, p + 38, e, &gaps)
        if q != NULL:
            q = spaced_element(q, e, &n, &blanks)
        if q == NULL:
            return NULL
        gap(&gaps, q, e)
        list_ = L_TREE if n else L_END
        out.tree_total = n
        out.features |= HAS_TREE
        if blanks:
            out.features |= HAS_SPACED
        out.node = 0
        out.lists |= 1 << L_TREE
    else:
        return NULL
    push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
    out.list = list_
    out.lists |= 1 << list_
    return e


cdef void foresee_list(Out* out, double times) noexcept nogil:
    # The two lists that are long. They end before the section does, which costs addresses alone.
    if out.list == L_SCHEDULE:
        foresee(&out.s_time, 2, &out.s_time, times)
    elif out.list == L_RANGES:
        foresee(&out.r_instruction, 4, &out.r_instruction, times)


cdef void scan_nogil(const char* base, const char* p, const char* end, Out* out, Queue* names, Indices* indices) noexcept nogil:
    cdef const char* e
    cdef Wanted wanted
    cdef bint four
    cdef int64_t depth
    cdef const char* begin = p
    cdef const char* look = outlook(p, end)
    while p < end:
        if p > look:
            foresee_list(out, (end - begin) / <double> (p - begin))
            look = end
        if out.list == L_TREE:
            # Its labels can look like anything. It ends with the node after which no bytes remain.
            e = line_end(p, end)
            depth = 0
            if out.label_begin != NULL and prefix(p, e, &depth) != NULL and depth and ends_node(p, e):
                unlabel(base, p, out)
            if node_line(p, e, out) or node_any(base, p, e, out):
                if out.features & (1 << 30):
                    out.features &= ~(1 << 30)
                    fault(&out.faults, NOT_UTF8, p - base, W_UTF8)
            elif out.label_begin == NULL and prefix(p, e, &depth) != NULL:
                out.label_begin = p
            elif out.label_begin == NULL:
                fault(&out.faults, UNKNOWN_LINE, p - base, W_NODE)
            p = e + 1
            continue
        four = starts(p, end, b"    ", 4)
        if four and out.list == L_SCHEDULE:
            e = step_line(p + 4, out, names)
            wanted = W_STEP
            if e == NULL and step_any(base, p + 4, line_end(p, end), out, names):
                e = line_end(p, end)
        elif four and out.list == L_RANGES:
            e = range_line(p + 4, out, names, indices)
            wanted = W_RANGE
            if e == NULL and range_any(base, p + 4, line_end(p, end), out, names, indices):
                e = line_end(p, end)
        elif four and out.list == L_PEAK:
            e = line_end(p, end)
            wanted = W_PEAK
            if not peak_line(p + 4, e, out, names, indices) and not peak_any(base, p + 4, e, out, names, indices):
                e = NULL
        else:
            e = line_end(p, end)
            wanted = W_LINE
            begin = p
            look = outlook(p, end)
            if head(base, p, e, out) == NULL:
                # A line that ends in a colon heads a list of its own.
                if e > p and e[-1] == c':' and not four:
                    out.list = L_OTHER
                e = NULL
        if e == NULL:
            e = line_end(p, end)
            fault(&out.faults, UNKNOWN_LINE, p - base, wanted)
        p = e + 1
    if out.label_begin != NULL:
        fault(&out.faults, UNKNOWN_LINE, out.label_begin - base, W_NODE)


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, int inside, Names names not None,
         Names indices not None, *, int64_t ordinal=0, int64_t node=0):
    """Tokenise data[begin:end], whole lines below `HloLiveRange (max N):`; `inside` is the list in which it begins.

    Returns (Columns per table, faults, bits of `features`, bits of the heads seen, peak time, total of
    the tree's head, offset of an unfinished tree label or -1, state); numbers not seen are the least int64.
    The state is what the next span begins with: `inside`, and the `ordinal` of its next line of the peak
    list and `node` of the tree.
    """
    cdef Out out
    cdef Queue queue
    cdef Indices known
    cdef const char* base = NULL
    memset(&out, 0, sizeof(Out))
    out.peak_time = out.tree_total = NO_INT
    out.list = inside
    out.ordinal = ordinal
    out.node = node
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie in the data and end in a newline")
        base = <const char*> &data[0]
        with nogil:
            queue_init(&queue, &names.pool)
            indices_init(&known, &indices.pool)
            scan_nogil(base, base + begin, base + end, &out, &queue, &known)
            settle(&queue)
    return {
        "schedule": {"time": own(&out.s_time), "instruction": own(&out.s_instruction)},
        "live_ranges": {
            "instruction": own(&out.r_instruction), "shape_index": own(&out.r_index), "start": own(&out.r_start),
            "end": own(&out.r_end),
        },
        "printed_peak": {
            "ordinal": own(&out.p_ordinal), "instruction": own(&out.p_instruction), "shape_index": own(&out.p_index),
            "bytes": own(&out.p_bytes), "cumulative": own(&out.p_cumulative),
        },
        "printed_stack": {
            "ordinal": own(&out.n_ordinal), "depth": own(&out.n_depth), "label": own_text(&out.label),
            "percent": own_text(&out.percent), "total": own(&out.n_total), "current": own(&out.n_current),
            "remaining": own(&out.n_remaining),
        },
        "gaps": {"gap": own(&out.gaps)},
    }, own(&out.faults), out.features, out.lists, out.peak_time, out.tree_total, (
        out.label_begin - base if out.label_begin != NULL else -1), (out.list, out.ordinal, out.node)


def match(const int[::1] instructions not None, const int[::1] indices not None,
          const long long[::1] ids not None, const int[::1] order not None,
          const int[::1] range_instructions not None, const int[::1] range_indices not None, int array_index):
    """value_id (int64) and row (int32) of each live range, joined by (instruction, index); the least and -1 for none.

    `order`: the rows of the values in ascending order of their ids.

    Ranges are printed in the order of the value ids, so the match is nearly always the next value; a
    hash of all values is made only for one that is not. A value without an index (-1) is `array_index`.
    """
    cdef Buf out, rows, table
    cdef Py_ssize_t n = ids.shape[0], i, k, at = 0
    cdef int32_t row = 0
    cdef int32_t* chain = NULL
    cdef uint8_t found
    cdef uint64_t room = 0, h
    if instructions.shape[0] != n or indices.shape[0] != n or order.shape[0] != n or (
        range_indices.shape[0] != range_instructions.shape[0]
    ):
        raise ValueError("columns of one table must have one length")
    for i in range(n):
        if not 0 <= order[i] < n:
            raise ValueError("no such row")
    memset(&table, 0, sizeof(Buf))
    with nogil:
        if zeros(&out, range_instructions.shape[0] * 8):
            out.size = 0
        if zeros(&rows, range_instructions.shape[0] * 4):
            rows.size = 0
        for i in range(range_instructions.shape[0]):
            found = False
            for k in range(at, min(at + 8, n)):
                row = order[k]
                if (
                    instructions[row] == range_instructions[i]
                    and (indices[row] if indices[row] >= 0 else array_index) == range_indices[i]
                ):
                    found = True
                    at = k + 1
                    push(&out, ids[row])
                    push_code(&rows, row)
                    break
            if found:
                continue
            if chain == NULL and n:
                room = 16
                while room < <uint64_t> n * 2:
                    room *= 2
                if not zeros(&table, room * 4):
                    out.failed = True
                    break
                chain = <int32_t*> table.data
                for k in range(n):
                    row = order[k]
                    h = spread(instructions[row], indices[row] if indices[row] >= 0 else array_index) & (room - 1)
                    while chain[h]:
                        h = (h + 1) & (room - 1)
                    chain[h] = <int32_t> k + 1
            if n:
                h = spread(range_instructions[i], range_indices[i]) & (room - 1)
                while chain[h]:
                    k = chain[h] - 1
                    row = order[k]
                    if (
                        instructions[row] == range_instructions[i]
                        and (indices[row] if indices[row] >= 0 else array_index) == range_indices[i]
                    ):
                        found = True
                        at = k + 1
                        break
                    h = (h + 1) & (room - 1)
            push(&out, ids[row] if found else NO_INT)
            push_code(&rows, row if found else NO_CODE)
        drop(&table)
        if out.failed or rows.failed:
            out.failed = True
            drop(&rows)
    column = own(&out)
    return column, own(&rows)


cdef inline uint64_t spread(int a, int b) noexcept nogil:
    cdef uint64_t h = (<uint64_t> <unsigned int> a << 32 | <unsigned int> b) * <uint64_t> 0x9e3779b97f4a7c15
    return h ^ (h >> 32)
