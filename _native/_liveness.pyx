"""The section HloLiveRange: schedule, live ranges, XLA's own peak list and its stack tree."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from buffer cimport (
    NO_CODE, NO_INT, NO_MEMORY, Buffer, allocate_zeroed, n_columns, prefetch_ahead, presize, presize_point, push,
    push_code, put, put_code, release, release_columns, reserve_rows,
)
from cursor cimport index, integer, line_end, name, starts
from fault cimport UNKNOWN_LINE, W_LINE, W_NODE, W_PEAK, W_RANGE, W_STEP, Wanted, fault
from gaps cimport (
    NO_ROW, Gaps, Label, add_gap, clear_gaps, gapped_head, indexed_element, name_element, number_element, push_gaps,
    seek, seek_text, starts_with_words,
)
from interner cimport Interner, hash_pair
from lookahead cimport (
    IndexCodes, NameQueue, flush_names, index_code, init_index_codes, init_queue, push_name,
)
from peak_list cimport HAS_PEAK_A, HAS_PEAK_B, HAS_PEAK_C, PeakList, PeakReader, gapped_peak_line, peak_line
from stack_tree cimport StackTree, TreeReader, spaced_bytes, tree_line
from xlamem._column cimport Names, own, own_text, own_two

# The lists of the section, each under a heading.
cdef enum:
    L_NONE
    L_SCHEDULE
    L_RANGES
    L_PEAK
    L_TREE
    L_OTHER                                       # an unknown list
    L_END                                         # after the last node of the tree

NONE, SCHEDULE, RANGES, PEAK, TREE = L_NONE, L_SCHEDULE, L_RANGES, L_PEAK, L_TREE

# Tables whose rows may have gaps.
cdef enum:
    G_SCHEDULE
    G_RANGES
    G_PEAK
    G_STACK

GAP_TABLES = ("schedule", "live_ranges", "printed_peak", "printed_stack")

# Bits of `features`, beside those of peak_list.pxd.
cdef enum:
    HAS_TREE = 8
    HAS_SPACED = 16

FEATURES = {
    HAS_PEAK_A: "peak_a", HAS_PEAK_B: "peak_b", HAS_PEAK_C: "peak_c", HAS_TREE: "tree", HAS_SPACED: "tree_spaced",
}

cdef struct Schedule:
    Buffer time
    Buffer instruction

cdef struct LiveRanges:
    Buffer instruction
    Buffer index
    Buffer start
    Buffer end

cdef struct Columns:
    Schedule schedule
    LiveRanges ranges
    PeakList peak
    StackTree stack
    Buffer gaps
    Buffer faults

cdef enum:
    ROWS = 64                                     # reserved at once

cdef struct Scan:
    const char* base
    Columns columns
    NameQueue names
    IndexCodes indices
    PeakReader peak
    TreeReader tree
    int free_steps                                # rows reserved
    int free_ranges
    int features
    int lists                                     # bit 1 << L_… for each heading
    int list                                      # the current list
    int64_t peak_time
    int64_t tree_total

cdef struct Step:
    int64_t time
    Label label

cdef struct LiveRange:
    Label label
    int64_t start
    int64_t end


cdef inline bint put_step(Scan* s, const Step* step) noexcept nogil:
    # False: no memory.
    cdef Schedule* columns = &s.columns.schedule
    if s.free_steps == 0:
        if not reserve_rows(columns, ROWS):
            return False
        s.free_steps = ROWS
    s.free_steps -= 1
    put(&columns.time, step.time)
    push_name(&s.names, &columns.instruction, step.label.word.p, step.label.word.n)
    return True


cdef const char* step_line(Scan* s, const char* p) noexcept nogil:
    # "STEP:NAME". Returns the newline, or NULL if the line has another form.
    cdef Step step
    p = integer(p, &step.time)
    if p == NULL or p[0] != c':':
        return NULL
    p = name(p + 1, &step.label.word)
    if p == NULL or p[0] != c'\n':
        return NULL
    return p if put_step(s, &step) else NULL


cdef const char* step_element(const char* p, const char* end, void* out) noexcept nogil:
    # "STEP:NAME"
    p = integer(p, &(<Step*> out).time)
    return name_element(p + 1, end, &(<Step*> out).label) if p != NULL and p[0] == c':' else NULL


cdef bint gapped_step_line(Scan* s, const char* p, const char* end) noexcept nogil:
    # The same with gaps.
    cdef Step step
    cdef Gaps gaps
    cdef const char* e
    clear_gaps(&gaps)
    e = number_element(p, end, &step.time)
    if e != NULL:
        e = seek_text(b":", 1, e, end, &gaps)
        if e != NULL:
            e = seek(name_element, e, end, &step.label, &gaps)
    else:
        e = seek(step_element, p, end, &step, &gaps)
    if e == NULL:
        return False
    add_gap(&gaps, e, end)
    if gaps.overflow or starts_with_words(&gaps, p):
        return False
    push_gaps(&s.columns.gaps, &gaps, s.base, G_SCHEDULE, s.columns.schedule.time.size // 8)
    return put_step(s, &step)


cdef inline bint put_range(Scan* s, const LiveRange* r) noexcept nogil:
    # False: no memory.
    cdef LiveRanges* columns = &s.columns.ranges
    if s.free_ranges == 0:
        if not reserve_rows(columns, ROWS):
            return False
        s.free_ranges = ROWS
    s.free_ranges -= 1
    push_name(&s.names, &columns.instruction, r.label.word.p, r.label.word.n)
    put_code(&columns.index, index_code(&s.indices, &r.label.index))
    put(&columns.start, r.start)
    put(&columns.end, r.end)
    return True


cdef const char* range_line(Scan* s, const char* p) noexcept nogil:
    # "NAME{INDEX}:START-END". Returns the newline, or NULL if the line has another form.
    cdef LiveRange r
    p = name(p, &r.label.word)
    if p == NULL:
        return NULL
    p = index(p, &r.label.index)
    if p == NULL or p[0] != c':':
        return NULL
    p = integer(p + 1, &r.start)
    if p == NULL or p[0] != c'-':
        return NULL
    p = integer(p + 1, &r.end)
    if p == NULL or p[0] != c'\n':
        return NULL
    return p if put_range(s, &r) else NULL


cdef const char* bounds_element(const char* p, const char* end, void* out) noexcept nogil:
    # "START-END"
    p = integer(p, &(<LiveRange*> out).start)
    return number_element(p + 1, end, &(<LiveRange*> out).end) if p != NULL and p[0] == c'-' else NULL


cdef bint gapped_range_line(Scan* s, const char* p, const char* end) noexcept nogil:
    # The same with gaps.
    cdef LiveRange r
    cdef Gaps gaps
    cdef const char* e
    clear_gaps(&gaps)
    e = seek(indexed_element, p, end, &r.label, &gaps)
    if e != NULL:
        e = seek_text(b":", 1, e, end, &gaps)
    if e != NULL:
        e = seek(bounds_element, e, end, &r, &gaps)
    if e == NULL:
        return False
    add_gap(&gaps, e, end)
    if gaps.overflow or starts_with_words(&gaps, p):
        return False
    push_gaps(&s.columns.gaps, &gaps, s.base, G_RANGES, s.columns.ranges.start.size // 8)
    return put_range(s, &r)


cdef int heading(Scan* s, const char* p, const char* e, Gaps* gaps) noexcept nogil:
    # Return the list that the line is the heading of, perhaps with gaps; L_NONE if it is not a heading.
    cdef const char* q = NULL
    cdef int64_t n
    cdef bint spaced = s.tree.spaced
    clear_gaps(gaps)
    if starts(p, e, b"  InstructionSequence", 21) and gapped_head(p + 21, e, gaps):
        return L_SCHEDULE
    if starts(p, e, b"  BufferLiveRange", 17) and gapped_head(p + 17, e, gaps):
        return L_RANGES
    if starts(p, e, b"  Live ranges at ", 17):
        q = seek(number_element, p + 17, e, &n, gaps)
        if q != NULL:
            q = seek_text(b" (", 2, q, e, gaps)
        if q != NULL:
            q = seek_text(b"peak", 4, q, e, gaps)
        if q != NULL:
            q = seek_text(b")", 1, q, e, gaps)
        if q == NULL or not gapped_head(q, e, gaps):
            return L_NONE
        s.peak_time = n
        s.peak.ordinal = 0
        return L_PEAK
    if starts(p, e, b"  Stack trace breakdown for peak usage", 38):
        q = seek_text(b": ", 2, p + 38, e, gaps)
        if q != NULL:
            q = spaced_bytes(&s.tree, q, e, &n)
        if q == NULL:
            s.tree.spaced = spaced
            return L_NONE
        add_gap(gaps, q, e)
        s.tree_total = n
        s.tree.ordinal = 0
        s.tree.finished = n == 0
        s.features |= HAS_TREE
        return L_TREE
    return L_NONE


cdef bint begin_list(Scan* s, const char* p, const char* e) noexcept nogil:
    # Begin a list if the line is a heading. Returns whether it is one.
    cdef Gaps gaps
    cdef int which = heading(s, p, e, &gaps)
    if which == L_NONE:
        return False
    push_gaps(&s.columns.gaps, &gaps, s.base, NO_ROW, 0)
    s.lists |= 1 << which
    s.list = L_END if which == L_TREE and s.tree.finished else which
    s.lists |= 1 << s.list
    return True


cdef void presize_list(Scan* s, double ratio) noexcept nogil:
    # The two long lists. They end before the section, so the reserved excess costs addresses but no memory.
    if s.list == L_SCHEDULE:
        presize(&s.columns.schedule.time, n_columns(s.columns.schedule), &s.columns.schedule.time, ratio)
    elif s.list == L_RANGES:
        presize(&s.columns.ranges.instruction, n_columns(s.columns.ranges), &s.columns.ranges.instruction, ratio)


cdef void scan_span(Scan* s, const char* p, const char* end) noexcept nogil:
    cdef Buffer* faults = &s.columns.faults
    cdef const char* e
    cdef Wanted wanted
    cdef bint indented
    cdef const char* begin = p
    cdef const char* predict_at = presize_point(p, end)
    while p < end:
        if p > predict_at:
            presize_list(s, (end - begin) / <double> (p - begin))
            predict_at = end
        if s.list == L_TREE:
            e = line_end(p, end)
            tree_line(&s.tree, p, e)
            if s.tree.finished:
                s.list = L_END
            p = e + 1
            continue
        prefetch_ahead(p, 1)
        indented = starts(p, end, b"    ", 4)
        if indented and s.list == L_SCHEDULE:
            e = step_line(s, p + 4)
            wanted = W_STEP
            if e == NULL and gapped_step_line(s, p + 4, line_end(p + 4, end)):
                e = line_end(p + 4, end)
        elif indented and s.list == L_RANGES:
            e = range_line(s, p + 4)
            wanted = W_RANGE
            if e == NULL and gapped_range_line(s, p + 4, line_end(p + 4, end)):
                e = line_end(p + 4, end)
        elif indented and s.list == L_PEAK:
            e = line_end(p + 4, end)
            wanted = W_PEAK
            if not peak_line(&s.peak, p + 4, e) and not gapped_peak_line(&s.peak, p + 4, e):
                e = NULL
        else:
            e = line_end(p, end)
            wanted = W_LINE
            begin = p
            predict_at = presize_point(p, end)
            if not begin_list(s, p, e):
                # A line that ends in a colon is the heading of an unknown list.
                if e > p and e[-1] == c':' and not indented:
                    s.list = L_OTHER
                e = NULL
        if e == NULL:
            e = line_end(p, end)
            fault(faults, UNKNOWN_LINE, p - s.base, wanted)
        p = e + 1
    if s.tree.label_begin != NULL:
        fault(faults, UNKNOWN_LINE, s.tree.label_begin - s.base, W_NODE)


cdef void init_scan(Scan* s, const char* base, Interner* names, Interner* indices) noexcept nogil:
    cdef Columns* columns = &s.columns
    memset(s, 0, sizeof(Scan))
    s.base = s.peak.base = s.tree.base = base
    s.peak_time = s.tree_total = NO_INT
    init_queue(&s.names, names)
    init_index_codes(&s.indices, indices)
    s.peak.columns = &columns.peak
    s.peak.names = &s.names
    s.peak.indices = &s.indices
    s.peak.table = G_PEAK
    s.tree.columns = &columns.stack
    s.tree.table = G_STACK
    s.peak.gaps = s.tree.gaps = &columns.gaps
    s.tree.faults = &columns.faults


def scan(const unsigned char[::1] data not None, Py_ssize_t begin, Py_ssize_t end, int inside, Names names not None,
         Names indices not None, *, int64_t ordinal=0, int64_t node=0):
    """Tokenise data[begin:end], whole lines below `HloLiveRange (max N):`; `inside` is the list in which it begins.

    Returns (Columns per table, faults, bits of `features`, bits of the lists with a heading, time of the peak, total
    bytes of the tree's heading, offset of an unfinished tree label or -1, state). Numbers that are not printed are
    the least int64. The next span continues with the state: `inside`, the `ordinal` of the next line of the peak
    list, and that of the next `node` of the tree.
    """
    cdef Scan s
    cdef Columns* columns = &s.columns
    cdef const char* base = NULL
    if end > begin:
        if not 0 <= begin <= end <= data.shape[0] or data[end - 1] != c'\n':
            raise ValueError("a span must lie within the data and end in a newline")
        base = <const char*> &data[0]
    init_scan(&s, base, &names.interner, &indices.interner)
    s.list = inside
    s.peak.ordinal = ordinal
    s.tree.ordinal = node
    if base != NULL:
        with nogil:
            scan_span(&s, base + begin, base + end)
            flush_names(&s.names)
    if s.tree.spaced:
        s.features |= HAS_SPACED
    try:
        names.require_memory()
        indices.require_memory()
        return {
            "schedule": {"time": own(&columns.schedule.time), "instruction": own(&columns.schedule.instruction)},
            "live_ranges": {
                "instruction": own(&columns.ranges.instruction), "shape_index": own(&columns.ranges.index),
                "start": own(&columns.ranges.start), "end": own(&columns.ranges.end),
            },
            "printed_peak": {
                "ordinal": own(&columns.peak.ordinal), "instruction": own(&columns.peak.instruction),
                "shape_index": own(&columns.peak.index), "bytes": own(&columns.peak.bytes),
                "cumulative": own(&columns.peak.cumulative),
            },
            "printed_stack": {
                "ordinal": own(&columns.stack.ordinal), "depth": own(&columns.stack.depth),
                "label": own_text(&columns.stack.label), "percent": own_text(&columns.stack.percent),
                "total": own(&columns.stack.total), "current": own(&columns.stack.current),
                "remaining": own(&columns.stack.remaining),
            },
            "gaps": {"gap": own(&columns.gaps)},
        }, own(&columns.faults), s.features | s.peak.features, s.lists, s.peak_time, s.tree_total, (
            s.tree.label_begin - base if s.tree.label_begin != NULL else -1), (s.list, s.peak.ordinal, s.tree.ordinal)
    finally:
        release_columns(<Buffer*> columns, n_columns(columns[0]))


cdef struct ValueTable:
    # The values by (instruction, index).
    const int* instructions
    const int* indices
    const int* order                              # rows in ascending order of their ids
    Py_ssize_t n
    int array_index                               # stands for no index (-1)
    Buffer memory
    int32_t* slots                                # number in `order` + 1, 0: empty; built when first needed
    uint64_t n_slots


cdef inline int index_at(const ValueTable* t, int32_t row) noexcept nogil:
    return t.indices[row] if t.indices[row] >= 0 else t.array_index


cdef inline bint is_value(const ValueTable* t, int32_t row, int instruction, int shape_index) noexcept nogil:
    return t.instructions[row] == instruction and index_at(t, row) == shape_index


cdef bint build_slots(ValueTable* t) noexcept nogil:
    # False: no memory.
    cdef Py_ssize_t k
    cdef int32_t row
    cdef uint64_t i
    t.n_slots = 16
    while t.n_slots < <uint64_t> t.n * 2:
        t.n_slots *= 2
    if not allocate_zeroed(&t.memory, t.n_slots * 4):
        return False
    t.slots = <int32_t*> t.memory.data
    for k in range(t.n):
        row = t.order[k]
        i = hash_pair(t.instructions[row], index_at(t, row)) & (t.n_slots - 1)
        while t.slots[i] and not is_value(t, t.order[t.slots[i] - 1], t.instructions[row], index_at(t, row)):
            i = (i + 1) & (t.n_slots - 1)
        if not t.slots[i]:                        # of several values with one name and index, the first counts
            t.slots[i] = <int32_t> k + 1
    return True


cdef Py_ssize_t find_value(const ValueTable* t, int instruction, int shape_index) noexcept nogil:
    # Number in `order` of the first value of this name and index; -1: none.
    cdef uint64_t i = hash_pair(instruction, shape_index) & (t.n_slots - 1)
    while t.slots[i]:
        if is_value(t, t.order[t.slots[i] - 1], instruction, shape_index):
            return t.slots[i] - 1
        i = (i + 1) & (t.n_slots - 1)
    return -1


def match(const int[::1] instructions not None, const int[::1] indices not None,
          const long long[::1] ids not None, const int[::1] order not None,
          const int[::1] range_instructions not None, const int[::1] range_indices not None, int array_index):
    """Join live ranges to values by (instruction, index): value_id (int64) or the least, row (int32) or -1.

    `order` holds the rows of the values in ascending order of their ids. A value without an index (-1) has
    `array_index`. Ranges are printed in the order of the ids, so the match is nearly always the next value; a hash
    table is built for the first one that is not.
    """
    cdef Buffer out, rows
    cdef ValueTable t
    cdef Py_ssize_t n = ids.shape[0], m = range_instructions.shape[0], i, k, next_value = 0, match
    if instructions.shape[0] != n or indices.shape[0] != n or order.shape[0] != n or range_indices.shape[0] != m:
        raise ValueError("columns of one table must have one length")
    for i in range(n):
        if not 0 <= order[i] < n:
            raise ValueError("no such row")
    memset(&t, 0, sizeof(ValueTable))
    t.n = n
    t.array_index = array_index
    if n:
        t.instructions, t.indices, t.order = &instructions[0], &indices[0], &order[0]
    with nogil:
        if allocate_zeroed(&out, m * 8):
            out.size = 0
        if allocate_zeroed(&rows, m * 4):
            rows.size = 0
        for i in range(m):
            match = -1
            for k in range(next_value, min(next_value + 8, n)):
                if is_value(&t, t.order[k], range_instructions[i], range_indices[i]):
                    match = k
                    break
            if match < 0 and n:
                if t.slots == NULL and not build_slots(&t):
                    out.failed = NO_MEMORY
                    break
                match = find_value(&t, range_instructions[i], range_indices[i])
            if match >= 0:
                next_value = match + 1
                push(&out, ids[t.order[match]])
                push_code(&rows, t.order[match])
            else:
                push(&out, NO_INT)
                push_code(&rows, NO_CODE)
        release(&t.memory)
    return own_two(&out, &rows)
