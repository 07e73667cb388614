# Rows of the memory-usage report: a list of allocations, and tables with headings that name their columns.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memset

from allocation_line cimport AllocationLine, allocation_line
from buffer cimport NO_INT
from cursor cimport CLASS, CLOSES, DIGIT, integer, starts
from gaps cimport Gaps, add_gap, clear_gaps, number_element, seek_text, shape_end
from text cimport Slice

# Codes of the column `part`.
cdef enum:
    LIST
    TABLE
    ROW
    REST
    SPACE

cdef enum:
    MAX_FIELDS = 16
    # The columns of a table in order.
    F_CUMULATIVE = 0
    F_SIZE
    F_OFFSET
    F_N_VALUES
    F_SHAPES
    N_FIELDS
    F_UNKNOWN = -1

cdef struct Row:
    int part
    int64_t color
    int32_t label
    int64_t total
    int64_t allocation
    Slice cumulative
    Slice percent
    Slice size
    Slice remaining
    int64_t offset
    int64_t n_values
    int64_t n_rest
    Slice shapes
    Slice fields                                  # the text after an allocation's size

cdef struct Heading:
    int n
    int[MAX_FIELDS] fields                        # F_… of each column


cdef inline void init_row(Row* row, const Row* space, int part) noexcept nogil:
    # The values of a memory space, which all of its rows share.
    memset(row, 0, sizeof(Row))
    row.part = part
    row.color = space.color
    row.label = space.label
    row.total = space.total
    row.allocation = space.allocation
    row.offset = row.n_values = row.n_rest = NO_INT


cdef inline const char* skip_blanks(const char* p, const char* e) noexcept nogil:
    while p < e and p[0] == c' ':
        p += 1
    return p


cdef inline bint is_size(const char* p, const char* end) noexcept nogil:
    # Whether the text is a rounded size: "N B" without the blank, "N.NKiB" or "N.NNMiB" to "N.NNEiB".
    cdef const char* q
    cdef ptrdiff_t decimals
    if p < end and p[0] == c'-':
        p += 1
    q = digits_end(p, end)
    if q == p:
        return False
    if end - q == 1 and q[0] == c'B':
        return True
    if q >= end or q[0] != c'.':
        return False
    p = q + 1
    q = digits_end(p, end)
    decimals = q - p
    if end - q != 3 or q[1] != c'i' or q[2] != c'B':
        return False
    if q[0] == c'K':
        return decimals == 1
    return decimals == 2 and (q[0] == c'M' or q[0] == c'G' or q[0] == c'T' or q[0] == c'P' or q[0] == c'E')


cdef inline const char* digits_end(const char* p, const char* end) noexcept nogil:
    while p < end and CLASS[<uint8_t> p[0]] & DIGIT:
        p += 1
    return p


cdef inline bint is_percentage(const char* p, const char* end) noexcept nogil:
    # "N", "nan" or "inf", perhaps negative.
    if p < end and p[0] == c'-':
        p += 1
    if end - p == 3 and (starts(p, end, b"nan", 3) or starts(p, end, b"inf", 3)):
        return True
    return p < end and digits_end(p, end) == end


# Fields as XLA prints them today.

cdef inline const char* cumulative(const char* p, const char* e, Row* row) noexcept nogil:
    # "   72.0KiB( 89%); "
    cdef const char* q
    p = skip_blanks(p, e)
    q = <const char*> memchr(p, c'(', e - p)
    if q == NULL or q == p:
        return NULL
    if not is_size(p, q):
        return NULL
    row.cumulative.p = p
    row.cumulative.n = q - p
    p = skip_blanks(q + 1, e)
    q = <const char*> memchr(p, c'%', e - p)
    if q == NULL or not is_percentage(p, q) or not starts(q, e, b"%); ", 4):
        return NULL
    row.percent.p = p
    row.percent.n = q - p
    return q + 4


cdef inline const char* rounded_size(const char* p, const char* e, Slice* out) noexcept nogil:
    # "  64.0KiB; "
    cdef const char* q
    p = skip_blanks(p, e)
    q = <const char*> memchr(p, c';', e - p)
    if q == NULL or not starts(q, e, b"; ", 2) or not is_size(p, q):
        return NULL
    out.p = p
    out.n = q - p
    return q + 2


