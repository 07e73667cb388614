"""Logs: the line prefixes of XLA, TensorFlow and absl loggers, launchers and containers.

`split_line` splits one line; `LogText` is the text of a module that was logged line by line, without the prefixes.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt

from ..errors import DumpError
from .files import Buffer
from .text import Text

# "I1120 12:03:29.928370   18058 client.cc:2664] " (glog, absl); "2023-11-20 12:03:29.928370: I client.cc:99] "
# (TensorFlow). The thread may be missing.
_TIME = (
    r"(?:[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6} "
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+: [IWEF] )[ \t]*"
)
_ORIGIN = r"(?P<file>\S+):(?P<line>[0-9]+)\] ?"
_LOGGER = _TIME + r"(?:(?P<thread>[0-9]+) )?" + _ORIGIN

# Launchers (torchrun, MPI, Ray, srun, docker compose, Kubernetes) prepend the rank, the process or the pod. What a word
# must contain is looked for ahead: in the middle of the word it would be tried at every character of a long line.
_LABEL = (
    r"\[(?P<named>(?=[^\]\s]*\d)(?=[\w.@:/-]*(?:rank|default|worker|proc|task|host|node|pod/))[\w.@:/-]*)\]:? ?"
    r"|\[(?P<mpi>(?:[^\]\s@]*@)?\d+,\d+)\]<std(?:out|err|diag)>: ?"
    r"|\((?P<ray>(?:[\w.:-]+ )?pid=\d*(?:, ip=[\d.:a-f]+)?)\)(?: |$)"
    r"| *(?P<srun>\d+):(?: |$)"
    r"|(?P<compose>(?=[\w.-]*\d)[\w.-]+) +\|(?: |$)"
)
_CONTAINER_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) "
_COLOR = r"(?:\x1b\[[\d;]*m|\[\d{1,2}m)+"  # the second form occurs where copying has lost the escape character


# -- one line ------------------------------------------------------------------------------------

_MAX_LABELS = 3

_LAUNCHER = rf"(?P<time>{_CONTAINER_TIME})|{_LABEL}"
# Patterns are compiled when they are needed: few inputs are logs.


def split_line(line: str) -> tuple[str | None, str | None, str]:
    """Split a line into its labels, the thread that logged it, and its text.

    The thread is None without a logger's prefix, and empty if the prefix has no thread.
    """
    if "\x1b" in line or "m(" in line:
        line = re.sub(_COLOR, "", line)
    labels: list[str] = []
    offset = 0
    while not (logger := re.compile(_LOGGER).match(line, offset)):
        launcher = re.compile(_LAUNCHER).match(line, offset)
        if launcher is None or (launcher.lastgroup != "time" and len(labels) == _MAX_LABELS):
            return " ".join(labels) or None, None, line[offset:]
        if launcher.lastgroup != "time":
            labels.append(launcher[launcher.lastgroup or 0])
        offset = launcher.end()
    return " ".join(labels) or None, logger["thread"] or "", line[logger.end() :]


# -- a logged module -----------------------------------------------------------------------------

MODULE = rb"BufferAssignment(?: \([^\n]{0,200}\))?:"
"""Regex for the head of the allocations. A later release may add text before the colon."""
LIVE_RANGE = rb"HloLiveRange \((?:[^\n]{0,200}[ ,])?max "
"""Regex for the beginning of a live range."""

_MAX_PREFIX = 1024
"""Maximum number of bytes before a head line that are searched for its prefix."""

_TIME_BYTES, _ORIGIN_BYTES = _TIME.encode(), _ORIGIN.encode()
_LOGGER_BYTES = _LOGGER.encode()

# A live range is a single message of many lines, and only the first has a prefix. Elsewhere every line has one.
_MESSAGE = rb"(?P<message>" + LIVE_RANGE + rb".*(?:\n(?!" + _TIME_BYTES + rb"|\Z).*)*|.*)"
_OPENING = _LOGGER_BYTES + _MESSAGE
_STATISTICS = (
    rb"BufferAssignment stats:"
    rb"| *(?:parameter|constant|maybe_live_out|preallocated temp|total) (?:allocation|fragmentation): "
)


def find_prefix(data: Buffer, offset: int) -> tuple[int, re.Match[bytes] | None]:
    """Return the beginning of the line that contains an offset, and the logger's prefix before the offset."""
    before = bytes(data[max(0, offset - _MAX_PREFIX) : offset])
    before = before[before.rfind(b"\n") + 1 :]
    return offset - len(before), re.fullmatch(_LOGGER_BYTES, before)


