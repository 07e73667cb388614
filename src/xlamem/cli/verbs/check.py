"""`xlamem check`: budgets and baselines for CI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from ...display.markdown import escaped
from ...errors import OutputError, UsageError, XlaMemError
from ...gate.checking import check
from ...gate.config import Config, budget_of, load_config
from ...gate.formats import FORMATS
from ...gate.formats.as_github import command as github_command
from ...gate.formats.as_markdown import MARKER
from ...gate.result import CheckResult
from .. import console, options

_COLORS = {"FAILED": "red", "NOT KNOWN": "red", "warning": "yellow", "ok": "green"}


class Target(NamedTuple):
    """A format and the file to write; None is stdout."""

    format: str
    file: str | None


def _targets(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> list[Target]:
    targets = []
    for text in texts:
        name, _sign, file = text.partition("=")
        if name not in FORMATS:
            raise UsageError(f"--output: no format {name!r}; there are {', '.join(FORMATS)}")
        targets.append(Target(name, file or None))
    return targets


def _label(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--label must be KEY=VALUE, not {text!r}")
    return dict(text.split("=", 1) for text in texts)


@click.command("check")
@options.paths
@click.option("--config", metavar="FILE", help="Configuration; by default the nearest xlamem.toml or pyproject.toml.")
@click.option("--baseline", metavar="PATH", help="Baseline: a JSON file, a directory of dumps, or a dataset.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", callback=_label,
              help="Only these dumps of a dataset that is the baseline; repeatable.")
@click.option("--bless", is_flag=True, help="Write the programs to the baseline file.")
@click.option("--prune", is_flag=True, help="Remove programs from the baseline file that PATH does not have.")
@click.option("--ratchet/--no-ratchet", default=None,
              help="Tighten the baseline file when a program improves; overrides the configuration.")
@click.option("--max-device-total", metavar="SIZE", help="A budget for every program: what must fit (14.5GiB).")
@click.option("--device", metavar="NAME", help="A budget for every program: it must fit this device (v5e, h100).")
@click.option("--source-root", metavar="DIR", help="Folder with the sources of the models, for annotations at their"
              " lines; by default that of the configuration, or the current directory.")
@click.option("--output", "targets", multiple=True, metavar="FORMAT[=FILE]", callback=_targets,
              help=f"Write a format to a file, or to stdout; repeatable: {', '.join(FORMATS)}.")
@options.output()
def command(
    paths: tuple[str, ...],
    config: str | None,
    baseline: str | None,
    labels: dict[str, str],
    bless: bool,
    prune: bool,
    ratchet: bool | None,
    max_device_total: str | None,
    device: str | None,
    source_root: str | None,
    targets: list[Target],
    output: options.Output,
) -> int:
    """Check the programs at each PATH against budgets and a baseline.

    Budgets are in xlamem.toml, or in [tool.xlamem] of pyproject.toml, of this directory or the nearest parent that has
    one. The baseline is a JSON file that --bless writes.

    \b
    Exit codes:
      0    every check passed
      1    a check failed
      2    the configuration is wrong, or a budget matches no program
      3    a verdict is not known, and no check failed
      4    the baseline or an output cannot be written
    """
    if output.json:
        targets = [*targets, Target("json", None)]
    if not any(target.file is None for target in targets):
        targets = [*targets, Target("text", None)]
    try:
        settings = _with_budget(load_config(config), max_device_total, device)
        if source_root is not None:
            settings = replace(settings, source_root=os.path.abspath(source_root))
        result = check(
            list(paths), config=settings, baseline=baseline, labels=labels, bless=bless, prune=prune, ratchet=ratchet
        )
    except XlaMemError as e:
        _report_error(str(e), targets)
        raise
    for target in targets:
        _write(result, target)
    return result.exit_code


def _report_error(message: str, targets: list[Target]) -> None:
    """Show on GitHub why nothing was checked: as an annotation, and in the summary of the step."""
    for target in targets:
        if target.format == "github":
            _write_text(github_command("error", [message], title="xlamem check"), target)
            _add_to_summary(f"{MARKER}\n**xlamem check: {escaped(message)}**")


def _add_to_summary(text: str) -> None:
    """Append Markdown to the summary of the step, if GitHub Actions runs this process."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        _write_file(path, text, mode="a")


def _with_budget(config: Config, max_device_total: str | None, device: str | None) -> Config:
    """Return the configuration with the budget of the options."""
    table: dict[str, Any] = {"device_total": max_device_total, "device": device}
    table = {key: value for key, value in table.items() if value is not None}
    if not table:
        return config
    budget = budget_of(table, len(config.budgets) + 1, where="--max-device-total, --device")
    return replace(config, budgets=(*config.budgets, budget))


def _write(result: CheckResult, target: Target) -> None:
    text = FORMATS[target.format](result)
    _write_text(_colored(text) if target == ("text", None) else text, target)
    if target.format == "github":
        _add_to_summary(FORMATS["markdown"](result))


def _write_text(text: str, target: Target) -> None:
    if target.file is None:
        console.write(text)
    else:
        _write_file(target.file, text)


def _write_file(path: str, text: str, mode: str = "w") -> None:
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, mode, encoding="utf-8", newline="\n") as file:
            file.write(f"{text}\n")
    except OSError as e:
        raise OutputError(f"{path}: {e.strerror or e}") from e


def _colored(text: str) -> str:
    """Color the statuses at the beginnings of lines; click removes colors where they are not shown."""
    lines = []
    for line in text.split("\n"):
        word = next((w for w in _COLORS if line.startswith(f"{w} ")), None)
        lines.append(f"{click.style(word, fg=_COLORS[word])}{line[len(word):]}" if word else line)
    return "\n".join(lines)
