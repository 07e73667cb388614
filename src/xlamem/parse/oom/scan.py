"""Finds the messages in a log: skips from anchor to anchor, and reads line by line while messages are open."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from ...input.files import Buffer
from ...input.logs import split_line
from .grammar import begin_message, feed
from .message import Message

MAX_MISSES = 16
"""Number of unknown lines in a message's own stream after which the message is considered finished."""

MAX_SILENT_LINES = 20_000
"""Number of lines in any stream without a line of the message after which it is considered finished."""

_ANCHOR = re.compile(
    rb"Ran out of memory (?:in memory space|on) \w"
    rb"|Allocation \(size=\d+\) would exceed memory"
    rb"|Out of memory while trying to allocate \d"
    rb"|Failed to allocate request for \d"
    rb"|ran out of memory trying to allocate [\d.]+\w+ \(rounded to \d"
    rb"|Attempting to (?:allocate|reserve) \d"
    rb"|BufferAssignment (?:OOM Debugging|stats:)"
    rb"|Peak buffers:"
    rb"|Largest program [a-z]"
    rb"|Total \w+ usage >= "
    rb"|Program \w+ requirement "
    rb"|XLA::TPU program \w"
)
"""Phrases that a message can begin with."""

_ANCHOR_WORDS = (
    b"of memory", b"exceed memory", b"Failed to allocate request", b"Attempting to ",
    b"BufferAssignment ", b"Peak buffers:", b"Largest program ", b" usage >= ", b" requirement ", b"XLA::TPU program ",
)  # fmt: skip
"""Each anchor contains one of these. Searching a block for them first is several times faster."""

_BFC_UNIT = 256
"""The allocator of a GPU rounds requests up to a multiple of it."""

_MAX_ANCHOR = 256
"""Maximum length of an anchor in bytes, by which blocks overlap."""
_FIRST_BLOCK, _BLOCK = 1 << 16, 1 << 20
"""Bytes to search for an anchor at once; few at first, because the next anchor is often near."""

_NEWLINE = re.compile(rb"\n")
_CONTINUES = re.compile(
    r"Total \w+ usage|Program \w+ requirement|Largest program|Peak buffers|BufferAssignment |XLA::TPU program"
)
_FOLDED = re.compile(r"\\n(?:\\n|\s|Total |BufferAssignment |Peak |Largest |Program |Scoped |See )")
_QUOTE = {quote: re.compile(rf"(?<!\\)(?:\\\\)*{quote}") for quote in ('"', "'")}
"""A quote that is not escaped."""
_PAYLOAD = re.compile(r"\[type\.googleapis\.com/[\w.]+='")
"""Begins a payload of a status, which repeats its message in part."""
_FOLDED_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_FOLDED_ESCAPES = {"n": "\n", "t": "\t", "r": ""}


def has_anchor(text: str) -> bool:
    """Return whether a text contains the beginning of a message."""
    return _ANCHOR.search(text.encode("utf-8", "replace")) is not None


def find_messages(data: Buffer) -> list[Message]:
    """Return the messages of a log in the order in which they begin."""
    return _Scanner(data).run()


