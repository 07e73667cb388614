"""The section Used values: positions, uses and the instructions that define them."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memmove, memset

from buffer cimport (
    PRESIZE_MIN_SPAN, SAMPLE_FRACTION, SAMPLES, Buffer, find_line, n_columns, prefetch_ahead, presize, push, push_byte,
    release, release_columns, sample_start,
)
from cursor cimport CLASS, IN_NAME, ShortValue, after_name, line_end, position, starts, use
from fault cimport (
    UNKNOWN_LINE, W_LINE, W_POSITION, W_RECORD, W_RECORD_BEFORE, W_RECORD_REST, W_USE, fault,
)
from gaps cimport (
    NO_ROW, Gaps, Label, Use, add_gap, clear_gaps, gapped_head, gapped_position, gapped_use, push_gaps, seek_text,
)
from instruction cimport (
    HAS_END_LINE, HAS_FRAME, HAS_SHAPES, I_INDEX, I_NAME, N_INTERNERS, Instructions, InternerP,
)
from instruction_lines cimport (
    HAS_BLANK, HAS_GLUE, HAS_TEXT, WAITING_LINES, InstructionTable, LineReader, TextSpans, begin_lines,
    instruction_line, take_lines,
)
from interner cimport Interner, presize_interner, release_interner
from lookahead cimport init_index_codes, init_queue
from records cimport Records, header_line, led_header_line, put_record, truncate_records
from text cimport Slice, TextColumn, equal, push_text
from uses cimport Positions, UseWriter, Uses, put_position, put_use, truncate_positions, truncate_uses
from xlamem._column cimport Names, own, own_text

# Bits of `features`, beside those of instruction.pxd and instruction_lines.pxd.
cdef enum:
    HAS_NONE = 8
    HAS_UNKNOWN = 16

FEATURES = {
    HAS_TEXT: "from_instruction", HAS_BLANK: "from_instruction_blank", HAS_GLUE: "glued", HAS_NONE: "uses_none",
    HAS_UNKNOWN: "uses_unknown", HAS_SHAPES: "operand_shapes",
}
TREE_BITS = HAS_FRAME | HAS_END_LINE

# Tables whose rows may have gaps.
cdef enum:
    G_POSITIONS
    G_USES

GAP_TABLES = ("positions", "uses")

# The interners that `scan` takes, in the order of instruction.pxd.
POOLS = (
    "instruction", "shape_index", "shape", "opcode", "op_type", "op_name", "source_file", "custom_call_target",
    "fusion_kind",
)

cdef enum:
    SAMPLE_STRIDE = 5                             # spreads the first samples over the span: 0, 5, 10, 3, 8, …
    MAX_SAMPLE_FRACTION = 64
    RECORD_LINES = 7                              # cache lines of a record of usual length

cdef struct Columns:
    Records records
    Positions positions
    Uses uses
    InstructionTable instructions
    Buffer gaps
    Buffer faults

cdef struct Scan:
    const char* base
    Columns columns
    InternerP* interners
    UseWriter writer
    LineReader lines
    int free_records                              # rows reserved
    int features
    int64_t open                                  # offset of the last record if the end truncates it, else -1

cdef struct Record:
    # The record being read: its header, and the length of the columns when it began.
    ShortValue header
    int64_t offset
    int64_t ordinal                               # of the next position or use
    size_t records
    size_t positions
    size_t uses
    size_t gaps
    size_t header_gaps                            # the end of the gaps of its header

cdef enum Stage:
    NONE                                          # before the first record, or after an unknown header
    HEADER
    POSITIONS
    USES
    DONE


cdef bint begin_record(Scan* s, Record* record, const ShortValue* header, const char* p) noexcept nogil:
    # False: no memory.
    cdef Columns* columns = &s.columns
    record.header = header[0]
    record.offset = p - s.base
    record.records = columns.records.phi.size
    record.positions = columns.positions.index.size // 4
    record.uses = columns.uses.index.size // 4
    record.gaps = record.header_gaps = columns.gaps.size
    return put_record(&s.writer, &columns.records, &s.free_records, header, record.offset)


cdef void remove_rows(Columns* columns, const Record* record) noexcept nogil:
    # Remove the rows of a truncated record. Its gaps are those of lines without a row.
    cdef int64_t* gaps = <int64_t*> columns.gaps.data
    cdef size_t i
    truncate_records(&columns.records, record.records)
    truncate_positions(&columns.positions, record.positions)
    truncate_uses(&columns.uses, record.uses)
    for i in range(record.header_gaps // 8, columns.gaps.size // 8, 4):
        gaps[i] = NO_ROW
        gaps[i + 1] = 0
    if record.header_gaps > record.gaps:
        memmove(columns.gaps.data + record.gaps, columns.gaps.data + record.header_gaps,
                columns.gaps.size - record.header_gaps)
        columns.gaps.size -= record.header_gaps - record.gaps


cdef inline void push_header_gaps(Scan* s, Record* record, const Gaps* gaps) noexcept nogil:
    # If the record is truncated, the line of its header is unknown as a whole.
    if gaps.n:
        push_gaps(&s.columns.gaps, gaps, s.base, NO_ROW, 0)
        record.header_gaps = s.columns.gaps.size


cdef inline bint is_name(const char* p, const char* end, const Slice* word) noexcept nogil:
    # Whether this name is at p.
    return word.n < <size_t> (end - p) and equal(p, word.p, word.n) and CLASS[<uint8_t> p[word.n]] & IN_NAME == 0


cdef const char* position_lines(Scan* s, Record* record, const char* p, const char* end) noexcept nogil:
    # The lines "  NAME[ {INDEX}]" from p on. Returns the first line of another form.
    cdef const char* e
    cdef Slice word, index
    cdef bint same
    while p < end and p[0] == c' ' and p[1] == c' ':
        # The first position nearly always has the name of the record's header.
        same = record.ordinal == 0 and is_name(p + 2, end, &record.header.name)
        if same:
            word = record.header.name
            e = after_name(p + 2 + word.n, &index)
        else:
            e = position(p + 2, &word, &index)
        if e == NULL or not put_position(
            &s.writer, &s.columns.positions, record.header.id, record.ordinal, &word, &index, same
        ):
            break
        record.ordinal += 1
        p = e + 1
    return p


cdef const char* use_lines(Scan* s, Record* record, const char* p, const char* end) noexcept nogil:
    # The same for "  NAME, operand N[ {INDEX}]".
    cdef const char* e
    cdef Use row
    while p < end and p[0] == c' ' and p[1] == c' ':
        e = use(p + 2, end, &row.word, &row.operand, &row.index)
        if e == NULL or not put_use(&s.writer, &s.columns.uses, record.header.id, record.ordinal, &row):
            break
        record.ordinal += 1
        p = e + 1
    return p


cdef bint gapped_row(Scan* s, Record* record, const char* p, const char* e, bint in_positions) noexcept nogil:
    # A line of the positions or uses with gaps; e is its newline. False if it has another form.
    cdef Gaps gaps
    cdef Label label
    cdef Use row
    cdef int64_t id = record.header.id
    cdef Columns* columns = &s.columns
    clear_gaps(&gaps)
    if in_positions:
        if not gapped_position(p + 2, e, &label, &gaps):
            return False
        push_gaps(&columns.gaps, &gaps, s.base, G_POSITIONS, columns.positions.value_id.size // 8)
        if not put_position(&s.writer, &columns.positions, id, record.ordinal, &label.word, &label.index, False):
            return False
    else:
        if not gapped_use(p + 2, e, &row, &gaps):
            return False
        push_gaps(&columns.gaps, &gaps, s.base, G_USES, columns.uses.value_id.size // 8)
        if not put_use(&s.writer, &columns.uses, id, record.ordinal, &row):
            return False
    record.ordinal += 1
    return True


cdef bint heading(Scan* s, const char* p, const char* e) noexcept nogil:
    # Whether the rest of a heading, after its words, is a colon with gaps.
    cdef Gaps gaps
    clear_gaps(&gaps)
    if not gapped_head(p, e, &gaps):
        return False
    push_gaps(&s.columns.gaps, &gaps, s.base, NO_ROW, 0)
    return True


cdef void push_gap(Scan* s, const char* p, const char* e) noexcept nogil:
    cdef Gaps gaps
    clear_gaps(&gaps)
    add_gap(&gaps, p, e)
    push_gaps(&s.columns.gaps, &gaps, s.base, NO_ROW, 0)


cdef void end_record(Scan* s, Record* record, Stage stage, bint want_instruction, bint at_end) noexcept nogil:
    # Remove the rows of the record if it is truncated.
    if stage == NONE:
        return
    if stage < USES or (at_end and want_instruction and stage != DONE):
        fault(&s.columns.faults, UNKNOWN_LINE, record.offset, W_RECORD_REST)
        remove_rows(&s.columns, record)
        if at_end:
            s.open = record.offset


cdef void init_scan(Scan* s, const char* base, InternerP* interners) noexcept nogil:
    memset(s, 0, sizeof(Scan))
    s.open = -1
    s.base = s.lines.base = base
    s.interners = s.lines.interners = interners
    s.lines.table = &s.columns.instructions
    s.lines.record_names = &s.columns.records.instruction
    s.lines.gaps = &s.columns.gaps
    s.lines.faults = &s.columns.faults
    s.lines.names = &s.writer.names
    s.lines.caches.shapes.long_prefix = True


cdef void scan_span(Scan* s, const char* p, const char* end, bint want_instruction) noexcept nogil:
    cdef Columns* columns = &s.columns
    cdef const char* e
    cdef const char* q
    cdef ShortValue header
    cdef Record record
    cdef Stage stage = NONE
    cdef Gaps gaps
    cdef bint uses_known = True
    cdef bint in_unknown_list = False
    s.free_records = s.writer.free_positions = s.writer.free_uses = 0
    init_queue(&s.writer.names, s.interners[I_NAME])
    init_index_codes(&s.writer.indices, s.interners[I_INDEX])
    begin_lines(&s.lines)
    while p < end:
        if p[0] == c'<':
            prefetch_ahead(p, RECORD_LINES)
            e = header_line(p, end, &header, &gaps)
            end_record(s, &record, stage, want_instruction, False)
            in_unknown_list = False
            if e != NULL:
                stage = HEADER
                uses_known = True
                if not begin_record(s, &record, &header, p):
                    return
                push_header_gaps(s, &record, &gaps)
            else:
                e = line_end(p, end)
                stage = NONE
                fault(&columns.faults, UNKNOWN_LINE, p - s.base, W_RECORD)
        elif stage == HEADER and starts(p, end, b" positions:\n", 12):
            stage = POSITIONS
            in_unknown_list = False
            record.ordinal = 0
            p = position_lines(s, &record, p + 12, end)
            continue
        elif stage == POSITIONS and starts(p, end, b" uses:\n", 7):
            stage = USES
            in_unknown_list = False
            record.ordinal = 0
            p = use_lines(s, &record, p + 7, end)
            continue
        elif stage == USES and starts(p, end, b" from instruction:", 18):
            stage = DONE
            if s.lines.n_waiting == WAITING_LINES:
                take_lines(&s.lines)
            p = instruction_line(&s.lines, p, p + 18, end, &record.header.name)
            continue
        elif p[0] == c' ' and p[1] == c' ':
            e = line_end(p + 2, end)
            if (
                stage == USES and uses_known and not in_unknown_list and record.ordinal == 0
                and starts(p, end, b"  (none)", 8)
            ):
                push_gap(s, p + 8, e)
                s.features |= HAS_NONE
                uses_known = False                # no line of a use follows
            elif in_unknown_list or not (stage == POSITIONS or (stage == USES and uses_known)) or not gapped_row(
                s, &record, p, e, stage == POSITIONS
            ):
                fault(&columns.faults, UNKNOWN_LINE, p - s.base,
                      W_POSITION if stage == POSITIONS else W_USE if stage == USES else W_LINE)
            if stage == POSITIONS and not in_unknown_list:
                p = position_lines(s, &record, e + 1, end)
                continue
            if stage == USES and uses_known and not in_unknown_list:
                p = use_lines(s, &record, e + 1, end)
                continue
        elif stage == POSITIONS and starts(p, end, b" uses are not initialized yet.", 30):
            e = line_end(p + 30, end)
            push_gap(s, p + 30, e)
            stage = USES
            uses_known = False
            in_unknown_list = False
            s.features |= HAS_UNKNOWN
            if columns.records.uses_known.size:
                columns.records.uses_known.data[columns.records.uses_known.size - 1] = 0
        else:
            e = line_end(p, end)
            if stage == HEADER and starts(p, end, b" positions", 10) and heading(s, p + 10, e):
                stage = POSITIONS
                in_unknown_list = False
                record.ordinal = 0
                p = position_lines(s, &record, e + 1, end)
                continue
            if stage == POSITIONS and starts(p, end, b" uses", 5) and heading(s, p + 5, e):
                stage = USES
                in_unknown_list = False
                record.ordinal = 0
                p = use_lines(s, &record, e + 1, end)
                continue
            if stage == USES and starts(p, end, b" from instruction", 17) and p[17] == c' ':
                clear_gaps(&gaps)
                q = seek_text(b":", 1, p + 17, e, &gaps)
                if q != NULL:
                    push_gaps(&columns.gaps, &gaps, s.base, NO_ROW, 0)
                    stage = DONE
                    if s.lines.n_waiting == WAITING_LINES:
                        take_lines(&s.lines)
                    p = instruction_line(&s.lines, p, q, end, &record.header.name)
                    continue
            if p[0] != c' ' and starts(e, end, b"\n positions", 11) and led_header_line(p, e, &header, &gaps):
                end_record(s, &record, stage, want_instruction, False)
                stage = HEADER
                uses_known = True
                in_unknown_list = False
                if not begin_record(s, &record, &header, p):
                    return
                push_header_gaps(s, &record, &gaps)
                p = e + 1
                continue
            # A line that ends in a colon is the heading of a list.
            in_unknown_list = in_unknown_list or (e > p and e[-1] == c':')
            # A span may begin after any complete record: the line is reported as it is before the first one.
            fault(&columns.faults, UNKNOWN_LINE, p - s.base,
                  W_RECORD_BEFORE if stage in (NONE, DONE) else W_RECORD_REST)
        p = e + 1
    take_lines(&s.lines)
    end_record(s, &record, stage, want_instruction, True)


cdef void presize_columns(Scan* s, const char* p, const char* end) noexcept nogil:
    # Size the columns and the interner of names from a few samples, scanned into temporary columns.
    cdef Scan sample
    cdef Interner[N_INTERNERS] scratch
    cdef InternerP[N_INTERNERS] interners
    cdef Columns* columns = &s.columns
    cdef Interner* names = s.interners[I_NAME]
    cdef const char* q
    cdef const char* stop
    cdef int i
    cdef size_t k, scanned = 0
    cdef double ratio
    memset(scratch, 0, sizeof(scratch))
    for i in range(N_INTERNERS):
        interners[i] = &scratch[i]
    init_scan(&sample, s.base, interners)
    for i in range(SAMPLES):
        q = sample_start(p, end, i * SAMPLE_STRIDE % SAMPLES, b"<", 1)
        stop = find_line(min(q + (end - p) // (SAMPLE_FRACTION * SAMPLES), end - 1), end, b"<", 1)
        if q < stop:
            scan_span(&sample, q, stop, False)
            scanned += stop - q
        if scanned > <size_t> (end - p) // MAX_SAMPLE_FRACTION:
            break                                 # records with the text of a long tuple: a few are enough
    if scanned:
        ratio = (end - p) / <double> scanned
        # One arena for each group of columns that is released at once: the first and the last are for the checks.
        presize(<Buffer*> &columns.records, n_columns(columns.records), <Buffer*> &sample.columns.records, ratio)
        presize(
            <Buffer*> &columns.positions,
            n_columns(columns.positions) + n_columns(columns.uses) + n_columns(columns.instructions.rows),
            <Buffer*> &sample.columns.positions, ratio,
        )
        presize(
            <Buffer*> &columns.instructions.spans,
            n_columns(columns[0]) - (<Buffer*> &columns.instructions.spans - <Buffer*> columns),
            <Buffer*> &sample.columns.instructions.spans, ratio,
        )
        presize_interner(names, &scratch[I_NAME], sample.columns.records.value_id.size // 8 * ratio, ratio)
    for k in range(n_columns(sample.columns)):
        release(<Buffer*> &sample.columns + k)
    release(&sample.lines.caches.unescaped)
    release(&sample.lines.crowd)
    for i in range(N_INTERNERS):
        release_interner(&scratch[i])


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, tuple pools not None,
         bint demand, bint last):
    """Tokenise data[begin:end], whole lines below `Used values:`, from one record's header to another's.

    `pools` holds one `Names` for each of POOLS. With `demand`, a last record without an instruction is
    truncated if the span is the `last` one. Returns (Columns per table, faults, bits of `features`, offset of the
    truncated record or -1). Integers are int64 (null: the least), codes int32 (null: -1), faults int64 triples.
    """
    cdef Scan s
    cdef InternerP[N_INTERNERS] interners
    cdef Columns* columns = &s.columns
    cdef int i
    cdef const char* base = NULL
    for i in range(N_INTERNERS):
        interners[i] = &(<Names?> pools[i]).interner
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie within the data and end in a newline")
        base = <const char*> &data[0]
    init_scan(&s, base, interners)
    if base != NULL:
        with nogil:
            if end - begin >= PRESIZE_MIN_SPAN:
                presize_columns(&s, base + begin, base + end)
            scan_span(&s, base + begin, base + end, demand and last)
            columns.faults.failed |= columns.instructions.row_of_name.failed | s.lines.caches.unescaped.failed
            release(&columns.instructions.row_of_name)
            release(&s.lines.crowd)
            release(&s.lines.caches.unescaped)
    try:
        for names in pools:
            (<Names> names).require_memory()
        return {
            "records": records_of(&columns.records),
            "positions": {
                "value_id": own(&columns.positions.value_id), "ordinal": own(&columns.positions.ordinal),
                "instruction": own(&columns.positions.instruction), "shape_index": own(&columns.positions.index),
            },
            "uses": {
                "value_id": own(&columns.uses.value_id), "ordinal": own(&columns.uses.ordinal),
                "instruction": own(&columns.uses.instruction), "operand": own(&columns.uses.operand),
                "operand_shape_index": own(&columns.uses.index),
            },
            "instructions": instructions_of(&columns.instructions.rows, &columns.instructions.spans),
            "gaps": {"gap": own(&columns.gaps)},
        }, own(&columns.faults), s.features | s.lines.features, s.open
    finally:
        release_columns(<Buffer*> columns, n_columns(columns[0]))


cdef object records_of(Records* records):
    return {
        "value_id": own(&records.value_id), "instruction": own(&records.instruction),
        "shape_index": own(&records.index), "is_phi": own(&records.phi), "color": own(&records.color),
        "uses_known": own(&records.uses_known), "offset": own(&records.offset),
    }


cdef object instructions_of(Instructions* rows, TextSpans* spans):
    return {
        "instruction": own(&rows.instruction), "shape": own(&rows.shape), "opcode": own(&rows.opcode),
        "operands": own_text(&rows.operands), "op_type": own(&rows.op_type), "op_name": own(&rows.op_name),
        "source_file": own(&rows.source_file), "source_line": own(&rows.source_line),
        "stack_frame_id": own(&rows.stack_frame_id), "custom_call_target": own(&rows.target),
        "fusion_kind": own(&rows.kind), "called_computations": own_text(&rows.called),
        "sharding": own_text(&rows.sharding), "backend_config": own_text(&rows.backend_config),
        "attributes": own_text(&rows.attributes), "text_begin": own(&spans.begin), "text_end": own(&spans.end),
        "before": own(&spans.previous),
    }


def texts(const unsigned char[::1] data not None, const long long[::1] begins not None,
          const long long[::1] ends not None):
    """Copy the texts data[begins[i]:ends[i]]: (bytes, int32 offsets, one byte per text: valid)."""
    cdef TextColumn out
    cdef Py_ssize_t i
    cdef const char* base = <const char*> &data[0] if data.shape[0] else NULL
    memset(&out, 0, sizeof(TextColumn))
    for i in range(begins.shape[0]):
        if not 0 <= begins[i] <= ends[i] <= data.shape[0]:
            raise ValueError("a text must lie within the data")
    with nogil:
        for i in range(begins.shape[0]):
            push_text(&out, base + begins[i], ends[i] - begins[i])
    return own_text(&out)


def line_starts(const unsigned char[::1] data not None, const long long[::1] offsets not None):
    """Return the beginning of the line that each offset is in (int64)."""
    cdef Buffer out
    cdef Py_ssize_t i
    cdef long long p
    memset(&out, 0, sizeof(Buffer))
    for i in range(offsets.shape[0]):
        if not 0 <= offsets[i] <= data.shape[0]:
            raise ValueError("an offset must lie within the data")
    with nogil:
        for i in range(offsets.shape[0]):
            p = offsets[i]
            while p > 0 and data[p - 1] != c'\n':
                p -= 1
            push(&out, p)
    return own(&out)


def same(const unsigned char[::1] data not None, const long long[::1] begins not None,
         const long long[::1] ends not None, const unsigned char[::1] others not None,
         const long long[::1] other_begins not None, const long long[::1] other_ends not None):
    """One byte per i: whether data[begins[i]:ends[i]] equals others[other_begins[i]:other_ends[i]]."""
    cdef Buffer out
    cdef Py_ssize_t i
    cdef long long n
    memset(&out, 0, sizeof(Buffer))
    for i in range(begins.shape[0]):
        if not (
            0 <= begins[i] <= ends[i] <= data.shape[0] and 0 <= other_begins[i] <= other_ends[i] <= others.shape[0]
        ):
            raise ValueError("a text must lie within the data")
    with nogil:
        for i in range(begins.shape[0]):
            n = ends[i] - begins[i]
            push_byte(&out, n == other_ends[i] - other_begins[i] and (
                n == 0 or memcmp(&data[begins[i]], &others[other_begins[i]], n) == 0))
    return own(&out)
