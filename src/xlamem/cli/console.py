"""What the verbs share: exit codes, how errors end a run, how numbers and columns are printed."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import click

from ..errors import DumpError, NativeError, OutputError, UsageError, XlaMemError

FINE, CHECK_FAILED, USAGE, UNREADABLE, UNWRITABLE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130

GAP = "  "


def guarded(run: Callable[[], Any]) -> Any:
    """Call, and turn every error that is not click's into its sentence on stderr and its exit code."""
    try:
        return run()
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except BrokenPipeError:  # whoever reads our output has had enough: be quiet
        _silence()
        return FINE
    except UsageError as e:
        return complain(str(e), USAGE)
    except DumpError as e:
        return complain(str(e), UNREADABLE)
    except Exception as e:
        return _failed(e)


def _failed(e: Exception) -> int:
    if isinstance(e, OSError):
        return complain(f"{e.filename or 'input'}: {e.strerror or e}", UNREADABLE)
    if isinstance(e, XlaMemError) and not isinstance(e, NativeError):
        return complain(str(e), UNWRITABLE if isinstance(e, OutputError) else UNREADABLE)
    if os.environ.get("XLAMEM_DEBUG"):
        import traceback

        traceback.print_exc()
    said = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
    return complain(f"this is a bug of xlamem, please report it ({said}); XLAMEM_DEBUG=1 shows where", BUG)


def unwritable(e: OSError) -> int:
    """Standard output takes no more."""
    _silence()
    return complain(f"cannot write to standard output: {e.strerror}", UNWRITABLE)


def _silence() -> None:
    """What is left in stdout's buffer goes nowhere, so that Python can close it without complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(sentence: str, code: int) -> int:
    """One error on stderr."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {visible(sentence)}", err=True)
    return code


def note(sentence: str) -> None:
    """Something worth knowing, on stderr."""
    click.echo(f"{click.style('note:', fg='yellow')} {visible(sentence)}", err=True)


def out(text: str = "") -> None:
    """One line of data, or several."""
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as e:
        _silence()
        raise OutputError(f"cannot write to standard output: {e.strerror}") from e


def out_json(data: Any) -> None:
    import json

    out(json.dumps(data, indent=2))


def bold(text: str) -> str:
    return click.style(text, bold=True)


def dim(text: str) -> str:
    return click.style(text, dim=True)


def bad(text: str) -> str:
    return click.style(text, fg="red")


def width() -> int | None:
    """Columns of the terminal; None where the output goes elsewhere and may be as wide as it is."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return max(40, shutil.get_terminal_size().columns)


# -- text ----------------------------------------------------------------------------------------


def visible(text: str) -> str:
    """The text without anything that a terminal would obey; newlines stay."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def size(n: int | None) -> str:
    """Bytes for people, three digits at least."""
    if n is None:
        return "?"
    if abs(n) < 1024:
        return f"{n} B"
    amount, units = n / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while abs(amount) >= 1023.995 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:.2f} {units[0]}"


def exact(n: int) -> str:
    """Bytes for people, and exactly."""
    return f"{size(n)} ({n:,} bytes)" if abs(n) >= 1024 else f"{n:,} bytes"


def counted(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def shortened(text: str, limit: int | None) -> str:
    """The text with its middle left out if it is too long."""
    if limit is None or len(text) <= limit:
        return text
    limit = max(limit, 9)
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[-tail:]}"


def wrapped(words: Iterable[str], indent: int, total: int | None = None, between: str = ", ") -> list[str]:
    """Words in lines; each word stays whole."""
    room = (total or 80) - indent
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(between) + len(word) < room:
            lines[-1] += between + word
        else:
            if lines:
                lines[-1] += between.rstrip()
            lines.append(word)
    return lines


def fill(text: str, indent: int, total: int | None = None) -> list[str]:
    """Prose in lines."""
    return textwrap.wrap(text, max(20, (total or 80) - indent), break_on_hyphens=False) or [""]


def columns(rows: list[list[str]], left: set[int]) -> list[str]:
    """Rows as aligned columns: those in ``left`` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        GAP.join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in rows
    ]
