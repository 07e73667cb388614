"""Protobuf messages: their fields by number."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import DumpError

Span = tuple[int, int]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Message:
    """The fields of a message in `data[begin:end]`; messages in it are read when they are asked for.

    Fields that are missing have protobuf's defaults: 0, empty. Raises DumpError, with the offset in `data`, if the
    bytes are not a message.
    """

    def __init__(self, data: bytes, name: str, begin: int = 0, end: int | None = None) -> None:
        self._data, self._name, self._end = data, name, len(data) if end is None else end
        self._fields: dict[int, list[int | Span]] = {}
        at = begin
        while at < self._end:
            key, at = self._varint(at)
            value, at = self._value(key & 7, at)
            self._fields.setdefault(key >> 3, []).append(value)

    def number(self, field: int) -> int:
        """Return an integer, signed, or a truth value."""
        return next(reversed(self.numbers(field)), 0)

    def numbers(self, field: int) -> list[int]:
        """Return repeated integers, packed or not."""
        return [number for value in self._fields.get(field, ()) for number in self._unpacked(value)]

    def text(self, field: int) -> str:
        spans = self._spans(field)
        return self._data[slice(*spans[-1])].decode("utf-8", "backslashreplace") if spans else ""

    def messages(self, field: int) -> Iterator[Message]:
        return (Message(self._data, self._name, *span) for span in self._spans(field))

    def message(self, field: int) -> Message:
        spans = self._spans(field)
        return Message(self._data, self._name, *(spans[-1] if spans else (0, 0)))

    def _spans(self, field: int) -> list[Span]:
        values = self._fields.get(field, [])
        spans = [value for value in values if isinstance(value, tuple)]
        if len(spans) < len(values):
            raise DumpError(self._name, f"bytes in field {field}")
        return spans

    def _unpacked(self, value: int | Span) -> Iterator[int]:
        if isinstance(value, int):
            yield _signed(value)
            return
        at, end = value
        while at < end:
            number, at = self._varint(at)
            yield _signed(number)

    def _value(self, wire_type: int, at: int) -> tuple[int | Span, int]:
        """Return a value, and the offset of the next field."""
        if wire_type == _VARINT:
            return self._varint(at)
        if wire_type == _BYTES:
            size, begin = self._varint(at)
        elif wire_type in (_FIXED64, _FIXED32):
            size, begin = 8 if wire_type == _FIXED64 else 4, at
        else:
            raise DumpError(self._name, "a field of a protobuf message", offset=at)
        if begin + size > self._end:
            raise DumpError(self._name, f"a field of {size} bytes, not {self._end - begin}", offset=begin)
        return (begin, begin + size), begin + size

    def _varint(self, begin: int) -> tuple[int, int]:
        """Return an unsigned integer, and the offset after it."""
        number = 0
        for at in range(begin, min(begin + 10, self._end)):
            byte = self._data[at]
            number |= (byte & 0x7F) << (7 * (at - begin))
            if byte < 0x80:
                return number, at + 1
        raise DumpError(self._name, "an integer of a protobuf message", offset=begin)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
