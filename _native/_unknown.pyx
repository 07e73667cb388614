"""Unknown text in known lines: the column `attributes`, and the kinds of such text."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memset

from buffer cimport Buffer, push, push_code
from cursor cimport CLASS, DIGIT, IN_NAME
from interner cimport Interner, intern
from text cimport TextColumn, end_text, push_utf8
from xlamem._column cimport Names, own, own_text

cdef enum:
    MAX_PATTERN = 24                                  # bytes of a kind without a word


cdef inline bint separates(char c) noexcept nogil:
    return c == c' ' or c == c',' or c == c';' or c == c':' or c == c'\t'


cdef inline void trim(const char** p, const char** end) noexcept nogil:
    # Strip separators on both sides.
    while p[0] < end[0] and separates(p[0][0]):
        p[0] += 1
    while p[0] < end[0] and separates(end[0][-1]):
        end[0] -= 1


cdef int kind(Interner* words, const char* p, const char* end) noexcept nogil:
    # Code of the first word without trailing digits; of text without a word, its first characters with N for digits.
    cdef const char* q = p
    cdef char[MAX_PATTERN] copy
    cdef size_t n = 0
    cdef bint invalid = False
    while q < end and (CLASS[<uint8_t> q[0]] & (IN_NAME | DIGIT) != IN_NAME or q[0] == c'-' or q[0] == c'.'):
        q += 1
    if q < end:
        p = q
        while q < end and CLASS[<uint8_t> q[0]] & IN_NAME:
            q += 1
        while q > p + 1 and (CLASS[<uint8_t> q[-1]] & DIGIT or q[-1] == c'.' or q[-1] == c'-'):
            q -= 1
        return intern(words, p, q - p, &invalid)
    while p < end and n < MAX_PATTERN:
        copy[n] = c'N' if CLASS[<uint8_t> p[0]] & DIGIT else p[0]
        p += 1
        n += 1
    return intern(words, copy, n, &invalid)


def kinds(const unsigned char[::1] data not None, const long long[:, ::1] gaps not None, Names words not None):
    """Return the code in `words` of the kind of each gap (rows: table, row, begin, end): int32."""
    cdef Buffer out
    cdef Py_ssize_t i
    cdef const char* p
    cdef const char* end
    check(data, gaps)
    memset(&out, 0, sizeof(Buffer))
    with nogil:
        for i in range(gaps.shape[0]):
            p = <const char*> &data[0] + gaps[i, 2]
            end = <const char*> &data[0] + gaps[i, 3]
            trim(&p, &end)
            push_code(&out, kind(&words.interner, p, end))
    out.failed |= words.interner.failed
    return own(&out)


def attributes(const unsigned char[::1] data not None, const long long[:, ::1] gaps not None, int64_t n):
    """Join the gaps of each of n rows with ', ': (bytes, int32 offsets, valid). The gaps are ordered by row."""
    cdef TextColumn out
    cdef Py_ssize_t i = 0, m = gaps.shape[0]
    cdef int64_t row
    cdef size_t begin
    cdef const char* p
    cdef const char* end
    check(data, gaps)
    memset(&out, 0, sizeof(TextColumn))
    with nogil:
        for row in range(n):
            begin = out.bytes.size
            while i < m and gaps[i, 1] == row:
                p = <const char*> &data[0] + gaps[i, 2]
                end = <const char*> &data[0] + gaps[i, 3]
                trim(&p, &end)
                if p < end:
                    if out.bytes.size > begin:
                        push_utf8(&out.bytes, b", ", 2)
                    push_utf8(&out.bytes, p, end - p)
                i += 1
            end_text(&out, out.bytes.size > begin)
    return own_text(&out)


def line_ends(const unsigned char[::1] data not None, const long long[::1] begins not None):
    """Return the end of the line at each offset, its newline included: int64."""
    cdef Buffer out
    cdef Py_ssize_t i
    cdef const char* base = <const char*> &data[0] if data.shape[0] else NULL
    cdef const char* e
    memset(&out, 0, sizeof(Buffer))
    for i in range(begins.shape[0]):
        if not 0 <= begins[i] < data.shape[0]:
            raise ValueError("a line must lie in the data")
    with nogil:
        for i in range(begins.shape[0]):
            e = <const char*> memchr(base + begins[i], c'\n', data.shape[0] - begins[i])
            push(&out, e + 1 - base if e != NULL else data.shape[0])
    return own(&out)


cdef object check(const unsigned char[::1] data, const long long[:, ::1] gaps):
    cdef Py_ssize_t i
    if gaps.shape[1] != 4:
        raise ValueError("a gap has a table, a row, a begin and an end")
    for i in range(gaps.shape[0]):
        if not 0 <= gaps[i, 2] <= gaps[i, 3] <= data.shape[0]:
            raise ValueError("a gap must lie in the data")
