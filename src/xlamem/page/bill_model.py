"""The bill of a program for the page: accounts with labelled lines and parts."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ..compute.bill_wording import EXPLANATIONS, IN_USE, LABELS, accounts_of, counted, line_note, slot_sentence
from .model import Account, BillLine

Row = dict[str, Any]


def accounts(rows: list[Row]) -> list[Account]:
    """Return the accounts of the table ``bills``, `device_total` first."""
    return [_account(group) for group in accounts_of(rows)]


def _account(rows: list[Row]) -> Account:
    lines = [_line(name, list(group)) for name, group in groupby(rows, key=lambda r: r["line"])]
    return Account(
        account=rows[0]["account"],
        page=rows[0]["page"] or 0,
        step=rows[0]["step"],
        total=sum(line.bytes for line in lines),
        in_use=sum(line.bytes for line in lines if line.in_use),
        lines=lines,
    )


def _line(name: str, rows: list[Row]) -> BillLine:
    size = sum(r["bytes"] for r in rows)
    return BillLine(name, LABELS.get(name, name), size, name in IN_USE, line_note(rows), [_part(r) for r in rows])


def _part(row: Row) -> dict[str, Any]:
    """Return a row of a bill with its label, and a note about its buffers."""
    part = LABELS.get(row["part"], row["part"])
    is_temporary = row["line"] in ("temporaries", "alignment", "packing") and row["n"] is not None
    buffers = counted(row) if is_temporary else ""
    label = ": ".join(filter(None, [part if part != "data" or not buffers else "", buffers])) or row["line"]
    note = slot_sentence(row, buffers) if row["part"] == "one_value" else EXPLANATIONS.get(row["part"], "")
    return {name: row[name] for name in ("part", "kind", "n", "bytes")} | {"label": label, "note": note}
