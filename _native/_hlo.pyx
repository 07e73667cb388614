"""The head of the HLO text: module name, aliases and donors, stack-frame tables. The rest is not read."""

from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp, memset

from buffer cimport NO_CODE, NO_INT, Buf, drop, push, push_code
from interner cimport Pool, intern, intern_name
from text cimport Part, Text, push_utf8, text_end
from cursor cimport BLANK, CLASS, IN_NAME, balanced, integer, line_end, quoted_end, starts
from escape cimport unescape
from fault cimport NOT_UTF8, UNKNOWN_LINE, W_ALIAS, W_FRAME, W_LINE, W_UTF8, fault
from gaps cimport NO_ROW, Gaps, gap, number_element, push_gaps, seek, seek_text
from xlamem._column cimport Names, own, own_text

GAP_TABLES = ("aliases",)

cdef enum:
    T_NONE
    T_FILES
    T_FUNCTIONS
    T_LOCATIONS
    T_FRAMES

cdef struct Out:
    Buf output_index
    Buf parameter
    Buf parameter_index
    Buf kind
    Buf file_id
    Text file
    Buf function_id
    Text function
    Buf locations              # int64: id, file, function, line, column, end_line, end_column
    Buf frames                 # int64: id, location, parent as printed
    Buf gaps
    Buf faults
    Buf scratch
    int64_t name_begin
    int64_t name_end
    bint tables                # the title of a stack-frame table was seen
    bint complete              # the first computation was reached


cdef const char* shape_index(const char* p, const char* end, Part* out) noexcept nogil:
    # "{0, 1}" or "{0,1}"
    cdef const char* q
    if p >= end or p[0] != c'{':
        return NULL
    q = <const char*> memchr(p, c'}', end - p)
    if q == NULL:
        return NULL
    out.p = p
    out.n = q + 1 - p
    return q + 1


cdef const char* index_element(const char* p, const char* end, void* out) noexcept nogil:
    return shape_index(p, end, <Part*> out)


