"""Register an existing dataset in another format."""

from __future__ import annotations

import os

from .followers import Registered, Target, follow, record_targets
from .maintenance import maintained


def register(dest: str | os.PathLike[str], to: str, *, single_writer: bool = False) -> Registered:
    """Register the files of a dataset as tables of another format, which follow the dataset from then on.

    `to` is ``"iceberg"``, ``"iceberg:CATALOG.NAMESPACE"`` or ``"delta"``; it needs the extra of the same name. To
    resume after an interruption, repeat the call.

    Raises
    ------
    UsageError
        `dest` is not a dataset, does not support conditional writes, or is registered in another catalog; or the
        library is missing.
    OutputError
        A table cannot be changed.
    """
    target = Target.parse(to)
    with maintained(dest, single_writer=single_writer) as (storage, ledger, _):
        record_targets(storage, [target], ledger.state)
        done = {result.format: result for result in follow(storage, ledger.refresh)}
    return done[target.format]
