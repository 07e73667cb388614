# Text in a line that no known field explains. XLA adds fields every few months: the known ones are read whatever
# stands before, between or behind them, and what stands there is a gap. docs/reading.md has the rules.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from buffer cimport NO_CODE, NO_INT, Buf, push
from interner cimport Pool, Slot, key_of, pool_find, pool_holds
from lookahead cimport Met
from text cimport Part, equal
from cursor cimport CLASS, DIGIT, IN_NAME, Short, balanced, index, integer, name, starts

cdef enum:
    MOST_GAPS = 16
    TRIES = 8                                     # places at which something is looked for that may run to the end
    NO_ROW = -1                                   # as the table of a gap: its line gave no row

cdef struct Gaps:
    int n
    bint full                                     # there are more: the line is unknown as a whole
    Part[MOST_GAPS] items


cdef inline void gap(Gaps* gaps, const char* p, const char* end) noexcept nogil:
    if p == NULL or end <= p:
        return
    if gaps.n == MOST_GAPS:
        gaps.full = True
        return
    gaps.items[gaps.n].p = p
    gaps.items[gaps.n].n = end - p
    gaps.n += 1


cdef inline bint is_field(const Part* part) noexcept nogil:
    # Whether the text looks like a field: "key=value", or something that is no word. A line with mere words may as well
    # be of another kind.
    cdef const char* p = part.p
    cdef const char* end = part.p + part.n
    while p < end and p[0] == c' ':
        p += 1
    if p >= end or not CLASS[<uint8_t> p[0]] & IN_NAME:
        return True
    while p < end and p[0] != c' ':
        if p[0] == c'=':
            return True
        p += 1
    return False


cdef inline bint is_led(const Gaps* gaps, const char* p) noexcept nogil:
    # Whether mere words stand at p, before what is known of the line.
    return gaps.n and gaps.items[0].p == p and not is_field(&gaps.items[0])


cdef inline void push_gaps(Buf* out, const Gaps* gaps, const char* base, int64_t table, int64_t row) noexcept nogil:
    # Quadruples: table, row, begin and end of the text.
    cdef int i
    cdef const char* p
    for i in range(gaps.n):
        p = gaps.items[i].p
        push(out, table)
        push(out, row)
        push(out, p - base)
        push(out, p - base + <int64_t> gaps.items[i].n)


# An element is what is read without a gap inside: a function that returns where it ends, NULL if it is not at p.
ctypedef const char* (*Element)(const char* p, const char* end, void* out) noexcept nogil


cdef inline bint stops(const char* p, const char* end) noexcept nogil:
    # Whether a word can end at p.
    return p >= end or p[0] == c' ' or p[0] == c',' or p[0] == c';' or p[0] == c':' or p[0] == c'>' or p[0] == c')'


cdef inline const char* seek(Element element, const char* p, const char* end, void* out, Gaps* gaps) noexcept nogil:
    # The first place from p on, at the beginning of a word, at which the element stands; returns where it ends.
    cdef const char* q = p
    cdef const char* e
    while q < end:
        if q == p or not (CLASS[<uint8_t> q[-1]] & IN_NAME and CLASS[<uint8_t> q[0]] & IN_NAME):
            e = element(q, end, out)
            if e != NULL and e <= end:
                gap(gaps, p, q)
                return e
        q += 1
    return NULL


cdef inline const char* seek_text(const char* text, size_t n, const char* p, const char* end, Gaps* gaps) noexcept nogil:
    # The same for a literal, which may begin anywhere.
    cdef const char* q = p
    while True:
        q = <const char*> memchr(q, text[0], end - q) if q < end else NULL
        if q == NULL or <size_t> (end - q) < n:
            return NULL
        if memcmp(q, text, n) == 0:
            gap(gaps, p, q)
            return q + n
        q += 1


cdef inline const char* number_element(const char* p, const char* end, void* out) noexcept nogil:
    # An integer.
    p = integer(p, <int64_t*> out)
    return p if p != NULL and (p >= end or not CLASS[<uint8_t> p[0]] & IN_NAME) else NULL


cdef struct Label:
    Part word
    Part index                                    # p is NULL: none