cdef const char* target(
    const char* base, const char* p, const char* end, Out* out, Pool* indices, Pool* kinds, Part* output, Gaps* gaps
) noexcept nogil:
    # "(0, {}, may-alias)" or "(0, {})" with gaps.
    cdef int64_t number
    cdef Part sub
    cdef const char* q
    cdef const char* close
    cdef bint bad = False
    if p >= end or p[0] != c'(':
        return NULL
    close = balanced(p + 1, end, 0)
    if close >= end or close[0] != c')':
        return NULL
    p = seek(number_element, p + 1, close, &number, gaps)
    if p != NULL:
        p = seek_text(b", ", 2, p, close, gaps)
    if p != NULL:
        p = seek(index_element, p, close, &sub, gaps)
    if p == NULL:
        return NULL
    q = p
    if starts(p, close, b", ", 2):
        q = p + 2
        while q < close and CLASS[<unsigned char> q[0]] & IN_NAME:
            q += 1
        if q < close and q[0] != c',':            # no word alone: no kind
            q = p
    push_gaps(&out.gaps, gaps, base, 0, out.parameter.size // 8)
    gaps.n = 0
    gap(gaps, q, close)
    push_gaps(&out.gaps, gaps, base, 0, out.parameter.size // 8)
    push_code(&out.output_index, intern(indices, output.p, output.n, &bad) if output.p != NULL else NO_CODE)
    push(&out.parameter, number)
    push_code(&out.parameter_index, intern(indices, sub.p, sub.n, &bad))
    if output.p == NULL:
        push_code(&out.kind, intern_name(kinds, b"donor", 5))
    else:
        push_code(&out.kind, intern_name(kinds, p + 2, q - p - 2) if q > p + 2 else NO_CODE)
    return close + 1


cdef bint entries(
    const char* base, const char* p, const char* end, Out* out, Pool* indices, Pool* kinds, bint donors
) noexcept nogil:
    # What stands between the braces of input_output_alias={…} or buffer_donor={…}.
    cdef Part output
    cdef Gaps gaps
    while True:
        gaps.n = 0
        gaps.full = False
        while p < end and (p[0] == c' ' or p[0] == c','):
            p += 1
        if p >= end:
            return True
        output.p = NULL
        output.n = 0
        if not donors:
            p = seek(index_element, p, end, &output, &gaps)
            if p != NULL:
                p = seek_text(b": ", 2, p, end, &gaps)
            if p != NULL:
                p = seek_text(b"(", 1, p, end, &gaps)
            if p == NULL:
                return False
            p -= 1
        p = target(base, p, end, out, indices, kinds, &output, &gaps)
        if p == NULL:
            return False


cdef void module_line(const char* base, const char* p, const char* e, Out* out, Pool* indices, Pool* kinds) noexcept nogil:
    # "HloModule NAME[, key=value]…"
    cdef const char* key
    cdef const char* value
    cdef const char* q
    p += 10
    out.name_begin = p - base
    while p < e and p[0] != c',' and p[0] != c' ':
        p += 1
    out.name_end = p - base
    while p < e:
        while p < e and (p[0] == c' ' or p[0] == c','):
            p += 1
        key = p
        while p < e and p[0] != c'=' and p[0] != c',':
            p += 1
        if p >= e or p[0] == c',':
            continue
        value = p + 1
        q = balanced(value, e, 64)
        while q < e and q[0] != c',':
            q = balanced(q + 1, e, 64)
        if q - value >= 2 and value[0] == c'{' and (
            (p - key == 18 and memcmp(key, b"input_output_alias", 18) == 0)
            or (p - key == 12 and memcmp(key, b"buffer_donor", 12) == 0)
        ):
            if not entries(base, value + 1, q - 1, out, indices, kinds, key[0] == c'b'):
                fault(&out.faults, UNKNOWN_LINE, key - base, W_ALIAS)
        p = q


cdef bint quoted_row(const char* base, const char* p, const char* e, Buf* ids, Text* texts, Out* out) noexcept nogil:
    # N "escaped", with gaps
    cdef int64_t id
    cdef const char* line = p
    cdef const char* q
    cdef Gaps gaps
    gaps.n = 0
    gaps.full = False
    p = integer(p, &id)
    if p == NULL or p[0] != c' ':
        return False
    p = seek_text(b" \"", 2, p, e, &gaps)
    if p == NULL:
        return False
    q = quoted_end(p - 1, e)
    if q > e:
        return False
    gap(&gaps, q, e)
    push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
    push(ids, id)
    unescape(&out.scratch, p, q - 1)
    if not push_utf8(&texts.bytes, out.scratch.data, out.scratch.size):
        fault(&out.faults, NOT_UTF8, line - base, W_UTF8)
    text_end(texts, True)
    return True


cdef bint braced_row(const char* base, const char* p, const char* e, Buf* ids, Out* out, bint frame) noexcept nogil:
    # N {key=1 key=2 …}; keys that are not known are gaps.
    cdef int64_t id, x
    cdef int64_t[7] fields
    cdef const char* key
    cdef const char* begin
    cdef const char* q
    cdef size_t n
    cdef int i, slot
    cdef Gaps gaps
    gaps.n = 0
    gaps.full = False
    p = integer(p, &id)
    if p == NULL or p[0] != c' ':
        return False
    p = seek_text(b" {", 2, p, e, &gaps)
    if p == NULL:
        return False
    for i in range(7):
        fields[i] = NO_INT
    fields[0] = id
    begin = p
    while p < e and p[0] != c'}':
        key = p
        while p < e and p[0] != c'=' and p[0] != c' ' and p[0] != c'}':
            p += 1
        n = p - key
        slot = 0
        q = number_element(p + 1, e, &x) if p < e and p[0] == c'=' else NULL
        if q == NULL or frame:
            slot = 0 if q == NULL else 1 if is_key(key, n, b"file_location_id", 16) else 2 if is_key(
                key, n, b"parent_frame_id", 15) else 0
        else:
            slot = (1 if is_key(key, n, b"file_name_id", 12) else 2 if is_key(key, n, b"function_name_id", 16) else
                    3 if is_key(key, n, b"line", 4) else 4 if is_key(key, n, b"column", 6) else
                    5 if is_key(key, n, b"end_line", 8) else 6 if is_key(key, n, b"end_column", 10) else 0)
        if slot and fields[slot] == NO_INT:
            fields[slot] = x
            p = q
        else:
            p = balanced(p, e, BLANK)
            gap(&gaps, key if key == begin else key - 1, p)
        if p < e and p[0] == c' ':
            p += 1
    if p >= e:
        return False
    gap(&gaps, p + 1, e)
    push_gaps(&out.gaps, &gaps, base, NO_ROW, 0)
    for i in range(3 if frame else 7):
        push(ids, fields[i])
    return True


cdef inline bint is_key(const char* key, size_t n, const char* text, size_t m) noexcept nogil:
    return n == m and memcmp(key, text, m) == 0


cdef void scan_nogil(const char* base, const char* p, const char* end, Out* out, Pool* indices, Pool* kinds) noexcept nogil:
    cdef const char* e
    cdef int table = T_NONE
    cdef bint good
    while p < end:
        e = line_end(p, end)
        if starts(p, e, b"HloModule ", 10):
            module_line(base, p, e, out, indices, kinds)
        elif e == p:
            table = T_NONE
        elif e - p == 9 and memcmp(p, b"FileNames", 9) == 0:
            table = T_FILES
            out.tables = True
        elif e - p == 13 and memcmp(p, b"FunctionNames", 13) == 0:
            table = T_FUNCTIONS
            out.tables = True
        elif e - p == 13 and memcmp(p, b"FileLocations", 13) == 0:
            table = T_LOCATIONS
            out.tables = True
        elif e - p == 11 and memcmp(p, b"StackFrames", 11) == 0:
            table = T_FRAMES
            out.tables = True
        elif table != T_NONE:
            if table == T_FILES:
                good = quoted_row(base, p, e, &out.file_id, &out.file, out)
            elif table == T_FUNCTIONS:
                good = quoted_row(base, p, e, &out.function_id, &out.function, out)
            else:
                good = braced_row(base, p, e, &out.locations if table == T_LOCATIONS else &out.frames, out,
                                  table == T_FRAMES)
            if not good:
                fault(&out.faults, UNKNOWN_LINE, p - base, W_FRAME)
        elif e[-1] == c'{':
            out.complete = True
            break
        else:
            fault(&out.faults, UNKNOWN_LINE, p - base, W_LINE)
        p = e + 1


def scan(const unsigned char[::1] data not None, Py_ssize_t end, Names indices not None, Names kinds not None):
    """Read the head of an HLO text, data[:end], whole lines, up to the first computation.

    Returns a dict: module name as bytes (or None), `aliases` Columns, the four tables as Columns, faults,
    and whether the first computation was reached.
    """
    cdef Out out
    cdef const char* base
    memset(&out, 0, sizeof(Out))
    if end > 0:
        if end > data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie in the data and end in a newline")
        base = <const char*> &data[0]
        with nogil:
            scan_nogil(base, base, base + end, &out, &indices.pool, &kinds.pool)
            drop(&out.scratch)
    return {
        "name": bytes(data[out.name_begin:out.name_end]) if out.name_end > out.name_begin else None,
        "aliases": {
            "output_index": own(&out.output_index), "parameter": own(&out.parameter),
            "parameter_index": own(&out.parameter_index), "kind": own(&out.kind),
        },
        "files": (own(&out.file_id), own_text(&out.file)),
        "functions": (own(&out.function_id), own_text(&out.function)),
        "locations": own(&out.locations),
        "frames": own(&out.frames),
        "gap": own(&out.gaps),
        "faults": own(&out.faults),
        "tables": bool(out.tables),
        "complete": bool(out.complete),
    }
