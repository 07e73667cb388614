"""Small changes of Python, Cython and C text that a person could make by mistake."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = r"""
    (?P<blank>[ \t]+|\\\n)
  | (?P<comment>{comment})
  | (?P<string>[A-Za-z]{{0,2}}(?:\"{{3}}(?:\\.|[^\\])*?\"{{3}}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<number>(?:0[xX][0-9a-fA-F]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)[uUlL]*)
  | (?P<name>[^\W\d]\w*)
  | (?P<newline>\n)
  | (?P<operator>\*\*=?|//=?|<<=?|>>=?|&&|\|\||->|:=|\+\+|--|[<>=!+\-*/%&|^@]=|.)
"""
PYTHON = re.compile(TOKEN.format(comment=r"\#[^\n]*"), re.VERBOSE | re.DOTALL)
C = re.compile(TOKEN.format(comment=r"//[^\n]*|/\*.*?\*/|\#(?:\\\n|[^\n])*"), re.VERBOSE | re.DOTALL)

BINARY = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "/": "*",
    "//": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|", "&&": "||", "||": "&&", "and": "or",
    "or": "and", "+=": "-=", "-=": "+=", "*=": "+=", "//=": "*=", "|=": "&=", "&=": "|=", "<<=": ">>=", ">>=": "<<=",
}  # fmt: skip
WORDS = {
    "True": "False", "False": "True", "break": "continue", "continue": "break", "is not": "is", "not in": "in",
    '"left"': '"right"', '"right"': '"left"', '"ascending"': '"descending"', '"descending"': '"ascending"',
}  # fmt: skip
FUNCTIONS = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin",
    "any": "all", "all": "any", "floor": "ceil", "ceil": "floor", "less": "less_equal", "less_equal": "less",
    "greater": "greater_equal", "greater_equal": "greater", "and_": "or_", "or_": "and_", "and_kleene": "or_kleene",
    "or_kleene": "and_kleene", "startswith": "endswith", "endswith": "startswith",
}  # fmt: skip
SWAPPED = {"where", "if_else", "subtract", "divide"}
"""Functions whose last two arguments are swapped."""

LEAVES = {"return", "continue", "break", "raise", "del"}
NO_STATEMENT = set(keyword.kwlist) - LEAVES | {
    "cdef", "cimport", "const", "cpdef", "ctypedef", "enum", "extern", "include", "inline", "public", "static",
    "struct", "union",
}  # fmt: skip
"""First words of lines that cannot be dropped."""
SKIPPED = {
    "@", "__all__", "assert", "async", "cimport", "class", "cpdef", "ctypedef", "def", "from", "global", "import",
    "include", "nonlocal", "struct",
}  # fmt: skip
"""First words of lines without changes: they are declarations, or tell the type checker something."""
DELIMITERS = {
    ":", ",", "=", ";", "?", "and", "or", "&&", "||", "if", "elif", "else", "while", "for", "in", "return", "yield",
}  # fmt: skip
"""What operands of `and` and `or` end at."""


class Change(NamedTuple):
    """A replacement of text[start:end]."""

    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def lines(self, text: str) -> tuple[str, str]:
        """The changed lines, before and after."""
        first = text.rfind("\n", 0, self.start) + 1
        last = text.find("\n", self.end) if "\n" in text[self.end :] else len(text)
        after = text[first : self.start] + self.new + text[self.end : last]
        return text[first:last].strip(), after.strip()


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int
    depth: int
    """Number of open brackets; an opening bracket counts itself, a closing one does not."""


def changes(path: str, text: str) -> list[Change]:
    """Return all changes of a file, in the order of their places."""
    found: dict[Change, None] = {}
    seen: set[str] = set()
    c = path.endswith(".h")
    for line in statements(text, C if c else PYTHON):
        if line[0].text in ("def", "cdef", "cpdef", "class"):
            seen.clear()
        for i in range(first_changeable(line), len(line)):
            found.update(dict.fromkeys(token_changes(line, i, text)))
        if not c:
            found.update(dict.fromkeys(dropped(line, seen)))
        seen.update(t.text for t in line if t.kind == "name")
    return sorted(found)


def statements(text: str, pattern: re.Pattern[str]) -> Iterator[list[Token]]:
    """Yield the tokens of each logical line."""
    line: list[Token] = []
    depth = 0
    for match in pattern.finditer(text):
        kind, word = str(match.lastgroup), match.group()
        braces = pattern is PYTHON
        depth += word in ("(", "[") or (braces and word == "{")
        depth -= word in (")", "]") or (braces and word == "}")
        if kind == "newline" and depth == 0:
            if line:
                yield line
            line = []
        elif kind not in ("blank", "comment", "newline"):
            line.append(Token(kind, word, match.start(), match.end(), depth))
    if line:
        yield line


def first_changeable(line: list[Token]) -> int:
    """Return the index of the first token that may change: annotations, headers and docstrings do not."""
    head, words = line[0].text, [t.text if t.depth == 0 else "" for t in line]
    after_value = words.index("=") + 1 if "=" in words else len(line)
    if head in SKIPPED or line[0].kind == "string" or "TYPE_CHECKING" in words:
        return len(line)
    if head == "cdef":
        return len(line) if words[-1] == ":" else after_value
    annotated = head not in NO_STATEMENT and ":" in words[:after_value]
    return after_value if annotated else 0


def token_changes(line: list[Token], i: int, text: str) -> Iterator[Change]:
    token = line[i]
    start, end, word = token.start, token.end, token.text
    before = line[i - 1] if i else None
    following = line[i + 1].text if i + 1 < len(line) else ""
    if token.kind == "number":
        yield from (Change(start, end, n) for n in other_numbers(word))
    elif word in BINARY and text[start - 1].isspace() and text[end : end + 1].isspace():
        yield Change(start, end, BINARY[word])
        if word in ("and", "or", "&&", "||"):
            yield from dropped_operands(line, i)
    elif word in ("-", "~", "!") and (before is None or not ends_operand(before)):
        yield Change(start, end, "")
    elif word == "not" and following != "in" and (before is None or before.text != "is"):
        yield Change(start, line[i + 1].start, "")
    elif word in ("is", "not") and f"{word} {following}" in WORDS:
        yield Change(start, line[i + 1].end, WORDS[f"{word} {following}"])
    elif word == "is":
        yield Change(start, end, "is not")
    elif word == "in" and not of_loop(line, i) and (before is None or before.text != "not"):
        yield Change(start, end, "not in")
    elif word in WORDS:
        yield Change(start, end, WORDS[word])
    elif word in FUNCTIONS and (following in ("(", ".") or (before is not None and before.text == ".")):
        yield Change(start, end, FUNCTIONS[word])
    elif word in SWAPPED and following == "(":
        yield from swapped_arguments(line, i + 1, text)
    elif word in ("if", "elif", "while"):
        yield from conditions(line, i, text)


def other_numbers(word: str) -> Iterator[str]:
    digits = word.rstrip("uUlL")
    suffix = word[len(digits) :]
    if "." in digits or ("e" in digits.lower() and "x" not in digits.lower()):
        yield f"{float(digits) + 1!r}{suffix}"
        return
    number, form = int(digits.replace("_", ""), 0), "#x" if "x" in digits.lower() else ""
    yield f"{number + 1:{form}}{suffix}"
    if number:
        yield f"{number - 1:{form}}{suffix}"


def ends_operand(token: Token) -> bool:
    if token.kind == "name":
        return token.text not in ("and", "or", "not", "return", "in", "is", "if", "else", "elif", "while", "yield")
    return token.kind in ("number", "string") or token.text in (")", "]", "}")


def of_loop(line: list[Token], i: int) -> bool:
    """Return whether an `in` belongs to a `for`."""
    opened = 0
    for token in line[:i]:
        opened += token.text == "for"
        opened -= token.text == "in" and opened > 0
    return opened > 0


def dropped_operands(line: list[Token], i: int) -> Iterator[Change]:
    """Drop what stands on one side of `and` or `or`."""
    right = i + 1
    while right < len(line) and not stops(line[right], line[i].depth):
        right += 1
    left = i
    while left and not stops(line[left - 1], line[i].depth):
        left -= 1
    if right > i + 1:
        yield Change(line[i - 1].end, line[right - 1].end, "")
    if left < i:
        yield Change(line[left].start, line[i + 1].start, "")


def level(token: Token) -> int:
    return token.depth - (token.text in ("(", "[", "{"))


def stops(token: Token, depth: int) -> bool:
    """Return whether an operand at this depth ends before the token."""
    return level(token) < depth or (level(token) == depth and token.text in DELIMITERS)


def swapped_arguments(line: list[Token], i: int, text: str) -> Iterator[Change]:
    """Swap the last two arguments of the call whose bracket is token i."""
    depth, bounds = line[i].depth, [i]
    for j in range(i + 1, len(line)):
        if line[j].depth < depth:
            bounds.append(j)
            break
        if line[j].text == "," and line[j].depth == depth:
            bounds.append(j)
    if len(bounds) >= 3 and bounds[-1] - bounds[-2] > 1:
        a, b, c = bounds[-3:]
        one = text[line[a].end : line[b].start].strip()
        two = text[line[b].end : line[c].start].strip()
        yield Change(line[a].end, line[c].start, f"{' ' if a != i else ''}{two}, {one}")


def conditions(line: list[Token], i: int, text: str) -> Iterator[Change]:
    """Drop the condition of a statement or a comprehension, or invert that of an expression."""
    start, depth = line[i + 1].start, line[i].depth
    end = next((j for j in range(i + 1, len(line)) if stops(line[j], depth) and line[j].text not in ("and", "or")), -1)
    if end < 0:
        return
    until = line[end - 1].end
    if line[end].text == "else":
        yield Change(start, until, f"not ({text[start:until]})")
        return
    yield Change(start, until, "False")
    if line[i].text != "while":
        yield Change(start, until, "True")


def dropped(line: list[Token], seen: set[str]) -> Iterator[Change]:
    """Drop a call, a `return`, `raise` or `continue`, or an assignment to something that exists already."""
    head, words = line[0], [t.text if t.depth == 0 else "" for t in line]
    if head.kind == "string" or head.text in NO_STATEMENT | SKIPPED or ":" in words:
        return
    targets = line[: words.index("=")] if "=" in words else []
    if targets and all(t.kind == "name" or t.text == "," for t in targets):
        drop = head.text in seen
    else:
        drop = head.text in LEAVES or bool(targets) or any(t.text == "(" or t.text in BINARY for t in line)
    if drop:
        yield Change(head.start, line[-1].end, "pass")
