# Faults of a scan: rows of (code, byte offset, expected form). A single Python function converts them to diagnostics
# and computes line numbers.

from libc.stdint cimport int64_t

from buffer cimport Buffer, push

cdef extern from *:
    """
    static const char *const xla_codes[] = {"unknown_line", "truncated", "not_utf8", "instruction_differs"};
    static const char *const xla_wanted[] = {
        "a line of this section",
        "allocation N: … size N … :",
        "an allocation line before it",
        " value: <ID NAME @COLOR> (size=N,offset=N): SHAPE",
        "  value: <ID NAME @COLOR> (color=N)",
        "the rest of a value: positions, uses, [offset,size]: shape",
        "<ID NAME @COLOR>",
        "a record before it",
        "the rest of a record: positions, uses, from instruction",
        "NAME {INDEX}",
        "NAME, operand N {INDEX}",
        "%NAME = SHAPE OPCODE(OPERANDS), ATTRIBUTES",
        "STEP:NAME",
        "NAME{INDEX}:START-END",
        "NAME{INDEX}: N bytes (cumulative: N bytes)",
        "LABEL (P%, total: N bytes, current: N bytes, remaining: N bytes)",
        "UTF-8",
        "the text printed for that instruction before",
        "a line of the memory-usage report",
        "CUMULATIVE(P%); REMAINING; allocation N: size SIZE …:",
        "CUMULATIVE(P%); SIZE; OFFSET; N; SHAPES",
        "an entry of input_output_alias or buffer_donor",
        "an entry of the stack-frame tables",
        "  InstructionSequence:",
        "  BufferLiveRange:",
        "  Live ranges at N (peak):",
        "NAME: VALUE, NAME {, } or a comment",
    };
    enum { xla_n_codes = sizeof xla_codes / sizeof *xla_codes, xla_n_wanted = sizeof xla_wanted / sizeof *xla_wanted };
    """
    const char* const* CODES "xla_codes"
    const char* const* WANTED "xla_wanted"
    int N_CODES "xla_n_codes"
    int N_WANTED "xla_n_wanted"

cdef enum Code:
    UNKNOWN_LINE
    TRUNCATED
    NOT_UTF8
    INSTRUCTION_DIFFERS

cdef enum Wanted:
    W_LINE
    W_ALLOCATION
    W_ALLOCATION_BEFORE
    W_VALUE
    W_CROSS_COLOR
    W_VALUE_REST
    W_RECORD
    W_RECORD_BEFORE
    W_RECORD_REST
    W_POSITION
    W_USE
    W_INSTRUCTION
    W_STEP
    W_RANGE
    W_PEAK
    W_NODE
    W_UTF8
    W_SAME_TEXT
    W_REPORT
    W_REPORT_LIST
    W_REPORT_ROW
    W_ALIAS
    W_FRAME
    W_SEQUENCE_HEAD
    W_RANGE_HEAD
    W_PEAK_HEAD
    W_FLAG


cdef inline void fault(Buffer* faults, Code code, int64_t offset, Wanted wanted) noexcept nogil:
    push(faults, code)
    push(faults, offset)
    push(faults, wanted)
