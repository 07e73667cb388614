# Unknown text in known lines. XLA adds fields every few months: known fields are read regardless of what precedes,
# separates or follows them, and the text in between is a gap. docs/reading.md describes the rules. A function named
# gapped_… reads a known form that contains gaps and returns its end, or NULL.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from buffer cimport NO_INT, Buffer, push
from interner cimport Interner, existing_code
from lookahead cimport Repeat
from text cimport Slice, equal
from cursor cimport CLASS, DIGIT, IN_NAME, ShortValue, balanced, index, integer, name, starts

cdef enum:
    MAX_GAPS = 16
    MAX_TRIES = 8                                 # attempts of a search; each may scan to the end of the line
    NO_ROW = -1                                   # table of a gap in a line without a row

cdef struct Gaps:
    int n
    bint overflow                                 # too many gaps: the entire line is unknown
    Slice[MAX_GAPS] items


cdef inline void clear_gaps(Gaps* gaps) noexcept nogil:
    gaps.n = 0
    gaps.overflow = False


cdef inline void add_gap(Gaps* gaps, const char* p, const char* end) noexcept nogil:
    if p == NULL or end <= p:
        return
    if gaps.n == MAX_GAPS:
        gaps.overflow = True
        return
    gaps.items[gaps.n].p = p
    gaps.items[gaps.n].n = end - p
    gaps.n += 1


cdef inline bint is_field(const Slice* text) noexcept nogil:
    # Whether the text looks like a field: "key=value", or anything but a word. A line of words only may be a
    # different kind of line.
    cdef const char* p = text.p
    cdef const char* end = text.p + text.n
    while p < end and p[0] == c' ':
        p += 1
    if p >= end or not CLASS[<uint8_t> p[0]] & IN_NAME:
        return True
    while p < end and p[0] != c' ':
        if p[0] == c'=':
            return True
        p += 1
    return False


cdef inline bint starts_with_words(const Gaps* gaps, const char* p) noexcept nogil:
    # Whether the line begins, at p, with a gap of words only.
    return gaps.n and gaps.items[0].p == p and not is_field(&gaps.items[0])


cdef inline void push_gaps(Buffer* out, const Gaps* gaps, const char* base, int64_t table, int64_t row) noexcept nogil:
    # Append quadruples: table, row, begin and end of the gap.
    cdef int i
    cdef const char* p
    for i in range(gaps.n):
        p = gaps.items[i].p
        push(out, table)
        push(out, row)
        push(out, p - base)
        push(out, p - base + <int64_t> gaps.items[i].n)


# Reads a token without gaps at p. Returns its end, or NULL.
ctypedef const char* (*Element)(const char* p, const char* end, void* out) noexcept nogil


cdef inline bint ends_word(const char* p, const char* end) noexcept nogil:
    # Whether a word can end at p.
    return p >= end or p[0] == c' ' or p[0] == c',' or p[0] == c';' or p[0] == c':' or p[0] == c'>' or p[0] == c')'


cdef inline const char* seek(Element element, const char* p, const char* end, void* out, Gaps* gaps) noexcept nogil:
    # Find the first element that starts at p or at a later word. Returns its end, or NULL.
    cdef const char* q = p
    cdef const char* e
    while q < end:
        if q == p or not (CLASS[<uint8_t> q[-1]] & IN_NAME and CLASS[<uint8_t> q[0]] & IN_NAME):
            e = element(q, end, out)
            if e != NULL and e <= end:
                add_gap(gaps, p, q)
                return e
        q += 1
    return NULL


cdef inline const char* seek_text(
    const char* text, size_t n, const char* p, const char* end, Gaps* gaps
) noexcept nogil:
    # Find a literal, which may start within a word.
    cdef const char* q = p
    while True:
        q = <const char*> memchr(q, text[0], end - q) if q < end else NULL
        if q == NULL or <size_t> (end - q) < n:
            return NULL
        if memcmp(q, text, n) == 0:
            add_gap(gaps, p, q)
            return q + n
        q += 1


cdef inline const char* number_element(const char* p, const char* end, void* out) noexcept nogil:
    # An integer. Sets `out` only if it returns the end.
    cdef int64_t n
    p = integer(p, &n)
    if p == NULL or (p < end and CLASS[<uint8_t> p[0]] & IN_NAME):
        return NULL
    (<int64_t*> out)[0] = n
    return p


cdef struct Label:
    Slice word
    Slice index                                   # p is NULL: none