class _OpenMessages:
    """The messages that are being read. Each line looks for its own, and a log of a pod has thousands of them.

    A message that no longer qualifies stays in a list until it is the last one: it never qualifies again.
    """

    def __init__(self) -> None:
        self._all: dict[Message, None] = {}
        self._by_stream: defaultdict[tuple[str | None, str | None], list[Message]] = defaultdict(list)
        self._by_label: defaultdict[str | None, list[Message]] = defaultdict(list)
        self._bare: list[Message] = []

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, message: object) -> bool:
        return message in self._all

    def add(self, message: Message) -> None:
        self._all[message] = None
        for messages in self._by_stream[message.label, message.thread], self._by_label[message.label], self._bare:
            messages.append(message)

    def remove(self, message: Message) -> None:
        del self._all[message]

    def of_stream(self, label: str | None, thread: str | None) -> Message | None:
        """Return the latest message with this label and thread."""
        return self._last(self._by_stream.get((label, thread), []), lambda m: True)

    def without_thread(self, label: str | None) -> Message | None:
        """Return the latest message whose lines need not repeat its thread, nor its label if this line has none."""
        found = [self._last(self._by_label.get(label, []), lambda m: not m.threaded)]
        if label is None:
            found.append(self._last(self._bare, lambda m: not m.labelled and not m.threaded))
        return max((m for m in found if m is not None), key=lambda m: m.line, default=None)

    def _last(self, messages: list[Message], qualifies: Callable[[Message], bool]) -> Message | None:
        while messages and not (messages[-1] in self._all and qualifies(messages[-1])):
            messages.pop()
        return messages[-1] if messages else None


class _Scanner:
    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._open = _OpenMessages()
        self._finished: list[Message] = []

    def run(self) -> list[Message]:
        size = len(self._data)
        offset, number = 0, 1
        anchor = self._find_anchor(0)
        while anchor is not None or (self._open and offset < size):
            if not self._open and anchor is not None:
                offset, number = self._skip_to_line(offset, number, anchor)
            text, end = self._read_line(offset)
            is_anchored = anchor is not None and anchor < end
            self._take_line(number, text, is_anchored)
            offset, number = end + 1, number + 1
            if is_anchored:
                anchor = self._find_anchor(offset)
            if number % 256 == 0:
                self._finish_silent(number)
        self._finish_all(number - 1)
        return sorted(_without_warnings(self._finished), key=lambda m: m.line)

    # -- bytes

    def _find_anchor(self, offset: int) -> int | None:
        """Return the offset of the next anchor."""
        data, size = self._data, len(self._data)
        if m := _ANCHOR.search(data, min(offset, size), min(offset + _FIRST_BLOCK, size)):
            return m.start()
        for begin in range(offset + _FIRST_BLOCK - _MAX_ANCHOR, size, _BLOCK):
            end = min(begin + _BLOCK + _MAX_ANCHOR, size)
            block = bytes(data[begin:end])
            if any(word in block for word in _ANCHOR_WORDS) and (m := _ANCHOR.search(data, begin, end)):
                return m.start()
        return None

    def _skip_to_line(self, offset: int, number: int, target: int) -> tuple[int, int]:
        """Return the offset and number of the line that contains the target offset."""
        line_begin = offset
        for begin in range(offset, target, _BLOCK):
            block = bytes(self._data[begin : min(begin + _BLOCK, target)])
            if lines := block.count(b"\n"):
                number += lines
                line_begin = begin + block.rfind(b"\n") + 1
        return line_begin, number

    def _read_line(self, offset: int) -> tuple[str, int]:
        """Return the line at an offset and the offset of its end."""
        newline = _NEWLINE.search(self._data, offset)
        end = newline.start() if newline else len(self._data)
        return bytes(self._data[offset:end]).rstrip(b"\r").decode("utf-8", "backslashreplace"), end

    # -- lines

    def _take_line(self, number: int, line: str, is_anchored: bool) -> None:
        label, thread, text = split_line(line)
        owner = self._owner(label, thread)
        if is_anchored:
            self._take_anchored(number, label, thread, text, owner)
        elif owner:
            self._offer(owner, number, label, thread, text)

    def _take_anchored(
        self, number: int, label: str | None, thread: str | None, text: str, owner: Message | None
    ) -> None:
        """Add a line with an anchor to its message, or begin a new message."""
        if owner and _CONTINUES.search(text):
            if self._offer(owner, number, label, thread, text):
                return
            if owner not in self._open:  # it had too many lines that do not match
                owner = None
        encoded = text.encode("utf-8", "replace")
        m = _ANCHOR.search(encoded)
        offset = len(encoded[: m.start()].decode("utf-8")) if m else 0
        if owner and _PAYLOAD.search(text, 0, offset):
            return
        text = text[: _end_of_string(text, offset)]
        is_folded = _FOLDED.search(text, offset) is not None
        first, *rest = _unfold(text) if is_folded else [text]
        message = begin_message(label, thread, number, first, offset)
        if message is None:
            return
        if owner and (owner.label, owner.thread) == (label, thread):
            self._finish(owner)
        self._open.add(message)
        for line in rest:
            feed(message, number, line)
        if is_folded:
            self._finish(message)

    def _owner(self, label: str | None, thread: str | None) -> Message | None:
        """Return the open message that a line belongs to.

        This is the message with the same label and thread, or else the latest one whose lines need not repeat the
        prefix that this line lacks: often only the first line of a message has a prefix.
        """
        found = self._open.of_stream(label, thread)
        return self._open.without_thread(label) if found is None and thread is None else found

    def _offer(self, owner: Message, number: int, label: str | None, thread: str | None, text: str) -> bool:
        """Add a line to a message if it matches; finish the message if too many lines did not."""
        if feed(owner, number, text):
            owner.threaded = owner.threaded or thread is not None
            owner.labelled = owner.labelled or label is not None
            return True
        if thread is not None and not owner.threaded:
            owner.misses += 3  # another message of the same thread: this one has probably finished
        if owner.misses >= MAX_MISSES:
            self._finish(owner)
        return False

    # -- ends

    def _finish_silent(self, number: int) -> None:
        for message in [m for m in self._open if number - m.last_line > MAX_SILENT_LINES]:
            self._finish(message)

    def _finish_all(self, last_line: int) -> None:
        for message in list(self._open):
            message.truncated = message.is_truncated_at(last_line) and self._data[len(self._data) - 1] != ord("\n")
            self._finish(message)

    def _finish(self, message: Message) -> None:
        message.finish()
        self._open.remove(message)
        self._finished.append(message)


