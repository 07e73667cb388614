"""The dump of a program that JAX has compiled already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ..input.find import Member, Source
from ..input.names import EXTENSIONS, Platform, Role
from ..input.source import source_of
from .assignment import Assignment
from .hlo_module import HloModule
from .wire import Message

INSTEAD = "use xlamem.of(function, *args), or compile it in xlamem.capture()"


def source_of_compiled(compiled: Any) -> Source:
    """Return the dump of a `jax.stages.Compiled`, written from JAX's buffer assignment and HLO.

    Raises UsageError if JAX does not give them, and DumpError if they are damaged.
    """
    proto = _buffer_assignment(compiled)
    executable = compiled.runtime_executable()
    platform: Platform = executable.client.platform
    modules = executable.hlo_modules()
    if len(modules) != 1 or platform not in ("cpu", "gpu"):
        raise UsageError(f"a compiled program of {len(modules)} modules on {platform} cannot be read: {INSTEAD}")
    text = compiled.as_text()
    module = HloModule(modules[0].as_serialized_hlo_module_proto(), text)
    texts: dict[Role, str] = {**Assignment(proto, module).texts(), "hlo": text}
    name = f"{module.name}.{platform}_after_optimizations"
    source = source_of(name, [_member(name, role, text) for role, text in texts.items()], by_name=False)
    return replace(source, module_name=module.name, platform=platform)


def _buffer_assignment(compiled: Any) -> Message:
    """Return the BufferAssignmentProto. Raises UsageError if JAX has none, as for a TPU."""
    stats = compiled.memory_analysis()
    if hlo := getattr(stats, "serialized_hlo_proto", b""):  # until JAX 0.5
        return Message(hlo, "HloProto").message(3)
    if proto := getattr(stats, "serialized_buffer_assignment_proto", b""):
        return Message(proto, "BufferAssignmentProto")
    raise UsageError(f"JAX gives no buffer assignment of this compiled program: {INSTEAD}")


def _member(name: str, role: Role, text: str) -> Member:
    content = text.encode()
    return Member(role, f"<compiled>/{name}{EXTENSIONS[role]}", content=content, size=len(content))
