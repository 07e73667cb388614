"""The section BufferAssignment: allocations, values, cross-color lines; E0, E1 and E2 to E7."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memset

from allocation_line cimport AllocationLine, allocation_line
from assignment cimport (
    G_CROSS_COLOR, G_POSITIONS, G_USES, G_VALUES, HAS_ADDRESS, HAS_CROSS, HAS_E0, HAS_E1, HAS_PAGE, HAS_TILES,
    Allocations, Columns, CrossColor, Scan, Values, push_allocation, push_cross_color, push_gapped_value, push_value,
)
from buffer cimport (
    NO_INT, PRESIZE_MIN_SPAN, SAMPLE_FRACTION, SAMPLES, Buffer, find_line, n_columns, prefetch_ahead, presize, release,
    release_columns, sample_start,
)
from cursor cimport CLASS, IN_NAME, ShortValue, integer, line_end, short_value, starts
from early_values cimport braced_code, e1_head, gapped_e0, gapped_e1_head, gapped_extent
from fault cimport (
    UNKNOWN_LINE, W_ALLOCATION, W_ALLOCATION_BEFORE, W_CROSS_COLOR, W_LINE, W_VALUE, W_VALUE_REST, fault,
)
from gaps cimport (
    MAX_TRIES, NO_ROW, Extent, Gaps, Label, Use, add_gap, clear_gaps, ends_as_shape, gapped_head, gapped_position,
    gapped_shape, gapped_short, gapped_sizes, gapped_use, number_element, push_gaps, seek_text, starts_with_words,
)
from interner cimport Interner, presize_interner, release_interner
from lookahead cimport Repeat, cached_repeat, flush_names, init_index_codes, init_queue, is_repeat
from text cimport Slice
from uses cimport put_position, put_use, truncate_positions, truncate_uses
from xlamem._column cimport Names, own, own_text

GAP_TABLES = ("allocations", "values", "cross_color", "positions", "uses")

FEATURES = {
    HAS_ADDRESS: "address", HAS_PAGE: "page", HAS_E0: "e0_values", HAS_E1: "e1_values", HAS_CROSS: "cross_color",
}
TILES = HAS_TILES

cdef const char* value_line(Scan* s, const char* p, const char* end, int64_t offset) noexcept nogil:
    # "SHORT (size=N,offset=N): SHAPE" after " value: ". Returns the newline, or NULL if the line has another form.
    cdef ShortValue value
    cdef Extent extent
    cdef Repeat* cached
    cdef const char* e
    p = short_value(p, end, &value)
    if p == NULL or not starts(p, end, b" (size=", 7):
        return NULL
    p = integer(p + 7, &extent.size)
    if p == NULL or not starts(p, end, b",offset=", 8):
        return NULL
    p = integer(p + 8, &extent.offset)
    if p == NULL or not starts(p, end, b"): ", 3) or p[3] == c'\n':
        return NULL
    p += 3
    cached = cached_repeat(&s.shape_cache, p)
    if is_repeat(cached, p, end, c'\n'):
        e = p + cached.n
    else:
        e = line_end(p, end)
        if not ends_as_shape(cached, s.shapes, p, e):
            return NULL
    push_value(s, &value, &extent, cached, p, e, offset)
    return e


cdef const char* word_at(const char* text, size_t n, const char* p, const char* end) noexcept nogil:
    # The first word that begins with the text, or NULL. Indented lines are skipped.
    cdef const char* q = p
    if p < end and p[0] == c' ':
        return NULL
    while True:
        q = <const char*> memchr(q, text[0], end - q) if q < end else NULL
        if q == NULL or <size_t> (end - q) < n:
            return NULL
        if starts(q, end, text, n) and (q == p or q[-1] == c' '):
            return q
        q += 1


cdef bint gapped_value(Scan* s, const char* begin, const char* p, const char* end, int64_t offset) noexcept nogil:
    # A value with gaps, on the line from `begin` to `end`; p is after the word "value".
    cdef ShortValue value
    cdef Extent extent
    cdef Gaps gaps
    cdef Gaps before
    cdef const char* q
    cdef const char* e
    cdef const char* shape = NULL
    clear_gaps(&gaps)
    add_gap(&gaps, begin, p - 5)
    if starts_with_words(&gaps, begin):
        return False
    p = gapped_value_head(p, end, &value, &gaps)
    if p == NULL:
        return False
    before = gaps
    q = p
    for _ in range(MAX_TRIES):
        q = seek_text(b" (", 2, q, end, &gaps)
        gaps = before
        if q == NULL:
            return False
        add_gap(&gaps, p, q - 2)
        e = gapped_sizes(q, end, &extent, &gaps)
        if e != NULL:
            break
        gaps = before
    else:
        return False
    e = gapped_shape(e, end, &shape, &gaps)
    if e == NULL or gaps.overflow:
        return False
    push_gapped_value(s, &value, &extent, shape, e, &gaps, offset)
    return True


cdef const char* gapped_value_head(const char* p, const char* end, ShortValue* value, Gaps* gaps) noexcept nogil:
    # ": SHORT" with gaps.
    cdef const char* q = <const char*> memchr(p, c'<', end - p)
    if q == NULL:
        return NULL
    if starts(p, q, b": ", 2):
        add_gap(gaps, p + 2, q)
    elif q - p > 2 and starts(q - 2, q, b": ", 2):
        add_gap(gaps, p, q - 2)
    elif p[0] == c':' and q[-1] == c' ':
        add_gap(gaps, p + 1, q - 1)
    else:
        return NULL
    return gapped_short(q, end, value, gaps)


cdef bint cross_color_line(Scan* s, const char* p, const char* end) noexcept nogil:
    # "SHORT (color=N)" after "  value: ". False if the line has another form.
    cdef ShortValue value
    cdef int64_t color
    p = short_value(p, end, &value)
    if p == NULL or not starts(p, end, b" (color=", 8):
        return False
    p = integer(p + 8, &color)
    if p == NULL or p[0] != c')' or p + 1 != end:
        return False
    push_cross_color(s, &value, color)
    return True


cdef bint gapped_cross_color_line(Scan* s, const char* p, const char* end) noexcept nogil:
    # The same with gaps, p after "  value".
    cdef ShortValue value
    cdef Gaps gaps
    cdef int64_t color
    clear_gaps(&gaps)
    p = gapped_value_head(p, end, &value, &gaps)
    if p != NULL:
        p = seek_text(b" (", 2, p, end, &gaps)
    if p != NULL:
        p = seek_text(b"color=", 6, p, end, &gaps)
    if p != NULL:
        p = number_element(p, end, &color)
    if p != NULL:
        p = seek_text(b")", 1, p, end, &gaps)
    if p == NULL:
        return False
    add_gap(&gaps, p, end)
    if gaps.overflow:
        return False
    push_gaps(&s.columns.gaps, &gaps, s.base, G_CROSS_COLOR, s.columns.cross_color.allocation.size // 8)
    push_cross_color(s, &value, color)
    return True


cdef bint e1_row(
    Scan* s, const ShortValue* value, const char* p, const char* e, bint in_uses, int64_t ordinal
) noexcept nogil:
    # A position, or use, of an E1 value. False if the line has another form.
    cdef Columns* columns = &s.columns
    cdef Label label
    cdef Use use
    cdef Gaps gaps
    clear_gaps(&gaps)
    if in_uses:
        if not gapped_use(p + 2, e, &use, &gaps):
            return False
        push_gaps(&columns.gaps, &gaps, s.base, G_USES, columns.uses.value_id.size // 8)
        return put_use(&s.writer, &columns.uses, value.id, ordinal, &use)
    if not gapped_position(p + 2, e, &label, &gaps):
        return False
    push_gaps(&columns.gaps, &gaps, s.base, G_POSITIONS, columns.positions.value_id.size // 8)
    return put_position(&s.writer, &columns.positions, value.id, ordinal, &label.word, &label.index, False)


cdef bint begins_next(const char* p, const char* e) noexcept nogil:
    # Whether the line is that of an allocation or the head of an E1 value.
    cdef ShortValue value
    cdef Gaps gaps
    clear_gaps(&gaps)
    return starts(p, e, b"allocation ", 11) or (starts(p, e, b"  ", 2) and gapped_e1_head(p + 2, e, &value, &gaps))


cdef const char* e1_value(
    Scan* s, const char* p, const char* end, const ShortValue* value, const Gaps* head
) noexcept nogil:
    # The lines after an E1 head, whose gaps are `head`, up to "[OFFSET,SIZE]: SHAPE". Returns the next line, or NULL,
    # with no rows added, if the block is truncated.
    cdef Columns* columns = &s.columns
    cdef const char* e
    cdef const char* q
    cdef const char* shape = NULL
    cdef Extent extent
    cdef Gaps gaps
    cdef int64_t ordinal = 0
    cdef size_t n_positions = columns.positions.value_id.size // 8, n_uses = columns.uses.value_id.size // 8
    cdef size_t gaps_size = columns.gaps.size, faults_size = columns.faults.size
    cdef bint in_uses = False, in_unknown_list = False, good
    push_gaps(&columns.gaps, head, s.base, G_VALUES, columns.values.value_id.size // 8)
    while p < end:
        e = line_end(p, end)
        if begins_next(p, e):
            break
        clear_gaps(&gaps)
        good = False
        if starts(p, end, b" [", 2):
            q = gapped_extent(p + 1, e, &extent, &shape, &gaps)
            if q == NULL or gaps.overflow:
                break
            push_gapped_value(s, value, &extent, shape, q, &gaps, p - s.base)
            return e + 1
        if starts(p, end, b" uses", 5) and not in_uses and gapped_head(p + 5, e, &gaps):
            in_uses = good = True
            in_unknown_list = False
            ordinal = 0
            push_gaps(&columns.gaps, &gaps, s.base, NO_ROW, 0)
        elif starts(p, end, b"  ", 2) and not in_unknown_list:
            good = e1_row(s, value, p, e, in_uses, ordinal)
            ordinal += good
        if not good:
            # A line that ends in a colon is the heading of a list.
            in_unknown_list |= e > p and not starts(p, e, b"  ", 2) and e[-1] == c':'
            fault(&columns.faults, UNKNOWN_LINE, p - s.base, W_VALUE_REST)
        p = e + 1
    truncate_positions(&columns.positions, n_positions)
    truncate_uses(&columns.uses, n_uses)
    columns.gaps.size = gaps_size
    columns.faults.size = faults_size
    return NULL


cdef const char* after_truncated(const char* p, const char* end) noexcept nogil:
    # Where the lines of a truncated E1 block end: the next head or allocation, or the line after its extent. NULL: the
    # extent is on the last line.
    cdef const char* e
    while p < end:
        e = line_end(p, end)
        if begins_next(p, e):
            return p
        if p[0] == c' ' and p[1] == c'[':
            return e + 1 if e + 1 < end else NULL
        p = e + 1
    return end


cdef void cross_color_row(Scan* s, const char* p, const char* e) noexcept nogil:
    if s.in_cross_color:
        if starts(p, e, b"  value: ", 9) and cross_color_line(s, p + 9, e):
            return
        if gapped_cross_color_line(s, p + 7, e):
            return
    fault(&s.columns.faults, UNKNOWN_LINE, p - s.base, W_CROSS_COLOR)


cdef void e0_line(Scan* s, const char* p, const char* e) noexcept nogil:
    cdef Buffer* indices = &s.columns.values.index
    cdef ShortValue value
    cdef Slice brackets
    cdef Extent extent
    cdef Gaps gaps
    cdef const char* shape = NULL
    cdef const char* q
    clear_gaps(&gaps)
    q = gapped_e0(p + 2, e, &value, &extent, &shape, &gaps)
    if q == NULL or gaps.overflow:
        fault(&s.columns.faults, UNKNOWN_LINE, p - s.base, W_VALUE)
        return
    s.features |= HAS_E0
    brackets = value.index
    value.index.p = NULL
    push_gapped_value(s, &value, &extent, shape, q, &gaps, p - s.base)
    (<int32_t*> (indices.data + indices.size))[-1] = braced_code(s.writer.indices.interner, &brackets)


cdef const char* e1_block(
    Scan* s, const char* p, const char* e, const char* end, const ShortValue* value, const Gaps* head
) noexcept nogil:
    # An E1 value whose head is the line from p to e. Returns the line after it.
    cdef const char* q
    s.features |= HAS_E1
    q = e1_value(s, e + 1, end, value, head)
    if q != NULL:
        return q
    fault(&s.columns.faults, UNKNOWN_LINE, p - s.base, W_VALUE_REST)
    q = after_truncated(e + 1, end)
    if q == end:
        s.open = p - s.base
    return end if q == NULL else q


cdef void scan_span(Scan* s, const char* p, const char* end) noexcept nogil:
    cdef Buffer* faults = &s.columns.faults
    cdef const char* e
    cdef const char* q
    cdef AllocationLine line
    cdef ShortValue value
    cdef Gaps gaps
    while p < end:
        if starts(p, end, b" value: ", 8):
            prefetch_ahead(p, 2)
            e = NULL
            if s.allocation != NO_INT and not s.in_cross_color:
                e = value_line(s, p + 8, end, p - s.base)
            if e == NULL:
                e = line_end(p + 8, end)
                if s.allocation == NO_INT:
                    fault(faults, UNKNOWN_LINE, p - s.base, W_ALLOCATION_BEFORE)
                elif s.in_cross_color or not gapped_value(s, p + 1, p + 6, e, p - s.base):
                    fault(faults, UNKNOWN_LINE, p - s.base, W_VALUE)
            p = e + 1
            continue
        e = line_end(p, end)
        clear_gaps(&gaps)
        q = p if starts(p, e, b"allocation ", 11) else word_at(b"allocation ", 11, p, e)
        add_gap(&gaps, p, q)
        if q != NULL and not starts_with_words(&gaps, p):
            s.in_cross_color = False
            if allocation_line(q, e, &line, &gaps) and line.size != NO_INT:
                s.allocation = line.allocation
                push_allocation(s, &line, &gaps, p - s.base)
            else:
                s.allocation = NO_INT
                fault(faults, UNKNOWN_LINE, p - s.base, W_ALLOCATION)
        elif s.allocation == NO_INT:
            fault(faults, UNKNOWN_LINE, p - s.base, W_ALLOCATION_BEFORE)
        elif p[0] == c' ' and p[1] != c' ' and (q := word_at(b"value:", 6, p + 1, e)) != NULL:
            if s.in_cross_color or not gapped_value(s, p + 1, q + 5, e, p - s.base):
                fault(faults, UNKNOWN_LINE, p - s.base, W_VALUE)
        elif starts(p, end, b"  value", 7) and CLASS[<uint8_t> p[7]] & IN_NAME == 0 and p[7] != c'[':
            cross_color_row(s, p, e)
        elif (
            starts(p, end, b" reused by buffers of a different color", 39) and not s.in_cross_color
            and gapped_head(p + 39, e, &gaps)
        ):
            push_gaps(&s.columns.gaps, &gaps, s.base, NO_ROW, 0)
            s.in_cross_color = True
            s.ordinal = 0
        elif starts(p, end, b"  ", 2) and (e1_head(p + 2, e, &value) or gapped_e1_head(p + 2, e, &value, &gaps)):
            p = e1_block(s, p, e, end, &value, &gaps)
            continue
        elif starts(p, end, b"  ", 2):
            e0_line(s, p, e)
        else:
            # Perhaps the heading of something new: the lines below it are not the allocation's.
            if p[0] != c' ' and e > p and e[-1] == c':':
                s.allocation = NO_INT
            fault(faults, UNKNOWN_LINE, p - s.base, W_LINE)
        p = e + 1
    flush_names(&s.writer.names)


cdef void init_scan(
    Scan* s, const char* base, Interner* names, Interner* indices, Interner* shapes, bint want_name_offsets
) noexcept nogil:
    memset(s, 0, sizeof(Scan))
    s.base = base
    s.open = -1
    s.allocation = NO_INT
    s.want_name_offsets = want_name_offsets
    s.shape_cache.long_prefix = True
    s.shapes = shapes
    init_queue(&s.writer.names, names)
    init_index_codes(&s.writer.indices, indices)


cdef void presize_columns(Scan* s, const char* p, const char* end) noexcept nogil:
    # Size the columns and the interner of names from a few samples, scanned into temporary columns.
    cdef Scan sample
    cdef Interner[3] scratch
    cdef const char* q
    cdef const char* stop
    cdef int i
    cdef size_t k, scanned = 0
    cdef double ratio
    memset(scratch, 0, sizeof(scratch))
    init_scan(&sample, s.base, &scratch[0], &scratch[1], &scratch[2], s.want_name_offsets)
    sample.allocation = 0
    for i in range(SAMPLES):
        q = sample_start(p, end, i, b"", 0)
        stop = find_line(min(q + (end - p) // (SAMPLE_FRACTION * SAMPLES), end - 1), end, b"", 0)
        if q < stop:
            scan_span(&sample, q, stop)
            scanned += stop - q
    if scanned:
        ratio = (end - p) / <double> scanned
        presize(<Buffer*> &s.columns, n_columns(s.columns), <Buffer*> &sample.columns, ratio)
        presize_interner(s.writer.names.interner, &scratch[0], sample.columns.values.value_id.size // 8 * ratio, ratio)
    for k in range(n_columns(sample.columns)):
        release(<Buffer*> &sample.columns + k)
    for i in range(3):
        release_interner(&scratch[i])


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, Names names not None,
         Names indices not None, Names shapes not None, *, tuple state=None):
    """Tokenise data[begin:end], whole lines below `BufferAssignment:`.

    Returns (Columns per table, faults, bits of `features`, offset of a value that the end truncates or -1, state).
    Integers are int64 (null: the least), codes int32 (null: -1), flags one byte per row, faults int64 triples. Gaps are
    int64 quadruples: index of the table in GAP_TABLES or -1, row, begin and end of the text.

    `state` is the state after the previous span, () for the first one. A span may then begin at any line, and the
    column `place` holds the offset of each value's name.
    """
    cdef Scan s
    cdef Columns* columns = &s.columns
    cdef const char* base = NULL
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie within the data and end in a newline")
        base = <const char*> &data[0]
    init_scan(&s, base, &names.interner, &indices.interner, &shapes.interner, state is not None)
    if state:
        s.allocation, s.ordinal, s.in_cross_color = state
    if base != NULL:
        with nogil:
            if end - begin >= PRESIZE_MIN_SPAN:
                presize_columns(&s, base + begin, base + end)
            scan_span(&s, base + begin, base + end)
    try:
        names.require_memory()
        indices.require_memory()
        shapes.require_memory()
        return {
            "allocations": allocations_of(&columns.allocations),
            "values": values_of(&columns.values),
            "cross_color": cross_color_of(&columns.cross_color),
            "positions": {
                "value_id": own(&columns.positions.value_id), "ordinal": own(&columns.positions.ordinal),
                "instruction": own(&columns.positions.instruction), "shape_index": own(&columns.positions.index),
            },
            "uses": {
                "value_id": own(&columns.uses.value_id), "ordinal": own(&columns.uses.ordinal),
                "instruction": own(&columns.uses.instruction), "operand": own(&columns.uses.operand),
                "operand_shape_index": own(&columns.uses.index),
            },
            "gaps": {"gap": own(&columns.gaps)},
        }, own(&columns.faults), s.features, s.open, (s.allocation, s.ordinal, bool(s.in_cross_color))
    finally:
        release_columns(<Buffer*> columns, n_columns(columns[0]))


cdef object allocations_of(Allocations* rows):
    return {
        "allocation": own(&rows.allocation), "size": own(&rows.size), "color": own(&rows.color),
        "page": own(&rows.page), "address": own_text(&rows.address),
        "parameter_number": own(&rows.parameter_number), "parameter_shape_index": own(&rows.parameter_shape_index),
        "parameter_shape": own(&rows.parameter_shape), "output_shape": own(&rows.output_shape),
        "flags": own(&rows.flags), "fields": own(&rows.fields),
    }


cdef object values_of(Values* rows):
    return {
        "value_id": own(&rows.value_id), "instruction": own(&rows.instruction), "shape_index": own(&rows.index),
        "is_phi": own(&rows.phi), "color": own(&rows.color), "allocation": own(&rows.allocation),
        "offset": own(&rows.offset), "size": own(&rows.size), "shape": own(&rows.shape),
        "place": own(&rows.name_offset),
    }


cdef object cross_color_of(CrossColor* rows):
    return {
        "allocation": own(&rows.allocation), "ordinal": own(&rows.ordinal), "value_id": own(&rows.value_id),
        "instruction": own(&rows.instruction), "shape_index": own(&rows.index), "is_phi": own(&rows.phi),
        "value_color": own(&rows.value_color), "printed_color": own(&rows.printed_color),
    }
