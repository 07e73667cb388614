"""Where the sections of a text begin, and where a span may be split."""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from cursor cimport starts
from fault cimport CODES as fault_codes, N_CODES, N_WANTED, WANTED as fault_wanted

cdef extern from "scan.h":
    size_t next_head "xla_next_head"(const char*, size_t, size_t) noexcept nogil
    bint any_unknown "xla_any_unknown"(const uint8_t*, size_t) noexcept nogil

CODES = tuple(fault_codes[i].decode() for i in range(N_CODES))
WANTED = tuple(fault_wanted[i].decode() for i in range(N_WANTED))

cdef enum:
    K_NONE
    K_ASSIGNMENT
    K_TOTAL
    K_USED
    K_LIVE
    K_LIVE_UNAVAILABLE
    K_REPORT_LIST
    K_SPACE

ASSIGNMENT, TOTAL, USED, LIVE, LIVE_UNAVAILABLE, REPORT_LIST, SPACE = (
    K_ASSIGNMENT, K_TOTAL, K_USED, K_LIVE, K_LIVE_UNAVAILABLE, K_REPORT_LIST, K_SPACE)


cdef int kind(const char* p, const char* end) noexcept nogil:
    # Which head of a section stands at p; end is the end of the text.
    # Text that a later release adds behind the words does not hide a section.
    if starts(p, end, b"BufferAssignment:", 17) or starts(p, end, b"BufferAssignment (", 18):
        return K_ASSIGNMENT
    if starts(p, end, b"Total bytes used:", 17):
        return K_TOTAL
    if starts(p, end, b"Used values:", 12) or starts(p, end, b"Used values (", 13):
        return K_USED
    if starts(p, end, b"HloLiveRange (", 14):
        return K_LIVE
    if starts(p, end, b"HloLiveRange not available", 26):
        return K_LIVE_UNAVAILABLE
    if starts(p, end, b"Allocations sorted by size:", 27) or starts(p, end, b"Allocations sorted by size (", 28):
        return K_REPORT_LIST
    if starts(p, end, b"Memory Space: ", 14):
        return K_SPACE
    return K_NONE


def locate(const unsigned char[::1] data not None, bint first_only):
    """[(kind, offset)] of the head lines, in order; with `first_only`, of the first one alone."""
    cdef size_t n = data.shape[0], at
    cdef const char* base
    cdef int k
    found = []
    if n == 0:
        return found
    base = <const char*> &data[0]
    at = 0
    while at < n and base[at] == c'\n':
        at += 1
    k = kind(base + at, base + n)
    if k:
        found.append((k, at))
    while not (found and first_only):
        with nogil:
            k = K_NONE
            while k == K_NONE:
                at = next_head(base, at, n)
                if at >= n:
                    break
                at += 1
                k = kind(base + at, base + n)
        if k == K_NONE:
            break
        found.append((k, at))
    return found


def next_line(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, const unsigned char[::1] prefix not None):
    """Offset of the first line in data[begin:end] that starts with prefix, `begin` not counting; end if none."""
    cdef const char* base
    cdef const char* p
    cdef const char* stop
    cdef size_t n = prefix.shape[0]
    if begin >= end:
        return end
    if not 0 <= begin <= end <= data.shape[0]:
        raise ValueError("a span must lie in the data")
    base = <const char*> &data[0]
    p = base + begin
    stop = base + end
    with nogil:
        while p < stop:
            p = <const char*> memchr(p, c'\n', stop - p)
            if p == NULL:
                break
            p += 1
            if <size_t> (stop - p) >= n and (n == 0 or memcmp(p, &prefix[0], n) == 0):
                break
    return end if p == NULL or p >= stop else p - base


def uses_unknown(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end):
    """Whether a line of data[begin:end] may say that uses are not initialized (false alarms are possible)."""
    if not 0 <= begin <= end <= data.shape[0]:
        raise ValueError("a span must lie in the data")
    cdef bint any = False
    if end - begin > 7:
        with nogil:
            any = any_unknown(&data[begin], end - begin - 7)
    return any
