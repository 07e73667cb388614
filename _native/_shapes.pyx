"""Element type and unpadded bytes of distinct shapes."""

from libc.stdint cimport int64_t
from libc.string cimport memcmp, memset

from buffer cimport NO_CODE, NO_INT, Buffer, push, push_code
from cursor cimport CLASS, DIGIT, integer
from interner cimport intern_name
from xlamem._column cimport Names, own_two

cdef extern from *:
    const int64_t MAX_INT "INT64_MAX"


cdef int bits(const char* p, size_t n) noexcept nogil:
    # Bits of an unpacked element; 0: unknown. Types narrower than a byte use an entire byte.
    cdef int64_t width
    cdef const char* q = p
    if n == 4 and memcmp(p, b"pred", 4) == 0:
        return 8
    if n > 2 and memcmp(p, b"bf", 2) == 0:
        q = p + 2
    elif n > 1 and (p[0] == c's' or p[0] == c'u' or p[0] == c'f' or p[0] == c'c'):
        q = p + 1
    else:
        return 0
    if not CLASS[<unsigned char> q[0]] & DIGIT:
        return 0
    width = 0
    while q < p + n and CLASS[<unsigned char> q[0]] & DIGIT and width < 1000:
        width = width * 10 + (q[0] - c'0')
        q += 1
    if width < 1 or width > 128:
        return 0
    return <int> width if width > 8 else 8


cdef int64_t size(const char* p, const char* end, const char** type_end) noexcept nogil:
    # XLA's ByteSizeOf with pointers of 8 bytes: an array's elements, 8 for each element of a tuple. NO_INT if the text
    # does not say, or for more than 2^63 - 1 bits or bytes.
    cdef const char* q
    cdef int64_t n, elements = 1, packed = 0
    cdef int width
    cdef int64_t depth = 0
    cdef int64_t fields = 0
    while end - p > 1 and p[0] == c'b' and p[1] == c'(':
        p += 2                                    # b(SHAPE), at any depth, has the size of SHAPE
    q = p
    type_end[0] = p
    if p < end and p[0] == c'(':
        # A tuple: count the commas of its own level.
        type_end[0] = NULL
        q = p + 1
        if q < end and q[0] == c')':
            return 0
        fields = 1
        while q < end:
            if q[0] == c'(' or q[0] == c'[' or q[0] == c'{':
                depth += 1
            elif q[0] == c')' or q[0] == c']' or q[0] == c'}':
                if depth == 0:
                    return 8 * fields if q[0] == c')' else NO_INT
                depth -= 1
            elif q[0] == c',' and depth == 0:
                fields += 1
            q += 1
        return NO_INT
    while q < end and (c'a' <= q[0] <= c'z' or CLASS[<unsigned char> q[0]] & DIGIT):
        q += 1
    type_end[0] = q
    if q == p or q >= end or q[0] != c'[':
        type_end[0] = p
        return NO_INT
    if q - p == 5 and memcmp(p, b"token", 5) == 0:
        return 0
    if q - p == 6 and memcmp(p, b"opaque", 6) == 0:
        return 8
    width = bits(p, q - p)
    q += 1
    while q < end and q[0] != c']':
        if q + 1 < end and q[0] == c'<' and q[1] == c'=':
            q += 2
        if q < end and q[0] == c'?':
            return NO_INT
        q = integer_in(q, end, &n)
        if q == NULL or n < 0:
            return NO_INT
        if n and elements > MAX_INT // n:
            return NO_INT
        elements *= n
        if q < end and q[0] == c',':
            q += 1
            if q < end and q[0] == c']':
                return NO_INT
        elif q < end and q[0] != c']':
            return NO_INT
    if q >= end or width == 0:
        return NO_INT
    packed = element_bits(q + 1, end)
    if packed > 0:
        return NO_INT if elements > (MAX_INT - 7) // packed else (elements * packed + 7) // 8
    return NO_INT if elements > MAX_INT // (width // 8) else elements * (width // 8)


cdef const char* integer_in(const char* p, const char* end, int64_t* out) noexcept nogil:
    # `integer` for a text that may not end in a newline.
    cdef const char* q = p
    while q < end and CLASS[<unsigned char> q[0]] & DIGIT:
        q += 1
    if q == p or q >= end or q - p > 18:
        return NULL
    return integer(p, out)


cdef int64_t element_bits(const char* p, const char* end) noexcept nogil:
    # N of E(N) in a layout, or 0.
    cdef int64_t n = 0
    while p + 3 < end:
        if p[0] == c'E' and p[1] == c'(' and (p[-1] == c':' or p[-1] == c')'):
            p += 2
            while p < end and CLASS[<unsigned char> p[0]] & DIGIT:
                if n <= 0xFFFFFFF:                # larger ones overflow alike
                    n = n * 10 + (p[0] - c'0')
                p += 1
            return n
        p += 1
    return 0


def sizes(const unsigned char[::1] data not None, const long long[::1] ends not None, Names types not None):
    """Return, for each shape, the code of its element type in `types` or -1 (int32) and its unpadded bytes (int64).

    The shapes are data[0:ends[0]], data[ends[0]:ends[1]], … The type of a tuple is "tuple", that of b(…) is "buffer".
    Unknown bytes are the least int64.
    """
    cdef Buffer codes, bytes_
    cdef Py_ssize_t i
    cdef const char* base = b""                   # NULL stands for a tuple
    cdef const char* p
    cdef const char* end
    cdef const char* type_end = NULL
    cdef int64_t n
    memset(&codes, 0, sizeof(Buffer))
    memset(&bytes_, 0, sizeof(Buffer))
    if data.shape[0]:
        base = <const char*> &data[0]
    with nogil:
        for i in range(ends.shape[0]):
            p = base + (ends[i - 1] if i else 0)
            end = base + ends[i]
            n = size(p, end, &type_end)
            push(&bytes_, n)
            if type_end == NULL:
                push_code(&codes, intern_name(&types.interner, b"tuple", 5))
            elif end - p > 2 and p[0] == c'b' and p[1] == c'(':
                push_code(&codes, intern_name(&types.interner, b"buffer", 6))
            elif type_end == p:
                push_code(&codes, NO_CODE)
            else:
                push_code(&codes, intern_name(&types.interner, p, type_end - p))
    codes.failed |= types.interner.failed
    return own_two(&codes, &bytes_)
