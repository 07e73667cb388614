"""The section BufferAssignment: allocations, values, cross-color lines; E0, E1 and E2 to E7."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memset

from column cimport (
    LONG_SPAN, NO_CODE, NO_INT, SAMPLED, SAMPLES, Buf, Indices, Memo, Met, Part, Pool, Queue, Text, code_of, drop,
    foresee, index_code, indices_init, intern, is_met, line_with, make_rows, memo_at, pool_drop, pool_foresee, push,
    push_byte, push_code, push_name, put, put_byte, put_code, queue_init, sample_at, settle, text_null, text_push,
)
from cursor cimport (
    CLASS, DIGIT, Short, index, integer, line_end, name, position, short_value, starts, use,
)
from fault cimport (
    NOT_UTF8, UNKNOWN_LINE, W_ALLOCATION, W_ALLOCATION_BEFORE, W_CROSS_COLOR, W_LINE, W_UTF8, W_VALUE, W_VALUE_REST,
    fault,
)
from xlamem._column cimport Names, own, own_text

# Bits of the column `flags` of an allocation, in the order of the schema's is_… columns.
cdef enum:
    PARAMETER = 1
    ENTRY_ROOT = 2
    CONSTANT = 4
    THREAD_LOCAL = 8
    LIVE_OUT = 16
    TEMP = 32

# Bits of `features`.
cdef enum:
    HAS_ADDRESS = 1
    HAS_PAGE = 2
    HAS_E0 = 4
    HAS_E1 = 8
    HAS_CROSS = 16
    HAS_TILES = 32

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

cdef struct Head:
    int64_t allocation
    int64_t size
    int64_t color
    int64_t page
    int64_t parameter
    Part address
    Part parameter_index
    Part parameter_shape
    Part output_shape
    Part fields
    int flags

cdef struct Pools:
    Queue names
    Indices indices
    Pool* shapes


cdef const char* shape_in_bars(const char* p, const char* end, Part* out) noexcept nogil:
    cdef const char* bar
    if p[0] != c'|':
        return NULL
    bar = <const char*> memchr(p + 1, c'|', end - p - 1)
    if bar == NULL:
        return NULL
    out.p = p + 1
    out.n = bar - p - 1
    return bar + 1


cdef const char* head(const char* p, const char* end, Head* out) noexcept nogil:
    # "allocation N: [ADDR, ]size N{, field}:" with end at the newline. The fields in any order.
    cdef const char* q
    memset(out, 0, sizeof(Head))
    out.page = NO_INT
    out.parameter = NO_INT
    p = integer(p + 11, &out.allocation)
    if p == NULL or not starts(p, end, b": ", 2):
        return NULL
    p += 2
    if not starts(p, end, b"size ", 5):
        q = <const char*> memchr(p, c',', end - p)
        if q == NULL or q == p or not starts(q, end, b", size ", 7) or not (
            starts(p, end, b"0x", 2) or starts(p, end, b"(nil)", 5)
        ):
            return NULL
        out.address.p = p
        out.address.n = q - p
        p = q + 2
    p = integer(p + 5, &out.size)
    if p == NULL:
        return NULL
    out.fields.p = p
    while p < end and p[0] == c',':
        p += 1
        if starts(p, end, b" preallocated-temp", 18):
            out.flags |= TEMP
            p += 18
        elif starts(p, end, b" thread-local", 13):
            out.flags |= THREAD_LOCAL
            p += 13
        elif starts(p, end, b" maybe-live-out", 15):
            out.flags |= LIVE_OUT
            p += 15
        elif starts(p, end, b" constant", 9):
            out.flags |= CONSTANT
            p += 9
        elif starts(p, end, b" color ", 7):
            p = integer(p + 7, &out.color)
        elif starts(p, end, b" page ", 6):
            p = integer(p + 6, &out.page)
        elif starts(p, end, b" output shape is ", 17):
            out.flags |= ENTRY_ROOT
            p = shape_in_bars(p + 17, end, &out.output_shape)
        elif starts(p, end, b" parameter ", 11):
            out.flags |= PARAMETER
            p = integer(p + 11, &out.parameter)
            if p != NULL and starts(p, end, b", shape ", 8):
                p = shape_in_bars(p + 8, end, &out.parameter_shape)
            if p != NULL and starts(p, end, b" at ShapeIndex ", 15):
                p = index(p + 15, &out.parameter_index)
        else:
            return NULL
        if p == NULL:
            return NULL
    out.fields.n = p - out.fields.p
    return p + 1 if p < end and p[0] == c':' and p + 1 == end else NULL


cdef inline int32_t part_code(Pool* pool, Part* part, bint* bad) noexcept nogil:
    return intern(pool, part.p, part.n, bad) if part.p != NULL else NO_CODE


cdef void push_head(Out* out, Head* h, Pools* pools, const char* base, int64_t offset) noexcept nogil:
    cdef bint bad = False
    push(&out.allocation, h.allocation)
    push(&out.size, h.size)
    push(&out.color, h.color)
    push(&out.page, h.page)
    push(&out.parameter_number, h.parameter)
    push_code(&out.parameter_shape_index, index_code(&pools.indices, &h.parameter_index))
    push_code(&out.parameter_shape, part_code(pools.shapes, &h.parameter_shape, &bad))
    push_code(&out.output_shape, part_code(pools.shapes, &h.output_shape, &bad))
    push_byte(&out.flags, <uint8_t> h.flags)
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
    e = p + met.n if is_met(met, p, end, c'\n') else line_end(p, end)
    push_value(out, pools, &s, allocation, at, size, met, p, e, offset)
    return e


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
    push(&out.c_allocation, allocation)
    push(&out.c_ordinal, ordinal)
    push(&out.c_value_id, s.id)
    push_name(&pools.names, &out.c_instruction, s.name.p, s.name.n)
    push_code(&out.c_index, index_code(&pools.indices, &s.index))
    push_byte(&out.c_phi, s.phi)
    push(&out.c_value_color, s.color)
    push(&out.c_printed_color, color)
    out.features |= HAS_CROSS
    return True


cdef const char* e0_value(const char* p, const char* end, Short* s, int64_t* at, int64_t* size) noexcept nogil:
    # "NAME[i,j](#ID @C) [OFFSET,SIZE]: SHAPE"; returns where the shape begins. The index keeps its
    # square brackets here (they become braces when the columns are made).
    p = name(p, &s.name)
    if p == NULL or p[0] != c'[':
        return NULL
    s.index.p = p
    p += 1
    while CLASS[<uint8_t> p[0]] & DIGIT or p[0] == c',':
        p += 1
    if not starts(p, end, b"](#", 3):
        return NULL
    s.index.n = p + 1 - s.index.p
    p = integer(p + 3, &s.id)
    s.phi = False
    s.color = NO_INT
    if p != NULL and p[0] == c' ' and p[1] == c'@':
        p = integer(p + 2, &s.color)
    return place(p + 2, end, at, size) if p != NULL and starts(p, end, b") ", 2) else NULL


cdef const char* place(const char* p, const char* end, int64_t* at, int64_t* size) noexcept nogil:
    # "[OFFSET,SIZE]: SHAPE"; returns where the shape begins.
    if p[0] != c'[':
        return NULL
    p = integer(p + 1, at)
    if p == NULL or p[0] != c',':
        return NULL
    p = integer(p + 1, size)
    return p + 3 if p != NULL and starts(p, end, b"]: ", 3) and p + 3 < end else NULL


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
    const char* base, const char* p, const char* end, Out* out, Pools* pools, int64_t allocation, Short* s
) noexcept nogil:
    # The lines below an E1 head, up to its "[offset,size]: shape". Returns the line behind it, or NULL with
    # no rows if the block breaks off.
    cdef const char* e
    cdef const char* q
    cdef int64_t at, size, operand, ordinal = 0
    cdef size_t n_positions = out.p_value_id.size, n_uses = out.u_value_id.size
    cdef Part word, sub
    cdef bint uses = False
    while p < end:
        e = line_end(p, end)
        if p[0] != c' ':
            break
        if p[1] == c'[':
            q = place(p + 1, e, &at, &size)
            if uses and q != NULL:
                push_value(out, pools, s, allocation, at, size, memo_at(&out.shapes, q), q, e, p - base)
                return e + 1
            break
        if e - p == 6 and starts(p, end, b" uses:", 6) and not uses:
            uses = True
            ordinal = 0
        elif p[1] == c' ' and not uses:
            if position(p + 2, &word, &sub) == NULL:
                break
            push(&out.p_value_id, s.id)
            push(&out.p_ordinal, ordinal)
            push_name(&pools.names, &out.p_instruction, word.p, word.n)
            push_code(&out.p_index, index_code(&pools.indices, &sub))
            ordinal += 1
        elif p[1] == c' ':
            if use(p + 2, end, &word, &operand, &sub) == NULL:
                break
            push(&out.u_value_id, s.id)
            push(&out.u_ordinal, ordinal)
            push_name(&pools.names, &out.u_instruction, word.p, word.n)
            push(&out.u_operand, operand)
            push_code(&out.u_index, index_code(&pools.indices, &sub))
            ordinal += 1
        else:
            break
        p = e + 1
    out.p_value_id.size = out.p_ordinal.size = n_positions
    out.p_instruction.size = out.p_index.size = n_positions // 2
    out.u_value_id.size = out.u_ordinal.size = out.u_operand.size = n_uses
    out.u_instruction.size = out.u_index.size = n_uses // 2
    return NULL


cdef void scan_nogil(const char* base, const char* p, const char* end, Out* out, Pools* pools) noexcept nogil:
    cdef const char* e
    cdef const char* q
    cdef Head h
    cdef Short s
    cdef Part brackets
    cdef int64_t at, size, ordinal = out.ordinal, allocation = out.below
    cdef bint cross = out.cross, bad = False
    while p < end:
        if starts(p, end, b" value: ", 8):
            e = NULL
            if allocation != NO_INT and not cross:
                e = value_line(p + 8, end, out, pools, allocation, p - base)
            if e == NULL:
                e = line_end(p, end)
                fault(&out.faults, UNKNOWN_LINE, p - base, W_ALLOCATION_BEFORE if allocation == NO_INT else W_VALUE)
            p = e + 1
            continue
        e = line_end(p, end)
        if starts(p, end, b"allocation ", 11):
            cross = False
            if head(p, e, &h) != NULL:
                allocation = h.allocation
                push_head(out, &h, pools, base, p - base)
            else:
                allocation = NO_INT
                fault(&out.faults, UNKNOWN_LINE, p - base, W_ALLOCATION)
        elif allocation == NO_INT:
            fault(&out.faults, UNKNOWN_LINE, p - base, W_ALLOCATION_BEFORE)
        elif starts(p, end, b"  value: ", 9):
            if not cross or not cross_line(p + 9, e, out, pools, allocation, ordinal):
                fault(&out.faults, UNKNOWN_LINE, p - base, W_CROSS_COLOR)
            else:
                ordinal += 1
        elif e - p == 40 and starts(p, end, b" reused by buffers of a different color:", 40) and not cross:
            cross = True
            ordinal = 0
        elif starts(p, end, b"  ", 2) and e1_head(p + 2, e, &s):
            out.features |= HAS_E1
            q = e1_value(base, e + 1, end, out, pools, allocation, &s)
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
            q = e0_value(p + 2, e, &s, &at, &size)
            if q != NULL:
                out.features |= HAS_E0
                brackets = s.index
                s.index.p = NULL
                push_value(out, pools, &s, allocation, at, size, memo_at(&out.shapes, q), q, e, p - base)
                bad = False
                (<int32_t*> (out.v_index.data + out.v_index.size))[-1] = braced(pools.indices.pool, &brackets, &bad)
            else:
                fault(&out.faults, UNKNOWN_LINE, p - base, W_VALUE)
        else:
            # Perhaps the head of an allocation: what stands below it is nobody's.
            if p[0] != c' ':
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
    while p < end:
        e = line_end(p, end)
        if starts(p, end, b"allocation ", 11) or (starts(p, end, b"  ", 2) and e1_head(p + 2, e, &s)):
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
        foresee(names.store, <Buf*> out, n_columns(out), <Buf*> &sample, times)
        pool_foresee(names, &scratch[0], sample.value_id.size // 8 * times, times)
    for k in range(n_columns(out)):
        drop(<Buf*> &sample + k)
    for i in range(3):
        pool_drop(&scratch[i])


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, Names names not None,
         Names indices not None, Names shapes not None, *, tuple state=None):
    """Tokenise data[begin:end], whole lines below `BufferAssignment:`.

    Returns (Columns per table, faults, bits of `features`, offset of a value that the end broke off or
    -1, state). Integers are int64 (null: the least), codes int32 (null: -1), flags one byte, faults int64
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
    }, own(&out.faults), out.features, out.open, (out.below, out.ordinal, bool(out.cross))
