"""Engines, which run tasks on workers.

An engine is a function of the number of workers and the address of a scheduler (both can be None) that returns a
context manager of a `Pool` around an executor. Tasks and their results are small and picklable; workers only need
access to the files of the dumps and of the dataset. A package adds an engine with an entry point of the group
``xlamem.engines``.
"""

from __future__ import annotations

from ..errors import UsageError
from .clusters import dask, ray
from .pool import Engine, Pool, in_process
from .processes import local

__all__ = ["ENGINES", "Engine", "Pool", "find_engine"]

ENGINES: dict[str, Engine] = {"local": local, "here": in_process, "dask": dask, "ray": ray}
"""The engines of xlamem."""
GROUP = "xlamem.engines"
"""The group of the entry points of other engines."""


def find_engine(name: str) -> Engine:
    """Return an engine of xlamem, or one that an installed package registers under this name."""
    if name in ENGINES:
        return ENGINES[name]
    from importlib.metadata import entry_points  # reads the metadata of all installed packages

    registered = entry_points(group=GROUP)
    if name not in registered.names:
        raise UsageError(f"no engine {name!r}; there are {', '.join([*ENGINES, *sorted(registered.names)])}")
    entry = registered[name]
    try:
        engine: Engine = entry.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the engine {name} cannot be loaded from {entry.value}: {error}") from error
    return engine
