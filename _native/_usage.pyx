"""The section for the memory-usage report, in both layouts."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memset

from buffer cimport NO_CODE, NO_INT, Buffer, n_columns, presize, presize_point, push, push_code, release_columns
from cursor cimport CLASS, DIGIT, integer, line_end, starts
from fault cimport NOT_UTF8, UNKNOWN_LINE, W_REPORT, W_REPORT_LIST, W_REPORT_ROW, W_UTF8, Wanted, fault
from gaps cimport NO_ROW, Gaps, add_gap, clear_gaps, gapped_head, number_element, push_gaps, seek_text
from interner cimport Interner, intern
from report_row cimport (
    LIST, N_FIELDS, REST, ROW, SPACE, TABLE, Heading, Row, allocation_field, gapped_list_row, gapped_table_row,
    init_row, is_size, list_row, table_heading, table_row,
)
from text cimport Slice, TextColumn, push_null_text, push_text
from xlamem._column cimport Names, own, own_text

PARTS = ("list", "table", "row", "rest", "space")
GAP_TABLES = ("printed_report",)

cdef struct Columns:
    Buffer part
    Buffer color
    Buffer label
    Buffer total
    Buffer allocation
    TextColumn cumulative
    TextColumn percent
    TextColumn size
    TextColumn remaining
    Buffer offset
    Buffer n_values
    Buffer n_rest
    TextColumn shapes
    Buffer fields                                 # pairs: begin and end of the text after an allocation's size, or 0 0
    Buffer gaps
    Buffer faults

# Where the report is: what it has printed last. Titles, rules and empty lines are known only in their order.
cdef enum State:
    BEGIN
    # Layout A: the total, its list, and a second list with a table for each allocation of several values.
    TOTAL
    TOTAL_GAP
    LIST_TITLE
    LIST_GAP
    LIST_HEADING
    IN_LIST
    LIST_END
    SECOND_GAP
    SECOND_LIST
    ALLOCATION
    ALLOCATION_GAP
    ALLOCATION_HEADING
    IN_ALLOCATION_TABLE
    # Layout B: memory spaces with tables.
    SPACE_HEAD
    SPACE_TABLES
    TABLE_HEADING
    IN_TABLE
    SPACE_END

cdef enum:
    LIST_RULE = 78                                # dashes
    TABLE_RULE = 60

cdef struct Scan:
    const char* base
    Columns columns
    Interner* labels
    Gaps gaps                                     # of the current line
    int64_t list_rows
    int64_t list_rest
    int64_t n_allocations                         # in the second list of layout A
    bint layout_a
    bint layout_b
    State state
    bint has_table                                # the space has had a table
    Row space                                     # values shared by all rows of a memory space
    Heading heading                               # of the table


cdef bint push_optional(TextColumn* column, const Slice* text) noexcept nogil:
    if text.p == NULL:
        push_null_text(column)
        return True
    return push_text(column, text.p, text.n)


cdef void push_row(Scan* s, const Row* row, const char* line) noexcept nogil:
    # Append the row of a line, with the gaps of the current one.
    cdef Columns* columns = &s.columns
    cdef int64_t fields = row.fields.p - s.base if row.fields.p != NULL else 0
    cdef bint valid = True
    push_gaps(&columns.gaps, &s.gaps, s.base, 0, columns.color.size // 8)
    push_code(&columns.part, row.part)
    push(&columns.color, row.color)
    push_code(&columns.label, row.label)
    push(&columns.total, row.total)
    push(&columns.allocation, row.allocation)
    valid &= push_optional(&columns.cumulative, &row.cumulative)
    valid &= push_optional(&columns.percent, &row.percent)
    valid &= push_optional(&columns.size, &row.size)
    valid &= push_optional(&columns.remaining, &row.remaining)
    push(&columns.offset, row.offset)
    push(&columns.n_values, row.n_values)
    push(&columns.n_rest, row.n_rest)
    valid &= push_optional(&columns.shapes, &row.shapes)
    push(&columns.fields, fields)
    push(&columns.fields, fields + <int64_t> row.fields.n)
    if not valid:
        fault(&columns.faults, NOT_UTF8, line - s.base, W_UTF8)


cdef void push_line_gaps(Scan* s) noexcept nogil:
    # The gaps of a line without a row.
    push_gaps(&s.columns.gaps, &s.gaps, s.base, NO_ROW, 0)


cdef void push_part(Scan* s, int part, const char* line) noexcept nogil:
    # A row with only the values that the rows of the space share.
    cdef Row row
    init_row(&row, &s.space, part)
    push_row(s, &row, line)


cdef bint rest(const char* p, const char* e, const char* what, size_t n, Row* row) noexcept nogil:
    # "The rest N allocations are less than 5% of the total size and not shown."
    if not starts(p, e, b"The rest ", 9):
        return False
    p = integer(p + 9, &row.n_rest)
    return p != NULL and starts(p, e, what, n) and starts(
        p + n, e, b" are less than 5% of the total size and not shown.", 50)


cdef const char* rest_end(const char* p, const char* e) noexcept nogil:
    # After the full stop of "The rest N … not shown."
    p = <const char*> memchr(p, c'.', e - p)
    return p + 1


cdef bint total_bytes(const char* p, const char* e, int64_t* out, Gaps* gaps) noexcept nogil:
    # " N[ (SIZE)]" with gaps.
    cdef const char* q = p
    cdef const char* number_end = NULL
    cdef int64_t n
    while q < e and number_end == NULL:
        if q[0] == c' ':
            number_end = number_element(q + 1, e, &n)
        q += 1
    if number_end == NULL:
        return False
    add_gap(gaps, p, q - 1)
    p = number_end
    if p < e:
        p = seek_text(b" (", 2, p, e, gaps)
        q = p
        while p != NULL and p < e and p[0] != c')' and p[0] != c' ' and p[0] != c',':
            p += 1
        if p == NULL or not is_size(q, p):
            return False
        p = seek_text(b")", 1, p, e, gaps)
        if p == NULL:
            return False
        add_gap(gaps, p, e)
    out[0] = n
    return True


cdef bint is_rule(const char* p, const char* e, size_t n) noexcept nogil:
    # "----…", n dashes.
    if <size_t> (e - p) != n:
        return False
    while p < e and p[0] == c'-':
        p += 1
    return p == e


cdef bint empty_line(Scan* s, const char* p) noexcept nogil:
    # False if no empty line belongs here.
    cdef Buffer* n_values = &s.columns.n_values
    cdef State state = s.state
    if state == ALLOCATION:
        # A table follows: the allocation does not have just one value.
        if n_values.size:
            (<int64_t*> (n_values.data + n_values.size))[-1] = NO_INT
        s.state = ALLOCATION_GAP
    elif state == ALLOCATION_HEADING or state == IN_ALLOCATION_TABLE:
        s.state = SECOND_LIST
    elif state == TABLE_HEADING or state == IN_TABLE:
        s.state = SPACE_TABLES
    elif state == SPACE_TABLES:
        s.state = SPACE_END
        if not s.has_table:
            push_part(s, SPACE, p)
            s.has_table = True
    elif state in (TOTAL, LIST_TITLE, IN_LIST, LIST_END):
        s.state = <State> (state + 1)             # TOTAL_GAP, LIST_GAP, LIST_END, SECOND_GAP
    else:
        return False
    return True


cdef inline bint in_first_list(const Scan* s) noexcept nogil:
    return LIST_TITLE <= s.state <= IN_LIST


cdef inline bint in_second_list(const Scan* s) noexcept nogil:
    return SECOND_LIST <= s.state <= IN_ALLOCATION_TABLE


cdef inline bint in_table(const Scan* s) noexcept nogil:
    return s.state in (ALLOCATION_HEADING, IN_ALLOCATION_TABLE, TABLE_HEADING, IN_TABLE)


cdef inline bint advance(Scan* s, State expected, State following) noexcept nogil:
    # Go on to the next state if this one is expected.
    if s.state != expected:
        return False
    s.state = following
    return True


cdef bint table_line(Scan* s, const char* p, const char* e) noexcept nogil:
    # A line of a table. False if it is unknown.
    cdef bint layout_a = s.state <= IN_ALLOCATION_TABLE
    cdef const char* q = p + (1 if layout_a else 2)
    cdef Row row
    init_row(&row, &s.space, ROW)
    if is_rule(q, e, TABLE_RULE):
        return advance(s, ALLOCATION_HEADING, IN_ALLOCATION_TABLE) or advance(s, TABLE_HEADING, IN_TABLE)
    if rest(q, e, b" values", 7, &row):
        row.part = REST
        add_gap(&s.gaps, rest_end(q, e), e)
    elif not (s.heading.n == N_FIELDS and table_row(q, e, &row)) and not gapped_table_row(
        q, e, &s.heading, &row, &s.gaps
    ):
        return False
    push_row(s, &row, p)
    s.state = IN_ALLOCATION_TABLE if layout_a else IN_TABLE
    return True


cdef bint space_line(Scan* s, const char* p, const char* e) noexcept nogil:
    # "Memory Space: LABEL (color=N)"
    cdef bint invalid = False
    cdef int64_t color
    cdef const char* r
    cdef const char* q = e - 1
    while q > p and not starts(q, e, b"(color=", 7):
        q -= 1
    if q <= p + 14 or q[-1] != c' ':
        return False
    r = number_element(q + 7, e, &color)
    if r != NULL:
        r = seek_text(b")", 1, r, e, &s.gaps)
    if r == NULL:
        return False
    add_gap(&s.gaps, r, e)
    push_line_gaps(s)
    end_space(s, p)
    s.layout_b = True
    s.space.total = s.space.allocation = NO_INT
    s.space.color = color
    s.space.label = intern(s.labels, p + 14, q - 1 - p - 14, &invalid)
    if invalid:
        fault(&s.columns.faults, NOT_UTF8, p - s.base, W_UTF8)
    s.state = SPACE_HEAD
    s.has_table = False
    return True


cdef void end_space(Scan* s, const char* p) noexcept nogil:
    # A memory space without a table has a row of its own.
    if s.state >= SPACE_HEAD and not s.has_table:
        clear_gaps(&s.gaps)
        push_part(s, SPACE, p)
        s.has_table = True


cdef bint total_line(Scan* s, const char* p, const char* e) noexcept nogil:
    cdef bint good = total_bytes(p, e, &s.space.total, &s.gaps)
    if good:
        push_line_gaps(s)
    return good


cdef bint second_list_line(Scan* s, const char* p, const char* e) noexcept nogil:
    # An allocation of the second list of layout A.
    cdef Row row
    init_row(&row, &s.space, TABLE)
    if not allocation_field(p, e, &row, &s.gaps):
        s.state = SECOND_LIST                     # what follows is not about the allocation before it
        return False
    row.n_values = 1
    s.n_allocations += 1
    s.space.allocation = row.allocation
    s.state = ALLOCATION
    push_row(s, &row, p)
    return True


cdef bint list_rest_line(Scan* s, const char* p, const char* e) noexcept nogil:
    cdef Row row
    init_row(&row, &s.space, REST)
    if not rest(p, e, b" allocations", 12, &row):
        return False
    add_gap(&s.gaps, rest_end(p, e), e)
    s.list_rest = row.n_rest
    push_row(s, &row, p)
    s.state = IN_LIST
    return True


cdef bint list_line(Scan* s, const char* p, const char* e) noexcept nogil:
    cdef Row row
    init_row(&row, &s.space, LIST)
    if not list_row(p, e, &row, &s.gaps):
        clear_gaps(&s.gaps)
        init_row(&row, &s.space, LIST)
        if not gapped_list_row(p, e, &row, &s.gaps):
            return False
    s.list_rows += 1
    push_row(s, &row, p)
    s.state = IN_LIST
    return True


cdef bint layout_a_title(Scan* s, const char* p, const char* e) noexcept nogil:
    # A line of layout A without a row, at its place. False if it is unknown.
    cdef State following
    if starts(p, e, b"Total bytes used:", 17) and s.state == BEGIN:
        if not total_line(s, p + 17, e):
            return False
        s.state = TOTAL
        s.layout_a = True
        return True
    if starts(p, e, b"Allocations sorted by size with their values", 44):
        if s.state > SECOND_GAP or not gapped_head(p + 44, e, &s.gaps):
            return False
        following = SECOND_LIST
    elif starts(p, e, b"Allocations sorted by size", 26):
        if s.state > TOTAL_GAP or not gapped_head(p + 26, e, &s.gaps):
            return False
        following = LIST_TITLE
    elif starts(p, e, b"cumulative_size; total_size - cumulative_size; allocation", 57) and s.state == LIST_GAP:
        add_gap(&s.gaps, p + 57, e)
        following = LIST_HEADING
    else:
        return is_rule(p, e, LIST_RULE) and advance(s, LIST_HEADING, IN_LIST)
    push_line_gaps(s)
    s.layout_a = True
    s.state = following
    return True


cdef bint report_line(Scan* s, const char* p, const char* e, Wanted* wanted) noexcept nogil:
    # A line that is not empty. False if it is unknown; `wanted` is then the form that was expected.
    clear_gaps(&s.gaps)
    wanted[0] = W_REPORT
    if s.state in (SPACE_HEAD, SPACE_TABLES) and starts(p, e, b"  ", 2):
        if not table_heading(p + 2, e, &s.heading, &s.gaps):
            return False
        push_part(s, TABLE, p)
        s.state = TABLE_HEADING
        s.has_table = True
    elif s.state == ALLOCATION_GAP and p[0] == c'\t':
        if not table_heading(p + 1, e, &s.heading, &s.gaps):
            return False
        push_line_gaps(s)
        s.state = ALLOCATION_HEADING
    elif in_table(s) and (p[0] == c'\t' if s.state <= IN_ALLOCATION_TABLE else starts(p, e, b"  ", 2)):
        wanted[0] = W_REPORT_ROW
        return table_line(s, p, e)
    elif starts(p, e, b"Memory Space: ", 14):
        return space_line(s, p, e)
    elif starts(p, e, b"Total bytes:", 12) and s.state == SPACE_HEAD:
        if not total_line(s, p + 12, e):
            return False
        s.state = SPACE_TABLES
    elif starts(p, e, b"allocation ", 11) and in_second_list(s):
        wanted[0] = W_REPORT_LIST
        return second_list_line(s, p, e)
    elif starts(p, e, b"The rest ", 9) and in_first_list(s):
        return list_rest_line(s, p, e)
    elif (p[0] == c' ' or p[0] == c'-' or CLASS[<uint8_t> p[0]] & DIGIT) and in_first_list(s):
        wanted[0] = W_REPORT_LIST
        return layout_a_title(s, p, e) or list_line(s, p, e)
    else:
        return layout_a_title(s, p, e)
    return True


cdef bint is_blank(const char* p, const char* end) noexcept nogil:
    while p < end and p[0] == c'\n':
        p += 1
    return p == end


cdef void scan_span(Scan* s, const char* p, const char* end, bint last) noexcept nogil:
    cdef Buffer* faults = &s.columns.faults
    cdef Columns* columns = &s.columns
    cdef const char* e
    cdef Wanted wanted
    cdef const char* begin = p
    cdef const char* predict_at = presize_point(p, end)
    while p < end:
        if p > predict_at:
            presize(<Buffer*> columns, n_columns(columns[0]), <Buffer*> columns, (end - begin) / <double> (p - begin))
            predict_at = end
        e = line_end(p, end)
        if p == e:
            clear_gaps(&s.gaps)
            if not empty_line(s, p):
                if last and is_blank(p, end):
                    break                         # empty lines at the end of a section belong to none
                fault(faults, UNKNOWN_LINE, p - s.base, W_REPORT)
        elif not report_line(s, p, e, &wanted):
            fault(faults, UNKNOWN_LINE, p - s.base, wanted)
        p = e + 1
    if last:
        end_space(s, end)


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, Names labels not None,
         *, dict state=None, bint last=True):
    """Tokenise data[begin:end], whole lines of a report with its headings.

    Returns (Columns, faults, state). The state has what the end of the report must agree with, and continues the next
    span. Only the `last` span ends what is open. No span but the first may begin with an empty line.
    """
    cdef Scan s
    cdef Columns* columns = &s.columns
    memset(&s, 0, sizeof(Scan))
    s.labels = &labels.interner
    s.space.color = s.space.total = s.space.allocation = NO_INT
    s.space.label = NO_CODE
    if state is not None:
        s.layout_a, s.layout_b = state["layout_a"], state["layout_b"]
        (s.list_rows, s.list_rest), s.n_allocations = state["listed"], state["heads"]
        s.space.color, s.space.label, s.space.total, s.space.allocation = state["space"]
        s.state, s.has_table = <State> <int> state["inside"][0], state["inside"][1]
        s.heading.n = len(state["columns"])
        for i in range(s.heading.n):
            s.heading.fields[i] = state["columns"][i]
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie within the data and end in a newline")
        s.base = <const char*> &data[0]
        with nogil:
            scan_span(&s, s.base + begin, s.base + end, last)
    try:
        labels.require_memory()
        return {
            "part": own(&columns.part), "color": own(&columns.color), "space_label": own(&columns.label),
            "total_bytes": own(&columns.total), "allocation": own(&columns.allocation),
            "cumulative": own_text(&columns.cumulative), "percent": own_text(&columns.percent),
            "size": own_text(&columns.size), "remaining": own_text(&columns.remaining),
            "offset": own(&columns.offset), "n_values": own(&columns.n_values), "n_rest": own(&columns.n_rest),
            "shapes": own_text(&columns.shapes), "fields": own(&columns.fields), "gap": own(&columns.gaps),
        }, own(&columns.faults), {
            "layout_a": bool(s.layout_a), "layout_b": bool(s.layout_b), "second": bool(in_second_list(&s)),
            "listed": (s.list_rows, s.list_rest), "heads": s.n_allocations,
            "open": s.state not in (SECOND_LIST, ALLOCATION, SPACE_END),
            "space": (s.space.color, s.space.label, s.space.total, s.space.allocation),
            "columns": [s.heading.fields[i] for i in range(s.heading.n)],
            "inside": (<int> s.state, bool(s.has_table)),
        }
    finally:
        release_columns(<Buffer*> columns, n_columns(columns[0]))
