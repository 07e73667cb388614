# The lines of XLA's own peak list: "NAME[{INDEX}]: N bytes[ (cumulative: N bytes)]".

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from buffer cimport NO_INT, Buffer, push, push_code
from cursor cimport index, integer, name, starts
from gaps cimport (
    Gaps, Label, add_gap, clear_gaps, indexed_element, label_element, name_element, number_element, push_gaps, seek,
    seek_text, starts_with_words,
)
from lookahead cimport IndexCodes, NameQueue, index_code, push_name
from text cimport Slice

# Bits of `features`: the forms of a line.
cdef enum:
    HAS_PEAK_A = 1
    HAS_PEAK_B = 2
    HAS_PEAK_C = 4

cdef struct PeakList:
    Buffer ordinal
    Buffer instruction
    Buffer index
    Buffer bytes
    Buffer cumulative

cdef struct PeakReader:
    const char* base
    PeakList* columns
    Buffer* gaps
    NameQueue* names
    IndexCodes* indices
    int64_t table                                 # of the gaps
    int64_t ordinal                               # of the next line
    int features

cdef struct Peak:
    Label label
    int64_t bytes


cdef inline void push_peak(PeakReader* s, const Peak* peak, int64_t cumulative, int form) noexcept nogil:
    push(&s.columns.ordinal, s.ordinal)
    push_name(s.names, &s.columns.instruction, peak.label.word.p, peak.label.word.n)
    push_code(&s.columns.index, index_code(s.indices, &peak.label.index))
    push(&s.columns.bytes, peak.bytes)
    push(&s.columns.cumulative, cumulative)
    s.features |= form
    s.ordinal += 1


cdef inline bint peak_line(PeakReader* s, const char* p, const char* e) noexcept nogil:
    # False if the line has another form.
    cdef Peak peak
    cdef int64_t cumulative = NO_INT
    cdef int form = HAS_PEAK_A
    peak.label.index.p = NULL
    p = name(p, &peak.label.word)
    if p != NULL and p[0] == c'{':
        form = HAS_PEAK_B
        p = index(p, &peak.label.index)
    if p == NULL or not starts(p, e, b": ", 2):
        return False
    p = integer(p + 2, &peak.bytes)
    if p == NULL or not starts(p, e, b" bytes", 6):
        return False
    p += 6
    if p != e:
        if form == HAS_PEAK_A or not starts(p, e, b" (cumulative: ", 14):
            return False
        p = integer(p + 14, &cumulative)
        if p == NULL or e - p != 7 or memcmp(p, b" bytes)", 7) != 0:
            return False
        form = HAS_PEAK_C
    push_peak(s, &peak, cumulative, form)
    return True


cdef inline const char* bytes_element(const char* p, const char* end, void* out) noexcept nogil:
    # "N bytes"
    p = integer(p, <int64_t*> out)
    return p + 6 if p != NULL and starts(p, end, b" bytes", 6) else NULL


cdef inline const char* peak_element(const char* p, const char* end, void* out) noexcept nogil:
    # "NAME[{INDEX}]: N bytes"
    p = label_element(p, end, &(<Peak*> out).label)
    return bytes_element(p + 2, end, &(<Peak*> out).bytes) if p != NULL and starts(p, end, b": ", 2) else NULL


cdef inline const char* indexed_peak_element(const char* p, const char* end, void* out) noexcept nogil:
    p = peak_element(p, end, out)
    return p if p != NULL and (<Peak*> out).label.index.p != NULL else NULL


cdef inline const char* gapped_bytes(const char* p, const char* end, int64_t* out, Gaps* gaps) noexcept nogil:
    # ": N bytes" with gaps.
    cdef const char* e
    p = seek_text(b": ", 2, p, end, gaps)
    if p == NULL:
        return NULL
    e = number_element(p, end, out)
    return seek_text(b" bytes", 6, e, end, gaps) if e != NULL else seek(bytes_element, p, end, out, gaps)


cdef inline const char* gapped_amount(const char* p, const char* end, Peak* peak, Gaps* gaps) noexcept nogil:
    # "NAME[{INDEX}]: N bytes" with gaps. A name with an index is preferred, and one directly before its bytes.
    cdef const char* e = seek(indexed_peak_element, p, end, peak, gaps)
    if e == NULL:
        clear_gaps(gaps)
        e = seek(indexed_element, p, end, &peak.label, gaps)
        if e == NULL:
            clear_gaps(gaps)
            e = seek(peak_element, p, end, peak, gaps)
        else:
            e = gapped_bytes(e, end, &peak.bytes, gaps)
    if e == NULL:
        clear_gaps(gaps)
        e = seek(name_element, p, end, &peak.label, gaps)
        if e != NULL:
            e = gapped_bytes(e, end, &peak.bytes, gaps)
    return e


cdef inline bint gapped_peak_line(PeakReader* s, const char* p, const char* end) noexcept nogil:
    # The same line with gaps.
    cdef Peak peak
    cdef Gaps gaps, before
    cdef int64_t cumulative = NO_INT
    cdef int form = HAS_PEAK_A
    cdef const char* begin = p
    cdef const char* e
    clear_gaps(&gaps)
    e = gapped_amount(p, end, &peak, &gaps)
    if e == NULL:
        return False
    if peak.label.index.p != NULL:
        form = HAS_PEAK_B
        before = gaps
        p = seek_text(b" (", 2, e, end, &gaps)
        if p != NULL:
            p = seek_text(b"cumulative: ", 12, p, end, &gaps)
        if p != NULL:
            p = seek(bytes_element, p, end, &cumulative, &gaps)
        if p != NULL:
            p = seek_text(b")", 1, p, end, &gaps)
        if p != NULL:
            form = HAS_PEAK_C
            e = p
        else:
            gaps = before
            cumulative = NO_INT
    add_gap(&gaps, e, end)
    if gaps.overflow or starts_with_words(&gaps, begin):
        return False
    push_gaps(s.gaps, &gaps, s.base, s.table, s.columns.ordinal.size // 8)
    push_peak(s, &peak, cumulative, form)
    return True
