"""Say what changed between two programs, in a sentence."""

from __future__ import annotations

from typing import Any

from .. import kernels as pc
from ..compute.bills import DEVICE_TOTAL
from ..compute.columns import arrow_array, is_in
from ..formatting import file_line, size
from .compiler import FOR_CHIP
from .groups import difference_groups, of_account
from .tables import HOST, DiffTables

Row = dict[str, Any]

MIN_SHARE = 0.1
"""An edit that explains less of a change than this is not its main cause."""
MAX_SHARE = 1.25
"""Buffers that changed by more of a change than this are stated with those that changed in the other direction."""
MIN_LAYERS = 0.03
"""Arguments that explain at least this part of a change may be layers, whose lines are those of others."""
MIN_CANCELED = 10
"""An edit that changed this many times as much as is left of it is a cause, whatever cancels it."""
MAX_GROUPS = 50
"""Maximum number of groups of buffers among which the largest ones are looked for."""
FACTS = (
    "layers", "arguments", "sharding", "loops", "repetitions", "rematerialization", "memory space", "constants",
    "element type", "outputs", "operations", "dimensions", "flags", "donation",
)  # fmt: skip
"""Kinds of edits in the order in which they are named if none of them explains the change."""
COUNTED = ("arguments", "outputs", "constants")
"""Kinds of edits whose buffers are all that they change: few bytes, or bytes of the other sign, are not the cause."""
NAMING = ("arguments", "sharding", "donation")
"""Kinds of edits that may name several arguments."""
DETAILS = ("instructions", "operation types")
"""Kinds of edits that are named after all other facts."""
LINES = {
    "parameters": "arguments",
    "donated": "donated arguments",
    "outputs": "outputs",
    "constants": "constants",
    "temporaries": "temporaries",
    "alignment": "alignment",
    "another_step": "other steps",
    "packing": "packing",
}
"""Names of the lines of a bill."""


NOTHING_ELSE = "the same arguments and operations are compiled differently"
"""The cause if no edit was found."""


def signed(n: int) -> str:
    """Return bytes with a sign: `+1.50 MiB`, `±0`."""
    return f"{'+' if n > 0 else '-'}{size(abs(n))}" if n else "±0"


def verdict(d: DiffTables) -> str:
    """Return what changed, and the main cause."""
    prefix = f"Not known ({d.doubt}). As far as the text goes: " if d.doubt else ""
    total = d.accounts.slice(0, 1).to_pylist()[0]
    if d.is_same:
        in_use = f", {size(total['peak_b'])} in use at the peak" if d.has_peaks else ""
        what = "No buffer" if other_edits(d) else "Nothing"
        return f"{prefix}{what} changed: {size(total['reserved_b'])} must fit{in_use}."
    cause = main_cause(d)
    because = f": {cause['text'] if cause else NOTHING_ELSE}"
    if not d.device_total_change and not d.peak_change:
        moves = _moves(d)
        same = f"Nothing changed in total ({size(total['reserved_b'])} must fit)"
        return f"{prefix}{same}{f', but {moves}' if moves else ''}{because}."
    packing = _lines(d).get("packing", 0)
    is_packing = 2 * abs(packing) > abs(d.device_total_change) and packing * d.device_total_change > 0
    of_packing = f" ({signed(packing)} of packing)" if is_packing else ""
    in_use = f", {signed(d.peak_change)} in use at the peak" if d.has_peaks else ""
    in_use += f", {_in_host(d)}" if abs(d.host_change) >= max(1, MIN_SHARE * abs(_change(d))) else ""
    return f"{prefix}{signed(d.device_total_change)} must fit{of_packing}{in_use}{because}{_largest(d, cause)}."


def _in_host(d: DiffTables) -> str:
    return f"{signed(d.host_change)} of host memory"


def _change(d: DiffTables) -> int:
    """Return the change that edits explain: that of the peak, or else of what must fit."""
    return d.peak_change or d.device_total_change


def main_cause(d: DiffTables) -> Row | None:
    """Return the edit that explains the change best, or None if no edit was found."""
    edits = ranked_edits(d)
    return edits[0] if edits else None


def other_edits(d: DiffTables) -> list[Row]:
    """Return the edits that the verdict does not state. Other names of operations alone are no change."""
    edits = ranked_edits(d)
    return [e for e in edits if e["kind"] != "operations"] if d.is_same else edits[1:]


