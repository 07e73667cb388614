"""The hook in JAX's compiler that makes XLA dump each program, whatever the flags of the process are.

Every compile of JAX goes through `jax._src.compiler.compile_or_get_cached`. While anything listens, a wrapper adds
compiler options to its argument, so that XLA writes the dump into a directory of this compile alone, and JAX's
persistent cache, which would answer without a compile, is not asked. Afterwards JAX is as it was.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from types import FrameType, ModuleType
from typing import Any, NamedTuple, Protocol

from ..errors import UsageError
from ..input.find import Member, Source, find

OPTIONS = {"xla_dump_hlo_as_text": True, "xla_dump_hlo_module_re": ".*", "xla_dump_max_hlo_modules": -1}
"""Options that make XLA write a whole dump of each module; some undo what the flags of the process forbid."""


class Compile(NamedTuple):
    """One compile, and what XLA wrote about it."""

    sources: tuple[Source, ...]
    """Dumps, of which the files are deleted after the listeners were called."""
    of_jax: bool
    """Whether the program is a function of JAX itself, such as ``jit_broadcast_in_dim``."""


class Listener(Protocol):
    """What is told of each compile. Compiles in several threads call it at the same time."""

    def compiled(self, event: Compile) -> None: ...

    def failed(self, error: Exception) -> None:
        """Keep the error of a dump that could not be read or written: the compile itself has another result."""


_lock = Lock()
_listeners: list[Listener] = []
_originals: list[tuple[ModuleType, str, Any]] = []


def add(listener: Listener) -> None:
    """Tell a listener of each compile in this process, in any thread. Raises UsageError without a JAX that is known."""
    with _lock:
        if not _listeners:
            _install()
        _listeners.append(listener)


def remove(listener: Listener) -> None:
    """Undo one `add`."""
    with _lock:
        _listeners.remove(listener)
        if not _listeners:
            _uninstall()


def is_used() -> bool:
    """Return whether anything listens."""
    return bool(_listeners)


def require_jax(what: str) -> Any:
    """Import JAX. Raises UsageError, which says what needs it."""
    try:
        import jax
    except ImportError as error:
        raise UsageError(f"{what} needs JAX: pip install 'xlamem[jax]'") from error
    return jax


def clear_caches() -> None:
    """Make JAX, if it was imported, compile everything again."""
    if jax := sys.modules.get("jax"):
        jax.clear_caches()


def _install() -> None:
    version = require_jax("capture").__version__
    try:
        from jax._src import compilation_cache, compiler

        original, is_cache_used = compiler.compile_or_get_cached, compilation_cache.is_cache_used
        known = "compile_options" in inspect.signature(original).parameters
    except (ImportError, AttributeError, ValueError):
        known = False
    if not known:
        raise UsageError(f"this version of xlamem cannot capture what JAX {version} compiles: it knows 0.4.38 to 0.10")
    _originals[:] = [
        (compiler, "compile_or_get_cached", original),
        (compilation_cache, "is_cache_used", is_cache_used),
    ]
    compiler.compile_or_get_cached = _wrap(original)
    compilation_cache.is_cache_used = lambda backend: False


def _uninstall() -> None:
    for module, name, original in _originals:
        setattr(module, name, original)
    _originals.clear()


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def compile_or_get_cached(*args: Any, **kwargs: Any) -> Any:
        listeners = list(dict.fromkeys(_listeners))
        if not listeners:  # another thread has just removed the last one
            return original(*args, **kwargs)
        bound, of_jax = signature.bind(*args, **kwargs), _compiles_function_of_jax()
        with tempfile.TemporaryDirectory(prefix="xlamem-", ignore_cleanup_errors=True) as directory:
            try:
                with _dumping(bound.arguments["compile_options"], directory):
                    return original(*args, **kwargs)
            finally:  # also after a failure: when memory runs out, XLA has written the dump
                _tell(listeners, directory, of_jax)

    return compile_or_get_cached


def _tell(listeners: Sequence[Listener], directory: str, of_jax: bool) -> None:
    """Tell listeners of a compile. Their errors must not take the place of its result."""
    for listener in listeners:
        try:
            listener.compiled(Compile(_sources(directory), of_jax))
        except Exception as error:
            listener.failed(error)


@contextmanager
def _dumping(options: Any, directory: str) -> Iterator[None]:
    """Let XLA dump into a directory for a compile with these `CompileOptions` of JAX."""
    overrides = options.env_option_overrides
    options.env_option_overrides = [*overrides, ("xla_dump_to", directory), *OPTIONS.items()]
    try:
        yield
    finally:
        options.env_option_overrides = overrides


def _compiles_function_of_jax() -> bool:
    """Return whether the compile on the stack is that of a call of a function which JAX itself defines."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("jax."):
        if frame.f_code.co_name == "cache_miss":  # of `jax.jit`; its variable is the function
            function = frame.f_locals.get("fun")
            return str(getattr(function, "__module__", "")).startswith("jax.")
        frame = frame.f_back
    return False


def _sources(directory: str) -> tuple[Source, ...]:
    with suppress(UsageError):  # there is none
        return tuple(find(directory))
    return ()


def in_memory(source: Source) -> Source:
    """Return a source whose texts are in memory, so that its files may be deleted."""
    return replace(source, members=tuple(_loaded(member) for member in source.members))


def _loaded(member: Member) -> Member:
    content = bytes(member.open().read())
    return replace(member, uri=f"<captured>/{member.file_name}", content=content, size=len(content))
