# Tokens of a span of text. The span ends in a newline, which stops every loop here. Functions return the end of
# their token, or NULL if it is not at p.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp

from buffer cimport NO_INT
from text cimport Slice

cdef extern from *:
    """
    /* 1: in names. 2: digit. 4: opening bracket. 8: closing bracket. 16: quote. 32: newline. 64: comma. 128: blank. */
    static const unsigned char xla_class[256] = {
        ['\\n'] = 32, [' '] = 128, [','] = 64, ['"'] = 16,
        ['('] = 4, ['['] = 4, ['{'] = 4, [')'] = 8, [']'] = 8, ['}'] = 8,
        ['-'] = 1, ['.'] = 1, ['_'] = 1,
        ['0'] = 3, ['1'] = 3, ['2'] = 3, ['3'] = 3, ['4'] = 3, ['5'] = 3, ['6'] = 3, ['7'] = 3, ['8'] = 3, ['9'] = 3,
        ['A'] = 1, ['B'] = 1, ['C'] = 1, ['D'] = 1, ['E'] = 1, ['F'] = 1, ['G'] = 1, ['H'] = 1, ['I'] = 1,
        ['J'] = 1, ['K'] = 1, ['L'] = 1, ['M'] = 1, ['N'] = 1, ['O'] = 1, ['P'] = 1, ['Q'] = 1, ['R'] = 1,
        ['S'] = 1, ['T'] = 1, ['U'] = 1, ['V'] = 1, ['W'] = 1, ['X'] = 1, ['Y'] = 1, ['Z'] = 1,
        ['a'] = 1, ['b'] = 1, ['c'] = 1, ['d'] = 1, ['e'] = 1, ['f'] = 1, ['g'] = 1, ['h'] = 1, ['i'] = 1,
        ['j'] = 1, ['k'] = 1, ['l'] = 1, ['m'] = 1, ['n'] = 1, ['o'] = 1, ['p'] = 1, ['q'] = 1, ['r'] = 1,
        ['s'] = 1, ['t'] = 1, ['u'] = 1, ['v'] = 1, ['w'] = 1, ['x'] = 1, ['y'] = 1, ['z'] = 1,
    };
    """
    const uint8_t* CLASS "xla_class"
    const int64_t MAX_TENTH "(INT64_MAX / 10)"

cdef extern from "steps.h":
    unsigned int name_step "xla_name_step"(const char*) noexcept nogil
    unsigned int short_number "xla_short_number"(const char*, int64_t*) noexcept nogil
    unsigned int marks "xla_marks"(const char*, bint, bint) noexcept nogil
    unsigned int lowest "xla_lowest"(unsigned int) noexcept nogil
    unsigned int quote_step "xla_quote_step"(const char*) noexcept nogil

cdef enum:
    IN_NAME = 1
    DIGIT = 2
    OPENS = 4
    CLOSES = 8
    QUOTE = 16
    NEWLINE = 32
    COMMA = 64
    BLANK = 128

cdef struct ShortValue:                           # <ID NAME{INDEX} (phi) @COLOR>
    int64_t id
    Slice name
    Slice index
    bint phi
    int64_t color                                 # NO_INT: not printed


cdef inline const char* line_end(const char* p, const char* end) noexcept nogil:
    # The newline at the end of the line at p. The last byte is one. If it is not, because the file changes while it is
    # read, the scan ends there all the same.
    cdef const char* e = <const char*> memchr(p, c'\n', end - p) if p < end else NULL
    return e if e != NULL else end - 1


cdef inline const char* text_end(const char* begin, const char* stop, const char* end) noexcept nogil:
    # The end of the text of an instruction of which the first line ends at `stop`. The metadata of a Pallas kernel are
    # JSON on several lines: after a brace, lines that begin with a quote, up to one that begins with the other brace.
    cdef const char* p
    cdef const char* last = stop
    while last > begin and last[-1] == c'{':
        p = last + 1
        while p < end and p[0] == c'"':
            p = line_end(p, end) + 1
        if p == last + 1 or p >= end or p[0] != c'}':
            return last
        begin = p
        last = line_end(p, end)
    return last


cdef inline bint starts(const char* p, const char* end, const char* text, size_t n) noexcept nogil:
    return <size_t> (end - p) >= n and memcmp(p, text, n) == 0


cdef inline const char* skip(const char* p, const char* end, const char* text, size_t n) noexcept nogil:
    return p + n if starts(p, end, text, n) else NULL


cdef inline const char* name_end(const char* p) noexcept nogil:
    cdef unsigned int n = 32
    while n == 32:
        n = name_step(p)
        p += n
    while CLASS[<uint8_t> p[0]] & IN_NAME:
        p += 1
    return p


