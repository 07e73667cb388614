"""Documents about one program, and `peak`."""

from typing import Annotated, NotRequired, TypedDict

from ... import schema
from .common import Bytes, Dump, Failure, Nullable, Program, Row, UnchargedBuffer


class Capacity(TypedDict):
    """The memory that programs are compared with."""

    name: Annotated[str, "device, or `capacity`"]
    bytes: Annotated[int, "memory of the device, as far as programs can use it"]
    resident: Annotated[int, "bytes of it that other data occupy"]
    available: Annotated[int, "bytes that a program may need"]
    stated: NotRequired[Annotated[str, "memory in the words of the vendor"]]
    source: NotRequired[Annotated[str, "document that states it"]]
    stated_bytes: NotRequired[Annotated[int, "memory according to the vendor"]]
    reported_by: NotRequired[Annotated[str | None, "what reports `bytes`; null if they are those of the vendor"]]


class Categories(TypedDict):
    """Bytes in use at the peak by category; without live ranges, sizes of the allocations."""

    parameter: Bytes
    donated: Bytes
    live_out: Bytes
    constant: Bytes
    temp: Bytes


class SpaceDetails(TypedDict):
    """What a memory space has besides the columns of `peaks`."""

    in_device_memory: Annotated[bool, "whether the space is part of device_total"]
    plateau_list: list[Annotated[Row, schema.COMPUTED["plateaus"]]]
    categories: Categories
    n_buffers: Annotated[int, "number of buffers, whatever --limit"]
    buffers: Annotated[
        list[UnchargedBuffer],
        "rows of `live_set` at the peak; without live ranges, the largest values, with `exclusive` and `shared` null",
    ]


class PeakDump(Dump):
    """The numbers of one program."""

    device_total: Annotated[int | None, "bytes that must fit into the device's memory; null if that is not known"]
    fits: Annotated[bool | None, "null if no capacity was given, or if the dump proves neither"]
    reason: Annotated[str | None, "the verdict in words; null if no capacity was given"]
    spaces: Annotated[
        list[Annotated[Row, schema.COMPUTED["peaks"], SpaceDetails]], "memory spaces, the main memory first"
    ]


class Peak(TypedDict):
    """What must fit, and what is in use at the peak."""

    capacity: Annotated[Capacity | None, "from --device or --capacity"]
    dumps: Annotated[list[PeakDump], "largest device_total first"]
    failed: list[Failure]


class SpaceInUse(TypedDict):
    """The bytes in use in a memory space at one step."""

    memory_space: str
    color: NotRequired[int]
    page: NotRequired[int]
    time: Annotated[int | None, "the step"]
    bytes: Annotated[int, "bytes in use at the step: the sum of the rows of this space"]
    peak: Annotated[int | None, "peak of the space"]


class Top(Program):
    """Where the bytes in use are."""

    by: Annotated[list[str], "keys that the rows are grouped by"]
    time: Annotated[int | None, "step of --at; null for the peak of each memory space"]
    spaces: list[SpaceInUse]
    rows: Annotated[
        list[Row], "rows of `live_set` for --by buffer; otherwise the keys of `by`, with `bytes` and the number `n`"
    ]
    n_rows: Annotated[int, "number of rows, whatever --limit"]


class Packing(TypedDict):
    """The best packing found for a temp allocation."""

    memory_space: str
    color: int
    page: int
    allocation: int
    size: Annotated[int, "bytes of the allocation"]
    found: Annotated[int, "bytes with the best packing found"]
    lower_bound: Annotated[int, "bytes that every packing needs"]
    n_buffers: int
    attempts: Annotated[int, "number of packings tried"]
    optimal: Annotated[bool, "whether no packing is better than the one found"]


class Bill(Program):
    """Why so much memory must fit."""

    bill: Annotated[list[Annotated[Row, schema.COMPUTED["bills"]]], "the rows of an account add up to it"]
    packings: Annotated[list[Packing] | None, "null without --repack"]


class Plan(TypedDict):
    """How far the interventions get that --budget selects."""

    device_total: Annotated[int, "bytes that must fit now"]
    budget: Bytes
    saved: Annotated[int, "lower bound of what the interventions of the plan save together"]
    n: Annotated[int, "number of these interventions"]
    is_reached: Annotated[bool, "whether they are enough"]


class Advise(Program):
    """What would make the program need less memory."""

    device_total: Annotated[int | None, "bytes that must fit; null if that is not known"]
    plan: Annotated[Plan | None, "null without a budget, or without live ranges"]
    advice: list[Annotated[Row, schema.COMPUTED["advice"]]]
    n_rows: Annotated[int, "number of interventions, whatever --limit"]


class Explain(Program):
    """The published numbers of a program."""

    numbers: list[Annotated[Row, schema.COMPUTED["explain"]]]
    n_numbers: Annotated[int, "number of numbers, whatever --limit"]
    causes: Annotated[list[Annotated[Row, schema.COMPUTED["explain_causes"]]], "of the numbers that are listed"]


class User(TypedDict):
    """A use of a buffer."""

    instruction: str
    operand: int
    operand_shape_index: str | None
    step: Annotated[int | None, "null if the instruction is not in the schedule"]
    op_name: str | None
    source_file: str | None
    source_line: int | None


class LiveRange(TypedDict):
    """First and last step of a live range."""

    start: int
    end: int


class Position(TypedDict):
    """A position of a buffer in the shape of an instruction."""

    instruction: str
    shape_index: str | None


class Call(TypedDict):
    """A line of the model."""

    file: str
    line: int | None
    function: str | None


class Buffer(Program):
    """Everything about one buffer."""

    value: UnchargedBuffer
    start: Annotated[int | None, "first step of the live range; null without live ranges"]
    end: Annotated[int | None, "last step of the live range"]
    peak_step: Annotated[int | None, "first step of the peak of its memory space"]
    definer: Annotated[
        Annotated[Row, schema.TABLES["instructions"]] | None, "the defining instruction; null if it is not printed"
    ]
    calls: Annotated[
        list[Call],
        "the source line and the calls that lead to it, the innermost first, without those of installed libraries; "
        "empty if the dump has no stack frame for it",
    ]
    users: Annotated[list[User], "in the order of steps"]
    n_users: Annotated[int, "number of users, whatever --limit"]
    positions: Annotated[list[Position], "all positions of the value: its aliases"]
    n_positions: Annotated[int, "number of positions, whatever --limit"]
    mates: Annotated[
        list[Annotated[Row, schema.COMPUTED["live_set"], Nullable("bytes", "exclusive", "shared"), LiveRange]],
        "values whose bytes and live ranges overlap or touch its own",
    ]
    n_mates: Annotated[int, "number of these values, whatever --limit"]
    saving: Annotated[
        int | None,
        "by how many bytes the peak would be lower without it and the values that are updated in its place, at most;"
        " null without live ranges",
    ]
    peak_without: Annotated[int | None, "the peak without these, at least; null without live ranges"]
    peak_step_without: Annotated[
        int | None, "first step of the peak without these; null without live ranges, or if it is no temporary"
    ]
    namesakes: Annotated[int, "number of other buffers with the label by which it was selected"]