def _without_warnings(messages: list[Message]) -> list[Message]:
    """Leave out the allocator's warnings about requests that another message of the same rank reports."""
    reported: set[tuple[str | None, str | int]] = set()
    for m in messages:
        if m.warning is None and m.row["requested_bytes"] is not None:
            rounded = -(-m.row["requested_bytes"] // _BFC_UNIT) * _BFC_UNIT
            reported |= {(m.label, m.row["requested_text"]), (m.label, rounded)}

    def is_reported(m: Message) -> bool:
        is_bare = m.row["form"] == "runtime" and not m.usage and not m.buffers
        return is_bare and not reported.isdisjoint({(m.label, m.warning), (m.label, m.row["requested_bytes"])})

    return [m for m in messages if m.warning is None or not is_reported(m)]


def _end_of_string(text: str, offset: int) -> int:
    """Return where the string with this offset ends in a line of JSON or the repr of an exception, else its own end.

    Without this, the last word of a message would have quotes and brackets.
    """
    at = max(text.rfind(f"Error({quote}", 0, offset) for quote in _QUOTE)
    if at < 0 and not text.lstrip().startswith(('{"', '"')):
        return len(text)
    quote = _QUOTE[text[at + 6] if at >= 0 else '"']
    is_open = len(quote.findall(text, max(at, 0), offset)) % 2 == 1
    found = quote.search(text, offset) if is_open else None
    return found.end() - 1 if found else len(text)


def _unfold(text: str) -> list[str]:
    """Split a message that was logged as a single escaped line (JSON, repr) into its lines."""
    unfolded = _FOLDED_ESCAPE.sub(_unfold_one, text)
    # JSON writes some characters as two escapes; half of one stands for no character.
    return unfolded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").split("\n")


def _unfold_one(m: re.Match[str]) -> str:
    return chr(int(m[1], 16)) if m[1] else _FOLDED_ESCAPES.get(m[2], m[2])