def ranked_edits(d: DiffTables) -> list[Row]:
    """Return the edits: those that explain a part of the change, then other facts, then those that may follow.

    Another compiler or chip comes first; for another chip, only an edit that no compiler makes and that explains more
    than half of the change precedes it. Arguments, outputs and constants that change the peak a little come after other
    facts, and last if they change it in the other direction. Where the host's memory changes more than that of the
    device, or at least half as much in the other direction, what moved there comes first.
    """
    change, in_host = _change(d), abs(d.host_change)
    rows: list[Row] = d.edits.to_pylist()
    kinds = {row["kind"] for row in rows}
    hosted = {*difference_groups(d, ("edit",), account=HOST)["edit"].to_pylist()} if in_host else set()
    # Operations explain whatever else differs around them, also what has another type.
    is_typed = any(row["kind"] == "element type" and row["evidence"] != "buffers" for row in rows)
    has_operations = any(row["kind"] == "operations" and row["evidence"] != "buffers" for row in rows)
    has_layers = any(row["kind"] == "arguments" and row["change"] * change > 0
                     and abs(row["change"]) >= MIN_LAYERS * abs(change) for row in rows)  # fmt: skip
    is_resized = any(row["kind"] == "dimensions" and row["evidence"] == "interface" for row in rows)
    is_for_chip = any(row["kind"] == "compiler" and row["text"].startswith(FOR_CHIP) for row in rows)
    is_offload = d.host_change * change < 0 and 2 * in_host >= abs(change)

    def rank(row: Row) -> tuple[int, int, int]:
        explains = row["change"] * change > 0 and abs(row["change"]) >= MIN_SHARE * abs(change)
        is_buffers = row["evidence"] == "buffers"
        if row["kind"] == "compiler":
            return 0, 0, row["edit"]
        if is_for_chip and 2 * row["change"] * change > change * change > 0 and _is_certain(row):
            return -1, -abs(row["change"]), row["edit"]
        if row["kind"] == "memory space" and not is_buffers and (in_host > abs(change) or is_offload):
            return 1, 0, row["edit"]
        if row["kind"] == "memory space" and is_offload and explains and row["text"] in hosted:
            return 1, 1, row["edit"]
        if row["kind"] == "operations" and is_buffers:  # an array of an operation that both have
            place = 7 if not explains else 6 if has_operations else 2
            return place, -1 if place == 6 else -abs(row["change"]), row["edit"]
        if row["kind"] in DETAILS and row["evidence"] == "files":  # not known
            return 9, 0, row["edit"]
        if row["kind"] in DETAILS:
            return 6, DETAILS.index(row["kind"]), row["edit"]
        is_output = row["kind"] == "outputs" and not row["change"] and is_resized  # its shape follows from an argument
        if _may_follow(row, kinds) or is_output or (has_layers and row["kind"] == "repetitions"):
            return 7, -abs(row["change"]), row["edit"]
        if not explains and not is_buffers and abs(row["change"]) >= MIN_CANCELED * abs(change) > 0:
            return 2, -abs(row["change"]), row["edit"]
        if row["kind"] in COUNTED and row["change"] and not explains:
            return 8 if row["change"] * change < 0 else 5, -abs(row["change"]), row["edit"]
        if not explains:
            return 4, FACTS.index(row["kind"]) + len(FACTS) * is_buffers, row["edit"]
        share = 2 if is_typed and row["kind"] == "operations" else 1
        return 3 if is_buffers else 2, -abs(row["change"]) // share, row["edit"]

    ordered = sorted(rows, key=rank)
    # XLA splits temporaries as it splits arguments, or not at all.
    if ordered and ordered[0]["kind"] == "dimensions" and ordered[0]["evidence"] == "buffers":
        ordered.sort(key=lambda row: not (row["kind"] == "sharding" and row["evidence"] == "interface"))
    return ordered


def _is_certain(row: Row) -> bool:
    """Return whether no compiler makes this edit, whatever it compiles for."""
    return row["evidence"] == "interface" or row["kind"] in ("rematerialization", "layers")


def _may_follow(row: Row, kinds: set[str]) -> bool:
    """Return whether an edit may follow from one of another kind."""
    if row["evidence"] == "buffers":
        return row["kind"] in ("memory space", "element type", "donation") or "compiler" in kinds
    if row["kind"] in ("loops", "repetitions") and "layers" in kinds:
        return True
    if row["kind"] == "outputs" and not row["change"] and "arguments" in kinds:  # they are in donated arguments
        return True
    return row["evidence"] == "names" and row["kind"] != "layers" and "compiler" in kinds


def _lines(d: DiffTables) -> dict[str, int]:
    """Return the change of each line of the bill."""
    lines: dict[str, int] = {}
    for row in of_account(d.bills, DEVICE_TOTAL).to_pylist():
        lines[row["line"]] = lines.get(row["line"], 0) + row["change"]
    return lines


