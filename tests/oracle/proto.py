"""The protos in a `.hlo.pb`: an independent encoding of the same assignment and module by the same compiler."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto
_TYPES = {"int": _F.TYPE_INT64, "bool": _F.TYPE_BOOL, "text": _F.TYPE_STRING}

# Message -> field -> (number, type, repeated). Only what the tests compare; other fields are skipped as unknown.
_MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "HloProto": {"hlo_module": (1, "HloModule", False), "buffer_assignment": (3, "BufferAssignment", False)},
    "HloModule": {"entry_computation_name": (2, "text", False), "computations": (3, "Computation", True)},
    "Computation": {
        "name": (1, "text", False),
        "instructions": (2, "Instruction", True),
        "id": (5, "int", False),
        "root_id": (6, "int", False),
    },
    "Instruction": {
        "name": (1, "text", False),
        "opcode": (2, "text", False),
        "metadata": (7, "Metadata", False),
        "parameter_number": (9, "int", False),
        "tuple_index": (13, "int", False),
        "id": (35, "int", False),
        "operand_ids": (36, "int", True),
        "called_computation_ids": (38, "int", True),
    },
    "Metadata": {
        "op_name": (2, "text", False),
        "source_file": (3, "text", False),
        "source_line": (4, "int", False),
        "stack_frame_id": (15, "int", False),
    },
    "BufferAssignment": {
        "logical_buffers": (1, "LogicalBuffer", True),
        "buffer_allocations": (3, "BufferAllocation", True),
    },
    "LogicalBuffer": {"id": (1, "int", False), "size": (2, "int", False), "color": (4, "int", False)},
    "BufferAllocation": {
        "index": (1, "int", False),
        "size": (2, "int", False),
        "is_thread_local": (3, "bool", False),
        "is_entry_computation_parameter": (5, "bool", False),
        "parameter_number": (6, "int", False),
        "maybe_live_out": (7, "bool", False),
        "color": (8, "int", False),
        "assigned": (9, "Assigned", True),
        "parameter_shape_index": (10, "int", True),
        "is_constant": (12, "bool", False),
    },
    "Assigned": {"logical_buffer_id": (1, "int", False), "offset": (2, "int", False), "size": (3, "int", False)},
}


def _message() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="assignment.proto", package="t", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            made = message.field.add(name=field, number=number)
            made.label = _F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL
            if kind in _TYPES:
                made.type = _TYPES[kind]
            else:
                made.type, made.type_name = _F.TYPE_MESSAGE, f".t.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.HloProto"))


HloProto = _message()


def assignment(data: bytes) -> Any:
    """The buffer assignment of an HloProto; None if it has none."""
    proto = HloProto.FromString(data)
    return proto.buffer_assignment if proto.HasField("buffer_assignment") else None


def module(data: bytes) -> Any:
    """The module of an HloProto."""
    return HloProto.FromString(data).hlo_module
