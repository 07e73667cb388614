"""What the commands that change a dataset without converting dumps have in common."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from .catalog import Catalog
from .ledger import Ledger
from .storage import Storage, open_output


@contextmanager
def maintained(dest: str | os.PathLike[str], *, single_writer: bool) -> Iterator[tuple[Storage, Ledger, str]]:
    """Open a dataset to change it, as a run that converters and other commands see. Yield its run_id too.

    Raises UsageError if it is not a dataset, or does not support conditional writes, and OutputError instead of
    OSError and DumpError.
    """
    storage = open_output(dest, single_writer=single_writer)
    with storage.output_errors():
        Catalog(dest)  # raises UsageError if there is no ledger
        storage.check_conditional_create()
        ledger = Ledger(storage)
        run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        with ledger.run(run_id):
            yield storage, ledger, run_id
            ledger.checkpoint()