class LogText(Text):
    """One module of a log: the output of one statement in one thread, without the prefixes.

    The log begins with the head of the allocations or with their live range.
    """

    features = frozenset({"log"})

    def __init__(self, log: Text) -> None:
        texts, log_offsets, end = [], array("q"), 0
        for message in _messages(log):
            texts.append(message["message"])
            log_offsets.append(message.start("message"))
            end = message.end()
        if end < len(log.data):
            texts.append(b"")  # another line follows, so the last one is complete
        super().__init__(b"\n".join(texts), log.uri, base=log.base, count_lines_before=lambda: log.first_line - 1)
        self.crlf = log.crlf
        self._log, self._log_offsets = log, log_offsets
        self._offsets = array("q", accumulate((len(text) + 1 for text in texts), initial=0))
        self.first_bare_lf = self._first_at(log.first_bare_lf)

    def _first_at(self, log_offset: int | None) -> int | None:
        """Return the first offset that is at or after an offset of the log, if any."""
        if log_offset is not None:
            for begin, end, log_begin in zip(self._offsets, self._offsets[1:], self._log_offsets, strict=False):
                if log_offset < log_begin + end - begin:
                    return begin + max(0, log_offset - log_begin)
        return None

    def positions(self, offsets: Sequence[int]) -> list[tuple[int, int]]:
        return self._log.positions(self._in_log(np.array(offsets, np.int64)).tolist())

    def file_offsets(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._log.file_offsets(self._in_log(offsets))

    def _in_log(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Convert offsets to offsets in the data of the log."""
        begins, log_begins = np.array(self._offsets, np.int64), np.array(self._log_offsets, np.int64)
        message = np.searchsorted(begins[: len(log_begins)], offsets, "right") - 1
        result: npt.NDArray[np.int64] = log_begins[message] + offsets - begins[message]
        return result

    def close(self) -> None:
        super().close()
        self._log.close()


def _messages(log: Text) -> Iterator[re.Match[bytes]]:
    """Iterate over the messages of the first module in a log."""
    opening = re.match(_OPENING, log.data)
    head = _head(log, opening) if opening else None
    if opening is None or head is None:
        raise DumpError(log.uri, "logged allocations (the file has changed)", offset=log.base)
    begin = opening.end() if head is opening else head.start()
    # Output of the same statement as the head, and live ranges from the same file, all in one thread.
    origin = re.escape(head["file"]) + rb":(?:%s\] ?+(?!%s)|[0-9]+\] ?(?=%s))" % (head["line"], _STATISTICS, LIVE_RANGE)
    return chain([opening], re.compile(_thread(opening) + origin + _MESSAGE).finditer(log.data, begin))


def _head(log: Text, opening: re.Match[bytes]) -> re.Match[bytes] | None:
    """Return the head of the allocations: the first message, or the next one of its thread after a live range."""
    if re.match(MODULE, opening["message"]):
        return opening
    return re.compile(_thread(opening) + _ORIGIN_BYTES + MODULE).search(log.data, opening.end())


def _thread(opening: re.Match[bytes]) -> bytes:
    """Return a regex for the beginning of a later line of the same thread."""
    return rb"\n" + _TIME_BYTES + (opening["thread"] + b" " if opening["thread"] else b"")
