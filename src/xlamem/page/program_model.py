"""Build the model of one program from its tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..compute.advice import plan_advice
from ..compute.bills import bill
from ..compute.capacity import Fits, fits, reason_for_doubt
from ..compute.explanation import explain, explain_causes
from ..compute.peaks import peak
from ..compute.program import program
from ..compute.wording import describe_problems
from ..dump import Dump, as_tables
from ..formatting import count
from .bill_model import accounts
from .buffers_model import buffer_model
from .findings_model import advice_rows, diagnostic_rows, explanations
from .model import Program, Space, Verdict
from .spaces_model import N_PLATEAUS, phase_bands, space_models
from .verdict_model import decided_by, device_of, first_step, headline


def program_model(dump: Dump, memory: dict[str, Any] | None = None) -> Program:
    """Return the model of a program.

    `memory` has the arguments of `fits`: capacity or device, resident and fraction; None to compare with no device.
    """
    p = program(dump)
    (module,) = dump.modules.to_pylist()
    fit = None if memory is None else fits(dump, **memory)
    peaks = peak(dump, k=N_PLATEAUS)
    spaces, place = space_models(p, peaks)
    parts, phases, rows = buffer_model(p, place), phase_bands(p), bill(dump).to_pylist()
    bills = accounts(rows)
    budget = max(fit.available, 0) if fit is not None and fit.fits is False else None
    table, plan = plan_advice(dump, budget)
    advice = advice_rows(table, parts.buffers.value_id)
    total = next((a for a in bills if a.account == "device_total"), None)
    verdict = Verdict(
        must_fit=peaks.device_total,
        terms=_terms(spaces),
        device=device_of(fit, dump.platform),
        fits=None if fit is None else fit.fits,
        reason=_reason(dump, fit),
        headline=headline(peaks.device_total, fit, trusted=bool(module["complete"] and module["understood"])),
        decided_by=decided_by(p, total, rows, phases),
        first_step=first_step(p, advice, fit, plan),
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
        explain=explanations(explain(dump).to_pylist(), explain_causes(dump).to_pylist()),
        diagnostics=diagnostic_rows(dump.diagnostics),
        n_diagnostics=dump.diagnostics.num_rows,
    )


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
