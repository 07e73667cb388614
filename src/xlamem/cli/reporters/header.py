"""The lines above every screen about one program."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ...formatting import count, shorten, shorten_path, visible, wrap
from ...input.find import Source


def header(source: Source, module: dict[str, Any], problems: list[str], width: int | None) -> list[Text]:
    """Return the problems of the dump, the name of the program and its path."""
    lines = [Text(line, "bold red") for problem in problems for line in wrap(problem, 0, width)]
    about = _about(module)
    name = visible(module["module_name"] or source.name)
    name = shorten(name, width and width - len(about) - 2)
    lines.append(Text.assemble((name, "bold"), f"  {about}" if about else ""))
    number = "" if module["module_id"] is None else f"module {module['module_id']:04d} "
    path = shorten_path(visible(source.location), width and width - len(number) - 3)
    lines.append(Text(f"{number}in {path}", "dim"))
    return lines


def _about(module: dict[str, Any]) -> str:
    platform = " ".join(filter(None, [module["platform"], module["target"]]))
    steps = "" if module["schedule_length"] is None else count(module["schedule_length"], "step")
    return ", ".join(filter(None, [platform, steps]))
