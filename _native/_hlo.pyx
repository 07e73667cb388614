"""The header of the HLO text: module name, aliases and donors, stack-frame tables. The body is not read."""

from libc.stdint cimport int64_t
from libc.string cimport memcmp, memset

from buffer cimport NO_CODE, NO_INT, Buffer, n_columns, push, push_code, release, release_columns
from cursor cimport BLANK, CLASS, COMMA, DIGIT, IN_NAME, balanced, integer, line_end, quoted_end, starts
from escape cimport unescape
from fault cimport NOT_UTF8, UNKNOWN_LINE, W_ALIAS, W_FRAME, W_LINE, W_UTF8, fault
from gaps cimport NO_ROW, Gaps, add_gap, clear_gaps, number_element, push_gaps, seek, seek_text
from interner cimport Interner, intern, intern_name
from text cimport Slice, TextColumn, end_text, push_utf8
from xlamem._column cimport Names, own, own_text

GAP_TABLES = ("aliases",)

cdef enum:
    T_NONE
    T_FILES
    T_FUNCTIONS
    T_LOCATIONS
    T_FRAMES

cdef struct Columns:
    Buffer output_index
    Buffer parameter
    Buffer parameter_index
    Buffer kind
    Buffer file_id
    TextColumn file
    Buffer function_id
    TextColumn function
    Buffer locations                              # 7 x int64: id, file, function, line, column, end_line, end_column
    Buffer frames                                 # 3 x int64: id, location, parent as printed
    Buffer gaps
    Buffer faults

cdef struct Scan:
    const char* base
    Columns columns
    Interner* indices
    Interner* kinds
    Buffer unescaped                              # scratch memory
    Slice name
    bint has_tables                               # the title of a stack-frame table was read
    bint complete                                 # the first computation was reached


cdef const char* shape_index(const char* p, const char* end, Slice* out) noexcept nogil:
    # "{0, 1}" or "{0,1}"
    cdef const char* q = p + 1
    if p >= end or p[0] != c'{':
        return NULL
    while q < end and (CLASS[<unsigned char> q[0]] & DIGIT or q[0] == c',' or q[0] == c' ' or q[0] == c'-'):
        q += 1
    if q >= end or q[0] != c'}':
        return NULL
    out.p = p
    out.n = q + 1 - p
    return q + 1


cdef const char* index_element(const char* p, const char* end, void* out) noexcept nogil:
    return shape_index(p, end, <Slice*> out)


