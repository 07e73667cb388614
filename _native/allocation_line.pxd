# The line that begins an allocation, in the buffer assignment and in layout A of the report.

from libc.stdint cimport int64_t
from libc.string cimport memchr, memset

from buffer cimport NO_INT
from cursor cimport COMMA, balanced, index, starts
from gaps cimport Gaps, add_gap, ends_word, number_element, seek_text
from text cimport Slice

# Bits of the column `flags` of an allocation, in the order of the schema's is_… columns.
cdef enum:
    PARAMETER = 1
    ENTRY_ROOT = 2
    CONSTANT = 4
    THREAD_LOCAL = 8
    LIVE_OUT = 16
    TEMP = 32
    IS_FLAG = 63
    # Other fields that were read.
    SIZE = 64
    COLOR = 128
    PAGE = 256
    ADDRESS = 512
    SHAPE = 1024
    INDEX = 2048

cdef struct AllocationLine:
    int64_t allocation
    int64_t size                                  # NO_INT: printed rounded, with a unit
    Slice size_text
    int64_t color
    int64_t page
    int64_t parameter
    Slice address
    Slice parameter_index
    Slice parameter_shape
    Slice output_shape
    Slice fields                                  # the text after the size
    int flags


cdef inline const char* shape_in_bars(const char* p, const char* end, Slice* out) noexcept nogil:
    # Return the end of `|SHAPE|` at p, which is a bar; NULL if there is no other one.
    cdef const char* bar = <const char*> memchr(p + 1, c'|', end - p - 1)
    if bar == NULL:
        return NULL
    out.p = p + 1
    out.n = bar - p - 1
    return bar + 1


cdef inline const char* flag(const char* p, const char* end, AllocationLine* out, int bit) noexcept nogil:
    # Return the end of a flag at p; NULL if the word is longer or is repeated.
    if out.flags & bit or not ends_word(p, end):
        return NULL
    out.flags |= bit
    return p


cdef inline const char* field(const char* p, const char* end, AllocationLine* out, Gaps* gaps) noexcept nogil:
    # Return the end of the field at p; NULL if it is unknown or repeated.
    cdef const char* q = NULL
    if p[0] == c'p':
        if starts(p, end, b"preallocated-temp", 17):
            return flag(p + 17, end, out, TEMP)
        if starts(p, end, b"page ", 5) and not out.flags & PAGE:
            q = number_element(p + 5, end, &out.page)
            if q != NULL:
                out.flags |= PAGE
        elif starts(p, end, b"parameter ", 10) and not out.flags & PARAMETER:
            q = number_element(p + 10, end, &out.parameter)
            if q != NULL:
                out.flags |= PARAMETER
                return parameter_rest(q, end, out, gaps)
    elif p[0] == c's':
        if starts(p, end, b"size ", 5) and not out.flags & SIZE:
            return size_field(p + 5, end, out)
        if starts(p, end, b"shape |", 7) and out.flags & PARAMETER and not out.flags & SHAPE:
            q = shape_in_bars(p + 6, end, &out.parameter_shape)
            if q != NULL:
                out.flags |= SHAPE
                return parameter_rest(q, end, out, gaps)
    elif p[0] == c't':
        if starts(p, end, b"thread-local", 12):
            return flag(p + 12, end, out, THREAD_LOCAL)
    elif p[0] == c'm':
        if starts(p, end, b"maybe-live-out", 14):
            return flag(p + 14, end, out, LIVE_OUT)
    elif p[0] == c'c':
        if starts(p, end, b"constant", 8):
            return flag(p + 8, end, out, CONSTANT)
        if starts(p, end, b"color ", 6) and not out.flags & COLOR:
            q = number_element(p + 6, end, &out.color)
            if q != NULL:
                out.flags |= COLOR
    elif p[0] == c'o':
        if starts(p, end, b"output shape is |", 17) and not out.flags & ENTRY_ROOT:
            q = shape_in_bars(p + 16, end, &out.output_shape)
            if q != NULL:
                out.flags |= ENTRY_ROOT
    elif (starts(p, end, b"0x", 2) or starts(p, end, b"(nil)", 5)) and not out.flags & (SIZE | ADDRESS):
        q = address_end(p, end)
        if q != NULL:
            out.address.p = p
            out.address.n = q - p
            out.flags |= ADDRESS
    return q


