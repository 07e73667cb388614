"""File names of every era, and the ones that are no members."""

from __future__ import annotations

import pytest

from xlamem import schema
from xlamem.input import names
from xlamem.input.names import DumpName, parse

TPU = "module_0003.jit_step.cl_1004524046.after_optimizations"


@pytest.mark.parametrize(
    ("extension", "role"),
    [
        ("-buffer-assignment.txt", "buffer-assignment"),
        ("-buffer-assignment-values.txt", "buffer-assignment-values"),
        ("-live-range.txt", "live-range"),
        ("-memory-usage-report.txt", "memory-usage-report"),
        (".txt", "hlo"),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz", ".zst", ".xz", ".bz2"])
def test_roles(extension: str, role: names.Role, packed: str) -> None:
    assert parse(TPU + extension + packed) == DumpName(
        stem=TPU, role=role, module_id=3, module_name="jit_step", changelist=1004524046, platform="tpu"
    )


def test_roles_are_those_of_the_schema() -> None:
    assert [*names.EXTENSIONS, *names.FLAG_EXTENSIONS] == list(schema.ROLES)


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        # id, module, platform, target, changelist, timestamp
        ("module_0000.jit_f.cpu_after_optimizations", (0, "jit_f", "cpu", None, None, None)),
        ("module_12345.jit_f.cpu_after_optimizations", (12345, "jit_f", "cpu", None, None, None)),
        ("module_0000.cpu_after_optimizations", (0, None, "cpu", None, None, None)),
        ("module_0000.cl_77.after_optimizations", (0, None, "tpu", None, 77, None)),
        ("module_0000.after_optimizations", (0, None, None, None, None, None)),
        ("module_0000.gpu_after_optimizations", (0, None, "gpu", None, None, None)),
        ("module_0001.jit_f.sm_8.0_gpu_after_optimizations", (1, "jit_f", "gpu", "sm_8.0", None, None)),
        ("module_0001.jit_f.sm_9.0a_gpu_after_optimizations", (1, "jit_f", "gpu", "sm_9.0a", None, None)),
        ("module_0001.sm_12.0a_gpu_after_optimizations", (1, None, "gpu", "sm_12.0a", None, None)),
        ("module_0001.jit_f.gfx942_gpu_after_optimizations", (1, "jit_f", "gpu", "gfx942", None, None)),
        (
            "module_0007.a_inference_f__.38.cpu_after_optimizations",
            (7, "a_inference_f__.38", "cpu", None, None, None),
        ),
        (
            "1795176133689448.module_0002.jit_f.cl_5.after_optimizations",
            (2, "jit_f", "tpu", None, 5, 1795176133689448),
        ),
        ("1795175991679265.module_0000.after_optimizations", (0, None, None, None, None, 1795175991679265)),
        # without the end, as people shorten them
        ("1795175991679265.module_0004.jit_f", (4, "jit_f", None, None, None, 1795175991679265)),
        ("module_0004.jit_f.2", (4, "jit_f.2", None, None, None, None)),
        ("1.module_0004", (4, None, None, None, None, 1)),
        ("my-run.cpu_after_optimizations", (None, None, "cpu", None, None, None)),
        ("my-run", (None, None, None, None, None, None)),
    ],
)
def test_stems(stem: str, expected: tuple[object, ...]) -> None:
    name = parse(stem + "-buffer-assignment.txt")
    assert name is not None
    assert name.stem == stem
    assert expected == (
        name.module_id, name.module_name, name.platform, name.target, name.changelist, name.timestamp_us,
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "module_0000.jit_f.before_optimizations.txt",
        "module_0000.jit_f.cl_5.after_optimizations_before_buffer_assignment.txt",
        "module_0000.jit_f.cl_5.after_optimizations_after_buffer_assignment.txt",
        "module_0000.jit_f.cl_5.after_codegen.txt",
        "module_0000.jit_f.0012.simplification.after_dce.before_cse.txt",
        "module_0000.jit_f.cpu_after_optimizations.hlo.pb",
        "module_0000.jit_f.cpu_after_optimizations.hlo.pb.gz",
        "module_0000.jit_f.cpu_after_optimizations-memory-usage-report.pb",
        "module_0000.jit_f.thunk_sequence.txt",
        "module_0000.jit_f",
        "._module_0000.jit_f.cpu_after_optimizations-buffer-assignment.txt",
        "-buffer-assignment.txt",
        "oracle.json",
        "tpu_comp_env.txt",
        "",
    ],
)
def test_no_member(name: str) -> None:
    assert parse(name) is None


@pytest.mark.parametrize(
    ("stem", "flags"),
    [
        ("module_0000.jit_f.cl_77.after_optimizations", "module_0000.jit_f.cl_77"),
        ("module_0000.jit_f.cpu_after_optimizations", "module_0000.jit_f"),
        ("module_0000.jit_f.sm_9.0a_gpu_after_optimizations", "module_0000.jit_f"),
        ("my-run", "my-run"),
    ],
)
def test_stems_of_flags(stem: str, flags: str) -> None:
    assert names.flags_stem(stem) == flags


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("module_0000.jit_f.debug_options", ("module_0000.jit_f", "debug-options")),
        ("my-run.tpu_comp_env.txt.gz", ("my-run", "tpu-environment")),
        ("x.debug_options.zst", ("x", "debug-options")),
        ("m.cl_7.target_arguments.txt", ("m.cl_7", "target-arguments")), (".target_arguments.txt", None),
        ("._x.debug_options", None), (".debug_options", None), (".tpu_comp_env.txt", None), ("debug_options", None),
        ("x.debug_options.txt", None), ("x.tpu_comp_env", None), ("", None),
    ],
)  # fmt: skip
def test_files_with_flags(name: str, expected: tuple[str, str] | None) -> None:
    assert names.split_flags(name) == expected


@pytest.mark.parametrize(
    ("name", "is_text"),
    [
        ("train.log", True), ("out", True), ("a.txt.gz", True), ("a.json", False), (".a.txt", False), (".out", False),
        ("module_0000.jit_f.before_optimizations.txt", False),
    ],
)  # fmt: skip
def test_texts_that_may_have_dumps(name: str, is_text: bool) -> None:
    assert names.is_text(name) == is_text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.xplane.pb", "profile"), ("x.xplane.pb.gz", "profile"), ("x.pb", "proto"), ("x.hlo.pb.zst", "proto"),
        ("x.hlo", "hlo"), ("x.hlo.xz", "hlo"), ("module_0000.jit_f.before_optimizations.txt", "hlo"),
        ("module_0000.jit_f.before_optimizations.txt.bz2", "hlo"), ("module_0000.jit_f.dot", None),
        ("before_optimizations.txt", None), ("notes.txt", None), ("x.pb.txt", None), ("x.gz", None), ("", None),
    ],
)  # fmt: skip
def test_what_has_no_dump(name: str, kind: str | None) -> None:
    assert names.kind_without_dump(name) == kind