cdef inline const char* label_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME[{INDEX}]"
    cdef Label* label = <Label*> out
    label.index.p = NULL
    p = name(p, &label.word)
    if p != NULL and p < end and p[0] == c'{':
        p = index(p, &label.index)
    return p if p != NULL and ends_word(p, end) else NULL


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


cdef inline const char* gapped_label(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # " NAME[{INDEX}]" after an id, with gaps: the name at p if (phi), a color or the end follows, else the last name
    # followed by one of these, else the name at p.
    cdef const char* first = label_element(p + 1, end, out) if p < end and p[0] == c' ' else NULL
    cdef const char* e
    cdef const char* q = end
    if first != NULL and (ends_label(first, end) or first[0] == c','):
        return first
    while q > p:
        q -= 1
        e = label_element(q + 1, end, out) if q[0] == c' ' else NULL
        if e != NULL and ends_label(e, end):
            add_gap(gaps, p, q)
            return e
    return label_element(p + 1, end, out) if first != NULL else NULL


cdef inline const char* gapped_short(const char* p, const char* end, ShortValue* out, Gaps* gaps) noexcept nogil:
    # "<ID NAME{INDEX} (phi) @COLOR>" with gaps; p at its "<".
    cdef Numbered numbered
    cdef const char* close = p + 1
    cdef const char* e
    cdef const char* q
    while True:
        close = <const char*> memchr(close, c'>', end - close) if close < end else NULL
        if close == NULL:
            return NULL
        if ends_word(close + 1, end):
            break
        close += 1
    p += 1
    e = number_element(p, close, &numbered.id)
    if e != NULL:
        e = gapped_label(e, close, &numbered.label, gaps)
    if e == NULL:
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
        add_gap(gaps, e, p)
        p = e = q
    add_gap(gaps, e, close)
    return close + 1


cdef inline const char* shape_end(const char* p, const char* end) noexcept nogil:
    # The end of "TYPE[DIMENSIONS]{LAYOUT}", "(SHAPE, …)" or "b(SHAPE)"; NULL if the text has another form.
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


cdef inline bint ends_as_shape(
    Repeat* cached, const Interner* shapes, const char* p, const char* end
) noexcept nogil:
    # Whether nothing follows the shape at p. An interned shape is not scanned again and replaces the cached one.
    cdef int32_t code
    if (end[-1] == c']' or end[-1] == c'}') and p[0] != c'(' and memchr(p, c' ', end - p) == NULL:
        return True                               # an array shape without a blank, where a field could begin
    if cached.p != NULL and cached.n == <size_t> (end - p) and equal(p, cached.p, cached.n):
        return True
    code = existing_code(shapes, p, end - p)
    if code < 0:
        return shape_end(p, end) == end
    cached.p = p
    cached.n = end - p
    cached.code = code
    return True


cdef struct Extent:
    int64_t offset
    int64_t size


cdef inline const char* gapped_sizes(const char* p, const char* end, Extent* out, Gaps* gaps) noexcept nogil:
    # "size=N,offset=N)" with gaps.
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
    add_gap(gaps, p, q)
    p = seek_text(b",offset=", 8, e, close, gaps)
    if p == NULL:
        return NULL
    e = number_element(p, close, &out.offset)
    if e == NULL:
        return NULL
    add_gap(gaps, e, close)
    return close + 1


cdef inline const char* gapped_shape(const char* p, const char* end, const char** shape, Gaps* gaps) noexcept nogil:
    # ": SHAPE" with gaps, up to the end of the line. Returns the end of the shape. Text of any other form is treated
    # as a new kind of shape.
    cdef const char* e
    cdef const char* q
    p = seek_text(b":", 1, p, end, gaps)
    if p == NULL or p + 1 >= end:
        return NULL
    cdef int tries = MAX_TRIES
    q = p
    while q + 1 < end and tries:
        e = NULL
        if q[0] == c' ' and (q[1] == c'(' or c'a' <= q[1] <= c'z'):
            tries -= 1
            e = shape_end(q + 1, end)
        if e != NULL and (e == end or e[0] == c' ' or e[0] == c',' or e[0] == c';'):
            add_gap(gaps, p, q)
            shape[0] = q + 1
            add_gap(gaps, e, end)
            return e
        q += 1
    shape[0] = p + 1
    return end if p[0] == c' ' else NULL


cdef inline bint gapped_position(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # "NAME[ {INDEX}]" with gaps that are fields, up to the end of the line.
    cdef int i
    if position_words(p, end, out, gaps) == NULL or gaps.overflow:
        return False
    for i in range(gaps.n):
        if not is_field(&gaps.items[i]):
            return False
    return True


cdef inline const char* position_words(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # "NAME[ {INDEX}]" with gaps, up to the end of the line: a name with an index, else a name between commas, else
    # the first name.
    cdef const char* e = seek(name_index_element, p, end, out, gaps)
    cdef const char* q
    if e == NULL:
        q = p
        while q < end:
            e = label_element(q, end, out)
            if e != NULL and out.index.p == NULL and (e == end or e[0] == c','):
                add_gap(gaps, p, q)
                return gapped_index(e, end, out, gaps)
            e = NULL
            q = <const char*> memchr(q, c',', end - q)
            if q == NULL:
                break
            q += 1
            while q < end and q[0] == c' ':
                q += 1
    if e != NULL:
        add_gap(gaps, e, end)
        return end
    e = seek(name_element, p, end, out, gaps)
    return gapped_index(e, end, out, gaps) if e != NULL else NULL


cdef inline const char* gapped_index(const char* p, const char* end, Label* out, Gaps* gaps) noexcept nogil:
    # "[ {INDEX}]" with gaps, up to the end of the line.
    cdef const char* q = p
    cdef const char* e
    while q + 1 < end:
        if q[0] == c' ' and q[1] == c'{':
            e = index(q + 1, &out.index)
            if e != NULL and ends_word(e, end):
                add_gap(gaps, p, q)
                p = e
            else:
                out.index.p = NULL
            break
        q += 1
    add_gap(gaps, p, end)
    return end


cdef inline const char* name_element(const char* p, const char* end, void* out) noexcept nogil:
    cdef Label* label = <Label*> out
    label.index.p = NULL
    p = name(p, &label.word)
    return p if p != NULL and ends_word(p, end) else NULL


cdef inline const char* name_index_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME {INDEX}"
    cdef Label* label = <Label*> out
    p = name(p, &label.word)
    if p == NULL or p >= end or p[0] != c' ' or p[1] != c'{':
        return NULL
    p = index(p + 1, &label.index)
    return p if p != NULL and ends_word(p, end) else NULL


cdef struct Use:
    Slice word
    int64_t operand
    Slice index


cdef inline const char* use_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME, operand N"
    cdef Use* use = <Use*> out
    p = name(p, &use.word)
    if p == NULL or not starts(p, end, b", operand ", 10):
        return NULL
    return number_element(p + 10, end, &use.operand)


cdef inline const char* gapped_operand(const char* p, const char* end, int64_t* out, Gaps* gaps) noexcept nogil:
    # ", operand N" with gaps.
    cdef const char* q = p
    cdef const char* e
    while True:
        q = <const char*> memchr(q, c'o', end - q) if q < end else NULL
        if q == NULL:
            return NULL
        e = number_element(q + 8, end, out) if starts(q, end, b"operand ", 8) else NULL
        if e != NULL and q - p >= 2 and starts(q - 2, q, b", ", 2):
            add_gap(gaps, p, q - 2)
            return e
        if e != NULL and starts(p, q, b", ", 2) and q[-1] == c' ':
            add_gap(gaps, p + 2, q)
            return e
        q += 1


cdef inline bint gapped_use(const char* p, const char* end, Use* out, Gaps* gaps) noexcept nogil:
    # "NAME, operand N[ {INDEX}]" with gaps, up to the end of the line.
    return use_words(p, end, out, gaps) != NULL and not gaps.overflow and not starts_with_words(gaps, p)


cdef inline const char* use_words(const char* p, const char* end, Use* out, Gaps* gaps) noexcept nogil:
    cdef Label label
    cdef const char* e = seek(use_element, p, end, out, gaps)
    if e == NULL:
        e = seek(name_element, p, end, &label, gaps)
        if e != NULL:
            e = gapped_operand(e, end, &out.operand, gaps)
        if e == NULL:
            return NULL
        out.word = label.word
    label.index.p = NULL
    e = gapped_index(e, end, &label, gaps)
    out.index = label.index
    return e


cdef inline bint gapped_head(const char* p, const char* end, Gaps* gaps) noexcept nogil:
    # The ":" with gaps that ends a heading; no further word may precede it.
    cdef const char* q
    if p < end and CLASS[<uint8_t> p[0]] & IN_NAME:
        return False
    q = seek_text(b":", 1, p, end, gaps)
    if q == NULL:
        return False
    add_gap(gaps, q, end)
    return True