cdef inline const char* address_end(const char* p, const char* end) noexcept nogil:
    # The end of "0xHEX" or "(nil)"; NULL if a word goes on there.
    cdef const char* q = p + (5 if p[0] == c'(' else 2)
    if p[0] == c'0':
        while q < end and (c'0' <= q[0] <= c'9' or c'a' <= q[0] | 32 <= c'f'):
            q += 1
        if q == p + 2:
            return NULL
    return q if ends_word(q, end) else NULL


cdef inline const char* size_field(const char* p, const char* end, AllocationLine* out) noexcept nogil:
    # The size after "size ", exact or rounded.
    cdef const char* q = number_element(p, end, &out.size)
    if q == NULL:
        out.size = NO_INT
        q = p
        while q < end and q[0] != c',' and q[0] != c' ':
            q += 1
        if q == p:
            return NULL
    out.size_text.p = p
    out.size_text.n = q - p
    out.flags |= SIZE
    out.fields.p = q
    return q


cdef inline const char* parameter_rest(const char* p, const char* end, AllocationLine* out, Gaps* gaps) noexcept nogil:
    # "[, shape |SHAPE|][ at ShapeIndex INDEX]" after a parameter's number, or the index after its shape.
    cdef const char* q
    cdef const char* stop
    if not out.flags & SHAPE and starts(p, end, b", shape |", 9):
        q = shape_in_bars(p + 8, end, &out.parameter_shape)
        if q == NULL:
            return p
        out.flags |= SHAPE
        p = q
    if starts(p, end, b" at ShapeIndex ", 15) and index(p + 15, &out.parameter_index) != NULL:
        out.flags |= INDEX
        return p + 15 + out.parameter_index.n
    stop = field_end(p, end)
    while p < end and not out.flags & INDEX:
        q = p
        while q < stop and not starts(q, stop, b" at ShapeIndex {", 16):
            q += 1
        if q >= stop:
            break
        if index(q + 15, &out.parameter_index) == NULL:
            out.parameter_index.p = NULL
            break
        add_gap(gaps, p, q)
        out.flags |= INDEX
        p = q + 15 + out.parameter_index.n
    return p


cdef inline const char* field_end(const char* p, const char* end) noexcept nogil:
    # The first ", " outside brackets and quotes, or the end.
    while p < end:
        if p[0] != c',':
            p = balanced(p, end, COMMA)
        if p >= end or (p[0] == c',' and p[1] == c' '):
            return p if p < end else end
        p += 1
    return end


cdef inline const char* keyed_end(const char* p, const char* end) noexcept nogil:
    # The end of the words "key=value " at p; NULL if there are none.
    cdef const char* begin = p
    cdef const char* q
    while p < end:
        q = p
        while q < end and q[0] != c' ' and q[0] != c',':
            q += 1
        if q >= end or q[0] != c' ' or memchr(p, c'=', q - p) == NULL:
            break
        p = q + 1
    return p if p > begin else NULL


cdef inline bint allocation_line(const char* p, const char* end, AllocationLine* out, Gaps* gaps) noexcept nogil:
    # "allocation N: [ADDR, ]size SIZE{, field}:" with gaps, the fields in any order. Adds to `gaps`.
    cdef const char* q
    cdef const char* begin                        # of a field
    cdef const char* last_end                     # of the field that was read last
    cdef const char* stop
    cdef const char* word
    cdef int n
    memset(out, 0, sizeof(AllocationLine))
    out.page = NO_INT
    out.parameter = NO_INT
    p = number_element(p + 11, end, &out.allocation)
    if p != NULL:
        p = seek_text(b": ", 2, p, end, gaps)
    if p == NULL:
        return False
    stop = end - 1
    while stop > p and stop[0] != c':':
        stop -= 1
    last_end = begin = p
    while begin < stop:
        n = gaps.n
        add_gap(gaps, last_end, begin if last_end == p else begin - 2)
        q = field(begin, stop, out, gaps)
        if q == NULL:
            gaps.n = n
            q = begin
            word = keyed_end(begin, stop)
            if word != NULL:
                # "key=value FIELD"
                add_gap(gaps, last_end, begin if last_end == p else begin - 2)
                add_gap(gaps, begin, word)
                q = field(word, stop, out, gaps)
                if q == NULL:
                    gaps.n = n
                    q = begin
                else:
                    last_end = q
        else:
            last_end = q
        q = field_end(q, stop)
        begin = q + 2 if q < stop else stop
    add_gap(gaps, last_end, stop)
    add_gap(gaps, stop + 1, end)
    out.fields.n = stop - out.fields.p if out.fields.p != NULL else 0
    return out.flags & SIZE and not gaps.overflow