cdef inline const char* name(const char* p, Slice* out) noexcept nogil:
    # [A-Za-z_][A-Za-z0-9_.-]*
    cdef const char* begin = p
    if CLASS[<uint8_t> p[0]] & (IN_NAME | DIGIT) != IN_NAME or p[0] == c'-' or p[0] == c'.':
        return NULL
    p = name_end(p + 1)
    out.p = begin
    out.n = p - begin
    return p


cdef inline const char* integer(const char* p, int64_t* out) noexcept nogil:
    # -?[0-9]+ that fits in 64 bits.
    cdef unsigned int n = short_number(p, out)
    return p + n if n else long_integer(p, out)


cdef inline const char* long_integer(const char* p, int64_t* out) noexcept nogil:
    # The same digit by digit.
    cdef bint minus = p[0] == c'-'
    cdef uint8_t digit
    cdef int64_t x = 0
    cdef const char* begin
    p += minus
    begin = p
    while True:
        digit = <uint8_t> p[0] - <uint8_t> c'0'
        if digit > 9:
            break
        if p - begin >= 18 and (x > MAX_TENTH or (x == MAX_TENTH and digit > 7)):
            return NULL
        x = x * 10 + digit
        p += 1
    out[0] = -x if minus else x
    return p if p > begin else NULL


cdef inline const char* index(const char* p, Slice* out) noexcept nogil:
    # {} or {0} or {0,1}
    cdef const char* begin = p
    if p[0] != c'{':
        return NULL
    p += 1
    if CLASS[<uint8_t> p[0]] & DIGIT and p[1] == c'}':
        p += 1
    elif p[0] != c'}':
        while True:
            if p[0] == c'-':
                p += 1
            if not CLASS[<uint8_t> p[0]] & DIGIT:
                return NULL
            while CLASS[<uint8_t> p[0]] & DIGIT:
                p += 1
            if p[0] != c',':
                break
            p += 1
        if p[0] != c'}':
            return NULL
    out.p = begin
    out.n = p + 1 - begin
    return p + 1


cdef inline const char* short_value(const char* p, const char* end, ShortValue* out) noexcept nogil:
    if p[0] != c'<':
        return NULL
    p = integer(p + 1, &out.id)
    if p == NULL or p[0] != c' ':
        return NULL
    p = name(p + 1, &out.name)
    if p == NULL:
        return NULL
    out.index.p = NULL
    if p[0] == c'{':
        p = index(p, &out.index)
        if p == NULL:
            return NULL
    out.phi = False
    out.color = NO_INT
    if starts(p, end, b" (phi)", 6):
        out.phi = True
        p += 6
    if p[0] == c' ' and p[1] == c'@':
        p = integer(p + 2, &out.color)
        if p == NULL:
            return NULL
    return p + 1 if p[0] == c'>' else NULL


cdef inline const char* balanced(const char* p, const char* end, uint8_t stop) noexcept nogil:
    # The first character of a class in `stop`, or unmatched closing bracket, outside brackets and quotes; else end.
    cdef int depth = 0
    cdef uint8_t c
    cdef unsigned int bits
    cdef const char* q
    while p < end:
        bits = marks(p, stop & COMMA != 0, stop & BLANK != 0)
        while bits:
            q = p + lowest(bits)
            if q >= end:
                return end
            c = CLASS[<uint8_t> q[0]]
            if depth == 0 and c & (stop | CLOSES):
                return q
            if c & QUOTE:
                p = quoted_end(q, end)
                break
            depth += (c & OPENS != 0) - (c & CLOSES != 0)
            bits &= bits - 1
        else:
            p += 16
    return end


cdef inline const char* quoted_end(const char* p, const char* end) noexcept nogil:
    # Return the end of the quoted string at p, in which backslashes escape characters; end + 1 if it is not closed.
    cdef unsigned int n
    p += 1
    while p < end:
        n = quote_step(p)
        p += n
        if n == 16:
            continue
        if p >= end:
            break
        if p[0] == c'\\':
            p += 2
        elif p[0] == c'"':
            return p + 1
        else:
            p += 1
    return end + 1


cdef inline const char* position(const char* p, Slice* word, Slice* sub) noexcept nogil:
    # "NAME[ {INDEX}]" up to the newline, which is returned.
    p = name(p, word)
    return after_name(p, sub) if p != NULL else NULL


cdef inline const char* after_name(const char* p, Slice* sub) noexcept nogil:
    # "[ {INDEX}]" up to the newline, which is returned.
    sub.p = NULL
    if p[0] == c' ':
        p = index(p + 1, sub)
    return p if p != NULL and p[0] == c'\n' else NULL


cdef inline const char* use(const char* p, const char* end, Slice* word, int64_t* operand, Slice* sub) noexcept nogil:
    # "NAME, operand N[ {INDEX}]" up to the newline, which is returned.
    p = name(p, word)
    if p == NULL or not starts(p, end, b", operand ", 10):
        return NULL
    p = integer(p + 10, operand)
    return after_name(p, sub) if p != NULL else NULL
