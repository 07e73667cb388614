# C escapes: \n \t \" \\ \' octal and hexadecimal.

from libc.stdint cimport uint8_t

from buffer cimport Buffer, push_byte


cdef inline int hex_digit(char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    if c'A' <= c <= c'F':
        return c - c'A' + 10
    return -1


cdef inline void unescape(Buffer* out, const char* p, const char* end) noexcept nogil:
    # Replace the contents of `out` by the text [p, end) with its escapes resolved.
    cdef uint8_t c
    cdef int x, k
    out.size = 0
    while p < end:
        c = <uint8_t> p[0]
        p += 1
        if c != c'\\' or p == end:
            push_byte(out, c)
            continue
        c = <uint8_t> p[0]
        p += 1
        if c == c'n':
            push_byte(out, 10)
        elif c == c't':
            push_byte(out, 9)
        elif c == c'r':
            push_byte(out, 13)
        elif c == c'a':
            push_byte(out, 7)
        elif c == c'b':
            push_byte(out, 8)
        elif c == c'f':
            push_byte(out, 12)
        elif c == c'v':
            push_byte(out, 11)
        elif c'0' <= c <= c'7':
            x = c - c'0'
            k = 0
            while k < 2 and p < end and c'0' <= p[0] <= c'7':
                x = x * 8 + (p[0] - c'0')
                p += 1
                k += 1
            push_byte(out, <uint8_t> x)
        elif (c == c'x' or c == c'X') and p < end and hex_digit(p[0]) >= 0:
            x = 0
            k = 0
            while k < 2 and p < end and hex_digit(p[0]) >= 0:
                x = x * 16 + hex_digit(p[0])
                p += 1
                k += 1
            push_byte(out, <uint8_t> x)
        else:
            if not (c == c'\\' or c == c'"' or c == c'\'' or c == c'?'):
                push_byte(out, c'\\')
            push_byte(out, c)