cdef inline bint allocation_field(const char* p, const char* e, Row* row, Gaps* gaps) noexcept nogil:
    # "allocation N: size SIZE…:"
    cdef AllocationLine line
    if not starts(p, e, b"allocation ", 11) or not allocation_line(p, e, &line, gaps):
        return False
    if not is_size(line.size_text.p, line.size_text.p + line.size_text.n):
        return False
    row.allocation = line.allocation
    row.size = line.size_text
    row.fields = line.fields
    return True


cdef inline bint are_shapes(const char* p, const char* end) noexcept nogil:
    # Whether the text can only be shapes: it ends with a bracket, and blanks only follow commas.
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


cdef inline bint table_row(const char* p, const char* e, Row* row) noexcept nogil:
    # "CUMULATIVE(P%); SIZE; OFFSET; N; SHAPES"
    p = cumulative(p, e, row)
    if p != NULL:
        p = rounded_size(p, e, &row.size)
    if p != NULL:
        p = integer(skip_blanks(p, e), &row.offset)
    if p == NULL or not starts(p, e, b"; ", 2):
        return False
    p = integer(skip_blanks(p + 2, e), &row.n_values)
    if p == NULL or not starts(p, e, b"; ", 2):
        return False
    row.shapes.p = p + 2
    row.shapes.n = e - p - 2
    return are_shapes(p + 2, e)


cdef inline bint list_row(const char* p, const char* e, Row* row, Gaps* gaps) noexcept nogil:
    # "CUMULATIVE(P%); REMAINING; allocation N: size SIZE…:"
    p = cumulative(p, e, row)
    if p != NULL:
        p = rounded_size(p, e, &row.remaining)
    return p != NULL and allocation_field(p, e, row, gaps)


# The same with gaps. Each reads the field from p to e, which is padded with blanks to `width` characters.

cdef inline const char* padding_start(const char* begin, const char* p, size_t n, size_t width) noexcept nogil:
    # Return the beginning of the blanks that pad the n characters at p to `width`.
    while n < width and p > begin and p[-1] == c' ':
        p -= 1
        n += 1
    return p


cdef inline const char* gapped_cumulative(
    const char* p, const char* e, size_t width, Row* row, Gaps* gaps
) noexcept nogil:
    # "   72.0KiB( 89%)"
    cdef const char* q = <const char*> memchr(p, c'(', e - p)
    cdef const char* word = q
    if q == NULL:
        return NULL
    while word > p and word[-1] != c' ':
        word -= 1
    if not is_size(word, q):
        return NULL
    row.cumulative.p = word
    row.cumulative.n = q - word
    add_gap(gaps, p, padding_start(p, word, q - word, width))
    p = skip_blanks(q + 1, e)
    q = <const char*> memchr(p, c'%', e - p)
    if q == NULL or not is_percentage(p, q):
        return NULL
    row.percent.p = p
    row.percent.n = q - p
    return seek_text(b")", 1, q + 1, e, gaps)


cdef inline const char* gapped_size(const char* p, const char* e, size_t width, Slice* out, Gaps* gaps) noexcept nogil:
    # A rounded size: the first word of that form.
    cdef const char* q = p
    cdef const char* stop
    while q < e:
        stop = <const char*> memchr(q, c' ', e - q)
        if stop == NULL:
            stop = e
        if is_size(q, stop):
            out.p = q
            out.n = stop - q
            add_gap(gaps, p, padding_start(p, q, out.n, width))
            return stop
        q = stop + 1
    return NULL


cdef inline const char* gapped_number(
    const char* p, const char* e, size_t width, int64_t* out, Gaps* gaps
) noexcept nogil:
    cdef const char* q = p
    cdef const char* end
    while q < e:
        end = number_element(q, e, out) if q == p or q[-1] == c' ' else NULL
        if end != NULL:
            add_gap(gaps, p, padding_start(p, q, end - q, width))
            return end
        q += 1
    return NULL


cdef inline const char* shapes_end(const char* p, const char* end) noexcept nogil:
    # The end of "[N×]SHAPE{, [N×]SHAPE}"; p if there is none.
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


cdef inline const char* gapped_shapes(const char* p, const char* e, Slice* out) noexcept nogil:
    # The shapes at p, or the entire field if the form differs.
    cdef const char* q = shapes_end(p, e)
    if q == p:
        q = e
    out.p = p
    out.n = q - p
    return q


cdef inline const char* field_stop(const char* p, const char* e) noexcept nogil:
    cdef const char* stop = <const char*> memchr(p, c';', e - p) if p < e else NULL
    return e if stop == NULL else stop


cdef inline bint ends_field(const char* p, const char* e) noexcept nogil:
    # Whether the line ends here, or with "; " a field.
    return p >= e or starts(p, e, b"; ", 2)


