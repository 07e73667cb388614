"""Locates the sections of a text and the lines where a section may be split."""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from cursor cimport starts
from fault cimport CODES as fault_codes, N_CODES, N_WANTED, WANTED as fault_wanted

cdef extern from "scan.h":
    size_t next_title "xla_next_title"(const char*, size_t, size_t) noexcept nogil
    size_t next_module "xla_next_module"(const char*, size_t, size_t) noexcept nogil
    bint any_unknown "xla_any_unknown"(const uint8_t*, size_t) noexcept nogil

cdef extern from *:
    """
    #include "scan.h"
    #include "steps.h"
    #if XLA_CLONED
    #define xla_has_avx2() (__builtin_cpu_supports("avx2") != 0)
    #else
    #define xla_has_avx2() 0
    #endif
    #ifdef XLAMEM_CHECKED
    #define XLA_CHECKED 1
    #else
    #define XLA_CHECKED 0
    #endif
    #ifdef __SANITIZE_ADDRESS__
    #define XLA_SANITIZED 1
    #else
    #define XLA_SANITIZED 0
    #endif
    #ifdef CYTHON_TRACE_NOGIL
    #define XLA_TRACED CYTHON_TRACE_NOGIL
    #else
    #define XLA_TRACED 0
    #endif
    """
    bint XLA_SSE2, XLA_CHECKED, XLA_SANITIZED, XLA_TRACED
    bint has_avx2 "xla_has_avx2"() noexcept nogil

BUILD = tuple(o for o, used in zip(("CHECKED", "SANITIZE", "COVERAGE"), (XLA_CHECKED, XLA_SANITIZED, XLA_TRACED)) if used)
SIMD = tuple(name for name, used in zip(("sse2", "avx2"), (XLA_SSE2, has_avx2())) if used)

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
    # Kind of the section whose heading is at p, or K_NONE. A later release may add text after the words.
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
    """List (kind, offset) of the section headings in their order; with `first_only`, only of the first one."""
    cdef size_t n = data.shape[0], offset
    cdef const char* base
    cdef int k
    sections = []
    if n == 0:
        return sections
    base = <const char*> &data[0]
    offset = 0
    while offset < n and base[offset] == c'\n':
        offset += 1
    k = kind(base + offset, base + n)
    if k:
        sections.append((k, offset))
    while not (sections and first_only):
        with nogil:
            k = K_NONE
            while k == K_NONE:
                offset = next_title(base, offset, n)
                if offset >= n:
                    break
                offset += 1
                k = kind(base + offset, base + n)
        if k == K_NONE:
            break
        sections.append((k, offset))
    return sections


def two_modules(const unsigned char[::1] data not None):
    """Return the offsets of the first two "BufferAssignment" in the text, or its length where there is none."""
    cdef size_t n = data.shape[0], first = 0, second = 0
    if n:
        with nogil:
            first = next_module(<const char*> &data[0], 0, n)
            second = next_module(<const char*> &data[0], first + 1, n)
    return first, second


def next_line(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end,
              const unsigned char[::1] prefix not None):
    """Return the offset of the first line after `begin` in data[:end] that starts with the prefix, or `end`."""
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
    """Whether a line of data[begin:end] may be " uses are not initialized yet." (false positives are possible)."""
    if not 0 <= begin <= end <= data.shape[0]:
        raise ValueError("a span must lie in the data")
    cdef bint any = False
    if end - begin > 7:
        with nogil:
            any = any_unknown(&data[begin], end - begin - 7)
    return any