def _moves(d: DiffTables) -> str:
    """Return the lines of the bill that changed without changing the total."""
    moved = sorted((change, line) for line, change in _lines(d).items() if change)
    texts = [f"{LINES[line]} {signed(change)}" for change, line in reversed(moved)]
    return ", ".join([*texts, _in_host(d)] if d.host_change else texts)


def _largest(d: DiffTables, cause: Row | None) -> str:
    """Return the largest group of buffers that changed in the direction of the peak, if possible of the main cause.

    A group of the main cause is preferred if it or the cause changed at least half as much as the largest group of all,
    with the change of the cause if that is twice as much, and not about all or of several arguments that it names. If
    the group changed by more than the peak, the largest group that changed in the other direction follows. Of what
    moved to the host only, the groups are there.
    """
    account, total = DEVICE_TOTAL, _change(d)
    if cause and cause["kind"] == "memory space" and not cause["change"] and d.host_change:
        account, total = HOST, d.host_change
    groups = difference_groups(d, ("edit", "buffer", "cause"), account=account)
    of_cause = pc.filter(groups, arrow_array(is_in(groups["edit"], [cause["text"]]))) if cause else groups.slice(0, 0)
    largest = groups.slice(0, MAX_GROUPS).to_pylist()
    of_all = _uncanceled(largest, abs(total))
    canceled = [row for row in largest if row not in of_all]
    own = [row for row in of_cause.slice(0, MAX_GROUPS).to_pylist() if row not in canceled]
    own, in_direction = ([row for row in rows if row["change"] * total > 0] for rows in (own, of_all))
    by_cause = cause["change"] if cause and cause["change"] * total > 0 else 0
    if own and in_direction and max(abs(by_cause), abs(own[0]["change"])) < abs(in_direction[0]["change"]) / 2:
        own = []
    rows = own or in_direction
    if not rows:
        return ""
    where = " of host memory" if account == HOST else ""
    texts = [describe(rows[0], where)]
    is_about_all = abs(by_cause - total) <= MIN_SHARE * abs(total)
    names_several = cause is not None and cause["kind"] in NAMING and rows[0]["n"] < cause["n"]
    if own and abs(by_cause) >= 2 * abs(own[0]["change"]) and (names_several or not is_about_all):
        texts.insert(0, f"{signed(by_cause)} in all")
    if abs(rows[0]["change"]) > MAX_SHARE * abs(total):
        opposed = (row for row in of_all if row["change"] * total < 0)
        texts += [describe(row, where) for row in opposed if abs(row["change"]) >= MIN_SHARE * abs(total)][:1]
    return f" ({'; '.join(texts)})"


def _uncanceled(rows: list[Row], total: int) -> list[Row]:
    """Return the groups without large pairs that changed in opposite directions and whose sum is small.

    A buffer that is gone and an equal one that is new are not what the difference is.
    """
    left = list(rows)
    for row in (r for r in rows if 2 * abs(r["change"]) >= total):
        sums = ((r, row["change"] + r["change"]) for r in left if row["change"] * r["change"] < 0)
        if row in left and (other := next((r for r, n in sums if abs(n) <= MIN_SHARE * total), None)):
            left.remove(row)
            left.remove(other)
    return left


def describe(row: Row, of: str = "") -> str:
    """Return a group of buffers with its change, of something else than the device's memory, cause and line."""
    where = source(row)
    return f"{signed(row['change'])}{of}: {buffers_of(row)} {happened(row)}{f', {where}' if where else ''}"


def buffers_of(row: Row) -> str:
    """Return the number and the name of like buffers."""
    n = f"{row['n']:,}× " if row["n"] > 1 else ""
    return f"{n}{row['buffer'] or 'unnamed'}"


VERBS = {
    "lives longer": ("lives longer", "live longer"),
    "lives shorter": ("lives shorter", "live shorter"),
    "padding changed": ("is padded differently", "are padded differently"),
}


def happened(row: Row) -> str:
    """Return what happened to one or several buffers, as a verb."""
    cause, several = row["cause"], row["n"] > 1
    if cause == "sharing changed":
        share = "share" if several else "shares"
        return f"no longer {share} memory" if row["change"] > 0 else f"{share} memory now"
    if cause == "moved to another space":
        return f"moved from {row['memory_space_a']} to {row['memory_space_b']}"
    return VERBS[cause][several] if cause in VERBS else f"{'are' if several else 'is'} {cause}"


def source(row: Row) -> str:
    """Return the source line of the side that the buffer is named after: of A if it has no bytes in B."""
    for side in "ba" if row["bytes_b"] else "ab":
        if row[f"source_file_{side}"]:
            return file_line(row[f"source_file_{side}"], row[f"source_line_{side}"], folder=False)
    return ""