cdef inline bint gapped_table_row(
    const char* p, const char* e, const Heading* heading, Row* row, Gaps* gaps
) noexcept nogil:
    # The fields of unknown columns are gaps.
    cdef const char* begin
    cdef const char* stop
    cdef const char* last_end = p                 # of the last known field
    cdef const char* q
    cdef int i = 0, n = 0, field
    while p <= e:
        begin = p
        stop = field_stop(p, e)
        field = heading.fields[i] if i < heading.n else F_UNKNOWN
        if field >= 0:
            if field != n:
                return False
            add_gap(gaps, last_end, begin if n == 0 else begin - 2)
            if field == F_CUMULATIVE:
                q = gapped_cumulative(begin, stop, 9, row, gaps)
            elif field == F_SIZE:
                q = gapped_size(begin, stop, 10, &row.size, gaps)
            elif field == F_OFFSET:
                q = gapped_number(begin, stop, 12, &row.offset, gaps)
            elif field == F_N_VALUES:
                q = gapped_number(begin, stop, 16, &row.n_values, gaps)
            else:
                q = gapped_shapes(begin, stop, &row.shapes)
            if q == NULL:
                return False
            n += 1
            last_end = q
        i += 1
        if not ends_field(stop, e):
            return False
        p = stop + 2
    add_gap(gaps, last_end, e)
    return n == N_FIELDS and not gaps.overflow


cdef inline size_t column_name(const char* p, const char* stop, int field) noexcept nogil:
    # Length of the name of this column if the text begins with it, else 0.
    if field == F_CUMULATIVE:
        return 15 if starts(p, stop, b"cumulative_size", 15) else 0
    if field == F_SIZE:
        return 4 if starts(p, stop, b"size", 4) else 0
    if field == F_OFFSET:
        return 6 if starts(p, stop, b"offset", 6) else 0
    if field == F_N_VALUES:
        return 16 if starts(p, stop, b"used_by_n_values", 16) else 0
    return 11 if field == F_SHAPES and starts(p, stop, b"shapes_list", 11) else 0


cdef inline bint table_heading(const char* p, const char* e, Heading* out, Gaps* gaps) noexcept nogil:
    # Parse a heading with the names of a table's columns, some of which may be unknown. Sets `out` and `gaps`.
    cdef const char* begin
    cdef const char* stop
    cdef const char* word
    cdef const char* last_end = p
    cdef int known = 0
    cdef size_t n
    cdef Heading heading
    cdef Gaps between
    heading.n = 0
    clear_gaps(&between)
    if seek_text(b"cumulative_size", 15, p, e, &between) == NULL:
        return False
    clear_gaps(&between)
    while p <= e and heading.n < MAX_FIELDS:
        begin = p
        stop = field_stop(p, e)
        word = skip_blanks(begin, stop)
        n = column_name(word, stop, known)
        heading.fields[heading.n] = F_UNKNOWN
        if n:
            add_gap(&between, last_end, begin if known == 0 else begin - 2)
            last_end = word + n
            heading.fields[heading.n] = known
            known += 1
        heading.n += 1
        if not ends_field(stop, e):
            return False
        p = stop + 2
    if known < N_FIELDS:
        return False
    add_gap(&between, last_end, e)
    gaps[0] = between
    out[0] = heading
    return not gaps.overflow


cdef inline bint gapped_list_row(const char* p, const char* e, Row* row, Gaps* gaps) noexcept nogil:
    # "CUMULATIVE(P%); REMAINING; allocation N: …"
    cdef const char* stop = <const char*> memchr(p, c';', e - p)
    cdef const char* q
    cdef Gaps inner
    cdef int i
    if stop == NULL:
        return False
    q = gapped_cumulative(p, stop, 10, row, gaps)
    if q == NULL or not ends_field(stop, e):
        return False
    add_gap(gaps, q, stop)
    p = stop + 2
    stop = <const char*> memchr(p, c';', e - p) if p < e else NULL
    if stop == NULL:
        return False
    q = gapped_size(p, stop, 10, &row.remaining, gaps)
    if q == NULL:
        return False
    clear_gaps(&inner)
    p = seek_text(b"; allocation ", 13, q, e, gaps)
    if p == NULL or not allocation_field(p - 11, e, row, &inner):
        return False
    for i in range(inner.n):
        add_gap(gaps, inner.items[i].p, inner.items[i].p + inner.items[i].n)
    return not gaps.overflow
