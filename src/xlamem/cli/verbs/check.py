"""`xlamem check`: budgets and baselines for CI."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from ...display.markdown import escaped
from ...errors import OutputError, UsageError, XlaMemError, output_error
from ...formatting import similar
from ...gate.baseline import is_baseline
from ...gate.checking import check
from ...gate.config import Config, budget_of, load_config
from ...gate.formats import FORMATS
from ...gate.formats.as_github import command as github_command
from ...gate.formats.as_markdown import MARKER
from ...gate.result import CheckResult
from .. import console, options
from ..completion import devices, files, one_of

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
            raise UsageError(f"--output: no format {name!r}; {similar(name, FORMATS)}")
        targets.append(Target(name, file or None))
    return targets


def _label(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    return options.labels_of(texts)


@click.command("check")
@options.paths()
@click.option("--config", metavar="FILE", shell_complete=files,
              help="Configuration; by default the nearest xlamem.toml or pyproject.toml.")
@click.option("--baseline", metavar="PATH", shell_complete=files,
              help="Baseline: a JSON file, a directory of dumps, or a dataset.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", callback=_label,
              help="Only these dumps of a dataset that is the baseline; repeatable.")
@click.option("--bless", is_flag=True, help="Write the programs to the baseline file.")
@click.option("--prune", is_flag=True, help="Remove programs from the baseline file that PATH does not have.")
@click.option("--ratchet/--no-ratchet", default=None,
              help="Tighten the baseline file when a program improves; overrides the configuration.")
@click.option("--max-device-total", metavar="SIZE", help="A budget for every program: what must fit (14.5GiB).")
@click.option("--device", metavar="NAME", shell_complete=one_of(devices),
              help="A budget for every program: it must fit this device (v5e, h100).")
@click.option("--source-root", metavar="DIR", shell_complete=files,
              help="Folder with the sources of the models, for annotations at their"
              " lines; by default that of the configuration, or the current directory.")
@click.option("--output", "targets", multiple=True, metavar="FORMAT[=FILE]", callback=_targets,
              shell_complete=one_of(lambda: FORMATS),
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
      2    the configuration or the baseline is unusable, or a budget matches or
           compares no program
      3    a verdict is not known, and no check failed
      4    the baseline or an output cannot be written
    """
    targets = _all_targets(targets, output.json)
    with _reporting_errors(targets):
        settings = _with_budget(load_config(config), max_device_total, device)
        if source_root is not None:
            settings = replace(settings, source_root=_directory(source_root))
    _require_other_file(targets, baseline or str(settings.baseline_place))
    with _reporting_errors(targets):
        result = check(
            list(paths), config=settings, baseline=baseline, labels=labels, bless=bless, prune=prune, ratchet=ratchet
        )
    _write_all(result, targets)
    return result.exit_code


def _all_targets(targets: list[Target], json: bool) -> list[Target]:
    """Return what is to be written, stdout first, so that a file that cannot be written does not hide the result."""
    added = [Target("json", None)] if json else []
    if not any(target.file is None for target in (*targets, *added)):
        added = [Target("text", None)]
    return sorted(dict.fromkeys([*targets, *added]), key=lambda target: target.file is not None)


def _require_other_file(targets: list[Target], baseline: str) -> None:
    """Raise UsageError if two outputs have the same file, or one that of the baseline."""
    taken = {os.path.realpath(baseline): "the baseline"}
    for target in targets:
        if target.file is not None:
            what = taken.setdefault(os.path.realpath(target.file), f"the output {target.format}")
            if what != f"the output {target.format}":
                raise UsageError(f"--output {target.format}={target.file}: this is the file of {what}")


def _directory(path: str) -> str:
    if not os.path.isdir(path):
        raise UsageError(f"--source-root {path}: no such directory")
    return os.path.abspath(path)


@contextlib.contextmanager
def _reporting_errors(targets: list[Target]) -> Iterator[None]:
    """Say why nothing was checked wherever people would look, and delete reports of an earlier run."""
    try:
        yield
    except XlaMemError as e:
        for target in targets:
            _report_error(str(e), target)
        raise


def _report_error(message: str, target: Target) -> None:
    text = f"{MARKER}\n**xlamem check: {escaped(message)}**"
    if target.format == "github":
        _write_text(github_command("error", [message], title="xlamem check"), target)
        _add_to_summary(text)
    elif target.file is None or is_baseline(target.file):  # where the baseline is may not be known
        return
    elif target.format in ("text", "markdown"):
        _write_file(target.file, text if target.format == "markdown" else f"error: {message}")
    else:
        with contextlib.suppress(OSError):
            os.unlink(target.file)


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


def _write_all(result: CheckResult, targets: list[Target]) -> None:
    """Write every output that can be written. Raises OutputError if one cannot."""
    errors = []
    for target in targets:
        try:
            _write(result, target)
        except OutputError as e:
            errors.append(e)
    if errors:
        raise errors[0]


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
        raise output_error(path, e) from e


def _colored(text: str) -> str:
    """Color the statuses at the beginnings of lines; click removes colors where they are not shown."""
    lines = []
    for line in text.split("\n"):
        word = next((w for w in _COLORS if line.startswith(f"{w} ")), None)
        lines.append(f"{click.style(word, fg=_COLORS[word])}{line[len(word):]}" if word else line)
    return "\n".join(lines)
