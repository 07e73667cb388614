"""Shorten names of buffers such that they still tell the argument, the layer and the module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate, takewhile

from ...formatting import shorten, shorten_distinct

_MOVES = r"(?:[a-z-]+ )*"
"""The prefix of the name of a buffer that only moves bytes, such as "copy of "."""
_KEY = r"\['([^'\[\]]+)'\]"
"""A key of a nested dictionary of arguments, as in ``params['layers']['w']``."""
MAX_KEYS = 8
"""Maximum number of keys of which one is kept besides the last components."""
_PRIMITIVE = r"/[a-z][a-z_]+"
MIN_PRIMITIVE = 4
"""Minimum number of characters that are kept of a primitive."""


def shorten_labels(labels: Iterable[str], limit: int | None) -> list[str]:
    """Shorten names that are too long such that different names stay different.

    Keys of dictionaries lose their brackets in all names if they do in one. Then each name gets the first of its short
    forms that no other name has. Where there is none, `shorten_distinct` shortens all of them.
    """
    labels = list(labels)
    if limit is None or max(map(len, labels), default=0) <= limit:
        return labels
    has_dots = any(len(text) > limit and re.search(_KEY, text) for text in labels)
    plain = {text: _with_dots(text) if has_dots else text for text in labels}
    if len(set(plain.values())) < len(plain):  # a.b and a['b']
        plain = {text: text for text in labels}
    forms = {text: list(_forms(text, plain[text], limit)) for text in plain}
    while clashing := _clashing(forms):
        if any(len(forms[text]) == 1 for text in clashing):
            return shorten_distinct([plain[text] for text in labels], limit)
        for text in clashing:
            del forms[text][0]
    return [forms[text][0] for text in labels]


def _with_dots(text: str) -> str:
    """Return ``params.layers.w`` for ``params['layers']['w']``, or with ``.value``, which Flax NNX appends."""
    return re.sub(_KEY, r".\1", text.removesuffix(".value") if re.search(_KEY, text) else text)


def _clashing(forms: dict[str, list[str]]) -> list[str]:
    """Return the names whose first form is that of another name, too."""
    owners: dict[str, list[str]] = {}
    for text, (first, *_) in forms.items():
        owners.setdefault(first, []).append(text)
    return [text for texts in owners.values() if len(texts) > 1 for text in texts]


def _forms(text: str, plain: str, limit: int) -> Iterator[str]:
    """Yield short forms of a name: its last components, or those of an argument after the first ones."""
    if len(plain) <= limit:
        yield plain
        return
    moves = re.match(_MOVES, plain)
    start = moves[0] if moves else ""
    if "/" in plain:
        yield from _ends(start, re.split("(?=/)", plain[len(start) :]), limit)
    elif key := re.search(_KEY, text):
        # Which array of an optimizer's state it is comes before the keys: opt[0].mu['layers']['w'].
        root = text[: key.start()]
        parts = re.split(r"(?=\.)", plain[len(root) :])
        ends = [*_ends(root, parts, limit)]
        yield from ends
        if ends:  # If another name has that, too, as where one argument has all, another key may tell more.
            yield from _ends("", parts, limit)
            for i, part in enumerate(parts[1:-2][:MAX_KEYS]):
                yield from _ends(f"…{part[1:]}", parts[i + 2 :], limit)
    yield shorten(plain, limit)


def _ends(start: str, parts: list[str], limit: int) -> Iterator[str]:
    """Yield a text with as many of the last components as fit. If it is one primitive, what is before tells more."""
    lengths = accumulate(len(part) for part in reversed(parts[1:]))
    n = sum(1 for _ in takewhile(lambda length: len(start) + 1 + length <= limit, lengths))
    kept = parts[len(parts) - n :]
    if len(kept) > 1 or not re.fullmatch(_PRIMITIVE, parts[-1]):
        yield from [f"{start}…{''.join(kept)}"] if kept else []
        return
    before = "…" * (len(parts) > 2) + parts[-2]
    room = limit - len(start) - len(before) - 1
    if room > MIN_PRIMITIVE:
        yield f"{start}{before}{parts[-1][:room]}…"
    elif kept:
        yield f"{start}…{''.join(parts)[len(start) + 1 - limit :]}"
