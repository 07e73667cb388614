"""Check programs against budgets and a baseline: `xlamem.check`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from .. import schema
from ..compare.doubts import doubt_of_numbers
from ..compare.programs import Dumps, ProgramEntry, Programs, programs_of
from ..compute.capacity import is_for_other, reason_for_doubt
from ..compute.columns import table_of_columns
from ..compute.devices import device
from ..compute.program import program
from ..dump import Dump
from ..errors import DumpError, UsageError, without_passwords
from ..formatting import similar
from ..parse.fingerprints import without_counters
from ..warehouse import Dataset
from . import baseline as baselines
from .causes import MAX_CHANGES, changes_since, compared, largest, source_of, why_since
from .config import Budget, Config, config_of, load_config
from .curves import Curves, usage_curve
from .entry import Entry, entry_of
from .finding import Checked, Finding
from .growth import growth_findings, growth_if_renamed, improvements, tightened, toolchain_changes
from .result import FAILED, NOT_KNOWN, NOTE, PASSED, STATUSES, WARNING, CheckResult, worst
from .rules import budget_findings, certain_failures, known_total
from .stacks import Line, stack_of
from .stored import EntryPrograms, Partner, by_name, gone, partners, platform_and_name, possibly_renamed

Baseline = Dumps | Programs

EXPLAINED = ("device_total", "fits", "peak", "growth", "improved", "compiler", "flags")
"""Rules about sizes, which the change since the baseline or the largest buffers explain."""


def check(
    dumps: Dumps | Programs | Dump | Sequence[Any],
    *,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    baseline: Baseline | None = None,
    labels: Mapping[str, str] | None = None,
    bless: bool = False,
    prune: bool = False,
    ratchet: bool | None = None,
) -> CheckResult:
    """Check programs against the budgets of a configuration, and against a baseline.

    A program counts once, however many processes dumped it. docs/ci.md defines the rules.

    Parameters
    ----------
    dumps
        A directory or another path, a `Dump`, a `Source`, a list of these, or a dataset.
    config
        A configuration, its file, or its table; by default the nearest `xlamem.toml`, or `pyproject.toml` with a table
        `[tool.xlamem]`, from the current directory up to the root of the repository.
    baseline
        A JSON file, a directory of dumps, a dataset, or ``(dataset, labels)``; by default that of the configuration.
    labels
        Select the dumps of a dataset that is the baseline: ``{"commit": "main"}``.
    bless
        Write the programs to the baseline file: what they need now is what they may need from now on.
    prune
        Remove programs from the baseline file that `dumps` does not have; none while a dump that may have one of them
        cannot be read.
    ratchet
        Whether to tighten the baseline file when a program improves; by default as configured.

    Returns
    -------
    CheckResult
        Tables in bytes, the status, and the exit code.

    Raises
    ------
    UsageError
        The configuration is wrong, a budget matches no program or limits the growth of none that the baseline has,
        there is nothing to check, or there is no dump.
    OutputError
        The baseline file cannot be written.
    """
    settings = _config(config, ratchet)
    return _Check(_programs(dumps), settings, _place(baseline, labels, settings), bless, prune).result()


def _config(config: Any, ratchet: bool | None) -> Config:
    if isinstance(config, Config):
        chosen = config
    else:
        chosen = config_of(config) if isinstance(config, Mapping) else load_config(config)
    return chosen if ratchet is None else replace(chosen, ratchet=ratchet)


def _programs(dumps: Any) -> Programs:
    return programs_of(dumps[0] if isinstance(dumps, (list, tuple)) and len(dumps) == 1 else dumps)


def _place(baseline: Any, labels: Mapping[str, str] | None, config: Config) -> Any:
    if not labels:
        return baseline
    if baseline is None and config.baseline is not None:
        baseline = config.baseline_place
    if not isinstance(baseline, (str, os.PathLike, Dataset)):
        raise UsageError("labels select dumps of a dataset: give the dataset as the baseline")
    return baseline, dict(labels)


def check_entries(
    dumps: Sequence[Dump], config: Config, baseline: baselines.Baseline, *, bless: bool, option: str
) -> tuple[CheckResult, baselines.Baseline | None]:
    """Check programs against the budgets of a configuration, and against the entries of a baseline.

    `option` is the name of the option that blesses, for messages.

    Returns
    -------
    CheckResult
        The result.
    Baseline
        The entries from now on: with `bless`, those of these programs alone. None if they stay.
    """
    run = _Check(_programs(list(dumps)), config, baseline, bless, prune=bless, option=option)
    return run.result(), run.next


class _Check:
    """One run of `check`."""

    def __init__(
        self, programs: Programs, config: Config, place: Any, bless: bool, prune: bool, option: str = "--bless"
    ) -> None:
        self.programs, self.config, self.bless, self.prune, self.option = programs, config, bless, prune, option
        self.file: Path | None = None
        """The baseline file, which may not exist yet."""
        self.entries: tuple[Entry, ...] | None = None
        """What the baseline has, if it is a file or its entries."""
        self.next: baselines.Baseline | None = None
        """The entries from now on; None if they stay."""
        self.renamed_from: dict[int, int] = {}
        """The program of the baseline that a new one may have been under another name."""
        self.base, self.baseline = self._baseline(place)
        self.names = by_name(self.base) if self.base is not None else {}
        """The programs of the baseline with a platform and a name."""
        self._require_something_to_check()

    def result(self) -> CheckResult:
        """Check every program, and write the baseline file if that was asked for."""
        budgets = self._budgets()
        found = partners(self.base, self.programs) if self.base is not None else {}
        if self.base is not None:
            self.renamed_from = possibly_renamed(self.base, self.programs, found)
        checked = [self._checked(i, found.get(i), budgets[i]) for i in range(len(self.programs))]
        self._require_compared_growth(checked, budgets)
        removed = self._removed(checked, found)
        written = self._write(checked, found, removed)
        gone = self._gone(found, removed, _has_stranger(checked, found))
        return _result(checked, gone, self.config, self.baseline, written)

    # -- the baseline

    def _baseline(self, place: Any) -> tuple[Programs | None, str | None]:
        """Return the programs of the baseline and where they are; set the file if it is one."""
        if isinstance(place, baselines.Baseline):
            self.entries = place.entries
            return (EntryPrograms(place.entries) if place.entries or self.bless else None), None
        given = place is not None or self.config.baseline is not None
        if place is None:
            place = self.config.baseline_place
        if isinstance(place, (str, os.PathLike)) and baselines.is_baseline_file(place):
            return self._baseline_file(Path(place), given)
        if self.bless or self.prune:
            raise UsageError("a baseline can be written to a JSON file only, not to a directory or a dataset")
        try:
            programs = programs_of(place)
        except DumpError as error:
            raise UsageError(f"the baseline cannot be read: {error}") from error
        for row in programs.programs:
            if not row.readable and row.module_name is None:  # any program may be in it
                problem = str(row.problem).removeprefix("it cannot be read: ")
                raise UsageError(f"the baseline cannot be read: {problem}")
        return programs, without_passwords(str(place[0] if isinstance(place, tuple) else place))

    def _baseline_file(self, path: Path, given: bool) -> tuple[Programs | None, str | None]:
        self.file, self.entries = path, ()
        try:
            exists = path.exists()
        except OSError as error:
            raise UsageError(f"the baseline cannot be read: {path}: {error.strerror}") from error
        if exists:
            self.entries = baselines.load(path).entries
        elif not self.bless:
            if given or self.prune:
                raise UsageError(f"there is no baseline {path}: xlamem check PATH --bless writes it")
            return None, None
        return EntryPrograms(self.entries), str(path)

    def _require_something_to_check(self) -> None:
        if self.base is not None:
            return
        for budget in self.config.budgets:
            if budget.growth is not None:
                raise UsageError(
                    f"{budget.where}: growth needs a baseline, and there is no {self.file}:"
                    " xlamem check PATH --bless writes it"
                )
        if not self.config.budgets:
            raise UsageError(
                "there is nothing to check: write a [[budget]] in xlamem.toml, or a baseline with --bless"
            )

    def _require_compared_growth(self, checked: Sequence[Checked], budgets: Sequence[list[Budget]]) -> None:
        """Raise UsageError if a budget limits growth, and none of its programs was compared with the baseline."""
        compared = {b.number for c, own in zip(checked, budgets, strict=True) if self._is_compared(c) for b in own}
        for budget in self.config.budgets:
            if budget.growth is not None and budget.number not in compared and not self.bless:
                raise UsageError(
                    f"{budget.where}: growth: none of the programs that match is in the baseline"
                    f"{f' {self.baseline}' if self.baseline else ''}{self._advice('adds them')}"
                )

    def _is_compared(self, c: Checked) -> bool:
        """Return whether a program was compared with one of the baseline, or cannot be."""
        return c.entry is None or c.number in self.renamed_from or any(f.rule == "growth" for f in c.findings)

    # -- programs

    def _budgets(self) -> list[list[Budget]]:
        """Return the budgets of each program. Raises UsageError if a budget matches no program."""
        programs = self.programs.programs
        names = [p.module_name for p in programs]
        for budget in self.config.budgets:
            if not any(map(budget.matches, names)):
                known = sorted({without_counters(n) for n in names if n})
                raise UsageError(f"{budget.where} matches no program; {similar(budget.program, known)}")
        platforms = {p.platform for p in programs}
        budgets = {platform: [self._for_platform(b, platform) for b in self.config.budgets] for platform in platforms}
        return [[b for b in budgets[p.platform] if b.matches(p.module_name)] for p in programs]

    def _for_platform(self, budget: Budget, platform: str | None) -> Budget:
        """Return a budget without its device for programs for another platform, if it also matches one for the device.

        Beside a program for a TPU, JAX compiles small ones for the CPU.
        """
        if budget.device is None or not is_for_other(platform, chosen := device(budget.device)):
            return budget
        matched = {p.platform for p in self.programs.programs if budget.matches(p.module_name)}
        return replace(budget, device=None) if chosen.platform in matched else budget

    def _checked(self, number: int, partner: Partner | None, budgets: list[Budget]) -> Checked:
        c = Checked(number, self.programs[number])
        try:
            dump = self.programs.read(number)
            p = program(dump)
            c.known_total, c.problem = known_total(p), doubt_of_numbers(p.tables)
            if not c.problem:
                d = c.described
                c.entry = entry_of(p, d.module_name, d.program_fp, d.interface_fp)
        except (DumpError, UsageError) as e:
            c.problem = f"cannot be read: {e}"
            c.findings.append(Finding("unreadable", NOT_KNOWN, f"the dump {c.problem}"))
            return c
        if c.entry is None:
            c.findings.append(Finding("unreadable", NOT_KNOWN, reason_for_doubt(p.tables) or f"the dump {c.problem}"))
            if c.known_total is not None:
                c.findings += [f for b in budgets for f in certain_failures(p, c.known_total, b)]
            return c
        c.findings += [f for b in budgets for f in budget_findings(p, c.entry, b)]
        if self.base is not None:
            self._compare(c, partner, budgets)
        self._explain(c, dump, partner)
        c.stacks = {line: stack_of(p, line) for line in _source_lines(c)}
        return c

    def _compare(self, c: Checked, partner: Partner | None, budgets: list[Budget]) -> None:
        """Add the findings against the baseline."""
        if partner is None:
            beyond = self._growth_beyond_namesakes(c, budgets)
            c.findings += [*(map(self._blessed, beyond) if self._is_blessed(c) else beyond), self._new(c)]
            return
        c.how = partner.how
        c.base = self._base_entry(partner.number)
        if c.base is None or c.entry is None:
            c.findings.append(Finding("growth", NOT_KNOWN, "the program in the baseline is not known"))
            return
        findings = growth_findings(c.base, c.entry, budgets, self.config)
        c.findings += map(self._blessed, findings) if self._is_blessed(c) else findings
        if texts := improvements(c.base, c.entry):
            done = self.entries is not None and self._next_entry(c) is not None
            more = "; the baseline is tightened" if done else self._advice("tightens the baseline")
            c.findings.append(Finding("improved", NOTE, f"{' and '.join(texts)}{more}"))

    def _growth_beyond_namesakes(self, c: Checked, budgets: list[Budget]) -> Sequence[Finding]:
        """Return the findings of a program without a partner against the largest of its name in the baseline."""
        others = self._namesakes(c)
        if c.entry is None or not others:
            return []
        name = f"the largest {platform_and_name(c.described)[1]} of the baseline"
        totals = {i: p.device_total for i, p in others.items() if p.device_total is not None}
        if len(totals) < len(others) or not (base := self._base_entry(max(totals, key=totals.__getitem__))):
            return [Finding("growth", NOT_KNOWN, f"{name} is not known")]
        peaks = [p.peak for p in others.values() if p.peak is not None]
        base = replace(base, peak=max(peaks) if len(peaks) == len(others) else None)
        return [*growth_findings(base, c.entry, budgets, self.config, name)]

    def _new(self, c: Checked) -> Finding:
        """Return the finding for a program that is not in the baseline: not known if it may be one that grew."""
        if self._is_blessed(c):
            return Finding("new", NOTE, "added to the baseline")
        if self.base is not None and c.entry is not None and c.number in self.renamed_from:
            base = self.base[self.renamed_from[c.number]]
            if grown := growth_if_renamed(base.device_total, base.peak, c.entry):
                name = platform_and_name(base)[1]
                advice = self._advice("adds it")
                text = f"it is not in the baseline{advice}. {name} is gone: if it was renamed, {grown}"
                return Finding("new", NOT_KNOWN, text)
        return Finding("new", NOTE, f"not in the baseline{self._advice('adds new programs')}")

    def _advice(self, what: str) -> str:
        """Return a clause that says what blessing does; empty if the baseline cannot be written."""
        return "" if self.entries is None else f"; {self.option} {what}"

    def _is_blessed(self, c: Checked) -> bool:
        """Return whether the entry of a program is written as it is."""
        return self.bless and c.entry is not None and not self._loses_peak(c)

    def _loses_peak(self, c: Checked) -> bool:
        """Return whether the baseline knows the peak of a program, or of one with its name, and the dump does not."""
        if c.entry is None or c.entry.peak is not None:
            return False
        if c.base is not None:
            return c.base.peak is not None
        return any(b.peak is not None for b in self._namesakes(c).values())

    def _namesakes(self, c: Checked) -> dict[int, ProgramEntry]:
        """Return the programs of the baseline with the platform and the name of a program, by number."""
        if self.base is None:
            return {}
        return {i: self.base[i] for i in self.names.get(platform_and_name(c.described), ())}

    def _blessed(self, finding: Finding) -> Finding:
        """Return a finding after blessing: growth is accepted."""
        if finding.status not in (FAILED, WARNING):
            return finding
        return finding._replace(status=NOTE, message=f"{finding.message}: accepted")

    def _base_entry(self, number: int) -> Entry | None:
        """Return a program of the baseline; None if its numbers are not known."""
        if self.entries is not None:
            return self.entries[number]
        assert self.base is not None
        try:
            p = program(self.base.read(number))
        except (DumpError, UsageError):
            return None
        d = self.base[number]
        return None if doubt_of_numbers(p.tables) else entry_of(p, d.module_name, d.program_fp, d.interface_fp)

    def _explain(self, c: Checked, dump: Dump, partner: Partner | None) -> None:
        """Add the cause of what did not pass, and the bytes in use over the schedule."""
        statuses = {f.status for f in c.findings if f.rule in EXPLAINED} - {PASSED}
        if not statuses or c.entry is None:
            return
        c.curves = Curves(usage_curve(program(dump)))
        if c.base is not None and partner is not None and (self.entries is not None or partner.how != "same"):
            if self.entries is not None:
                c.changes = changes_since(c.base, c.entry)[:MAX_CHANGES]
                c.why = why_since(c.base, c.entry, c.changes)
            else:
                assert self.base is not None
                before = self.base.read(partner.number)
                c.why, c.changes = compared(before, dump)
                c.curves = c.curves._replace(baseline=usage_curve(program(before)))
        if not c.why and worst(statuses) in (FAILED, NOT_KNOWN):
            c.why = largest(c.entry)
        c.source = source_of(c.entry, c.changes)

    # -- what the baseline has and the run does not

    def _gone(
        self, found: Mapping[int, Partner], removed: Sequence[int], has_stranger: bool
    ) -> Iterator[tuple[str | None, str | None, Finding]]:
        """Yield the name, the platform and the finding of each program that was not compiled, as far as is known."""
        for i in gone(self.base, found) if self.base is not None else ():
            assert self.base is not None
            row, more = self.base[i], "; removed from the baseline" if i in removed else ""
            text = f"in the baseline, but not among the dumps{' that can be read' if has_stranger else ''}{more}"
            yield row.module_name, row.platform, Finding("gone", NOTE, text, baseline=row.device_total)

    def _removed(self, checked: Sequence[Checked], found: Mapping[int, Partner]) -> list[int]:
        """Return the entries of the baseline that are removed: with --prune all that have no program.

        None is removed while a dump that cannot be read, such as an archive, may be of one of them.
        """
        if self.entries is None:
            return []
        taken = {p.number for p in found.values()}
        left = [i for i in range(len(self.entries)) if i not in taken]
        if self.prune and not _has_stranger(checked, found):
            return left
        return self._replaced_by_name(checked, found) if self.bless else []

    def _write(self, checked: Sequence[Checked], found: Mapping[int, Partner], removed: Sequence[int]) -> str | None:
        """Write the baseline file if something is to be changed; return its path."""
        self.next = self._changed(checked, found, removed)
        if self.file is None or self.next is None:
            return None
        baselines.write(self.file, self.next)
        return str(self.file)

    def _changed(
        self, checked: Sequence[Checked], found: Mapping[int, Partner], removed: Sequence[int]
    ) -> baselines.Baseline | None:
        """Return the entries of the baseline if something is to be changed."""
        if self.entries is None:
            return None
        replaced = {found[c.number].number: e for c in checked if c.number in found and (e := self._next_entry(c))}
        new = [c.entry for c in checked if c.entry and c.number not in found and self._is_blessed(c)]
        if not (self.bless or self.prune or replaced):
            return None
        return baselines.merged(self.entries, replaced, new, removed)

    def _next_entry(self, c: Checked) -> Entry | None:
        """Return the entry that replaces that of the baseline; None if it stays."""
        if c.entry is None or c.base is None or self._loses_peak(c):
            return None
        if self.bless:
            return c.entry
        if rules := {rule for rule, _ in toolchain_changes(c.base, c.entry)}:
            policies = {getattr(self.config, f"{rule}_change") for rule in rules}
            return c.entry if policies == {"bless"} else None
        return tightened(c.base, c.entry) if self.config.ratchet and improvements(c.base, c.entry) else None

    def _replaced_by_name(self, checked: Sequence[Checked], found: Mapping[int, Partner]) -> list[int]:
        """Return programs of the baseline that are gone, and whose place a new one of the same name took."""
        assert self.base is not None
        left_out = {platform_and_name(c.described) for c in checked if not self._is_blessed(c)}
        new = Counter(platform_and_name(c.described) for c in checked if c.number not in found)
        replaced = []
        for i in gone(self.base, found):
            name = platform_and_name(self.base[i])
            if name not in left_out and new[name] > 0:
                new[name] -= 1
                replaced.append(i)
        return replaced


def _has_stranger(checked: Sequence[Checked], found: Mapping[int, Partner]) -> bool:
    """Return whether a dump that cannot be read, or not completely, has no partner in the baseline."""
    return any(c.entry is None and c.number not in found for c in checked)


def _source_lines(c: Checked) -> set[Line]:
    """Return the source lines of what did not pass."""
    own = {(f.source_file, f.source_line) for f in c.findings if f.status != PASSED}
    return {(file, line) for file, line in {*own, c.source} if file}


# -- tables --------------------------------------------------------------------------------------


def _result(
    checked: Sequence[Checked],
    gone: Iterable[tuple[str | None, str | None, Finding]],
    config: Config,
    baseline: str | None,
    written: str | None,
) -> CheckResult:
    findings = [row for c in checked for row in _finding_rows(c)]
    findings += [_finding_row(f, module_name=name, platform=platform) for name, platform, f in gone]
    changes = [{"program": c.number, **change._asdict()} for c in checked for change in c.changes]
    return CheckResult(
        _table("findings", findings),
        _table("checked_programs", [_program_row(c) for c in checked]),
        _table("contributors", changes),
        config,
        baseline,
        written,
        {c.number: c.curves for c in checked if c.curves.now},
        {c.number: c.stacks for c in checked},
    )


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    columns = schema.CHECKED[name].columns
    plain = {"name": pa.string()}
    arrays = {c.name: pa.array([r.get(c.name) for r in rows], plain.get(c.kind, c.arrow.type)) for c in columns}
    return table_of_columns(columns, arrays)


def _finding_rows(c: Checked) -> Iterator[dict[str, Any]]:
    """Yield the findings of a program, the worst first."""
    d, (file, line) = c.described, c.source
    for f in sorted(c.findings, key=lambda f: -STATUSES.index(f.status)):
        row = _finding_row(f, program=c.number, module_name=d.module_name, platform=d.platform, uri=d.uri)
        if f.status != PASSED and f.rule in EXPLAINED:
            row |= {"why": c.why or None, "source_file": file, "source_line": line}
        yield row


def _finding_row(f: Finding, **program: Any) -> dict[str, Any]:
    return {**f._asdict(), **program}


def _program_row(c: Checked) -> dict[str, Any]:
    d, entry, base = c.described, c.entry, c.base
    return {
        "program": c.number,
        "module_name": d.module_name,
        "module_id": d.module_id,
        "platform": d.platform,
        "uri": d.uri,
        "occurrences": d.occurrences,
        "program_fp": d.program_fp,
        "interface_fp": d.interface_fp,
        "status": worst(f.status for f in c.findings),
        "device_total": entry.device_total if entry else c.known_total,
        "peak": entry.peak if entry else None,
        "device_total_baseline": base.device_total if base else None,
        "peak_baseline": base.peak if base else None,
        "name_baseline": base.name if base else None,
        "how": c.how,
        "doubt": c.doubt or None,
        "why": c.why or None,
    }