cdef const char* target(Scan* s, const char* p, const char* end, const Slice* output, Gaps* gaps) noexcept nogil:
    # "(0, {}, may-alias)" or "(0, {})" with gaps.
    cdef int64_t number
    cdef Slice index
    cdef const char* q
    cdef const char* close
    cdef Columns* columns = &s.columns
    cdef bint invalid = False
    if p >= end or p[0] != c'(':
        return NULL
    close = balanced(p + 1, end, 0)
    if close >= end or close[0] != c')':
        return NULL
    p = seek(number_element, p + 1, close, &number, gaps)
    if p != NULL:
        p = seek_text(b", ", 2, p, close, gaps)
    if p != NULL:
        p = seek(index_element, p, close, &index, gaps)
    if p == NULL:
        return NULL
    q = p
    if starts(p, close, b", ", 2):
        q = p + 2
        while q < close and CLASS[<unsigned char> q[0]] & IN_NAME:
            q += 1
        if q < close and q[0] != c',':            # more than a word: no kind
            q = p
    push_gaps(&columns.gaps, gaps, s.base, 0, columns.parameter.size // 8)
    clear_gaps(gaps)
    add_gap(gaps, q, close)
    push_gaps(&columns.gaps, gaps, s.base, 0, columns.parameter.size // 8)
    push_code(&columns.output_index, intern(s.indices, output.p, output.n, &invalid) if output.p != NULL else NO_CODE)
    push(&columns.parameter, number)
    push_code(&columns.parameter_index, intern(s.indices, index.p, index.n, &invalid))
    if output.p == NULL:
        push_code(&columns.kind, intern_name(s.kinds, b"donor", 5))
    else:
        push_code(&columns.kind, intern_name(s.kinds, p + 2, q - p - 2) if q > p + 2 else NO_CODE)
    return close + 1


cdef bint entries(Scan* s, const char* p, const char* end, bint donors) noexcept nogil:
    # The entries between the braces of input_output_alias={…} or buffer_donor={…}.
    cdef Slice output
    cdef Gaps gaps
    while True:
        clear_gaps(&gaps)
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
        p = target(s, p, end, &output, &gaps)
        if p == NULL:
            return False


cdef void module_line(Scan* s, const char* p, const char* e) noexcept nogil:
    # "HloModule NAME[, key=value]…"
    cdef const char* key
    cdef const char* value
    cdef const char* q
    p += 10
    s.name.p = p
    while p < e and p[0] != c',' and p[0] != c' ':
        p += 1
    s.name.n = p - s.name.p
    while p < e:
        while p < e and (p[0] == c' ' or p[0] == c','):
            p += 1
        key = p
        while p < e and p[0] != c'=' and p[0] != c',':
            p += 1
        if p >= e or p[0] == c',':
            continue
        value = p + 1
        q = balanced(value, e, COMMA)
        while q < e and q[0] != c',':
            q = balanced(q + 1, e, COMMA)
        if q - value >= 2 and value[0] == c'{' and (
            (p - key == 18 and memcmp(key, b"input_output_alias", 18) == 0)
            or (p - key == 12 and memcmp(key, b"buffer_donor", 12) == 0)
        ):
            if not entries(s, value + 1, q - 1, key[0] == c'b'):
                fault(&s.columns.faults, UNKNOWN_LINE, key - s.base, W_ALIAS)
        p = q


cdef bint quoted_row(Scan* s, const char* p, const char* e, Buffer* ids, TextColumn* texts) noexcept nogil:
    # 'N "escaped"' with gaps.
    cdef int64_t id
    cdef const char* line = p
    cdef const char* q
    cdef Gaps gaps
    clear_gaps(&gaps)
    p = integer(p, &id)
    if p == NULL or p[0] != c' ':
        return False
    p = seek_text(b" \"", 2, p, e, &gaps)
    if p == NULL:
        return False
    q = quoted_end(p - 1, e)
    if q > e:
        return False
    add_gap(&gaps, q, e)
    push_gaps(&s.columns.gaps, &gaps, s.base, NO_ROW, 0)
    push(ids, id)
    unescape(&s.unescaped, p, q - 1)
    if not push_utf8(&texts.bytes, s.unescaped.data, s.unescaped.size):
        fault(&s.columns.faults, NOT_UTF8, line - s.base, W_UTF8)
    end_text(texts, True)
    return True


cdef inline bint is_key(const char* key, size_t n, const char* text, size_t m) noexcept nogil:
    return n == m and memcmp(key, text, m) == 0


cdef int frame_field(const char* key, size_t n) noexcept nogil:
    # Number of the field in `frames`, 0: unknown.
    if is_key(key, n, b"file_location_id", 16):
        return 1
    return 2 if is_key(key, n, b"parent_frame_id", 15) else 0


cdef int location_field(const char* key, size_t n) noexcept nogil:
    # Number of the field in `locations`, 0: unknown.
    if is_key(key, n, b"file_name_id", 12):
        return 1
    if is_key(key, n, b"function_name_id", 16):
        return 2
    if is_key(key, n, b"line", 4):
        return 3
    if is_key(key, n, b"column", 6):
        return 4
    if is_key(key, n, b"end_line", 8):
        return 5
    return 6 if is_key(key, n, b"end_column", 10) else 0


cdef bint braced_row(Scan* s, const char* p, const char* e, Buffer* ids, bint frame) noexcept nogil:
    # "N {key=1 key=2 …}"; unknown keys are gaps.
    cdef int64_t id, x
    cdef int64_t[7] fields
    cdef const char* key
    cdef const char* begin
    cdef const char* q
    cdef size_t n
    cdef int i, field
    cdef Gaps gaps
    clear_gaps(&gaps)
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
        q = number_element(p + 1, e, &x) if p < e and p[0] == c'=' else NULL
        field = 0 if q == NULL else frame_field(key, n) if frame else location_field(key, n)
        if field and fields[field] == NO_INT and q < e and (q[0] == c' ' or q[0] == c'}'):
            fields[field] = x
            p = q
        else:
            p = balanced(p, e, BLANK)
            while p < e and p[0] != c' ' and p[0] != c'}':
                p = balanced(p + 1, e, BLANK)
            if key == begin and p < e and p[0] == c' ':
                begin = p + 1
                add_gap(&gaps, key, begin)
            else:
                add_gap(&gaps, key if key == begin else key - 1, p)
        if p < e and p[0] == c' ':
            p += 1
    if p >= e:
        return False
    add_gap(&gaps, p + 1, e)
    if gaps.overflow:
        return False
    push_gaps(&s.columns.gaps, &gaps, s.base, NO_ROW, 0)
    for i in range(3 if frame else 7):
        push(ids, fields[i])
    return True


cdef bint begins_computation(const char* p, const char* e) noexcept nogil:
    # "%NAME … {", "NAME … {" or "ENTRY … {"
    return e > p + 1 and e[-1] == c'{' and (
        p[0] == c'%' or (CLASS[<unsigned char> p[0]] & (IN_NAME | DIGIT) == IN_NAME and p[0] != c'-' and p[0] != c'.'))


cdef void scan_header(Scan* s, const char* p, const char* end) noexcept nogil:
    cdef Columns* columns = &s.columns
    cdef const char* e
    cdef int table = T_NONE
    cdef bint good
    while p < end:
        e = line_end(p, end)
        if starts(p, e, b"HloModule ", 10) and s.name.p == NULL:
            module_line(s, p, e)
        elif begins_computation(p, e):
            s.complete = True
            break
        elif e == p:
            table = T_NONE
        elif e - p == 9 and memcmp(p, b"FileNames", 9) == 0:
            table = T_FILES
            s.has_tables = True
        elif e - p == 13 and memcmp(p, b"FunctionNames", 13) == 0:
            table = T_FUNCTIONS
            s.has_tables = True
        elif e - p == 13 and memcmp(p, b"FileLocations", 13) == 0:
            table = T_LOCATIONS
            s.has_tables = True
        elif e - p == 11 and memcmp(p, b"StackFrames", 11) == 0:
            table = T_FRAMES
            s.has_tables = True
        elif table != T_NONE:
            if table == T_FILES:
                good = quoted_row(s, p, e, &columns.file_id, &columns.file)
            elif table == T_FUNCTIONS:
                good = quoted_row(s, p, e, &columns.function_id, &columns.function)
            else:
                good = braced_row(
                    s, p, e, &columns.locations if table == T_LOCATIONS else &columns.frames, table == T_FRAMES)
            if not good:
                fault(&columns.faults, UNKNOWN_LINE, p - s.base, W_FRAME)
        else:
            fault(&columns.faults, UNKNOWN_LINE, p - s.base, W_LINE)
        p = e + 1


def scan(const unsigned char[::1] data not None, Py_ssize_t end, Names indices not None, Names kinds not None):
    """Read the header of an HLO text, data[:end], whole lines, up to the first computation.

    Returns a dict: the module's `name` (bytes or None), Columns of the `aliases`, of the four stack-frame tables, of
    gaps and faults, and whether there are stack-frame `tables` and the header is `complete`.
    """
    cdef Scan s
    cdef Columns* columns = &s.columns
    memset(&s, 0, sizeof(Scan))
    s.indices, s.kinds = &indices.interner, &kinds.interner
    if end > 0:
        if end > data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie within the data and end in a newline")
        s.base = <const char*> &data[0]
        with nogil:
            scan_header(&s, s.base, s.base + end)
            columns.faults.failed |= s.unescaped.failed
            release(&s.unescaped)
    try:
        indices.require_memory()
        kinds.require_memory()
        return {
            "name": s.name.p[:s.name.n] if s.name.n else None,
            "aliases": {
                "output_index": own(&columns.output_index), "parameter": own(&columns.parameter),
                "parameter_index": own(&columns.parameter_index), "kind": own(&columns.kind),
            },
            "files": (own(&columns.file_id), own_text(&columns.file)),
            "functions": (own(&columns.function_id), own_text(&columns.function)),
            "locations": own(&columns.locations),
            "frames": own(&columns.frames),
            "gap": own(&columns.gaps),
            "faults": own(&columns.faults),
            "tables": bool(s.has_tables),
            "complete": bool(s.complete),
        }
    finally:
        release_columns(<Buffer*> columns, n_columns(columns[0]))
