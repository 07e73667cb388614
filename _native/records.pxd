# Records: their headers, and a row for each.

from libc.stdint cimport int64_t
from libc.string cimport memchr

from buffer cimport Buffer, put, put_byte, put_code, reserve_rows
from cursor cimport ShortValue, line_end, short_value
from gaps cimport Gaps, add_gap, clear_gaps, gapped_short, starts_with_words
from lookahead cimport index_code, push_name
from uses cimport ROWS, UseWriter

cdef struct Records:
    # For the check against the table `values`, and used instead of it if it is missing.
    Buffer value_id
    Buffer instruction
    Buffer index
    Buffer phi
    Buffer color
    Buffer uses_known
    Buffer offset


cdef inline bint put_record(
    UseWriter* writer, Records* columns, int* free_rows, const ShortValue* header, int64_t offset
) noexcept nogil:
    # False: no memory.
    if free_rows[0] == 0:
        if not reserve_rows(columns, ROWS):
            return False
        free_rows[0] = ROWS
    free_rows[0] -= 1
    put(&columns.value_id, header.id)
    push_name(&writer.names, &columns.instruction, header.name.p, header.name.n)
    put_code(&columns.index, index_code(&writer.indices, &header.index))
    put_byte(&columns.phi, header.phi)
    put(&columns.color, header.color)
    put_byte(&columns.uses_known, True)
    put(&columns.offset, offset)
    return True


cdef inline void truncate_records(Records* columns, size_t rows) noexcept nogil:
    columns.value_id.size = columns.color.size = columns.offset.size = rows * 8
    columns.instruction.size = columns.index.size = rows * 4
    columns.phi.size = columns.uses_known.size = rows


cdef inline const char* header_line(const char* p, const char* end, ShortValue* header, Gaps* gaps) noexcept nogil:
    # "<ID NAME@…>", perhaps with gaps, up to the newline, which is returned; NULL if the form differs.
    cdef const char* e = short_value(p, end, header)
    cdef const char* q
    clear_gaps(gaps)
    if e == NULL or e[0] != c'\n':
        e = line_end(p, end)
        q = gapped_short(p, e, header, gaps)
        add_gap(gaps, q, e)
        if q == NULL or gaps.overflow:
            return NULL
    return e


cdef inline bint led_header_line(const char* p, const char* e, ShortValue* header, Gaps* gaps) noexcept nogil:
    # A header after a gap that is a field. Only a header is followed by positions.
    cdef const char* q = <const char*> memchr(p, c'<', e - p)
    clear_gaps(gaps)
    if q == NULL:
        return False
    add_gap(gaps, p, q)
    q = gapped_short(q, e, header, gaps)
    add_gap(gaps, q, e)
    return q != NULL and not gaps.overflow and not starts_with_words(gaps, p)
