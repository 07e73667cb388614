"""The memory-usage report, both layouts."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memset

from column cimport (
    NO_CODE, NO_INT, Buf, Part, Pool, Text, foresee, intern, outlook, push, push_code, text_null, text_push,
)
from cursor cimport CLASS, DIGIT, integer, line_end, starts
from fault cimport (
    NOT_UTF8, UNKNOWN_LINE, W_REPORT, W_REPORT_LIST, W_REPORT_ROW, W_UTF8, Wanted, fault,
)
from xlamem._column cimport Names, own, own_text

# Codes of the column `part`.
cdef enum:
    LIST
    TABLE
    ROW
    REST
    SPACE

PARTS = ("list", "table", "row", "rest", "space")

cdef struct Row:
    int part
    int64_t color
    int32_t label
    int64_t total
    int64_t allocation
    Part cumulative
    Part percent
    Part size
    Part remaining
    int64_t offset
    int64_t n_values
    int64_t n_rest
    Part shapes
    const char* fields
    const char* fields_end

cdef struct Out:
    Buf part
    Buf color
    Buf label
    Buf total
    Buf allocation
    Text cumulative
    Text percent
    Text size
    Text remaining
    Buf offset
    Buf n_values
    Buf n_rest
    Text shapes
    Buf fields                 # begin and end of the text behind an allocation's size (layout A), else 0 0
    Buf faults
    int64_t list_rows
    int64_t list_rest
    int64_t heads
    bint layout_a
    bint layout_b
    bint second                # the second list of layout A has begun
    bint in_table
    bint in_space
    bint has_table             # the space has had a table
    Row space                  # what all rows of a memory space share
    bint alone                 # the line before is an allocation's head

cdef void clear(Row* row, Row* space, int part) noexcept nogil:
    memset(row, 0, sizeof(Row))
    row.part = part
    row.color = space.color
    row.label = space.label
    row.total = space.total
    row.allocation = space.allocation
    row.offset = row.n_values = row.n_rest = NO_INT


cdef bint item(Text* t, Part* part) noexcept nogil:
    if part.p == NULL:
        text_null(t)
        return True
    return text_push(t, part.p, part.n)


cdef void emit(Out* out, Row* row, const char* base, const char* line) noexcept nogil:
    cdef bint good = True
    push_code(&out.part, row.part)
    push(&out.color, row.color)
    push_code(&out.label, row.label)
    push(&out.total, row.total)
    push(&out.allocation, row.allocation)
    good &= item(&out.cumulative, &row.cumulative)
    good &= item(&out.percent, &row.percent)
    good &= item(&out.size, &row.size)
    good &= item(&out.remaining, &row.remaining)
    push(&out.offset, row.offset)
    push(&out.n_values, row.n_values)
    push(&out.n_rest, row.n_rest)
    good &= item(&out.shapes, &row.shapes)
    push(&out.fields, row.fields - base if row.fields != NULL else 0)
    push(&out.fields, row.fields_end - base if row.fields != NULL else 0)
    if not good:
        fault(&out.faults, NOT_UTF8, line - base, W_UTF8)


cdef const char* blanks(const char* p, const char* e) noexcept nogil:
    while p < e and p[0] == c' ':
        p += 1
    return p


cdef const char* share(const char* p, const char* e, Part* cumulative, Part* percent) noexcept nogil:
    # "   72.0KiB( 89%); "
    cdef const char* q
    p = blanks(p, e)
    q = <const char*> memchr(p, c'(', e - p)
    if q == NULL or q == p:
        return NULL
    cumulative.p = p
    cumulative.n = q - p
    p = blanks(q + 1, e)
    q = <const char*> memchr(p, c'%', e - p)
    if q == NULL or q == p or not starts(q, e, b"%); ", 4):
        return NULL
    percent.p = p
    percent.n = q - p
    return q + 4


cdef const char* field(const char* p, const char* e, Part* out) noexcept nogil:
    # "  64.0KiB; "
    cdef const char* q
    p = blanks(p, e)
    q = <const char*> memchr(p, c';', e - p)
    if q == NULL or q == p or not starts(q, e, b"; ", 2):
        return NULL
    out.p = p
    out.n = q - p
    return q + 2


cdef bint head(const char* p, const char* e, Row* row) noexcept nogil:
    # "allocation N: size SIZE…:"
    if not starts(p, e, b"allocation ", 11):
        return False
    p = integer(p + 11, &row.allocation)
    if p == NULL or not starts(p, e, b": size ", 7):
        return False
    row.size.p = p + 7
    p += 7
    while p < e and p[0] != c',' and p[0] != c':':
        p += 1
    row.size.n = p - row.size.p
    row.fields = p
    row.fields_end = e - 1
    return row.size.n > 0 and e[-1] == c':'


cdef bint table_row(const char* p, const char* e, Row* row) noexcept nogil:
    p = share(p, e, &row.cumulative, &row.percent)
    if p != NULL:
        p = field(p, e, &row.size)
    if p != NULL:
        p = integer(blanks(p, e), &row.offset)
    if p == NULL or not starts(p, e, b"; ", 2):
        return False
    p = integer(blanks(p + 2, e), &row.n_values)
    if p == NULL or not starts(p, e, b"; ", 2):
        return False
    row.shapes.p = p + 2
    row.shapes.n = e - p - 2
    return True


cdef bint rest(const char* p, const char* e, const char* what, size_t n, Row* row) noexcept nogil:
    # "The rest N allocations are less than 5% of the total size and not shown."
    if not starts(p, e, b"The rest ", 9):
        return False
    p = integer(p + 9, &row.n_rest)
    return p != NULL and starts(p, e, what, n) and e - p - <Py_ssize_t> n == 50 and memcmp(
        p + n, b" are less than 5% of the total size and not shown.", 50) == 0


cdef bint rule(const char* p, const char* e) noexcept nogil:
    while p < e and p[0] == c'-':
        p += 1
    return p == e


cdef void scan_nogil(
    const char* base, const char* p, const char* end, Out* out, Pool* labels, bint last
) noexcept nogil:
    cdef const char* e
    cdef const char* q
    cdef Row row
    cdef bint bad = False, good, alone = out.alone
    cdef Wanted wanted
    cdef Row space = out.space
    cdef const char* begin = p
    cdef const char* look = outlook(p, end)
    cdef size_t n
    while p < end:
        if p > look:
            n = (<char*> &out.list_rows - <char*> out) // sizeof(Buf)
            foresee(labels.store, <Buf*> out, n, <Buf*> out, (end - begin) / <double> (p - begin))
            look = end
        e = line_end(p, end)
        good = True
        wanted = W_REPORT
        if p == e:
            if alone:
                # Its allocation has other than one value: a table follows.
                (<int64_t*> (out.n_values.data + out.n_values.size))[-1] = NO_INT
                out.in_table = True
            elif out.in_table:
                out.in_table = False
            elif out.in_space:
                out.in_space = False
                if not out.has_table:
                    clear(&row, &space, SPACE)
                    emit(out, &row, base, p)
        elif starts(p, e, b"  cumulative_size;       size;       offset; used_by_n_values; shapes_list", 73) and out.in_space:
            clear(&row, &space, TABLE)
            emit(out, &row, base, p)
            out.in_table = out.has_table = True
        elif starts(p, e, b"\tcumulative_size;       size;       offset; used_by_n_values; shapes_list", 72) and out.second:
            good = out.in_table
        elif out.in_table and (starts(p, e, b"  ", 2) or p[0] == c'\t'):
            q = p + (1 if p[0] == c'\t' else 2)
            clear(&row, &space, ROW)
            if starts(q, e, b"----", 4) and rule(q, e):
                pass
            elif rest(q, e, b" values", 7, &row):
                row.part = REST
                emit(out, &row, base, p)
            elif table_row(q, e, &row):
                emit(out, &row, base, p)
            else:
                good = False
                wanted = W_REPORT_ROW
        elif starts(p, e, b"Memory Space: ", 14):
            q = e - 1
            while q > p and q[0] != c'(':
                q -= 1
            good = starts(q, e, b"(color=", 7) and q > p + 14 and q[-1] == c' '
            if good:
                if out.in_space and not out.has_table:
                    clear(&row, &space, SPACE)
                    emit(out, &row, base, p)
                out.layout_b = True
                space.total = NO_INT
                space.label = intern(labels, p + 14, q - 1 - p - 14, &bad)
                good = integer(q + 7, &space.color) == e - 1 and e[-1] == c')'
                out.in_space = True
                out.in_table = out.has_table = False
        elif starts(p, e, b"Total bytes: ", 13) and out.in_space:
            good = integer(p + 13, &space.total) != NULL
        elif starts(p, e, b"Total bytes used: ", 18):
            out.layout_a = True
            good = integer(p + 18, &space.total) != NULL
        elif starts(p, e, b"Allocations sorted by size with their values:", 45) and e - p == 45:
            out.second = out.layout_a = True
        elif starts(p, e, b"Allocations sorted by size:", 27) and e - p == 27:
            out.layout_a = True
        elif starts(p, e, b"cumulative_size; total_size - cumulative_size; allocation", 57) and e - p == 57:
            pass
        elif starts(p, e, b"----", 4) and rule(p, e):
            pass
        elif starts(p, e, b"allocation ", 11) and out.second:
            clear(&row, &space, TABLE)
            good = head(p, e, &row)
            wanted = W_REPORT_LIST
            if good:
                row.n_values = 1
                out.heads += 1
                space.allocation = row.allocation
                emit(out, &row, base, p)
        elif starts(p, e, b"The rest ", 9) and not out.second:
            clear(&row, &space, REST)
            good = rest(p, e, b" allocations", 12, &row)
            if good:
                out.list_rest = row.n_rest
                emit(out, &row, base, p)
        elif (p[0] == c' ' or CLASS[<uint8_t> p[0]] & DIGIT) and out.layout_a and not out.second:
            clear(&row, &space, LIST)
            q = share(p, e, &row.cumulative, &row.percent)
            if q != NULL:
                q = field(q, e, &row.remaining)
            good = q != NULL and head(q, e, &row)
            wanted = W_REPORT_LIST
            if good:
                out.list_rows += 1
                emit(out, &row, base, p)
        else:
            good = False
        if not good:
            fault(&out.faults, UNKNOWN_LINE, p - base, wanted)
        alone = good and starts(p, e, b"allocation ", 11) and out.second
        p = e + 1
    out.alone = alone
    out.space = space
    if last and out.in_space and not out.has_table:
        clear(&row, &space, SPACE)
        emit(out, &row, base, end)
    if bad:
        fault(&out.faults, NOT_UTF8, 0, W_UTF8)


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, Names labels not None,
         *, dict state=None, bint last=True):
    """Tokenise data[begin:end], whole lines of a report, its heads included.

    Returns (Columns, faults, a dict of what the end of the text must agree with). Of a report in several
    spans each is given the dict of the span before as `state`, and only the `last` one closes what is open;
    none may begin with an empty line.
    """
    cdef Out out
    cdef const char* base
    memset(&out, 0, sizeof(Out))
    out.space.color = out.space.total = out.space.allocation = NO_INT
    out.space.label = NO_CODE
    if state is not None:
        out.layout_a, out.layout_b, out.second = state["layout_a"], state["layout_b"], state["second"]
        (out.list_rows, out.list_rest), out.heads = state["listed"], state["heads"]
        out.space.color, out.space.label, out.space.total, out.space.allocation = state["space"]
        out.in_table, out.in_space, out.has_table, out.alone = state["inside"]
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie in the data and end in a newline")
        base = <const char*> &data[0]
        with nogil:
            scan_nogil(base, base + begin, base + end, &out, &labels.pool, last)
    return {
        "part": own(&out.part), "color": own(&out.color), "space_label": own(&out.label),
        "total_bytes": own(&out.total), "allocation": own(&out.allocation), "cumulative": own_text(&out.cumulative),
        "percent": own_text(&out.percent), "size": own_text(&out.size), "remaining": own_text(&out.remaining),
        "offset": own(&out.offset), "n_values": own(&out.n_values), "n_rest": own(&out.n_rest),
        "shapes": own_text(&out.shapes), "fields": own(&out.fields),
    }, own(&out.faults), {
        "layout_a": bool(out.layout_a), "layout_b": bool(out.layout_b), "second": bool(out.second),
        "announced": out.list_rows + out.list_rest, "listed": (out.list_rows, out.list_rest), "heads": out.heads,
        "open": bool(out.in_table or out.in_space),
        "space": (out.space.color, out.space.label, out.space.total, out.space.allocation),
        "inside": (bool(out.in_table), bool(out.in_space), bool(out.has_table), bool(out.alone)),
    }
