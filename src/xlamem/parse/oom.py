"""Out-of-memory reports: messages of XLA, found in a log or given alone, as tables.

A log is searched for the few sentences with which such messages begin; from there on its lines are
taken apart by rank and thread, and each line of a message becomes a row. Sizes in these messages are
rounded, so ``…_bytes`` is only as exact as the print; what was printed stands beside it as text.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa

from .. import schema
from ..errors import DumpError, UsageError
from ..input.files import FileView
from ..input.filesystems import system_errors
from ..input.find import Member, Text

Buffer: TypeAlias = bytes | memoryview | mmap.mmap

PATIENCE = 16
"""Lines of its own stream that say nothing to a message before it counts as ended."""

REACH = 20_000
"""Lines of any stream after which a message that says no more counts as ended."""

FORMS = {
    "tpu_hbm": "the compiler: a program does not fit into the TPU's HBM",
    "tpu_vmem": "the compiler: an instruction or program does not fit into the TPU's VMEM",
    "tpu_smem": "the compiler: the same for SMEM",
    "tpu_space": "the compiler: the same for another memory space",
    "tpu_allocation": "the compiler: one allocation is larger than its memory, as in Pallas kernels",
    "tpu_e1000": "the compiler: the short sentence of newer releases about HBM",
    "peak_buffers": "GPU and CPU: statistics of the buffer assignment and its largest buffers",
    "runtime": "the allocator of a device: one request that it could not serve",
    "usage": "no failure: the same totals, logged for a program that fits",
}
"""What a message can be: reports.form."""

TABLES: dict[str, pa.Schema] = {name: table.arrow for name, table in schema.OOM.items()}
"""The tables of `OomReport`; what their columns mean stands in `schema.OOM`."""


@dataclass(frozen=True)
class OomReport:
    """The out-of-memory reports of one log, in the order in which they begin."""

    source: str
    reports: pa.Table
    usage: pa.Table
    buffers: pa.Table
    unknown: pa.Table

    def __len__(self) -> int:
        return int(self.reports.num_rows)

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} {getattr(self, name).num_rows}" for name in TABLES)
        return f"<OomReport {self.source}: {tables}>"


def read_oom(source: str | os.PathLike[str] | bytes | BinaryIO) -> OomReport:
    """Read the out-of-memory reports of a log or of a single message.

    ``source`` is a path or URI (compressed or not, ``-`` for standard input), bytes, a binary file,
    or the text of a message itself, as in ``read_oom(str(error))``.
    """
    name, text = _load(source)
    with text:
        found = _Scanner(text.data).run()
    return OomReport(name, **_tables(found))


def _load(source: Any) -> tuple[str, Text]:
    if isinstance(source, str) and ("\n" in source or _ANCHOR.search(source.encode("utf-8", "replace"))):
        return "<text>", Text(source.encode("utf-8", "backslashreplace"), "<text>")
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        if path == "-":
            return "<stdin>", _held(sys.stdin.buffer.read(), "<stdin>")
        return path, _file(path)
    name = "<bytes>"
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<file>"))
        source = source.read()
        if isinstance(source, str):
            source = source.encode("utf-8", "backslashreplace")
    try:
        return name, _held(bytes(source), name)
    except TypeError:
        raise UsageError(f"cannot read a log from {type(source).__name__}") from None


def _file(path: str) -> Text:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        mode = stat.S_IFREG  # a URI, or nothing: the reader will say
    if stat.S_ISDIR(mode):
        raise DumpError(path, "a log (this is a directory)")
    if not stat.S_ISREG(mode):  # a pipe can be read only once
        with open(path, "rb") as file:
            return _held(file.read(), path)
    return Member("", path).load()


def _held(data: bytes, name: str) -> Text:
    with system_errors(name):
        return Text(FileView.from_bytes(name, data).decompressed().read(), name)


# -- sizes, percentages, quoted text -------------------------------------------------------------

_SIZE = r"-?\d+(?:\.\d+)?(?:[KMGTPE]i?B?|B)"
_UNITS = "BKMGTPE"


@lru_cache(4096)
def size_of(text: str | None) -> int | None:
    """Bytes of a printed size (7.32G, 528.00M, 384.0KiB, 0B), rounded; None if it is none."""
    if text is None or not re.fullmatch(_SIZE, text):
        return None
    number = text.rstrip("iBKMGTPE")
    unit = text[len(number)]
    return round(float(number) * (1 << 10 * _UNITS.index(unit)))


_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text

    def one(m: re.Match[bytes]) -> bytes:
        if m[3] is not None:
            return _PLAIN.get(m[3], m[3])
        return bytes([int(m[1], 8) & 255 if m[1] else int(m[2], 16)])

    return _ESCAPE.sub(one, text.encode()).decode("utf-8", "backslashreplace")


_ATTRIBUTE = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(-?\d+))')
_METADATA = re.compile(r"metadata=\{((?:[^\"{}]|\"(?:[^\"\\]|\\.)*\"?)*)\}?")


def _metadata(text: str) -> dict[str, Any]:
    said = {m[1]: m for m in _ATTRIBUTE.finditer(text)}
    row: dict[str, Any] = {"operator": text}
    for name in ("op_type", "op_name", "source_file"):
        if name in said and said[name][2] is not None:
            row[name] = _unescaped(said[name][2])
    for name in ("source_line", "stack_frame_id"):
        if name in said and said[name][3] is not None:
            row[name] = int(said[name][3])
    return row


# -- prefixes ------------------------------------------------------------------------------------

_COLOR = re.compile(r"(?:\x1b\[[\d;]*m|\[\d{1,2}m)+")  # the second where a copy has lost the escape itself
_LABEL = re.compile(
    r"""\[(?P<named>(?=[^\]\s]*\d)[\w.@:/-]*(?:rank|default|worker|proc|task|host|node|pod/)[\w.@:/-]*)\]:?\ ?
      | \[(?P<mpi>(?:[^\]\s@]*@)?\d+,\d+)\]<std(?:out|err|diag)>:\ ?
      | \((?P<ray>(?:[\w.:-]+\ )?pid=\d*(?:,\ ip=[\d.:a-f]+)?)\)(?:\ |$)
      | \ *(?P<srun>\d+):(?:\ |$)
      | (?P<compose>[\w.-]*\d[\w.-]*)\ +\|(?:\ |$)
    """,
    re.VERBOSE,
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) ")
_GLOG = re.compile(
    r"(?:[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6}\s+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF]\s+)"
    r"(?:(?P<thread>\d+) )?\S+:\d+\](?: |$)"
)
_REPEATED = re.compile(r" +\[repeated \d+x across cluster\](?: \(Ray deduplicates.*)?$")


def _taken_apart(text: str) -> tuple[str | None, str | None, str]:
    """Label, thread and what is left of a line."""
    if "\x1b" in text or "m(" in text:
        text = _COLOR.sub("", text)
    labels: list[str] = []
    at = 0
    while True:
        if m := _GLOG.match(text, at):
            return " ".join(labels) or None, m["thread"] or "", text[m.end() :]
        if m := _TIME.match(text, at):
            at = m.end()
        elif len(labels) < 3 and (m := _LABEL.match(text, at)):
            labels.append(m[m.lastgroup or 0])
            at = m.end()
        else:
            return " ".join(labels) or None, None, text[at:]


# -- one message ---------------------------------------------------------------------------------

_ANCHOR = re.compile(
    rb"Ran out of memory (?:in memory space|on) \w"
    rb"|Allocation \(size=\d+\) would exceed memory"
    rb"|Out of memory while trying to allocate \d"
    rb"|Failed to allocate request for \d"
    rb"|Attempting to (?:allocate|reserve) \d"
    rb"|BufferAssignment (?:OOM Debugging|stats:)"
    rb"|Peak buffers:"
    rb"|Largest program [a-z]"
    rb"|Total \w+ usage >= "
    rb"|Program \w+ requirement "
    rb"|XLA::TPU program \w"
)
"""Where a message can begin."""

_MARKS = (
    b"of memory", b"exceed memory", b"Failed to allocate request", b"Attempting to ",
    b"BufferAssignment ", b"Peak buffers:", b"Largest program ", b" usage >= ", b" requirement ", b"XLA::TPU program ",
)  # fmt: skip
"""Each anchor holds one of these; finding out that a stretch of log holds none is several times faster so."""

_CODE = re.compile(r"\b(E\d{4}): ")
_MODULE = re.compile(r"HLO module: (\S+?)\.?(?=\s|$)")
_OUT = re.compile(r"Ran out of memory in memory space (?P<space>\w+)")
_USED = re.compile(
    rf"Used (?P<used>{_SIZE}) of (?P<capacity>{_SIZE}) \w+\.(?: Exceeded \w+ capacity by (?P<over>{_SIZE}))?"
)
_STACK = re.compile(r"while allocating on stack for (?P<instruction>%?.*?)(?:\.? Scoped allocation with size|\s*$)")
_SCOPED = re.compile(
    rf"Scoped allocation with size (?P<used>{_SIZE}) and limit (?P<capacity>{_SIZE}) "
    rf"exceeded scoped \w+ limit by (?P<over>{_SIZE})"
)
_SHORT = re.compile(
    rf"Ran out of memory on (?P<space>\w+), the total memory required for (?P<what>.+?) \((?P<used>{_SIZE})\) "
    rf"exceeds available \w+ \((?P<capacity>{_SIZE})\)"
)
_ALLOCATION = re.compile(r"Allocation \(size=(?P<size>\d+)\) would exceed memory \(size=(?P<capacity>\d+)\)")
_TAG = re.compile(r"tag = '(?P<tag>.*?)'\](?: :: (?P<where>.*))?$")
_WHERE = re.compile(r"\] :: (?P<where>\S.*)$")
_RUNTIME = re.compile(
    rf"Out of memory while trying to allocate (?:(?P<exact>\d+) bytes|(?P<size>{_SIZE}))"
    rf"|Failed to allocate request for (?P<about>{_SIZE}) \((?P<exactly>\d+)B\)"
    rf"|Attempting to (?:allocate|reserve) (?P<asked>{_SIZE}).*?There (?:are|is) (?P<free>{_SIZE}) free"
)
_DEVICE = re.compile(r"\(\w*?_([A-Z]+)\d*\)")
_PROGRAM = re.compile(r"Error loading program '([^']+)'")
_SHAPE_OF = re.compile(r"^%?[\w.-]+ = (\([^=]*?\)|\S+\[[^\]]*\](?:\{[^ ]*\})?) ")

_DETAILS = re.compile(
    rf"(?P<utilization>-?nan|[\d.]+)% utilization"
    rf"(?:: Unpadded \((?P<unpadded>{_SIZE})\) Padded \((?P<padded>{_SIZE})\))?"
    rf"(?:, (?P<percent>-?nan|[\d.]+)% fragmentation \((?P<lost>{_SIZE})\))?"
)


@dataclass(eq=False)
class _Message:
    """One message while its lines come in."""

    label: str | None
    thread: str | None
    line: int
    row: dict[str, Any]
    usage: list[dict[str, Any]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[tuple[int, str]] = field(default_factory=list)
    pending: list[tuple[int, str]] = field(default_factory=list)
    """Lines not understood since the last one that was: inside the message only if another follows."""
    key: str = ""
    """The first sentence from its first words on: what copies of a message share."""
    part: str = ""
    space: str | None = None
    list: str = ""
    entry: dict[str, Any] | None = None
    heads: set[str] = field(default_factory=set)
    misses: int = 0
    last_line: int = 0
    labelled: bool = False
    """A later line bore the label of the first: lines without it are not of this message."""
    cut: bool = False
    """Its last line is known to be cut."""
    threaded: bool = False
    """The same for the thread: it is logged line by line."""

    def __post_init__(self) -> None:
        self.last_line = self.line

    def feed(self, number: int, text: str) -> bool:
        """Take a line if it belongs to the message."""
        said = _REPEATED.sub("", text).strip()
        if not said:
            if self.entry is not None and self.entry["size_text"] is None and self.list.startswith("program "):
                self._close(True)  # in old lists nothing but an empty line ends a buffer
            return False
        for pattern, rule in _RULES:
            m = pattern.fullmatch(said)
            if m and rule(self, m):
                self.unknown += self.pending
                self.pending.clear()
                self.misses, self.last_line = 0, number
                return True
        self.pending.append((number, text))
        self.misses += 1
        return False

    def broken_off_at(self, number: int) -> bool:
        """The last line of the log is the next of this message (they are indented), and cannot be understood."""
        return [n for n, _ in self.pending] == [number] and self.pending[0][1][:1] in (" ", "\t")

    def end(self) -> None:
        """Nothing more comes."""
        if self.pending and (self.cut or (self.entry is not None and self.pending[0][0] == self.last_line + 1)):
            self.unknown.append(self.pending[0])  # where it was cut
        if self.entry is not None:
            self._close(self.entry["size_text"] is None and not self.cut)
        self.pending.clear()
        row, listed = self.row, any(not b["list"].startswith("failed") for b in self.buffers)
        row["last_line"] = self.last_line
        silent = self.part != "" and not any(u["label"] != "total" for u in self.usage)
        headless = row["form"] in ("tpu_hbm", "tpu_vmem", "tpu_smem", "tpu_space") and row["used_text"] is None
        row["complete"] = not (
            self.cut
            or (headless and not listed)
            or (self.list and not listed)
            or any(not b["complete"] for b in self.buffers)
            or (silent and row["form"] != "usage")
            or (row["form"] == "peak_buffers" and "peak" not in self.heads)
        )

    # -- rules: what a line adds; False where it has no place

    def head(self, key: str) -> bool:
        """A heading that stands once in a message."""
        if key in self.heads:
            return False
        self.heads.add(key)
        self._close(False)
        self.list = ""
        return True

    def measured(self, part: str, label: str, size: str, **more: Any) -> bool:
        row = dict.fromkeys(TABLES["usage"].names)
        row.update(memory_space=self.space, part=part, label=label, bytes=size_of(size), size_text=size, **more)
        self.usage.append(row)
        return True

    def total(self, m: re.Match[str]) -> bool:
        space = m["space"].lower()
        if not self.head(f"{m['what']} {space}"):
            return False
        self.part, self.space = ("total" if m["what"] == "Total" else "program"), space
        return self.measured(self.part, "total", m["size"])

    def measure(self, m: re.Match[str]) -> bool:
        if self.list or self.part not in ("total", "program"):
            return False
        details = _DETAILS.fullmatch(m["details"] or "")
        if m["details"] and not details:
            return False
        more: dict[str, Any] = {}
        if details:
            more = {
                "utilization": details["utilization"],
                "unpadded_bytes": size_of(details["unpadded"]),
                "padded_bytes": size_of(details["padded"]),
                "fragmentation": details["percent"],
                "fragmentation_bytes": size_of(details["lost"]),
            }
        return self.measured(self.part, m["label"], m["size"], **more)

    def output(self, m: re.Match[str]) -> bool:
        if self.list or not self.part:
            return False
        self.measured("output", "output", m["size"] or "unknown")
        return m["shared"] is None or self.measured("output", "shared", m["shared"])

    def compiled(self, m: re.Match[str]) -> bool:
        space = m["space"].lower()
        if not self.head(f"compiled {space}"):
            return False
        self.part, self.space = "compiled", space
        return self.measured("compiled", "program", m["size"], capacity_bytes=size_of(m["capacity"]))

    def debugging(self, m: re.Match[str]) -> bool:
        # It follows the allocator's sentence, which is then about the same failure.
        if self.row["form"] != "runtime" or self.heads:
            return False
        self.row["form"] = "peak_buffers"
        return self.head("debugging")

    def stats(self, m: re.Match[str]) -> bool:
        if self.row["form"] not in ("peak_buffers", "usage") or not self.head("stats"):
            return False
        self.part, self.space = "stats", None
        return True

    def stat(self, m: re.Match[str]) -> bool:
        if self.list or self.part != "stats":
            return False
        lost = m["label"].endswith("fragmentation")
        more = {"fragmentation": m["percent"], "fragmentation_bytes": size_of(m["size"])} if lost else {}
        return self.measured("stats", m["label"], m["size"], **more)

    def peak(self, m: re.Match[str]) -> bool:
        if self.row["form"] not in ("peak_buffers", "usage") or not self.head("peak"):
            return False
        self.row["form"], self.list, self.space = "peak_buffers", "peak buffers", None
        return True

    def largest(self, m: re.Match[str]) -> bool:
        if not self.head(f"largest {m['what']} {m['space']}"):
            return False
        self.list, self.space = f"program {m['what']}", m["space"].lower()
        return True

    def opened(self, ordinal: int | None, size: str | None) -> bool:
        self._close(False)
        row = dict.fromkeys(TABLES["buffers"].names)
        if ordinal is None:
            ordinal = 1 + sum(b["list"] == self.list for b in self.buffers)
        row.update(list=self.list, ordinal=ordinal, memory_space=self.space, complete=False)
        row.update(size_text=size, size_bytes=size_of(size))
        self.entry = row
        return True

    def numbered(self, m: re.Match[str]) -> bool:
        return self.list.startswith("program ") and self.opened(int(m["ordinal"]), m["size"])

    def buffer(self, m: re.Match[str]) -> bool:
        return self.list == "peak buffers" and self.opened(int(m["ordinal"]), None)

    def attribute(self, m: re.Match[str]) -> bool:
        name, value = m["name"].lower(), m["value"].strip()
        if name == "xla label" and self.list.startswith("program ") and self.entry is None:
            self.opened(None, None)  # an old list, without numbers and sizes
        if self.entry is None:
            return False
        if name == "operator":
            self.entry.update(_metadata(value))
        elif name == "size":
            if not re.fullmatch(_SIZE, value):
                return False
            self.entry.update(size_text=value, size_bytes=size_of(value))
        elif name == "entry parameter subshape":
            self.entry.update(shape=value, parameter=value)
        else:
            self.entry[name.replace(" ", "_")] = value
        return True

    def unpadded(self, m: re.Match[str]) -> bool:
        if self.entry is None:
            return False
        self.entry["unpadded_bytes"] = size_of(m["size"])
        return True

    def padding(self, m: re.Match[str]) -> bool:
        if self.entry is None:
            return False
        self.entry["padding_bytes"] = size_of(m["size"])
        self.entry["expansion"] = float(m["factor"]) if m["factor"] else None
        return True

    def closed(self, m: re.Match[str]) -> bool:
        if self.entry is None:
            return False
        self._close(True)
        return True

    def scoped(self, m: re.Match[str]) -> bool:
        """The second half of a sentence that a log has broken in two."""
        if self.row["form"] not in ("tpu_vmem", "tpu_smem", "tpu_space") or self.row["used_text"] is not None:
            return False
        _fill(self.row, m)
        self.failed(size=m["used"], label=self.row["instruction"])
        return True

    def remark(self, m: re.Match[str]) -> bool:
        return True

    def failed(self, *, size: str, label: str | None, **more: Any) -> None:
        """The one allocation that the message is about, as a buffer."""
        row = dict.fromkeys(TABLES["buffers"].names)
        row.update(list="failed allocation", ordinal=1, memory_space=self.row["memory_space"], complete=True)
        row.update(size_text=size, size_bytes=int(size) if size.isdigit() else size_of(size), xla_label=label, **more)
        if label and (m := _METADATA.search(label)):
            row.update(_metadata(m[1]))
        if row["shape"] is None and label and (m := _SHAPE_OF.match(label)):
            row["shape"] = m[1]
        self.buffers.append(row)

    def _close(self, complete: bool) -> None:
        if self.entry is None:
            return
        row, self.entry = self.entry, None
        row["complete"] = complete
        if row["operator"] is None and row["xla_label"] and (m := _METADATA.search(row["xla_label"])):
            row.update({**_metadata(m[1]), "operator": None})
        self.buffers.append(row)


Rule: TypeAlias = Callable[[_Message, re.Match[str]], bool]

_RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (rf"(?P<ordinal>\d+)\. Size: (?P<size>{_SIZE})", _Message.numbered),
        (r"(?P<name>Operator|Shape|XLA [Ll]abel|Allocation type|Entry Parameter Subshape|Size): ?(?P<value>.*)",
         _Message.attribute),
        (rf"Unpadded size: (?P<size>{_SIZE})", _Message.unpadded),
        (rf"Extra memory due to padding: (?P<size>{_SIZE})(?: \((?P<factor>[\d.]+)x expansion\))?", _Message.padding),
        (r"={10,}", _Message.closed),
        (r"Buffer (?P<ordinal>\d+):", _Message.buffer),
        (rf"(?P<what>Total) (?P<space>\w+) usage >= (?P<size>{_SIZE}):?", _Message.total),
        (rf"(?P<what>Program) (?P<space>\w+) requirement (?P<size>{_SIZE}|unknown size):?", _Message.total),
        (rf"(?P<label>[A-Za-z][\w-]*(?: [\w-]+)*?) +(?P<size>{_SIZE}|unknown size)(?: +\((?P<details>.*)\))?",
         _Message.measure),
        (rf"Output size (?:(?P<size>{_SIZE})(?:; shares (?P<shared>{_SIZE}) with arguments)?|unknown)\.?",
         _Message.output),
        (r"Largest program (?P<what>[a-z][a-z ]*?) in (?P<space>\w+):", _Message.largest),
        (rf"XLA::TPU program (?P<space>\w+) usage: (?P<size>{_SIZE}) / (?P<capacity>{_SIZE})(?: \(.*\))?",
         _Message.compiled),
        (r".*BufferAssignment OOM Debugging\.?", _Message.debugging),
        (r"BufferAssignment stats:", _Message.stats),
        (rf"(?P<label>[A-Za-z_][\w ]*): +(?P<size>{_SIZE})(?: \((?P<percent>-?nan|[\d.]+)%\))?", _Message.stat),
        (r"Peak buffers:", _Message.peak),
        (rf".*{_SCOPED.pattern}.*", _Message.scoped),
        (r"See https?://\S+ for more details\.", _Message.remark),
        (r"Memory usage report:", _Message.remark),
    )
)  # fmt: skip
"""How the lines of a message look, the frequent ones first."""

_CONTINUES = re.compile(
    r"Total \w+ usage|Program \w+ requirement|Largest program|Peak buffers|BufferAssignment |XLA::TPU program"
)


def _fill(row: dict[str, Any], m: re.Match[str]) -> None:
    for name, group in (("used", "used"), ("capacity", "capacity"), ("exceeded", "over")):
        if m[group] is not None:
            row[f"{name}_text"], row[f"{name}_bytes"] = m[group], size_of(m[group])


def _begun(label: str | None, thread: str | None, number: int, text: str, at: int) -> _Message | None:
    """The message that begins on this line; ``at`` is about where its first words stand."""
    row = dict.fromkeys(TABLES["reports"].names)
    row.update(text=text.rstrip())
    message = _Message(label, thread, number, row, key=text[at:].strip())
    if m := _CODE.search(text):
        row["code"] = m[1]
    if m := _MODULE.search(text):
        row["module_name"] = m[1]
    if m := _SHORT.search(text):
        row.update(form="tpu_e1000", memory_space=m["space"].lower())
        for name in ("used", "capacity"):
            row[f"{name}_text"], row[f"{name}_bytes"] = m[name], size_of(m[name])
        message.space = row["memory_space"]
        message.measured("program", m["what"], m["used"])
    elif m := _OUT.search(text):
        space = m["space"].lower()
        form = f"tpu_{space}" if f"tpu_{space}" in FORMS else "tpu_space"
        row.update(form=form, memory_space=space)
        if stack := _STACK.search(text):
            row["instruction"] = stack["instruction"]
        if used := _USED.search(text):
            _fill(row, used)
        elif scoped := _SCOPED.search(text):
            _fill(row, scoped)
            message.failed(size=scoped["used"], label=row["instruction"])
    elif m := _ALLOCATION.search(text):
        _one_allocation(message, m, text[m.end() :])
    elif m := _RUNTIME.search(text):
        exact = m["exact"] or m["exactly"]
        rounded = m["size"] or m["asked"]
        row.update(form="runtime", requested_text=exact or rounded, free_text=m["free"], free_bytes=size_of(m["free"]))
        row["requested_bytes"] = int(exact) if exact else size_of(rounded)
        if device := _DEVICE.search(text, m.end()):
            row["memory_space"] = device[1].lower()
        if program := _PROGRAM.search(text):
            row["module_name"] = program[1]
    elif "BufferAssignment OOM Debugging" in text:
        row.update(form="peak_buffers")
        message.head("debugging")
    else:
        row.update(form="usage")
        if not message.feed(number, text):
            return None
        if message.list.startswith("program "):  # the head of a message is missing
            row.update(form=f"tpu_{message.space}" if f"tpu_{message.space}" in FORMS else "tpu_space")
            row["memory_space"] = message.space
    return message


def _one_allocation(message: _Message, m: re.Match[str], rest: str) -> None:
    row = message.row
    space = re.search(r"\bspace=(\w+)", rest)
    row.update(form="tpu_allocation", memory_space=space[1].lower() if space else None)
    row.update(requested_bytes=int(m["size"]), requested_text=m["size"])
    row.update(capacity_bytes=int(m["capacity"]), capacity_text=m["capacity"])
    shape, tag = re.search(r"shape = '([^']*)'", rest), _TAG.search(rest)
    where = tag["where"] if tag else (found["where"] if (found := _WHERE.search(rest)) else None)
    row["instruction"] = where
    message.failed(
        size=m["size"],
        label=where,
        shape=shape[1] if shape else None,
        tag=tag["tag"] if tag else None,
        allocation_type="scoped" if re.search(r", scoped[,\]]", rest) else None,
    )


# -- a log ---------------------------------------------------------------------------------------

_EOL = re.compile(rb"\n")
_FOLDED = re.compile(r"\\n(?:\\n|\s|Total |BufferAssignment |Peak |Largest |Program |Scoped )")
_FOLD = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NEAR, _STEP = 1 << 16, 1 << 20
_LONGEST = 256
"""Bytes that an anchor can have at most, so that none is lost between two stretches."""


def _unfolded(text: str) -> list[str]:
    """The lines of a message that a log has put into one, with escapes (JSON, repr)."""

    def one(m: re.Match[str]) -> str:
        return chr(int(m[1], 16)) if m[1] else {"n": "\n", "t": "\t", "r": ""}.get(m[2], m[2])

    return _FOLD.sub(one, text).split("\n")


class _Scanner:
    """Goes from anchor to anchor, and line by line where messages are open."""

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.open: list[_Message] = []
        self.found: list[_Message] = []

    def run(self) -> list[_Message]:
        data, size = self.data, len(self.data)
        at, number = 0, 1
        anchor = self._anchor(0)
        while anchor or (self.open and at < size):
            if not self.open and anchor:
                at, number = self._to_line(at, number, anchor.start())
            eol = _EOL.search(data, at)
            end = eol.start() if eol else size
            anchored = anchor is not None and anchor.start() < end
            self._line(number, bytes(data[at:end]).rstrip(b"\r").decode("utf-8", "backslashreplace"), anchored)
            at, number = end + 1, number + 1
            if anchored:
                anchor = self._anchor(at)
            if number % 256 == 0:
                for message in [m for m in self.open if number - m.last_line > REACH]:
                    self._end(message)
        for message in list(self.open):
            message.cut = message.broken_off_at(number - 1) and data[size - 1] != ord("\n")
            self._end(message)
        return sorted(self.found, key=lambda m: m.line)

    def _anchor(self, at: int) -> re.Match[bytes] | None:
        """The next place where a message can begin."""
        data, size = self.data, len(self.data)
        if m := _ANCHOR.search(data, min(at, size), min(at + _NEAR, size)):
            return m
        for begin in range(at + _NEAR - _LONGEST, size, _STEP):
            end = min(begin + _STEP + _LONGEST, size)
            stretch = bytes(data[begin:end])
            if any(mark in stretch for mark in _MARKS) and (m := _ANCHOR.search(data, begin, end)):
                return m
        return None

    def _to_line(self, at: int, number: int, target: int) -> tuple[int, int]:
        """Start and number of the line on which ``target`` lies."""
        start = at
        for begin in range(at, target, _STEP):
            chunk = bytes(self.data[begin : min(begin + _STEP, target)])
            if lines := chunk.count(b"\n"):
                number += lines
                start = begin + chunk.rfind(b"\n") + 1
        return start, number

    def _line(self, number: int, text: str, anchored: bool) -> None:
        label, thread, said = _taken_apart(text)
        owner = self._owner(label, thread)
        if anchored:
            m = _ANCHOR.search(said.encode("utf-8", "replace"))
            self._anchored(number, label, thread, said, m.start() if m else 0, owner)
        elif owner:
            self._offered(owner, number, label, thread, said)

    def _anchored(
        self, number: int, label: str | None, thread: str | None, said: str, at: int, owner: _Message | None
    ) -> None:
        if owner and _CONTINUES.search(said) and self._offered(owner, number, label, thread, said):
            return
        folded = _FOLDED.search(said, at)
        first, *rest = _unfolded(said) if folded else [said]
        message = _begun(label, thread, number, first, at)
        if message is None:
            return
        if owner and (owner.label, owner.thread) == (label, thread):
            self._end(owner)
        self.open.append(message)
        if folded:
            for line in rest:
                message.feed(number, line)
            self._end(message)

    def _owner(self, label: str | None, thread: str | None) -> _Message | None:
        """The open message to which such a line belongs: that of the same label and thread; else the latest that
        is not known to repeat what this line lacks (often only the first line of a message has a prefix).
        """
        for message in reversed(self.open):
            if (message.label, message.thread) == (label, thread):
                return message
        if thread is not None:
            return None
        for message in reversed(self.open):
            if message.label == label and not message.threaded:
                return message
            if label is None and not message.labelled and not message.threaded:
                return message
        return None

    def _offered(self, owner: _Message, number: int, label: str | None, thread: str | None, said: str) -> bool:
        if owner.feed(number, said):
            owner.threaded = owner.threaded or thread is not None
            owner.labelled = owner.labelled or label is not None
            return True
        if thread is not None and not owner.threaded:
            owner.misses += 3  # another message of the same thread: this one has probably ended
        if owner.misses >= PATIENCE:
            self._end(owner)
        return False

    def _end(self, message: _Message) -> None:
        message.end()
        self.open.remove(message)
        self.found.append(message)


def _tables(found: list[_Message]) -> dict[str, pa.Table]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    seen: dict[Any, int] = {}
    for report, m in enumerate(found):
        content = (m.row["form"], m.key, repr(m.usage), repr(m.buffers))
        first = seen.setdefault(content, report)
        m.row.update(report=report, rank=m.label, thread=m.thread or None, line=m.line)
        m.row["same_as"] = None if first == report or m.row["form"] == "usage" else first
        rows["reports"].append(m.row)
        rows["usage"] += [{**u, "report": report, "ordinal": i} for i, u in enumerate(m.usage)]
        rows["buffers"] += [{**b, "report": report} for b in m.buffers]
        rows["unknown"] += [{"report": report, "line": n, "text": text} for n, text in m.unknown]
    return {name: pa.Table.from_pylist(rows[name], schema=spec) for name, spec in TABLES.items()}