cdef inline const char* label_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME[{INDEX}]"
    cdef Label* label = <Label*> out
    label.index.p = NULL
    p = name(p, &label.word)
    if p != NULL and p < end and p[0] == c'{':
        p = index(p, &label.index)
    return p if p != NULL and stops(p, end) else NULL


cdef inline const char* indexed_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME{INDEX}"
    p = label_element(p, end, out)
    return p if p != NULL and (<Label*> out).index.p != NULL else NULL


cdef struct Numbered:
    int64_t id
    Label label


cdef inline const char* numbered_element(const char* p, const char* end, void* out) noexcept nogil:
    # "ID NAME[{INDEX}]"
    p = integer(p, &(<Numbered*> out).id)
    return label_element(p + 1, end, &(<Numbered*> out).label) if p != NULL and p < end and p[0] == c' ' else NULL


cdef inline bint ends_label(const char* p, const char* end) noexcept nogil:
    return p == end or starts(p, end, b" (phi)", 6) or starts(p, end, b" @", 2)


cdef inline const char* label_any(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # " NAME[{INDEX}]" behind an id, with gaps: the name there if (phi), a color or the end follows, else the last name
    # that these follow, else the name there.
    cdef const char* first = label_element(p + 1, end, out) if p < end and p[0] == c' ' else NULL
    cdef const char* e
    cdef const char* q = end
    if first != NULL and (ends_label(first, end) or first[0] == c','):
        return first
    while q > p:
        q -= 1
        e = label_element(q + 1, end, out) if q[0] == c' ' else NULL
        if e != NULL and ends_label(e, end):
            gap(gaps, p, q)
            return e
    return label_element(p + 1, end, out) if first != NULL else NULL


cdef inline const char* short_any(const char* p, const char* end, Short* out, Gaps* gaps) noexcept nogil:
    # "<ID NAME{INDEX} (phi) @COLOR>" with gaps; p at its "<". Returns where it ends.
    cdef Numbered numbered
    cdef Gaps before = gaps[0]
    cdef const char* close = p + 1
    cdef const char* e
    cdef const char* q
    while True:
        close = <const char*> memchr(close, c'>', end - close) if close < end else NULL
        if close == NULL:
            return NULL
        if stops(close + 1, end):
            break
        close += 1
    p += 1
    e = number_element(p, close, &numbered.id)
    if e != NULL:
        e = label_any(e, close, &numbered.label, gaps)
    if e == NULL:
        gaps[0] = before
        e = seek(numbered_element, p, close, &numbered, gaps)
        if e == NULL:
            return NULL
    out.id = numbered.id
    out.name = numbered.label.word
    out.index = numbered.label.index
    out.phi = False
    out.color = NO_INT
    p = e
    while p < close:
        q = NULL
        if not out.phi and out.color == NO_INT and starts(p, close, b" (phi)", 6):
            q = p + 6
            out.phi = True
        elif out.color == NO_INT and starts(p, close, b" @", 2):
            q = number_element(p + 2, close, &out.color)
        if q == NULL:
            p += 1
            continue
        gap(gaps, e, p)
        p = e = q
    gap(gaps, e, close)
    return close + 1


cdef inline const char* shape_end(const char* p, const char* end) noexcept nogil:
    # Behind "TYPE[DIMENSIONS]{LAYOUT}", "(SHAPE, …)" or "b(SHAPE)"; NULL if the text has no such form.
    cdef const char* q = p
    if p < end and (p[0] == c'(' or starts(p, end, b"b(", 2)):
        q = balanced(p + 1 if p[0] == c'(' else p + 2, end, 0)
        return q + 1 if q < end and q[0] == c')' else NULL
    while q < end and (c'a' <= q[0] <= c'z' or CLASS[<uint8_t> q[0]] & DIGIT):
        q += 1
    if q == p or q >= end or q[0] != c'[':
        return NULL
    q = <const char*> memchr(q, c']', end - q)
    if q == NULL:
        return NULL
    q += 1
    if q < end and q[0] == c'{':
        q = balanced(q + 1, end, 0)
        return q + 1 if q < end and q[0] == c'}' else NULL
    return q


cdef inline bint ends_as_shape(Met* met, const Pool* pool, const char* p, const char* end) noexcept nogil:
    # Whether nothing follows the shape at p. One that the pool has is not looked at again: it is what was met last.
    cdef int32_t code
    if (end[-1] == c']' or end[-1] == c'}') and p[0] != c'(' and memchr(p, c' ', end - p) == NULL:
        return True                               # an array's, without a blank in which a field could begin
    if met.p != NULL and met.n == <size_t> (end - p) and equal(p, met.p, met.n):
        return True
    code = pool_code(pool, p, end - p)
    if code < 0:
        return shape_end(p, end) == end
    met.p = p
    met.n = end - p
    met.code = code
    return True


cdef inline int32_t pool_code(const Pool* pool, const char* p, size_t n) noexcept nogil:
    # Code of a text that the pool, or the one that it is based on, has; NO_CODE.
    cdef uint32_t key = key_of(p, n)
    cdef uint64_t at = key & pool.mask
    cdef Slot slot
    cdef int32_t code = pool_find(pool.base, key, p, n) if pool.base != NULL else NO_CODE
    if code >= 0 or pool.slots == NULL:
        return code
    while True:
        slot = pool.slots[at]
        if slot.key == 0:
            return NO_CODE
        if slot.key == key and pool_holds(pool, slot.code, p, n):
            return slot.code
        at = (at + 1) & pool.mask


cdef struct Place:
    int64_t offset
    int64_t size


cdef inline const char* sizes_any(const char* p, const char* end, Place* out, Gaps* gaps) noexcept nogil:
    # "size=N,offset=N)" with gaps; returns where it ends, NULL if it has another form.
    cdef const char* close = balanced(p, end, 0)
    cdef const char* e
    cdef const char* q
    if close >= end or close[0] != c')':
        return NULL
    q = p
    while True:
        e = q
        q = <const char*> memchr(q, c's', close - q) if q < close else NULL
        if q == NULL:
            return NULL
        if starts(q, close, b"size=", 5) and (q == p or not CLASS[<uint8_t> q[-1]] & IN_NAME):
            e = number_element(q + 5, close, &out.size)
            if e != NULL:
                break
        q += 1
    gap(gaps, p, q)
    p = seek_text(b",offset=", 8, e, close, gaps)
    if p == NULL:
        return NULL
    e = number_element(p, close, &out.offset)
    if e == NULL:
        return NULL
    gap(gaps, e, close)
    return close + 1


cdef inline const char* shape_any(const char* p, const char* end, const char** shape, Gaps* gaps) noexcept nogil:
    # ": SHAPE" with gaps, up to the end of the line. Returns where the shape ends. Text that has no shape's form is
    # taken for one of a new form.
    cdef const char* e
    cdef const char* q
    p = seek_text(b":", 1, p, end, gaps)
    if p == NULL or p + 1 >= end:
        return NULL
    cdef int tries = TRIES
    q = p
    while q + 1 < end and tries:
        e = NULL
        if q[0] == c' ' and (q[1] == c'(' or c'a' <= q[1] <= c'z'):
            tries -= 1
            e = shape_end(q + 1, end)
        if e != NULL and (e == end or e[0] == c' ' or e[0] == c',' or e[0] == c';'):
            gap(gaps, p, q)
            shape[0] = q + 1
            gap(gaps, e, end)
            return e
        q += 1
    shape[0] = p + 1
    return end if p[0] == c' ' else NULL


cdef inline bint position_any(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # "NAME[ {INDEX}]" with gaps that are fields, up to the end of the line.
    cdef int i
    if position_words(p, end, out, gaps) == NULL or gaps.full:
        return False
    for i in range(gaps.n):
        if not is_field(&gaps.items[i]):
            return False
    return True


cdef inline const char* position_words(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # "NAME[ {INDEX}]" with gaps, up to the end of the line: an instruction with its index, else a name alone between
    # commas, else the first name. NULL if there is none.
    cdef Gaps before = gaps[0]
    cdef const char* e = seek(spaced_element, p, end, out, gaps)
    cdef const char* q
    if e == NULL:
        gaps[0] = before
        q = p
        while q < end:
            e = label_element(q, end, out)
            if e != NULL and out.index.p == NULL and (e == end or e[0] == c','):
                gap(gaps, p, q)
                return index_any(e, end, out, gaps)
            e = NULL
            q = <const char*> memchr(q, c',', end - q)
            if q == NULL:
                break
            q += 1
            while q < end and q[0] == c' ':
                q += 1
    if e != NULL:
        gap(gaps, e, end)
        return end
    gaps[0] = before
    e = seek(name_element, p, end, out, gaps)
    return index_any(e, end, out, gaps) if e != NULL else NULL


cdef inline const char* index_any(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # "[ {INDEX}]" with gaps, up to the end of the line.
    cdef const char* q = p
    cdef const char* e
    while q + 1 < end:
        if q[0] == c' ' and q[1] == c'{':
            e = index(q + 1, &out.index)
            if e != NULL and stops(e, end):
                gap(gaps, p, q)
                p = e
            else:
                out.index.p = NULL
            break
        q += 1
    gap(gaps, p, end)
    return end


cdef inline const char* name_element(const char* p, const char* end, void* out) noexcept nogil:
    cdef Label* label = <Label*> out
    label.index.p = NULL
    p = name(p, &label.word)
    return p if p != NULL and stops(p, end) else NULL


cdef inline const char* spaced_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME {INDEX}"
    cdef Label* label = <Label*> out
    p = name(p, &label.word)
    if p == NULL or p >= end or p[0] != c' ' or p[1] != c'{':
        return NULL
    p = index(p + 1, &label.index)
    return p if p != NULL and stops(p, end) else NULL


cdef struct Use:
    Part word
    int64_t operand
    Part index


cdef inline const char* use_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME, operand N"
    cdef Use* use = <Use*> out
    p = name(p, &use.word)
    if p == NULL or not starts(p, end, b", operand ", 10):
        return NULL
    return number_element(p + 10, end, &use.operand)


cdef inline const char* operand_any(const char* p, const char* end, int64_t* out, Gaps* gaps) noexcept nogil:
    # ", operand N" with gaps; returns where it ends.
    cdef const char* q = p
    cdef const char* e
    while True:
        q = <const char*> memchr(q, c'o', end - q) if q < end else NULL
        if q == NULL:
            return NULL
        e = number_element(q + 8, end, out) if starts(q, end, b"operand ", 8) else NULL
        if e != NULL and q - p >= 2 and starts(q - 2, q, b", ", 2):
            gap(gaps, p, q - 2)
            return e
        if e != NULL and starts(p, q, b", ", 2) and q[-1] == c' ':
            gap(gaps, p + 2, q)
            return e
        q += 1


cdef inline bint use_any(const char* p, const char* end, Use* out, Gaps* gaps) noexcept nogil:
    # "NAME, operand N[ {INDEX}]" with gaps, up to the end of the line.
    return use_words(p, end, out, gaps) != NULL and not gaps.full and not is_led(gaps, p)


cdef inline const char* use_words(const char* p, const char* end, Use* out, Gaps* gaps) noexcept nogil:
    cdef Gaps before = gaps[0]
    cdef Label label
    cdef const char* e = seek(use_element, p, end, out, gaps)
    if e == NULL:
        gaps[0] = before
        e = seek(name_element, p, end, &label, gaps)
        if e != NULL:
            e = operand_any(e, end, &out.operand, gaps)
        if e == NULL:
            return NULL
        out.word = label.word
    label.index.p = NULL
    e = index_any(e, end, &label, gaps)
    out.index = label.index
    return e


cdef inline bint head_any(const char* p, const char* end, Gaps* gaps) noexcept nogil:
    # What follows a head's words up to the end of the line is ":" with gaps, and no further word.
    cdef const char* q
    if p < end and CLASS[<uint8_t> p[0]] & IN_NAME:
        return False
    q = seek_text(b":", 1, p, end, gaps)
    if q == NULL:
        return False
    gap(gaps, q, end)
    return True
