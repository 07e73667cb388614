"""The result as JSON: the document `check` of `schema.DOCUMENTS`."""

from __future__ import annotations

import json
from typing import Any

from ... import schema
from ..result import CheckResult


def as_json(result: CheckResult) -> str:
    """Return the result as JSON."""
    return json.dumps(as_data(result), indent=2)


def as_data(result: CheckResult) -> dict[str, Any]:
    """Return the result as plain data."""
    return {
        **schema.envelope("check"),
        "status": result.status,
        "exit_code": result.exit_code,
        "summary": result.summary,
        "config": result.config.path,
        "baseline": result.baseline,
        "written": result.written,
        "programs": result.programs.to_pylist(),
        "findings": result.findings.to_pylist(),
        "contributors": result.contributors.to_pylist(),
    }
