"""`of`: compile a function ahead of time, also for a device that is not attached, and return its dump."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from threading import get_ident
from types import ModuleType
from typing import Any
from uuid import uuid4

from ..compute import device_total
from ..dump import Dump
from ..errors import UsageError
from ..formatting import size
from . import hook
from .compiled import read_compiled
from .programs import read_program


@dataclass(eq=False)
class _Dumps:
    """The dumps of what this thread compiles."""

    thread: int = field(default_factory=get_ident)
    dumps: list[Dump] = field(default_factory=list)
    error: Exception | None = None
    """Why a dump could not be read."""

    def compiled(self, event: hook.Compile) -> None:
        if get_ident() == self.thread:
            self.dumps += [read_program(hook.in_memory(source)) for source in event.sources]

    def failed(self, error: Exception) -> None:
        if get_ident() == self.thread:
            self.error = error


def of(
    function: Any,
    *args: Any,
    topology: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Dump:
    """Compile a function ahead of time and return its dump. Nothing is executed.

    >>> xlamem.of(step, state, batch)
    >>> xlamem.of(step, state, batch, topology="v5e:2x2")

    The dump shows itself, in a terminal and in a notebook, as what must fit, the peaks and the largest buffers.

    Parameters
    ----------
    function
        A function; one that is not from `jax.jit` is passed to it. Or what its ``lower`` returned, or what
        ``lower(…).compile()`` returned, which is not compiled again: its dump is written from JAX's buffer assignment
        and HLO.
    args, kwargs
        Arguments of the function: arrays, or `jax.ShapeDtypeStruct` where there is no array.
    topology
        Devices to compile for, which need not be there: the name of TPUs (``"v5e:2x2"``), which needs libtpu
        (``pip install libtpu``), or a `TopologyDescription` of JAX. Arguments are placed on the first device; if any
        has a sharding over its devices, the others are replicated. Without it, the program is compiled for the devices
        of the arguments.
    compiler_options
        Options of XLA, as for ``jax.jit(f).lower(…).compile(compiler_options=…)``.

    Raises
    ------
    UsageError
        JAX is missing or its version is not supported, the topology is unknown, or `function` has been compiled
        already and JAX has no buffer assignment of it, as for a TPU.
    DumpError
        The buffer assignment of a compiled program is damaged, or not that of its HLO.
    """
    jax = hook.require_jax("of")
    if isinstance(compiled := _unwrapped(function, "compiled"), jax.stages.Compiled):
        if args or kwargs or topology is not None or compiler_options is not None:
            raise UsageError("what compile() returned has its arguments, its devices and its options already")
        return read_compiled(compiled)
    dump, error = compile_ahead(lower(function, args, kwargs, topology), compiler_options)
    if error is not None:
        if dump is not None:
            error.add_note(_about(dump))
        raise error
    if dump is None:
        raise UsageError("XLA wrote no dump of the program: this backend does not follow xla_dump_to")
    return dump


def _about(dump: Dump) -> str:
    """Return what a failed compile would need, and how to keep its dump if no `capture` does."""
    needed = device_total(dump)
    text = "xlamem: XLA dumped the program nevertheless" + ("" if needed is None else f": {size(needed)} must fit")
    if hook.is_used():
        return text
    return f"{text}. `with xlamem.capture() as captured:` around the call keeps the dump, as `captured.dump`"


def lower(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], topology: Any) -> Any:
    """Return the `jax.stages.Lowered` of a call of a function."""
    jax = hook.require_jax("of")
    if isinstance(_unwrapped(function, "compiled"), jax.stages.Compiled):
        raise UsageError(
            "the program is compiled already: return the function and its arguments, or what lower() returned"
        )
    if isinstance(lowered := _unwrapped(function, "lowered"), jax.stages.Lowered):
        if args or kwargs or topology is not None:
            raise UsageError("what lower() returned has its arguments and its devices already")
        return lowered
    if not callable(function):
        raise UsageError(f"a function is needed, not {type(function).__name__}")
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    if topology is not None:
        return _lower_for(jax, jitted, args, kwargs, _devices(topology))
    return _unwrapped(jitted.lower(*args, **kwargs), "lowered")


def _unwrapped(stage: Any, name: str) -> Any:
    """Return the stage of JAX in one of Flax or Equinox, or the stage itself."""
    return getattr(stage, name, stage)


def compile_ahead(lowered: Any, options: Mapping[str, Any] | None) -> tuple[Dump | None, Exception | None]:
    """Compile, and return the dump and the error of the compile; there may be both if memory runs out.

    XLA may dump several modules of one program; the one that needs most memory is returned. If the compile succeeds
    and its dump cannot be read, that error is raised.
    """
    # A new option makes JAX compile again what it has compiled before; the hook then replaces it.
    options = {**(options or {}), "xla_dump_to": uuid4().hex}
    listener, error = _Dumps(), None
    hook.add(listener)
    try:
        lowered.compile(compiler_options=options)
    except Exception as raised:
        error = raised
    finally:
        hook.remove(listener)
    if error is None and listener.error is not None:
        raise listener.error
    return max(listener.dumps, key=lambda dump: device_total(dump) or 0, default=None), error


# -- devices that are not attached ---------------------------------------------------------------


def _devices(topology: Any) -> list[Any]:
    """Return the devices of a topology, or of the one with this name."""
    if not isinstance(topology, str):
        return list(topology.devices)
    from jax.experimental import topologies

    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    except Exception as error:  # JAX and libtpu raise errors of many types
        raise UsageError(f"cannot compile for the topology {topology!r}: {error}{_hint(str(error))}") from error


def _hint(error: str) -> str:
    """Return what to do about an error of libtpu."""
    if find_spec("libtpu") is None:
        return ". TPUs that are not attached need libtpu: pip install libtpu"
    if "lockfile" in error:
        return " Another process uses libtpu: set ALLOW_MULTIPLE_LIBTPU_LOAD=1 before JAX is imported."
    return ". Names of topologies are such as 'v5e:2x2'"


def _lower_for(
    jax: ModuleType, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any], devices: list[Any]
) -> Any:
    """Lower for devices that are not attached: the first one, or those over which arguments are sharded."""
    shardings = [_sharding(leaf, set(devices)) for leaf in jax.tree.leaves((args, kwargs))]
    place = None if any(shardings) else jax.sharding.SingleDeviceSharding(devices[0])

    def placed(leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        sharding, weak_type = _sharding(leaf, set(devices)) or place, getattr(leaf, "weak_type", False)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak_type)

    placed_args, placed_kwargs = jax.tree.map(placed, (args, kwargs))
    with jax.default_device(devices[0]):  # for functions without arrays as arguments
        return _unwrapped(jitted.lower(*placed_args, **placed_kwargs), "lowered")


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _sharding(leaf: Any, devices: set[Any]) -> Any:
    """Return the sharding of an argument over these devices; None for one on a single other device, or on none."""
    sharding = getattr(leaf, "sharding", None)
    given = set() if sharding is None else sharding.device_set
    if given and given <= devices:
        return sharding
    if len(given) > 1:
        raise UsageError(
            f"an argument is sharded over {len(given)} devices that are not of the topology: make its mesh of "
            "jax.experimental.topologies.get_topology_desc(…).devices, and pass that as topology"
        )
    return None
