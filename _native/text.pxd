# Slices of the scanned text, and columns of texts.

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp

from buffer cimport (
    CACHE_LINE, Buffer, grow, likely, prefetch_ahead, push_byte, push_bytes, push_code, put_byte, put_code, release,
)

cdef extern from "steps.h":
    bint equal "xla_equal"(const char*, const char*, size_t) noexcept nogil
    bint copy_ascii "xla_copy_ascii"(char*, const char*, size_t) noexcept nogil

cdef enum:
    COMPARED = 1024                               # bytes of a long text that are compared at a time

cdef struct Slice:
    const char* p                                 # NULL: absent
    size_t n

cdef struct TextColumn:
    Buffer bytes
    Buffer offsets                                # int32: 0, then the end of each item, modulo 2^32
    Buffer valid                                  # one byte per item


cdef inline bint repeats(const char* p, const char* before, size_t n) noexcept nogil:
    # Whether the text at p repeats the one before, which may be long.
    while n >= COMPARED:
        prefetch_ahead(p, COMPARED // CACHE_LINE)
        if memcmp(p, before, COMPARED) != 0:
            return False
        p += COMPARED
        before += COMPARED
        n -= COMPARED
    return memcmp(p, before, n) == 0


cdef inline int utf8_length(const char* p, const char* end) noexcept nogil:
    # Return the length of the well-formed UTF-8 sequence at p, or 0 if there is none.
    cdef uint8_t a = <uint8_t> p[0]
    cdef uint8_t b
    cdef int n, i
    if a < 0x80:
        return 1
    if a < 0xC2 or a > 0xF4:
        return 0
    n = 2 if a < 0xE0 else 3 if a < 0xF0 else 4
    if end - p < n:
        return 0
    b = <uint8_t> p[1]
    if (a == 0xE0 and b < 0xA0) or (a == 0xED and b > 0x9F) or (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F):
        return 0
    for i in range(1, n):
        if (<uint8_t> p[i] & 0xC0) != 0x80:
            return 0
    return n


cdef inline bint push_utf8(Buffer* b, const char* p, size_t n) noexcept nogil:
    # Append text, replacing bytes that are not UTF-8 with \xNN. Returns whether all bytes were UTF-8.
    cdef const char* end = p + n
    cdef const char* digits = "0123456789abcdef"
    cdef int k
    cdef bint good = True
    if likely(b.size + n + 16 <= b.capacity) or grow(b, n + 16):
        if likely(copy_ascii(b.data + b.size, p, n)):
            b.size += n
            return True
    while p < end:
        k = utf8_length(p, end)
        if k:
            push_bytes(b, p, k)
            p += k
        else:
            good = False
            push_byte(b, c'\\')
            push_byte(b, c'x')
            push_byte(b, digits[<uint8_t> p[0] >> 4])
            push_byte(b, digits[<uint8_t> p[0] & 15])
            p += 1
    return good


cdef inline void push_first_offset(TextColumn* t) noexcept nogil:
    if t.offsets.size == 0:
        push_code(&t.offsets, 0)


cdef inline void end_text(TextColumn* t, bint valid) noexcept nogil:
    # End the item whose bytes were appended to t.bytes.
    push_first_offset(t)
    push_code(&t.offsets, <int32_t> <uint32_t> t.bytes.size)
    push_byte(&t.valid, valid)


cdef inline void end_reserved_text(TextColumn* t, bint valid) noexcept nogil:
    # The same for a column with space reserved by `reserve_rows`.
    if t.offsets.size == 0:
        put_code(&t.offsets, 0)
    put_code(&t.offsets, <int32_t> <uint32_t> t.bytes.size)
    put_byte(&t.valid, valid)


cdef inline bint push_text(TextColumn* t, const char* p, size_t n) noexcept nogil:
    # Append an item. Returns whether it was UTF-8.
    cdef bint good = push_utf8(&t.bytes, p, n)
    end_text(t, True)
    return good


cdef inline void push_null_text(TextColumn* t) noexcept nogil:
    end_text(t, False)


cdef inline void release_text(TextColumn* t) noexcept nogil:
    release(&t.bytes)
    release(&t.offsets)
    release(&t.valid)
