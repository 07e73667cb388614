"""Standard output, standard error and exit codes."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

import click

from ..errors import NativeError, OutputError, UsageError, XlaMemError, is_file_limit, reason
from ..formatting import visible

if TYPE_CHECKING:
    from rich.text import Text

FINE, CHECK_FAILED, USAGE, UNREADABLE, UNWRITABLE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130
"""Exit codes."""

NO_MEMORY = (
    "not enough memory: allow more (--memory-limit, ulimit -d and containers limit it), or fewer --tables and --workers"
)

CSV_BUFFER = 1 << 20
"""Number of characters of CSV that are buffered before they are written."""

MIN_WIDTH = 40
MAX_WIDTH_DIGITS = 9
"""Maximum number of digits of the variable COLUMNS."""

FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""Errors that only writing can have."""

_FORMULA = re.compile(r"[=@]|[+-](?!\d+(?:\.\d+)?$)")
"""Text that spreadsheets compute. Signed numbers are harmless."""


# -- errors --------------------------------------------------------------------------------------


def report_errors(run: Callable[[], Any]) -> Any:
    """Call `run`; report its error on stderr and return the exit code. Errors of click pass through."""
    try:
        return run()
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except BrokenPipeError:  # the reader of our output has closed it
        _discard_stdout()
        return FINE
    except NativeError as e:
        return _report_bug(e)
    except XlaMemError as e:
        return error(str(e), _exit_code(e))
    except OSError as e:
        if e.errno in FULL and e.filename is None:  # the help text of a command
            return unwritable(e)
        return error(f"{e.filename or 'input'}: {reason(e)}", UNREADABLE)
    except (MemoryError, ImportError, RuntimeError) as e:
        if files := _file_limit(e):
            return error(reason(files), UNREADABLE)
        return error(NO_MEMORY, UNREADABLE) if _lacks_memory(e) else _report_bug(e)
    except Exception as e:
        return _report_bug(e)


def _lacks_memory(e: Exception) -> bool:
    """Return whether memory was missing, for an object, a module or the stack of a thread."""
    return isinstance(e, MemoryError) or "failed to map segment" in str(e) or "can't start new thread" in str(e)


def _file_limit(e: BaseException | None) -> OSError | None:
    """Return the cause of an error, if that is the limit of open files."""
    while e is not None:
        if isinstance(e, ImportError) and os.strerror(errno.EMFILE) in str(e):  # of the dynamic linker
            return OSError(errno.EMFILE, "")
        if isinstance(e, OSError) and is_file_limit(e):
            return e
        e = e.__cause__ or e.__context__
    return None


def limit_memory(size: str) -> None:
    """Limit the memory of this process and of its children. Files that are mapped do not count."""
    # The default allocator of Arrow reserves a GiB, which counts as used.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from ..compute.capacity import byte_count  # imports the tables

    try:
        import resource
    except ImportError as e:
        raise UsageError("--memory-limit needs a POSIX system") from e
    limit = byte_count("--memory-limit", size)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))


def _exit_code(e: XlaMemError) -> int:
    if isinstance(e, UsageError):
        return USAGE
    return UNWRITABLE if isinstance(e, OutputError) else UNREADABLE


def _report_bug(e: Exception) -> int:
    if os.environ.get("XLAMEM_DEBUG"):
        import traceback

        traceback.print_exc()
    text = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
    return error(f"this is a bug in xlamem, please report it ({text}); XLAMEM_DEBUG=1 prints a traceback", BUG)


def error(message: str, code: int) -> int:
    """Write an error to stderr and return the exit code."""
    _message(click.style("error:", fg="red", bold=True), "error: ", message)
    return code


def error_about(name: str, e: str, code: int) -> int:
    """Write an error about one input, with its name if the message lacks it, and return the exit code."""
    return error(e if name in e else f"{name}: {e}", code)


def note(message: str) -> None:
    """Write a note to stderr."""
    _message(click.style("note:", fg="yellow"), "note: ", message)


def _message(styled: str, label: str, message: str) -> None:
    """Write a message to stderr. It is wrapped in a terminal, and stays on one line in logs and pipes."""
    text = visible(message)
    if sys.stderr.isatty():
        first, *more = text.split("\n")
        wrapper = TextWrapper(_stderr_width(), " " * len(label), "  ", break_long_words=False, break_on_hyphens=False)
        text = "\n".join([wrapper.fill(first)[len(label) :], *more])
    click.echo(f"{styled} {text}", err=True)


