"""The dump of a program that JAX has compiled already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..dump import Dump
from ..errors import UsageError
from ..input.find import Member, Source
from ..input.names import EXTENSIONS, Platform, Role
from ..input.source import source_of
from .assignment import Assignment
from .hlo_module import HloModule
from .programs import read_program
from .wire import Message

_PLATFORMS: dict[str, Platform] = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "rocm": "gpu"}
INSTEAD = "use xlamem.of(function, *args), or compile it in xlamem.capture()"


def read_compiled(compiled: Any) -> Dump:
    """Return the dump of a `jax.stages.Compiled`, written from JAX's buffer assignment and HLO.

    Raises UsageError if JAX does not give them, and DumpError if they are damaged.
    """
    proto = _buffer_assignment(compiled)
    executable = compiled.runtime_executable()
    client = getattr(executable, "client", None)  # there is none for devices that are not attached
    platform = _PLATFORMS.get(getattr(client, "platform", ""))
    modules: list[Any] = getattr(executable, "hlo_modules", list)()
    if len(modules) != 1 or platform is None:
        raise UsageError(f"a compiled program for this device, or of several modules, cannot be read: {INSTEAD}")
    text = compiled.as_text()
    module = HloModule(modules[0].as_serialized_hlo_module_proto(), text)
    texts: dict[Role, str] = {**Assignment(proto, module).texts(), "hlo": text}
    return read_program(_source(module.name, platform, texts))


def _buffer_assignment(compiled: Any) -> Message:
    """Return the BufferAssignmentProto. Raises UsageError if JAX has none, as for a TPU."""
    stats = compiled.memory_analysis()
    if hlo := getattr(stats, "serialized_hlo_proto", b""):  # until JAX 0.5
        return Message(hlo, "HloProto").message(3)
    if proto := getattr(stats, "serialized_buffer_assignment_proto", b""):
        return Message(proto, "BufferAssignmentProto")
    raise UsageError(f"JAX gives no buffer assignment of this compiled program: {INSTEAD}")


def _source(module_name: str, platform: Platform, texts: Mapping[Role, str]) -> Source:
    name = f"{module_name}.{platform}_after_optimizations"
    source = source_of(name, [_member(name, role, text) for role, text in texts.items()], by_name=False)
    return replace(source, module_name=module_name, platform=platform, derived=True)


def _member(name: str, role: Role, text: str) -> Member:
    content = text.encode()
    return Member(role, f"<compiled>/{name}{EXTENSIONS[role]}", content=content, size=len(content))

