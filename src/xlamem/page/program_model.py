"""Build the model of one program from its tables."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from ..compute.advice import Plan, plan_advice
from ..compute.arena_cells import free_cells
from ..compute.bills import DEVICE_TOTAL, bill
from ..compute.capacity import Fits, fits, reason_for_doubt
from ..compute.explanation import explain, explain_causes
from ..compute.origins import origins
from ..compute.peaks import Peak, peak
from ..compute.program import program
from ..compute.removal import saved_by_chain
from ..compute.wording import describe_problems
from ..dump import Dump, as_tables
from ..formatting import count
from ..parse.threads import ThreadPool
from .bill_model import accounts
from .buffers_model import buffer_model
from .columns import N_THREADS
from .findings_model import advice_rows, diagnostic_rows, explanations
from .model import Program, Space, Verdict
from .spaces_model import N_PLATEAUS, phase_bands, space_models
from .verdict_model import decided_by, device_of, first_step, headline

Row = dict[str, Any]


def program_model(dump: Dump, memory: dict[str, Any] | None = None) -> Program:
    """Return the model of a program.

    `memory` has the arguments of `fits`: capacity or device, resident and fraction; None to compare with no device.
    """
    p = program(dump)
    (module,) = dump.modules.to_pylist()
    fit = None if memory is None else fits(dump, **memory)
    budget = max(fit.available, 0) if fit is not None and fit.fits is False else None
    pool = ThreadPool(N_THREADS)
    curves = pool.submit(partial(_curves, dump))
    origins(p)
    peaks = curves.result()
    findings = pool.submit(partial(_findings, dump, budget))
    spaces, place = space_models(p, peaks)
    parts, phases = buffer_model(p, place), phase_bands(p)
    numbers, causes = explain(dump).to_pylist(), explain_causes(dump).to_pylist()
    found = findings.result()
    bills, advice = accounts(found.bill), advice_rows(found.advice, parts.buffers.value_id)
    total = next((a for a in bills if a.account == DEVICE_TOTAL), None)
    verdict = Verdict(
        must_fit=peaks.device_total,
        terms=_terms(spaces),
        device=device_of(fit, dump.platform),
        fits=None if fit is None else fit.fits,
        reason=_reason(dump, fit),
        headline=headline(peaks.device_total, fit, trusted=bool(module["complete"] and module["understood"])),
        decided_by=decided_by(p, total, found.bill, phases),
        first_step=first_step(p, advice, fit, found.plan),
    )
    return Program(
        name=module["module_name"] or dump.name,
        path=dump.source.location,
        **{name: module[name] for name in ("module_id", "platform", "target", "complete", "understood", "consistent")},
        steps=p.steps,
        problems=describe_problems(dump),
        folded=_without_usage(spaces),
        verdict=verdict,
        spaces=spaces,
        bill=bills,
        phases=phases,
        **vars(parts),
        advice=advice,
        explain=explanations(numbers, causes),
        diagnostics=diagnostic_rows(dump.diagnostics),
        n_diagnostics=dump.diagnostics.num_rows,
    )


def _curves(dump: Dump) -> Peak:
    """Return the peaks, and compute what else is known without names, which is kept."""
    peaks = peak(dump, k=N_PLATEAUS)
    p = program(dump)
    if p.steps is not None:
        saved_by_chain(p)
        free_cells(p)
    return peaks


class _Findings(NamedTuple):
    """The bill of a program, and what to do about it."""

    bill: list[Row]
    advice: pa.Table
    plan: Plan | None


def _findings(dump: Dump, budget: int | None) -> _Findings:
    return _Findings(bill(dump).to_pylist(), *plan_advice(dump, budget))


def _terms(spaces: list[Space]) -> list[dict[str, Any]]:
    """Return the bytes of `device_total` by memory space."""
    sizes: Counter[str] = Counter()
    for space in spaces:
        sizes[space.memory_space] += space.reserved * space.in_device_memory
    return [{"memory_space": name, "bytes": n} for name, n in (+sizes).items()]


def _reason(dump: Dump, fit: Fits | None) -> str:
    """Say why it is not known whether the program fits, or why what must fit cannot be trusted."""
    if fit is None:
        return reason_for_doubt(as_tables(dump))
    return fit.reason if fit.fits is None else ""


def _without_usage(spaces: list[Space]) -> list[str]:
    n = sum(space.peak is not None and not len(space.usage) for space in spaces)
    return [f"The curves of {count(n, 'memory space')} are left out: there are too many steps."] if n else []