def _stderr_width() -> int:
    """Return COLUMNS or the width of the terminal that shows stderr: stdout may be another one, or a file."""
    if (columns := _columns()) is not None:
        return max(MIN_WIDTH, columns)
    try:
        return max(MIN_WIDTH, os.get_terminal_size(sys.stderr.fileno()).columns)
    except (OSError, ValueError):  # no file descriptor
        return 80


def _columns() -> int | None:
    """Return the variable COLUMNS; None if it is not set, or no number."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() and len(text) <= MAX_WIDTH_DIGITS else None


def unwritable(e: OSError) -> int:
    """Report that standard output cannot be written, and return the exit code."""
    _discard_stdout()
    return error(f"cannot write to standard output: {e.strerror}", UNWRITABLE)


def _discard_stdout() -> None:
    """Redirect the buffered rest of stdout to /dev/null, so that Python can close it without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -- output --------------------------------------------------------------------------------------


def write(text: str = "", *, verbatim: bool = False) -> None:
    """Write lines to stdout. Unless `verbatim`, styles are left out if it is not a terminal."""
    try:
        click.echo(text, color=verbatim or None)
    except BrokenPipeError:
        raise
    except OSError as e:
        _discard_stdout()
        raise OutputError(f"cannot write to standard output: {e.strerror}") from e


def write_document(name: str, data: Mapping[str, Any]) -> None:
    """Write a JSON document to stdout; a table is a list of its rows. `documents` has the types."""
    from ..schema import envelope  # imports pyarrow
    from .json_text import json_text  # the same

    write(json_text({**envelope(name), **data}))


def write_csv(names: Iterable[str], rows: Iterable[Iterable[Any]], *, raw: bool = False) -> None:
    """Write CSV to stdout: RFC 4180 with newlines as line ends; null is empty.

    Unless `raw`, escape what a terminal would interpret, and put ' before what a spreadsheet would compute.
    """
    import csv
    from io import StringIO

    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    cell = _raw_cell if raw else _safe_cell
    writer.writerow(map(cell, names))
    for row in rows:
        writer.writerow(map(cell, row))
        if file.tell() > CSV_BUFFER:
            write(file.getvalue().removesuffix("\n"), verbatim=True)
            file.seek(0)
            file.truncate()
    if file.tell():
        write(file.getvalue().removesuffix("\n"), verbatim=True)


def _raw_cell(value: Any) -> Any:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value


def _safe_cell(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return _raw_cell(value)
    text = visible(str(value))
    return f"'{text}" if _FORMULA.match(text) else text


def write_lines(lines: Iterable[Text], width: int | None = None) -> None:
    """Write styled lines to stdout, truncated to the width; plain text unless stdout is a terminal with colors.

    Characters that a terminal would interpret are escaped.
    """
    from io import StringIO

    from rich.console import Console

    file, colors = StringIO(), _color_system()
    rich = Console(file=file, force_terminal=colors is not None, color_system=colors, width=10**6, highlight=False)
    for line in map(_visible_line, lines):
        line.rstrip()
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        rich.print(line, soft_wrap=True)
    write(file.getvalue().removesuffix("\n"))


def _visible_line(line: Text) -> Text:
    """Escape every character that a terminal would interpret, and keep the styles of the others."""
    if line.plain.isprintable():
        return line
    from rich.text import Text

    shown = [c.isprintable() or c == "\n" for c in line.plain]
    parts = line.divide([i for i in range(1, len(shown)) if shown[i] != shown[i - 1]])
    return Text().join(part if shown[0] ^ i % 2 else Text(visible(part.plain)) for i, part in enumerate(parts))


def _color_system() -> Any:
    """Return the name of rich for the colors of stdout, or None for plain text. The command sets `color` of click's
    context if NO_COLOR or FORCE_COLOR is set.
    """
    context = click.get_current_context(silent=True)
    if context is None or context.color is None:
        return "auto" if sys.stdout.isatty() else None
    return "standard" if context.color else None


def write_field(label: str, lines: Iterable[str], indent: int) -> None:
    """Write a label next to lines of text."""
    for i, line in enumerate(lines):
        write(f"  {dim((label if i == 0 else '').ljust(indent))}{line}")


def width() -> int | None:
    """Return the width of the terminal, or COLUMNS; None if the width is not limited."""
    if not sys.stdout.isatty() and _columns() is None:
        return None
    import shutil

    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


def bold(text: str) -> str:
    return click.style(text, bold=True)


def dim(text: str) -> str:
    return click.style(text, dim=True)


def red(text: str) -> str:
    return click.style(text, fg="red")
