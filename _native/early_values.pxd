# The two older forms of a value, called E0 and E1 in docs/reading.md.

from libc.stdint cimport int32_t, int64_t, uint8_t

from buffer cimport NO_INT
from cursor cimport CLASS, DIGIT, ShortValue, index, integer, name, starts
from gaps cimport (
    Extent, Gaps, Label, add_gap, gapped_head, gapped_label, gapped_shape, label_element, number_element, seek,
    seek_text,
)
from interner cimport Interner, intern
from text cimport Slice


cdef inline const char* extent_element(const char* p, const char* end, void* out) noexcept nogil:
    # "[OFFSET,SIZE"
    if p[0] != c'[':
        return NULL
    p = integer(p + 1, &(<Extent*> out).offset)
    return number_element(p + 1, end, &(<Extent*> out).size) if p != NULL and p[0] == c',' else NULL


cdef inline const char* gapped_extent(
    const char* p, const char* end, Extent* out, const char** shape, Gaps* gaps
) noexcept nogil:
    # "[OFFSET,SIZE]: SHAPE" with gaps. Returns where the shape ends.
    p = seek(extent_element, p, end, out, gaps)
    if p != NULL:
        p = seek_text(b"]", 1, p, end, gaps)
    return gapped_shape(p, end, shape, gaps) if p != NULL else NULL


# E0: "NAME[i,j](#ID @COLOR) [OFFSET,SIZE]: SHAPE" on one line.

cdef inline const char* e0_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME[i,j]"
    cdef ShortValue* value = <ShortValue*> out
    value.phi = False
    value.color = NO_INT
    p = name(p, &value.name)
    if p == NULL or p[0] != c'[':
        return NULL
    value.index.p = p
    p += 1
    while CLASS[<uint8_t> p[0]] & DIGIT or p[0] == c',':
        p += 1
    value.index.n = p + 1 - value.index.p
    return p + 1 if p[0] == c']' else NULL


cdef inline const char* gapped_e0(
    const char* p, const char* end, ShortValue* value, Extent* extent, const char** shape, Gaps* gaps
) noexcept nogil:
    # An E0 value with gaps. Returns where the shape ends.
    cdef const char* q
    p = seek(e0_element, p, end, value, gaps)
    if p != NULL:
        p = seek_text(b"(#", 2, p, end, gaps)
    if p != NULL:
        p = number_element(p, end, &value.id)
    if p == NULL:
        return NULL
    q = p
    while q + 2 < end and q[0] != c')':
        if q[0] == c' ' and q[1] == c'@':
            add_gap(gaps, p, q)
            p = number_element(q + 2, end, &value.color)
            if p == NULL:
                return NULL
            break
        q += 1
    p = seek_text(b")", 1, p, end, gaps)
    if p != NULL:
        p = seek_text(b" ", 1, p, end, gaps)
    return gapped_extent(p, end, extent, shape, gaps) if p != NULL else NULL


cdef inline int32_t braced_code(Interner* indices, const Slice* brackets) noexcept nogil:
    # Code of an E0 index "[0,1]" as "{0,1}". A very long one keeps its brackets.
    cdef char[256] copy
    cdef size_t i
    cdef bint invalid = False
    if brackets.n > sizeof(copy):
        return intern(indices, brackets.p, brackets.n, &invalid)
    for i in range(brackets.n):
        copy[i] = brackets.p[i]
    copy[0] = c'{'
    copy[brackets.n - 1] = c'}'
    return intern(indices, copy, brackets.n, &invalid)


# E1: "ID [PHI ]NAME[{INDEX}] @COLOR, positions:" heads a block of lines.

cdef inline bint e1_head(const char* p, const char* end, ShortValue* value) noexcept nogil:
    p = integer(p, &value.id)
    if p == NULL or p[0] != c' ':
        return False
    p += 1
    value.phi = starts(p, end, b"PHI ", 4)
    p = name(p + 4 if value.phi else p, &value.name)
    if p == NULL:
        return False
    value.index.p = NULL
    if p[0] == c'{':
        p = index(p, &value.index)
    if p == NULL or p[0] != c' ' or p[1] != c'@':
        return False
    p = integer(p + 2, &value.color)
    if value.color == -1:
        value.color = NO_INT
    return p != NULL and starts(p, end, b", positions:", 12) and p + 12 == end


cdef inline const char* e1_element(const char* p, const char* end, void* out) noexcept nogil:
    # "ID [PHI ]NAME[{INDEX}]"
    cdef ShortValue* value = <ShortValue*> out
    cdef Label label
    p = integer(p, &value.id)
    if p == NULL or p[0] != c' ':
        return NULL
    value.phi = starts(p, end, b" PHI ", 5)
    p = label_element(p + 5 if value.phi else p + 1, end, &label)
    value.name, value.index = label.word, label.index
    return p


cdef inline bint gapped_e1_head(const char* p, const char* end, ShortValue* value, Gaps* gaps) noexcept nogil:
    # The same head with gaps.
    cdef Label label
    cdef const char* stop = p
    cdef const char* e
    while stop < end and not starts(stop, end, b", positions", 11):
        stop += 1
    if stop >= end:
        return False
    e = number_element(p, stop, &value.id)
    if e != NULL:
        value.phi = starts(e, stop, b" PHI ", 5)
        e = gapped_label(e + 4 if value.phi else e, stop, &label, gaps)
        value.name, value.index = label.word, label.index
    else:
        e = seek(e1_element, p, stop, value, gaps)
    if e != NULL:
        e = seek_text(b" @", 2, e, stop, gaps)
    if e != NULL:
        e = number_element(e, stop, &value.color)
    if e == NULL:
        return False
    if value.color == -1:
        value.color = NO_INT
    add_gap(gaps, e, stop)
    return gapped_head(stop + 11, end, gaps) and not gaps.overflow
