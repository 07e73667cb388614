"""The section BufferAssignment: allocations, values, cross-color lines; E0, E1 and E2 to E7."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memset

from buffer cimport (
    LONG_SPAN, NO_CODE, NO_INT, SAMPLED, SAMPLES, Buf, drop, foresee, line_with, make_rows, push, push_byte,
    push_code, put, put_byte, put_code, sample_at,
)
from interner cimport Pool, intern, pool_drop, pool_foresee
from lookahead cimport (
    Indices, Memo, Met, Queue, code_of, index_code, indices_init, is_met, memo_at, push_name, queue_init, settle,
)
from text cimport Part, Text, text_null, text_push
from cursor cimport (
    CLASS, DIGIT, IN_NAME, Short, index, integer, line_end, name, short_value, starts,
)
from fault cimport (
    NOT_UTF8, UNKNOWN_LINE, W_ALLOCATION, W_ALLOCATION_BEFORE, W_CROSS_COLOR, W_LINE, W_UTF8, W_VALUE, W_VALUE_REST,
    fault,
)
from header cimport SIZE, Head, header
from gaps cimport (
    NO_ROW, TRIES, Gaps, Label, Place, Use, ends_as_shape, gap, head_any, is_led, label_any, label_element, number_element,
    position_any, push_gaps, seek, seek_text, shape_any, short_any, sizes_any, use_any,
)
from xlamem._column cimport Names, own, own_text

# Bits of `features`.
cdef enum:
    HAS_ADDRESS = 1
    HAS_PAGE = 2
    HAS_E0 = 4
    HAS_E1 = 8
    HAS_CROSS = 16
    HAS_TILES = 32

# Tables of the rows whose lines have gaps.
cdef enum:
    G_ALLOCATIONS
    G_VALUES
    G_CROSS_COLOR
    G_POSITIONS
    G_USES

GAP_TABLES = ("allocations", "values", "cross_color", "positions", "uses")

FEATURES = {HAS_ADDRESS: "address", HAS_PAGE: "page", HAS_E0: "e0_values", HAS_E1: "e1_values", HAS_CROSS: "cross_color"}
TILES = HAS_TILES

cdef struct Out:
    # allocations
    Buf allocation
    Buf size
    Buf color
    Buf page
    Text address
    Buf parameter_number
    Buf parameter_shape_index
    Buf parameter_shape
    Buf output_shape
    Buf flags
    Buf fields                 # where the text after the size begins, and where it ends: for the report's check
    # values
    Buf value_id
    Buf v_instruction
    Buf v_index
    Buf v_phi
    Buf v_color
    Buf v_allocation
    Buf v_offset
    Buf v_size
    Buf v_shape
    Buf v_place                # where the name begins; filled only if `places`
    # cross_color
    Buf c_allocation
    Buf c_ordinal
    Buf c_value_id
    Buf c_instruction
    Buf c_index
    Buf c_phi
    Buf c_value_color
    Buf c_printed_color
    # positions and uses (E1)
    Buf p_value_id
    Buf p_ordinal
    Buf p_instruction
    Buf p_index
    Buf u_value_id
    Buf u_ordinal
    Buf u_instruction
    Buf u_operand
    Buf u_index
    Buf gaps
    Buf faults
    int features
    int64_t open               # offset of an E1 block that the end broke off, or -1
    const char* base
    bint places
    int room                   # for how many values the columns have it, made ROWS at a time
    Memo shapes
    int64_t below              # where the span begins and then where it ends: below which allocation,
    int64_t ordinal            # at which line of its block of other colors,
    bint cross                 # and whether in that block

cdef enum:
    ROWS = 64

cdef struct Pools:
    Queue names
    Indices indices
    Pool* shapes


cdef bint allocation_line(const char* p, const char* end, Head* out, Gaps* gaps) noexcept nogil:
    # "allocation N: [ADDR, ]size N{, field}:" with gaps; end at the newline.
    return header(p, end, out, gaps) and out.size != NO_INT


cdef inline int32_t part_code(Pool* pool, Part* part, bint* bad) noexcept nogil:
    return intern(pool, part.p, part.n, bad) if part.p != NULL else NO_CODE


cdef void push_head(Out* out, Head* h, const Gaps* gaps, Pools* pools, const char* base, int64_t offset) noexcept nogil:
    cdef bint bad = False
    push_gaps(&out.gaps, gaps, base, G_ALLOCATIONS, out.allocation.size // 8)
    push(&out.allocation, h.allocation)
    push(&out.size, h.size)
    push(&out.color, h.color)
    push(&out.page, h.page)
    push(&out.parameter_number, h.parameter)
    push_code(&out.parameter_shape_index, index_code(&pools.indices, &h.parameter_index))
    push_code(&out.parameter_shape, part_code(pools.shapes, &h.parameter_shape, &bad))
    push_code(&out.output_shape, part_code(pools.shapes, &h.output_shape, &bad))
    push_byte(&out.flags, <uint8_t> (h.flags & (SIZE - 1)))
    push(&out.fields, h.fields.p - base)
    push(&out.fields, h.fields.p - base + <int64_t> h.fields.n)
    if h.page != NO_INT:
        out.features |= HAS_PAGE
    if h.address.p != NULL:
        out.features |= HAS_ADDRESS
        if not text_push(&out.address, h.address.p, h.address.n):
            bad = True
    else:
        text_null(&out.address)
    if bad:
        fault(&out.faults, NOT_UTF8, offset, W_UTF8)


cdef void push_value(
    Out* out, Pools* pools, Short* s, int64_t allocation, int64_t at, int64_t size,
    Met* met, const char* shape, const char* end, int64_t offset,
) noexcept nogil:
    cdef bint bad = False
    if out.room == 0:
        if not make_rows(&out.value_id, (<char*> &out.c_allocation - <char*> &out.value_id) // sizeof(Buf), ROWS):
            return
        out.room = ROWS
    out.room -= 1
    put(&out.value_id, s.id)
    push_name(&pools.names, &out.v_instruction, s.name.p, s.name.n)
    put_code(&out.v_index, index_code(&pools.indices, &s.index))
    put_byte(&out.v_phi, s.phi)
    put(&out.v_color, s.color)
    put(&out.v_allocation, allocation)
    put(&out.v_offset, at)
    put(&out.v_size, size)
    put_code(&out.v_shape, code_of(met, pools.shapes, shape, end, &bad))
    if out.places:
        put(&out.v_place, s.name.p - out.base)
    if bad:
        fault(&out.faults, NOT_UTF8, offset, W_UTF8)


cdef const char* value_line(
    const char* p, const char* end, Out* out, Pools* pools, int64_t allocation, int64_t offset
) noexcept nogil:
    # " value: SHORT (size=N,offset=N): SHAPE" with p behind the colon and its blank. Returns the newline, NULL if it
    # has another form.
    cdef Short s
    cdef Met* met
    cdef int64_t at, size
    cdef const char* e
    p = short_value(p, end, &s)
    if p == NULL or not starts(p, end, b" (size=", 7):
        return NULL
    p = integer(p + 7, &size)
    if p == NULL or not starts(p, end, b",offset=", 8):
        return NULL
    p = integer(p + 8, &at)
    if p == NULL or not starts(p, end, b"): ", 3) or p[3] == c'\n':
        return NULL
    p += 3
    met = memo_at(&out.shapes, p)
    if is_met(met, p, end, c'\n'):
        e = p + met.n
    else:
        e = line_end(p, end)
        if not ends_as_shape(met, pools.shapes, p, e):
            return NULL
    push_value(out, pools, &s, allocation, at, size, met, p, e, offset)
    return e


cdef void push_gapped(
    Out* out, Pools* pools, Short* s, int64_t allocation, Place* place, const char* shape, const char* end,
    const Gaps* gaps, int64_t offset,
) noexcept nogil:
    push_gaps(&out.gaps, gaps, out.base, G_VALUES, out.value_id.size // 8)
    push_value(out, pools, s, allocation, place.offset, place.size, memo_at(&out.shapes, shape), shape, end, offset)


cdef const char* word_at(const char* text, size_t n, const char* p, const char* end) noexcept nogil:
    # The first place at which a word begins with the text; NULL if there is none. An indented line has none.
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


cdef bint value_any(
    const char* begin, const char* p, const char* end, Out* out, Pools* pools, int64_t allocation, int64_t offset
) noexcept nogil:
    # The same with gaps; p is behind the word "value" and end at the newline.
    cdef Short s
    cdef Place place
    cdef Gaps gaps
    cdef Gaps before
    cdef const char* q
    cdef const char* e
    cdef const char* shape = NULL
    gaps.n = 0
    gaps.full = False
    gap(&gaps, begin, p - 5)
    if is_led(&gaps, begin):
        return False
    p = value_head(p, end, &s, &gaps)
    if p == NULL:
        return False
    before = gaps
    q = p
    for _ in range(TRIES):
        q = seek_text(b" (", 2, q, end, &gaps)
        gaps = before
        if q == NULL:
            return False
        gap(&gaps, p, q - 2)
        e = sizes_any(q, end, &place, &gaps)
        if e != NULL:
            break
        gaps = before
    else:
        return False
    e = shape_any(e, end, &shape, &gaps)
    if e == NULL or gaps.full:
        return False
    push_gapped(out, pools, &s, allocation, &place, shape, e, &gaps, offset)
    return True


cdef const char* value_head(const char* p, const char* end, Short* s, Gaps* gaps) noexcept nogil:
    # ": SHORT" with gaps; returns where it ends.
    cdef const char* q = <const char*> memchr(p, c'<', end - p)
    if q == NULL:
        return NULL
    if starts(p, q, b": ", 2):
        gap(gaps, p + 2, q)
    elif q - p > 2 and starts(q - 2, q, b": ", 2):
        gap(gaps, p, q - 2)
    elif p[0] == c':' and q[-1] == c' ':
        gap(gaps, p + 1, q - 1)
    else:
        return NULL
    return short_any(q, end, s, gaps)


cdef bint cross_any(
    const char* p, const char* end, Out* out, Pools* pools, int64_t allocation, int64_t ordinal
) noexcept nogil:
    # "  value: SHORT (color=N)" with gaps, p behind "  value".
    cdef Short s
    cdef Gaps gaps
    cdef int64_t color
    gaps.n = 0
    gaps.full = False
    p = value_head(p, end, &s, &gaps)
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
    gap(&gaps, p, end)
    if gaps.full:
        return False
    push_gaps(&out.gaps, &gaps, out.base, G_CROSS_COLOR, out.c_allocation.size // 8)
    push_cross(out, pools, &s, color, allocation, ordinal)
    return True


cdef bint cross_line(
    const char* p, const char* end, Out* out, Pools* pools, int64_t allocation, int64_t ordinal
) noexcept nogil:
    # "  value: SHORT (color=N)"
    cdef Short s
    cdef int64_t color
    p = short_value(p, end, &s)
    if p == NULL or not starts(p, end, b" (color=", 8):
        return False
    p = integer(p + 8, &color)
    if p == NULL or p[0] != c')' or p + 1 != end:
        return False
    push_cross(out, pools, &s, color, allocation, ordinal)
    return True


cdef void push_cross(
    Out* out, Pools* pools, Short* s, int64_t color, int64_t allocation, int64_t ordinal
) noexcept nogil:
    push(&out.c_allocation, allocation)
    push(&out.c_ordinal, ordinal)
    push(&out.c_value_id, s.id)
    push_name(&pools.names, &out.c_instruction, s.name.p, s.name.n)
    push_code(&out.c_index, index_code(&pools.indices, &s.index))
    push_byte(&out.c_phi, s.phi)
    push(&out.c_value_color, s.color)
    push(&out.c_printed_color, color)
    out.features |= HAS_CROSS


cdef const char* place_any(const char* p, const char* end, Place* out, const char** shape, Gaps* gaps) noexcept nogil:
    # "[OFFSET,SIZE]: SHAPE" with gaps; returns where the shape ends.
    p = seek(place_element, p, end, out, gaps)
    if p != NULL:
        p = seek_text(b"]", 1, p, end, gaps)
    return shape_any(p, end, shape, gaps) if p != NULL else NULL


cdef const char* place_element(const char* p, const char* end, void* out) noexcept nogil:
    # "[OFFSET,SIZE"
    if p[0] != c'[':
        return NULL
    p = integer(p + 1, &(<Place*> out).offset)
    return number_element(p + 1, end, &(<Place*> out).size) if p != NULL and p[0] == c',' else NULL


cdef const char* e0_any(const char* p, const char* end, Short* s, Place* at, const char** shape, Gaps* gaps) noexcept nogil:
    # "NAME[i,j](#ID @C) [OFFSET,SIZE]: SHAPE" with gaps; returns where the shape ends.
    cdef const char* q
    p = seek(e0_element, p, end, s, gaps)
    if p != NULL:
        p = seek_text(b"(#", 2, p, end, gaps)
    if p != NULL:
        p = number_element(p, end, &s.id)
    if p == NULL:
        return NULL
    q = p
    while q + 2 < end and q[0] != c')':
        if q[0] == c' ' and q[1] == c'@':
            gap(gaps, p, q)
            p = number_element(q + 2, end, &s.color)
            if p == NULL:
                return NULL
            break
        q += 1
    p = seek_text(b")", 1, p, end, gaps)
    if p != NULL:
        p = seek_text(b" ", 1, p, end, gaps)
    return place_any(p, end, at, shape, gaps) if p != NULL else NULL


cdef const char* e0_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME[i,j]"
    cdef Short* s = <Short*> out
    s.phi = False
    s.color = NO_INT
    p = name(p, &s.name)
    if p == NULL or p[0] != c'[':
        return NULL
    s.index.p = p
    p += 1
    while CLASS[<uint8_t> p[0]] & DIGIT or p[0] == c',':
        p += 1
    s.index.n = p + 1 - s.index.p
    return p + 1 if p[0] == c']' else NULL


cdef const char* e1_element(const char* p, const char* end, void* out) noexcept nogil:
    # "ID [PHI ]NAME[{INDEX}]"
    cdef Short* s = <Short*> out
    cdef Label label
    p = integer(p, &s.id)
    if p == NULL or p[0] != c' ':
        return NULL
    s.phi = starts(p, end, b" PHI ", 5)
    p = label_element(p + 5 if s.phi else p + 1, end, &label)
    s.name, s.index = label.word, label.index
    return p


cdef bint e1_head_any(const char* p, const char* end, Short* s, Gaps* gaps) noexcept nogil:
    # The head of an E1 value with gaps.
    cdef Label label
    cdef const char* stop = p
    cdef const char* e
    while stop < end and not starts(stop, end, b", positions", 11):
        stop += 1
    if stop >= end:
        return False
    e = number_element(p, stop, &s.id)
    if e != NULL:
        s.phi = starts(e, stop, b" PHI ", 5)
        e = label_any(e + 4 if s.phi else e, stop, &label, gaps)
        s.name, s.index = label.word, label.index
    else:
        e = seek(e1_element, p, stop, s, gaps)
    if e != NULL:
        e = seek_text(b" @", 2, e, stop, gaps)
    if e != NULL:
        e = number_element(e, stop, &s.color)
    if e == NULL:
        return False
    if s.color == -1:
        s.color = NO_INT
    gap(gaps, e, stop)
    return head_any(stop + 11, end, gaps) and not gaps.full


cdef bint e1_head(const char* p, const char* end, Short* s) noexcept nogil:
    # "ID [PHI ]NAME[SIDX] @COLOR, positions:"
    p = integer(p, &s.id)
    if p == NULL or p[0] != c' ':
        return False
    p += 1
    s.phi = starts(p, end, b"PHI ", 4)
    p = name(p + 4 if s.phi else p, &s.name)
    if p == NULL:
        return False
    s.index.p = NULL
    if p[0] == c'{':
        p = index(p, &s.index)
    if p == NULL or p[0] != c' ' or p[1] != c'@':
        return False
    p = integer(p + 2, &s.color)
    if s.color == -1:
        s.color = NO_INT
    return p != NULL and starts(p, end, b", positions:", 12) and p + 12 == end


cdef int32_t braced(Pool* pool, Part* part, bint* bad) noexcept nogil:
    # Code of an E0 index "[0,1]" as "{0,1}".
    cdef char copy[256]
    cdef size_t i
    if part.n > sizeof(copy):
        bad[0] = True
        return intern(pool, part.p, part.n, bad)
    for i in range(part.n):
        copy[i] = part.p[i]
    copy[0] = c'{'
    copy[part.n - 1] = c'}'
    return intern(pool, copy, part.n, bad)


cdef const char* e1_value(
    const char* base, const char* p, const char* end, Out* out, Pools* pools, int64_t allocation, Short* s, Gaps* head,
) noexcept nogil:
    # The lines below an E1 head, up to its "[offset,size]: shape". Returns the line behind it, or NULL with
    # no rows if the block breaks off. `head`: the gaps of the head.
    cdef const char* e
    cdef const char* q
    cdef const char* shape = NULL
    cdef Label label
    cdef Place found
    cdef Use read
    cdef Short other
    cdef Gaps gaps
    cdef int64_t ordinal = 0
    cdef size_t n_positions = out.p_value_id.size, n_uses = out.u_value_id.size
    cdef size_t n_gaps = out.gaps.size, n_faults = out.faults.size
    cdef bint uses = False, foreign = False
    push_gaps(&out.gaps, head, base, G_VALUES, out.value_id.size // 8)
    while p < end:
        e = line_end(p, end)
        gaps.n = 0
        gaps.full = False
        if starts(p, end, b"allocation ", 11) or (starts(p, end, b"  ", 2) and e1_head_any(p + 2, e, &other, &gaps)):
            break
        gaps.n = 0
        gaps.full = False
        q = NULL
        if starts(p, end, b" [", 2):
            q = place_any(p + 1, e, &found, &shape, &gaps) if uses else NULL
            if q == NULL or gaps.full:
                break
            push_gapped(out, pools, s, allocation, &found, shape, q, &gaps, p - base)
            return e + 1
        if starts(p, end, b" uses", 5) and not uses and head_any(p + 5, e, &gaps):
            uses = True
            foreign = False
            ordinal = 0
            q = e
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
        elif starts(p, end, b"  ", 2) and not foreign and not uses:
            if position_any(p + 2, e, &label, &gaps):
                q = e
                push_gaps(&out.gaps, &gaps, base, G_POSITIONS, out.p_value_id.size // 8)
                push(&out.p_value_id, s.id)
                push(&out.p_ordinal, ordinal)
                push_name(&pools.names, &out.p_instruction, label.word.p, label.word.n)
                push_code(&out.p_index, index_code(&pools.indices, &label.index))
                ordinal += 1
        elif starts(p, end, b"  ", 2) and not foreign:
            if use_any(p + 2, e, &read, &gaps):
                q = e
                push_gaps(&out.gaps, &gaps, base, G_USES, out.u_value_id.size // 8)
                push(&out.u_value_id, s.id)
                push(&out.u_ordinal, ordinal)
                push_name(&pools.names, &out.u_instruction, read.word.p, read.word.n)
                push(&out.u_operand, read.operand)
                push_code(&out.u_index, index_code(&pools.indices, &read.index))
                ordinal += 1
        if q == NULL:
            # A line of its own kind; one that ends in a colon heads a list of its own.
            foreign |= p[0] == c' ' and p[1] != c' ' and e[-1] == c':'
            fault(&out.faults, UNKNOWN_LINE, p - base, W_VALUE_REST)
        p = e + 1
    out.p_value_id.size = out.p_ordinal.size = n_positions
    out.p_instruction.size = out.p_index.size = n_positions // 2
    out.u_value_id.size = out.u_ordinal.size = out.u_operand.size = n_uses
    out.u_instruction.size = out.u_index.size = n_uses // 2
    out.gaps.size = n_gaps
    out.faults.size = n_faults
    return NULL


cdef void scan_nogil(const char* base, const char* p, const char* end, Out* out, Pools* pools) noexcept nogil:
    cdef const char* e
    cdef const char* q
    cdef Head h
    cdef Short s
    cdef Part brackets
    cdef Gaps gaps
    cdef Place found
    cdef const char* shape = NULL
    cdef int64_t ordinal = out.ordinal, allocation = out.below
    cdef bint cross = out.cross, bad = False
    while p < end:
        if starts(p, end, b" value: ", 8):
            e = NULL
            if allocation != NO_INT and not cross:
                e = value_line(p + 8, end, out, pools, allocation, p - base)
            if e == NULL:
                e = line_end(p, end)
                if allocation == NO_INT or cross or not value_any(p + 1, p + 6, e, out, pools, allocation, p - base):
                    fault(&out.faults, UNKNOWN_LINE, p - base, W_ALLOCATION_BEFORE if allocation == NO_INT else W_VALUE)
            p = e + 1
            continue
        e = line_end(p, end)
        gaps.n = 0
        gaps.full = False
        q = p if starts(p, e, b"allocation ", 11) else word_at(b"allocation ", 11, p, e)
        gap(&gaps, p, q)
        if q != NULL and not is_led(&gaps, p):
            cross = False
            if allocation_line(q, e, &h, &gaps):
                allocation = h.allocation
                push_head(out, &h, &gaps, pools, base, p - base)
            else:
                allocation = NO_INT
                fault(&out.faults, UNKNOWN_LINE, p - base, W_ALLOCATION)
        elif allocation == NO_INT:
            fault(&out.faults, UNKNOWN_LINE, p - base, W_ALLOCATION_BEFORE)
        elif p[0] == c' ' and p[1] != c' ' and word_at(b"value:", 6, p + 1, e) != NULL:
            q = word_at(b"value:", 6, p + 1, e)
            if cross or not value_any(p + 1, q + 5, e, out, pools, allocation, p - base):
                fault(&out.faults, UNKNOWN_LINE, p - base, W_VALUE)
        elif starts(p, end, b"  value", 7) and CLASS[<uint8_t> p[7]] & IN_NAME == 0 and p[7] != c'[':
            if not cross or not (
                (starts(p, e, b"  value: ", 9) and cross_line(p + 9, e, out, pools, allocation, ordinal))
                or cross_any(p + 7, e, out, pools, allocation, ordinal)
            ):
                fault(&out.faults, UNKNOWN_LINE, p - base, W_CROSS_COLOR)
            else:
                ordinal += 1
        elif starts(p, end, b" reused by buffers of a different color", 39) and not cross and head_any(p + 39, e, &gaps):
            push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
            cross = True
            ordinal = 0
        elif starts(p, end, b"  ", 2) and (e1_head(p + 2, e, &s) or e1_head_any(p + 2, e, &s, &gaps)):
            out.features |= HAS_E1
            q = e1_value(base, e + 1, end, out, pools, allocation, &s, &gaps)
            if q != NULL:
                p = q
                continue
            fault(&out.faults, UNKNOWN_LINE, p - base, W_VALUE_REST)
            q = e1_rest(e + 1, end)
            if q == end:
                out.open = p - base
            p = end if q == NULL else q
            continue
        elif starts(p, end, b"  ", 2):
            gaps.n = 0
            gaps.full = False
            q = e0_any(p + 2, e, &s, &found, &shape, &gaps)
            if q != NULL and not gaps.full:
                out.features |= HAS_E0
                brackets = s.index
                s.index.p = NULL
                push_gapped(out, pools, &s, allocation, &found, shape, q, &gaps, p - base)
                bad = False
                (<int32_t*> (out.v_index.data + out.v_index.size))[-1] = braced(pools.indices.pool, &brackets, &bad)
            else:
                fault(&out.faults, UNKNOWN_LINE, p - base, W_VALUE)
        else:
            # Perhaps the head of something new: what stands below it is not the allocation's.
            if p[0] != c' ' and e > p and e[-1] == c':':
                allocation = NO_INT
            fault(&out.faults, UNKNOWN_LINE, p - base, W_LINE)
        p = e + 1
    settle(&pools.names)
    out.below = allocation
    out.ordinal = ordinal
    out.cross = cross


cdef const char* e1_rest(const char* p, const char* end) noexcept nogil:
    # Behind the lines of a broken E1 block: the next head or allocation, or what stands behind its place.
    cdef const char* e
    cdef Short s
    cdef Gaps gaps
    while p < end:
        e = line_end(p, end)
        gaps.n = 0
        gaps.full = False
        if starts(p, end, b"allocation ", 11) or (starts(p, end, b"  ", 2) and e1_head_any(p + 2, e, &s, &gaps)):
            return p
        if p[0] == c' ' and p[1] == c'[':
            return e + 1 if e + 1 < end else NULL
        p = e + 1
    return end


cdef size_t n_columns(Out* out) noexcept nogil:
    # How many Bufs stand before the first number.
    return (<char*> &out.features - <char*> out) // sizeof(Buf)


cdef void size_ahead(const char* base, const char* p, const char* end, Out* out, Pool* names) noexcept nogil:
    # Sizes the columns and the pool of names from a few samples, scanned into columns and pools that are thrown away.
    cdef Out sample
    cdef Pool[3] scratch
    cdef Pools pools
    cdef const char* q
    cdef const char* stop
    cdef int i
    cdef size_t k, seen = 0
    cdef double times
    memset(&sample, 0, sizeof(Out))
    sample.base = base
    sample.shapes.two = True
    sample.places = out.places
    memset(scratch, 0, sizeof(scratch))
    queue_init(&pools.names, &scratch[0])
    indices_init(&pools.indices, &scratch[1])
    pools.shapes = &scratch[2]
    for i in range(SAMPLES):
        q = sample_at(p, end, i, b"", 0)
        stop = line_with(min(q + (end - p) // (SAMPLED * SAMPLES), end - 1), end, b"", 0)
        if q < stop:
            scan_nogil(base, q, stop, &sample, &pools)
            seen += stop - q
    if seen:
        times = (end - p) / <double> seen
        foresee(<Buf*> out, n_columns(out), <Buf*> &sample, times)
        pool_foresee(names, &scratch[0], sample.value_id.size // 8 * times, times)
    for k in range(n_columns(out)):
        drop(<Buf*> &sample + k)
    for i in range(3):
        pool_drop(&scratch[i])


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, Names names not None,
         Names indices not None, Names shapes not None, *, tuple state=None):
    """Tokenise data[begin:end], whole lines below `BufferAssignment:`.

    Returns (Columns per table, faults, bits of `features`, offset of a value that the end broke off or
    -1, state). Gaps are int64 quadruples: place of the table in GAP_TABLES or -1, row, begin and end of the text.
    Integers are int64 (null: the least), codes int32 (null: -1), flags one byte, faults int64
    triples. `state`: what the span before returned as its state, () at the first; the span may then begin
    at any line, and the column `place` tells where the name of each value begins.
    """
    cdef Out out
    cdef Pools pools
    cdef const char* base
    memset(&out, 0, sizeof(Out))
    out.open = -1
    out.shapes.two = True
    out.below = NO_INT
    if state is not None:
        out.places = True
        if state:
            out.below, out.ordinal, out.cross = state
    queue_init(&pools.names, &names.pool)
    indices_init(&pools.indices, &indices.pool)
    pools.shapes = &shapes.pool
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie in the data and end in a newline")
        base = out.base = <const char*> &data[0]
        with nogil:
            if end - begin >= LONG_SPAN:
                size_ahead(base, base + begin, base + end, &out, &names.pool)
            scan_nogil(base, base + begin, base + end, &out, &pools)
    return {
        "allocations": {
            "allocation": own(&out.allocation), "size": own(&out.size), "color": own(&out.color),
            "page": own(&out.page), "address": own_text(&out.address),
            "parameter_number": own(&out.parameter_number),
            "parameter_shape_index": own(&out.parameter_shape_index),
            "parameter_shape": own(&out.parameter_shape), "output_shape": own(&out.output_shape),
            "flags": own(&out.flags), "fields": own(&out.fields),
        },
        "values": {
            "value_id": own(&out.value_id), "instruction": own(&out.v_instruction), "shape_index": own(&out.v_index),
            "is_phi": own(&out.v_phi), "color": own(&out.v_color), "allocation": own(&out.v_allocation),
            "offset": own(&out.v_offset), "size": own(&out.v_size), "shape": own(&out.v_shape), "place": own(&out.v_place),
        },
        "cross_color": {
            "allocation": own(&out.c_allocation), "ordinal": own(&out.c_ordinal), "value_id": own(&out.c_value_id),
            "instruction": own(&out.c_instruction), "shape_index": own(&out.c_index), "is_phi": own(&out.c_phi),
            "value_color": own(&out.c_value_color), "printed_color": own(&out.c_printed_color),
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
        "gaps": {"gap": own(&out.gaps)},
    }, own(&out.faults), out.features, out.open, (out.below, out.ordinal, bool(out.cross))
