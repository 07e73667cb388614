"""The memory-usage report, both layouts."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy, memset

from buffer cimport NO_CODE, NO_INT, Buf, foresee, outlook, push, push_code
from interner cimport Pool, intern
from text cimport Part, Text, text_null, text_push
from cursor cimport CLASS, CLOSES, DIGIT, integer, line_end, starts
from fault cimport (
    NOT_UTF8, UNKNOWN_LINE, W_REPORT, W_REPORT_LIST, W_REPORT_ROW, W_UTF8, Wanted, fault,
)
from gaps cimport NO_ROW, Gaps, gap, head_any, number_element, push_gaps, seek_text, shape_end
from header cimport Head, header
from xlamem._column cimport Names, own, own_text

# Codes of the column `part`.
cdef enum:
    LIST
    TABLE
    ROW
    REST
    SPACE

PARTS = ("list", "table", "row", "rest", "space")
GAP_TABLES = ("printed_report",)

cdef enum:
    MOST_FIELDS = 16
    # The columns of a table, in their order.
    F_SHARE = 0
    F_SIZE
    F_OFFSET
    F_VALUES
    F_SHAPES
    N_FIELDS

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
    Buf gaps
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
    int n_columns              # of the table, and which one each is; -1: one that is not known
    int[MOST_FIELDS] columns

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


cdef void emit(Out* out, Row* row, const Gaps* gaps, const char* base, const char* line) noexcept nogil:
    cdef bint good = True
    push_gaps(&out.gaps, gaps, base, 0, out.color.size // 8)
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
    if memchr(p, c' ', q - p) != NULL:
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
    if q == NULL or q == p or not starts(q, e, b"; ", 2) or memchr(p, c' ', q - p) != NULL:
        return NULL
    out.p = p
    out.n = q - p
    return q + 2


cdef bint head(const char* p, const char* e, Row* row, Gaps* gaps) noexcept nogil:
    # "allocation N: size SIZE…:"
    cdef Head found
    if not starts(p, e, b"allocation ", 11) or not header(p, e, &found, gaps):
        return False
    row.allocation = found.allocation
    row.size = found.size_text
    row.fields = found.fields.p
    row.fields_end = found.fields.p + found.fields.n
    return True


cdef const char* shapes_end(const char* p, const char* end) noexcept nogil:
    # Behind "[N×]SHAPE{, [N×]SHAPE}"; p if there is none.
    cdef const char* begin = p
    cdef const char* q
    while True:
        q = p
        while q < end and CLASS[<uint8_t> q[0]] & DIGIT:
            q += 1
        if q > p and starts(q, end, b"\xc3\x97", 2):
            p = q + 2
        q = shape_end(p, end)
        if q == NULL:
            return begin
        begin = q
        if not starts(q, end, b", ", 2):
            return q
        p = q + 2


cdef bint are_shapes(const char* p, const char* end) noexcept nogil:
    # Whether the text can be nothing but shapes: it ends with a bracket, and blanks follow commas.
    cdef const char* q = p
    if end <= p or not CLASS[<uint8_t> end[-1]] & CLOSES or memchr(p, c';', end - p) != NULL:
        return False
    while True:
        q = <const char*> memchr(q, c' ', end - q)
        if q == NULL:
            return True
        if q == p or q[-1] != c',':
            return False
        q += 1


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
    return are_shapes(p + 2, e)


cdef const char* padded(const char* begin, const char* p, size_t n, size_t width) noexcept nogil:
    # Where the blanks begin that make the n characters at p as long as `width`.
    while n < width and p > begin and p[-1] == c' ':
        p -= 1
        n += 1
    return p


cdef const char* share_any(const char* p, const char* e, size_t width, Row* row, Gaps* gaps) noexcept nogil:
    # "   72.0KiB( 89%)" with gaps, in the field from p to e; returns where it ends.
    cdef const char* q = <const char*> memchr(p, c'(', e - p)
    cdef const char* word = q
    if q == NULL:
        return NULL
    while word > p and word[-1] != c' ':
        word -= 1
    if word == q:
        return NULL
    row.cumulative.p = word
    row.cumulative.n = q - word
    gap(gaps, p, padded(p, word, q - word, width))
    p = blanks(q + 1, e)
    q = <const char*> memchr(p, c'%', e - p)
    if q == NULL or q == p:
        return NULL
    row.percent.p = p
    row.percent.n = q - p
    return seek_text(b")", 1, q + 1, e, gaps)


cdef const char* word_any(const char* p, const char* e, size_t width, Part* out, Gaps* gaps) noexcept nogil:
    # A size for people with gaps, in the field from p to e: the first word that begins with a digit.
    cdef const char* q = p
    while q < e and not (CLASS[<uint8_t> q[0]] & DIGIT and (q == p or q[-1] == c' ')):
        q += 1
    out.p = q
    while q < e and q[0] != c' ':
        q += 1
    out.n = q - out.p
    if out.n == 0:
        return NULL
    gap(gaps, p, padded(p, out.p, out.n, width))
    return q


cdef const char* number_any(const char* p, const char* e, size_t width, int64_t* out, Gaps* gaps) noexcept nogil:
    cdef const char* q = p
    cdef const char* end
    while q < e:
        end = number_element(q, e, out) if q == p or q[-1] == c' ' else NULL
        if end != NULL:
            gap(gaps, p, padded(p, q, end - q, width))
            return end
        q += 1
    return NULL


cdef bint row_any(const char* p, const char* e, Out* out, Row* row, Gaps* gaps) noexcept nogil:
    # A row of a table with gaps: fields that the head of the table names otherwise, or does not name, are such.
    cdef const char* begin
    cdef const char* end
    cdef const char* behind = p               # where the known field that was read last ends
    cdef const char* q
    cdef int i = 0, known = 0, column
    while p <= e:
        begin = p
        end = <const char*> memchr(p, c';', e - p) if p < e else NULL
        if end == NULL:
            end = e
        column = out.columns[i] if i < out.n_columns else -1
        if column >= 0:
            if column != known:
                return False
            gap(gaps, behind, begin if known == 0 else begin - 2)
            if column == F_SHARE:
                q = share_any(begin, end, 9, row, gaps)
            elif column == F_SIZE:
                q = word_any(begin, end, 10, &row.size, gaps)
            elif column == F_OFFSET:
                q = number_any(begin, end, 12, &row.offset, gaps)
            elif column == F_VALUES:
                q = number_any(begin, end, 16, &row.n_values, gaps)
            else:
                row.shapes.p = begin
                q = shapes_end(begin, end)
                if q == begin:
                    q = end
                row.shapes.n = q - begin
            if q == NULL:
                return False
            known += 1
            behind = q
        i += 1
        p = end + 2
    gap(gaps, behind, e)
    return known == N_FIELDS and not gaps.full


cdef bint columns_any(const char* p, const char* e, Out* out, Gaps* gaps) noexcept nogil:
    # The head of a table: its columns, of which some may not be known.
    cdef const char* begin
    cdef const char* end
    cdef const char* word
    cdef const char* behind = p
    cdef int known = 0, n = 0
    cdef int[MOST_FIELDS] columns
    cdef size_t size
    cdef Gaps found
    found.n = 0
    found.full = False
    if seek_text(b"cumulative_size", 15, p, e, &found) == NULL:
        return False
    found.n = 0
    while p <= e and n < MOST_FIELDS:
        begin = p
        end = <const char*> memchr(p, c';', e - p) if p < e else NULL
        if end == NULL:
            end = e
        word = blanks(begin, end)
        size = end - word
        columns[n] = -1
        if (
            (known == F_SHARE and size >= 15 and starts(word, end, b"cumulative_size", 15))
            or (known == F_SIZE and size >= 4 and starts(word, end, b"size", 4))
            or (known == F_OFFSET and size >= 6 and starts(word, end, b"offset", 6))
            or (known == F_VALUES and size >= 16 and starts(word, end, b"used_by_n_values", 16))
            or (known == F_SHAPES and size >= 11 and starts(word, end, b"shapes_list", 11))
        ):
            gap(&found, behind, begin if known == 0 else begin - 2)
            behind = word + (15 if known == F_SHARE else 4 if known == F_SIZE else 6 if known == F_OFFSET else
                             16 if known == F_VALUES else 11)
            columns[n] = known
            known += 1
        n += 1
        p = end + 2
    if known < N_FIELDS:
        return False
    gap(&found, behind, e)
    gaps[0] = found
    out.n_columns = n
    memcpy(out.columns, columns, sizeof(columns))
    return not gaps.full


cdef bint list_any(const char* p, const char* e, Row* row, Gaps* gaps) noexcept nogil:
    # "   72.0KiB( 89%);    8.0KiB; allocation N: …" with gaps.
    cdef const char* end = <const char*> memchr(p, c';', e - p)
    cdef const char* q
    cdef Gaps inner
    cdef int i
    if end == NULL:
        return False
    q = share_any(p, end, 10, row, gaps)
    if q == NULL:
        return False
    gap(gaps, q, end)
    p = end + 2
    end = <const char*> memchr(p, c';', e - p) if p < e else NULL
    if end == NULL:
        return False
    q = word_any(p, end, 10, &row.remaining, gaps)
    if q == NULL:
        return False
    inner.n = 0
    inner.full = False
    p = seek_text(b"; allocation ", 13, q, e, gaps)
    if p == NULL or not head(p - 11, e, row, &inner):
        return False
    for i in range(inner.n):
        gap(gaps, inner.items[i].p, inner.items[i].p + inner.items[i].n)
    return not gaps.full


cdef bint rest(const char* p, const char* e, const char* what, size_t n, Row* row) noexcept nogil:
    # "The rest N allocations are less than 5% of the total size and not shown."
    if not starts(p, e, b"The rest ", 9):
        return False
    p = integer(p + 9, &row.n_rest)
    return p != NULL and starts(p, e, what, n) and starts(
        p + n, e, b" are less than 5% of the total size and not shown.", 50)


cdef const char* rest_end(const char* p, const char* e) noexcept nogil:
    # Behind the full stop of "The rest N … not shown."
    p = <const char*> memchr(p, c'.', e - p)
    return p + 1


cdef bint total(const char* p, const char* e, int64_t* out, Gaps* gaps) noexcept nogil:
    # " N[ (SIZE)]" with gaps
    cdef const char* q = p
    cdef const char* behind = NULL
    while q < e and behind == NULL:
        if q[0] == c' ':
            behind = number_element(q + 1, e, out)
        q += 1
    if behind == NULL:
        return False
    gap(gaps, p, q - 1)
    p = behind
    if p < e:
        p = seek_text(b" (", 2, p, e, gaps)
        while p != NULL and p < e and p[0] != c')' and p[0] != c' ' and p[0] != c',':
            p += 1
        p = seek_text(b")", 1, p, e, gaps) if p != NULL else NULL
        if p == NULL:
            return False
        gap(gaps, p, e)
    return True


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
    cdef Gaps gaps, none
    cdef bint bad = False, good, alone = out.alone
    cdef Wanted wanted
    cdef Row space = out.space
    cdef const char* begin = p
    cdef const char* look = outlook(p, end)
    cdef size_t n
    none.n = 0
    while p < end:
        if p > look:
            n = (<char*> &out.list_rows - <char*> out) // sizeof(Buf)
            foresee(<Buf*> out, n, <Buf*> out, (end - begin) / <double> (p - begin))
            look = end
        e = line_end(p, end)
        good = True
        gaps.n = 0
        gaps.full = False
        wanted = W_REPORT
        if p == e:
            if alone:
                # Its allocation has other than one value: a table follows.
                if out.n_values.size:
                    (<int64_t*> (out.n_values.data + out.n_values.size))[-1] = NO_INT
                out.in_table = True
            elif out.in_table:
                out.in_table = False
            elif out.in_space:
                out.in_space = False
                if not out.has_table:
                    clear(&row, &space, SPACE)
                    emit(out, &row, &gaps, base, p)
        elif starts(p, e, b"  ", 2) and out.in_space and not out.in_table and columns_any(p + 2, e, out, &gaps):
            clear(&row, &space, TABLE)
            emit(out, &row, &gaps, base, p)
            out.in_table = out.has_table = True
        elif p[0] == c'\t' and out.second and columns_any(p + 1, e, out, &gaps):
            good = out.in_table
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
        elif out.in_table and (starts(p, e, b"  ", 2) or p[0] == c'\t'):
            q = p + (1 if p[0] == c'\t' else 2)
            clear(&row, &space, ROW)
            if starts(q, e, b"----", 4) and rule(q, e):
                pass
            elif rest(q, e, b" values", 7, &row):
                row.part = REST
                gap(&gaps, rest_end(q, e), e)
                emit(out, &row, &gaps, base, p)
            elif (out.n_columns == N_FIELDS and table_row(q, e, &row)) or row_any(q, e, out, &row, &gaps):
                emit(out, &row, &gaps, base, p)
            else:
                good = False
                wanted = W_REPORT_ROW
        elif starts(p, e, b"Memory Space: ", 14):
            q = e - 1
            while q > p and not starts(q, e, b"(color=", 7):
                q -= 1
            good = q > p + 14 and q[-1] == c' '
            if good:
                if out.in_space and not out.has_table:
                    clear(&row, &space, SPACE)
                    emit(out, &row, &gaps, base, p)
                out.layout_b = True
                space.total = NO_INT
                space.label = intern(labels, p + 14, q - 1 - p - 14, &bad)
                q = number_element(q + 7, e, &space.color)
                if q != NULL:
                    q = seek_text(b")", 1, q, e, &gaps)
                good = q != NULL
                gap(&gaps, q, e)
                push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
                out.in_space = True
                out.in_table = out.has_table = False
        elif starts(p, e, b"Total bytes:", 12) and out.in_space:
            good = total(p + 12, e, &space.total, &gaps)
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
        elif starts(p, e, b"Total bytes used:", 17):
            out.layout_a = True
            good = total(p + 17, e, &space.total, &gaps)
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
        elif starts(p, e, b"Allocations sorted by size with their values", 44) and head_any(p + 44, e, &gaps):
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
            out.second = out.layout_a = True
        elif starts(p, e, b"Allocations sorted by size", 26) and head_any(p + 26, e, &gaps):
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
            out.layout_a = True
        elif starts(p, e, b"cumulative_size; total_size - cumulative_size; allocation", 57):
            gap(&gaps, p + 57, e)
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
        elif starts(p, e, b"----", 4) and rule(p, e):
            pass
        elif starts(p, e, b"allocation ", 11) and out.second:
            clear(&row, &space, TABLE)
            good = head(p, e, &row, &gaps)
            wanted = W_REPORT_LIST
            if good:
                row.n_values = 1
                out.heads += 1
                space.allocation = row.allocation
                emit(out, &row, &gaps, base, p)
        elif starts(p, e, b"The rest ", 9) and not out.second:
            clear(&row, &space, REST)
            good = rest(p, e, b" allocations", 12, &row)
            if good:
                gap(&gaps, rest_end(p, e), e)
                out.list_rest = row.n_rest
                emit(out, &row, &gaps, base, p)
        elif (p[0] == c' ' or CLASS[<uint8_t> p[0]] & DIGIT) and out.layout_a and not out.second:
            clear(&row, &space, LIST)
            q = share(p, e, &row.cumulative, &row.percent)
            if q != NULL:
                q = field(q, e, &row.remaining)
            good = q != NULL and head(q, e, &row, &gaps)
            if not good:
                gaps.n = 0
                gaps.full = False
                clear(&row, &space, LIST)
                good = list_any(p, e, &row, &gaps)
            wanted = W_REPORT_LIST
            if good:
                out.list_rows += 1
                emit(out, &row, &gaps, base, p)
        else:
            good = False
        if not good:
            fault(&out.faults, UNKNOWN_LINE, p - base, wanted)
        if good:  # an unknown line between an allocation and its table changes nothing
            alone = starts(p, e, b"allocation ", 11) and out.second
        p = e + 1
    out.alone = alone
    out.space = space
    if last and out.in_space and not out.has_table:
        clear(&row, &space, SPACE)
        emit(out, &row, &none, base, end)
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
        for i in range(len(state["columns"])):
            out.columns[i] = state["columns"][i]
        out.n_columns = len(state["columns"])
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
        "shapes": own_text(&out.shapes), "fields": own(&out.fields), "gap": own(&out.gaps),
    }, own(&out.faults), {
        "layout_a": bool(out.layout_a), "layout_b": bool(out.layout_b), "second": bool(out.second),
        "announced": out.list_rows + out.list_rest, "listed": (out.list_rows, out.list_rest), "heads": out.heads,
        "open": bool(out.in_table or out.in_space),
        "space": (out.space.color, out.space.label, out.space.total, out.space.allocation),
        "columns": [out.columns[i] for i in range(out.n_columns)],
        "inside": (bool(out.in_table), bool(out.in_space), bool(out.has_table), bool(out.alone)),
    }
