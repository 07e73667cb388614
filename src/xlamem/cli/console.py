"""What the verbs share: exit codes, how errors end a run, how numbers and columns are printed."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ..errors import DumpError, NativeError, OutputError, UsageError, XlaMemError

FINE, CHECK_FAILED, USAGE, UNREADABLE, UNWRITABLE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.text import Text

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
    """Columns of the terminal, or those that COLUMNS says; None where the output may be as wide as it is."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return None
    import shutil

    return max(40, shutil.get_terminal_size().columns)


def rich_out(*texts: Text, width: int | None = None) -> None:
    """Styled lines to stdout, cut at the width: colored on a terminal, plain elsewhere and where NO_COLOR is set."""
    from io import StringIO

    from rich.console import Console

    terminal, file = sys.stdout.isatty(), StringIO()
    colors: Any = "auto" if terminal and not os.environ.get("NO_COLOR") else None
    screen = Console(file=file, force_terminal=terminal, color_system=colors, width=10**6, highlight=False)
    for text in texts:
        text.rstrip()
        if width is not None:
            text.truncate(width, overflow="ellipsis")
        screen.print(text, soft_wrap=True)
    out(file.getvalue().removesuffix("\n"))


def out_csv(names: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Rows as CSV (RFC 4180 but for the line ends); null is empty."""
    import csv
    from io import StringIO

    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if v is None else str(v).lower() if isinstance(v, bool) else v for v in row])
        if file.tell() > 1 << 20:
            out(file.getvalue().removesuffix("\n"))
            file.seek(0)
            file.truncate()
    if file.tell():
        out(file.getvalue().removesuffix("\n"))


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


def known(n: int | None) -> str:
    """A number; "?" for one that the text does not say."""
    return "?" if n is None else f"{n:,}"


def counted(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def shortened(text: str, limit: int | None) -> str:
    """The text with its middle left out if it is too long."""
    if limit is None or len(text) <= limit:
        return text
    limit = max(limit, 9)
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[-tail:]}"


def tail(text: str, limit: int | None) -> str:
    """The end of a path-like text, cut at a '/' where that leaves something: of a scope the end tells most."""
    if limit is None or len(text) <= limit:
        return text
    limit = max(limit, 4)
    kept = text[len(text) - limit + 1 :]
    slash = kept.find("/")
    return "…" + (kept[slash:] if 0 <= slash <= len(kept) // 2 else kept)


def percent(part: int, whole: int) -> str:
    """A share for people."""
    if not whole:
        return "-"
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 0.05 or not part else "<0.1 %"


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


# -- drawings --------------------------------------------------------------------------------------


def blocks() -> str:
    """Nine heights of a character cell, empty to full; plain ones where the output is not Unicode."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return " ▁▂▃▄▅▆▇█" if encoding.startswith("utf") else " ..::=++#"


def bar(part: int, whole: int, room: int) -> str:
    """A bar that is as long as a share; never empty for something."""
    full = blocks()[-1]
    return full * (max(1, round(room * part / whole)) if part and whole else 0)


def timeline(steps: int, room: int) -> npt.NDArray[np.int64]:
    """The first step in each column of a chart at most ``room`` wide; few steps take up to four columns each."""
    import numpy as np

    if steps <= room:
        return np.repeat(np.arange(steps), max(1, min(4, room // steps)))
    return np.arange(room) * steps // room


def column(edges: npt.NDArray[np.int64], step: int) -> int:
    """The first column of that chart that shows a step."""
    return int(edges.searchsorted(edges[edges.searchsorted(step, "right") - 1]))


def spark(heights: npt.NDArray[np.int64], top: int, rows: int) -> list[str]:
    """A chart of character cells, from its top row to its bottom row; 0 is at the bottom."""
    import numpy as np

    marks = blocks()
    level = np.ceil(heights / max(top, 1) * 8 * rows).astype(np.int64)
    cells = [np.clip(level - 8 * row, 0, 8) for row in range(rows - 1, -1, -1)]
    return ["".join(marks[c] for c in line.tolist()) for line in cells]
