"""The flags beside a dump: found, read, and left out of the identity of the content."""

from __future__ import annotations

import random
import shutil
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from compare import differences, findings
from fuzz.check import source_of
from fuzz.edits import KINDS, edited

import xlamem
from xlamem.compare.compiler import flags_not_default
from xlamem.compute.program import program
from xlamem.input import names
from xlamem.input.find import find
from xlamem.parse.pieces import pieces

DUMPS = Path(__file__).parent.parent / "dumps"
TPU, CPU = "tpu-libtpu-0.0.50.1-v5e-mlp_grad", "cpu-jaxlib-0.12.0-scan_while"
OPTIONS = b"""\
xla_dump_to: "/home/u/dump"
xla_gpu_enable_command_buffer: FUSION
xla_gpu_enable_command_buffer: CUBLAS
analytical_latency_estimator_options {
  key: "a { b: \\"c\\" }"
  value {
    number: 1
  }
  value {
  }
}
xla_dump_hlo_as_text: true
"""
ROWS = [
    ("xla_dump_to", '"/home/u/dump"'),
    ("xla_gpu_enable_command_buffer", "FUSION"),
    ("xla_gpu_enable_command_buffer", "CUBLAS"),
    ("analytical_latency_estimator_options.key", '"a { b: \\"c\\" }"'),
    ("analytical_latency_estimator_options.value.number", "1"),
    ("analytical_latency_estimator_options.value", "{}"),
    ("xla_dump_hlo_as_text", "true"),
]


def with_flags(folder: Path, options: bytes, dump: str = CPU, suffix: str = ".debug_options") -> Path:
    """Copy a dump and write a file with flags beside it."""
    shutil.copytree(DUMPS / dump, folder, dirs_exist_ok=True)
    stem = names.flags_stem(find(folder)[0].name)
    (folder / (stem + suffix)).write_bytes(options)
    return folder


def members(dump: xlamem.Dump) -> dict[str, bytes]:
    return {m.role: bytes(m.load().raw) for m in dump.source.members}


def pairs(dump: xlamem.Dump) -> list[tuple[str, str]]:
    return [(r["name"], r["value"]) for r in dump["flags"].to_pylist()]


def test_flags_are_read(tmp_path: Path) -> None:
    dump = xlamem.read(with_flags(tmp_path, OPTIONS))
    assert pairs(dump) == ROWS
    assert dump["flags"]["ordinal"].to_pylist() == list(range(len(ROWS)))
    assert set(dump["flags"]["role"].to_pylist()) == {"debug-options"}
    assert dump.modules["n_flags"].to_pylist() == [len(ROWS)]
    assert dump.verify().num_rows == 0
    assert differences(xlamem.read(dump.source, text=True), members(dump)) == []


def test_a_dump_without_flags_has_an_empty_table() -> None:
    dump = xlamem.read(DUMPS / CPU)
    assert dump["flags"].num_rows == 0
    assert dump.modules["n_flags"].to_pylist() == [0]


def test_flags_of_the_tpu_compiler(tmp_path: Path) -> None:
    text = b'xla_ra_split {\n  spec: "true"\n}\n# Default flag value: -1\nxla_tpu_scoped_vmem_limit_kib: 65536\n'
    folder = with_flags(tmp_path, text, TPU, ".tpu_comp_env.txt")
    dump = xlamem.read(with_flags(folder, OPTIONS, TPU))
    assert [f["role"] for f in dump.files.to_pylist()][-2:] == ["debug-options", "tpu-environment"]
    assert pairs(dump) == [*ROWS, ("xla_ra_split.spec", '"true"'), ("xla_tpu_scoped_vmem_limit_kib", "65536")]
    assert dump["flags"]["ordinal"].to_pylist() == [*range(len(ROWS)), 0, 1]
    assert dump["flags"]["comment"].to_pylist() == [None] * (len(ROWS) + 1) + ["# Default flag value: -1"]
    assert differences(xlamem.read(dump.source, text=True), members(dump)) == []


NON_DEFAULT = """\
# xla_packer in the current tpu_comp_env has a non-default value. Default flag value: false
xla_packer {
  spec: "true"
}
# xla_exp in the current tpu_comp_env has a non-default value. Default flag value: false
# xla_split in the current tpu_comp_env has a non-default value. Default flag value: 3
xla_exp2: false
xla_exp: true
xla_split: 4
"""


def test_comments_in_a_message(tmp_path: Path) -> None:
    """Only lines that follow each other are one comment. That of a message is that of its first field, or replaced."""
    text = b"# one\nm {\n  # two\n  k: 1\n}\n# a\n# b\nx: 2\n# c\nn {\n  y: 3\n  z: 4\n}\n"
    dump = xlamem.read(with_flags(tmp_path, text, TPU, ".tpu_comp_env.txt"))
    comments = {r["name"]: r["comment"] for r in dump["flags"].to_pylist()}
    assert comments == {"m.k": "# two", "x": "# a\n# b", "n.y": "# c", "n.z": None}
    assert differences(xlamem.read(dump.source, text=True), members(dump)) == []


def test_comments_name_the_flags_that_differ(tmp_path: Path) -> None:
    """The compiler writes a comment before the first line that begins with the name of its flag."""
    dump = xlamem.read(with_flags(tmp_path, NON_DEFAULT.encode(), TPU, ".tpu_comp_env.txt"))
    lines = NON_DEFAULT.splitlines()
    comments = [(r["name"], r["comment"]) for r in dump["flags"].to_pylist() if r["comment"]]
    assert comments == [("xla_packer.spec", lines[0]), ("xla_exp2", "\n".join(lines[4:6]))]
    found = flags_not_default(program(dump))
    assert found == {"xla_packer.spec": '"true"', "xla_exp": "true", "xla_split": "4"}
    assert differences(xlamem.read(dump.source, text=True), members(dump)) == []


@pytest.mark.parametrize(
    ("stem", "flags"),
    [
        ("module_0000.jit_f.cpu_after_optimizations", "module_0000.jit_f"),
        ("module_0001.jit_f.sm_9.0a_gpu_after_optimizations", "module_0001.jit_f"),
        ("module_0002.jit_f.cl_1014260217.after_optimizations", "module_0002.jit_f.cl_1014260217"),
        ("1795176055098587.module_0003.jit_f.cpu_after_optimizations", "1795176055098587.module_0003.jit_f"),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_the_stem_of_the_flags_is_that_of_the_dump(stem: str, flags: str, packed: str) -> None:
    assert names.flags_stem(stem) == flags
    assert names.split_flags(f"{flags}.debug_options{packed}") == (flags, "debug-options")
    assert names.split_flags(f"{flags}.tpu_comp_env.txt{packed}") == (flags, "tpu-environment")
    assert names.split_flags(f"{flags}.txt{packed}") is None


def test_flags_are_found_from_every_path(tmp_path: Path) -> None:
    folder = with_flags(tmp_path / "dump", OPTIONS)
    (source,) = find(folder)
    archive = tmp_path / "dump.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, "dump")
    files = sorted(folder.glob("module_*"))
    member = next(f for f in files if f.name.endswith("-buffer-assignment.txt"))
    for paths in ([archive], [member], [folder / source.name], files, [folder.as_uri()]):
        (found,) = find(*paths)
        assert [m.role for m in found.members] == [m.role for m in source.members], paths
        assert pairs(xlamem.read(found)) == ROWS


def test_flags_that_cannot_be_unpacked_are_left_out(tmp_path: Path) -> None:
    folder = with_flags(tmp_path / "dump", OPTIONS)
    with zipfile.ZipFile(tmp_path / "dump.zip", "w") as archive:
        for file in folder.glob("module_*"):
            archive.write(file, file.name)
            if file.suffix == ".debug_options":
                archive.getinfo(file.name).flag_bits |= 1  # encrypted
    dump = xlamem.read(tmp_path / "dump.zip")
    assert dump["flags"].num_rows == 0
    assert dump.verify().num_rows == 0


def test_flags_of_another_module_are_not_attached(tmp_path: Path) -> None:
    folder = with_flags(tmp_path, OPTIONS)
    (flags,) = folder.glob("*.debug_options")
    flags.rename(folder / "module_9999.jit_other.debug_options")
    assert xlamem.read(folder)["flags"].num_rows == 0


def test_flags_alone_are_no_dump(tmp_path: Path) -> None:
    (tmp_path / "module_0000.jit_f.debug_options").write_bytes(OPTIONS)
    with pytest.raises(xlamem.UsageError, match="no dump"):
        find(tmp_path)


def test_flags_do_not_change_the_content_hash(tmp_path: Path) -> None:
    def hash_of(dump: xlamem.Dump) -> object:
        return dump.modules["content_hash"].to_pylist()[0]

    without = xlamem.read(DUMPS / CPU, hashes=True)
    with_them = xlamem.read(with_flags(tmp_path, OPTIONS), hashes=True)
    assert hash_of(with_them) == hash_of(without)
    assert with_them.files["content_hash"].null_count == 0


@pytest.mark.parametrize("seed", range(40))
def test_damaged_flags_are_read_as_the_slow_reader_reads_them(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(OPTIONS * 3)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        data[at : at + rng.randrange(4)] = rng.choice([b"", b"\xff", b"}\n", b" {\n", b"\n", b": ", b"\0", b"\n#"])
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    dump = xlamem.read(with_flags(tmp_path, bytes(data)), text=True)
    assert differences(dump, members(dump)) == []
    found = pieces(dump.source, ["flags", "diagnostics"])
    tables = {"flags": [dump["flags"].slice(0, 0)], "diagnostics": [dump.diagnostics.slice(0, 0)]}
    for name, rows in found:
        tables[name].append(rows)
    assert pa.concat_tables(tables["flags"]).to_pylist() == dump["flags"].to_pylist()
    assert findings(pa.concat_tables(tables["diagnostics"]).to_pylist()) == findings(
        xlamem.read(dump.source, tables=["flags", "diagnostics"]).diagnostics.to_pylist()
    )


def test_bad_lines_have_diagnostics(tmp_path: Path) -> None:
    dump = xlamem.read(with_flags(tmp_path, b"a: 1\nb\n}\nc {\n  d: 2\n"))
    assert pairs(dump) == [("a", "1"), ("c.d", "2")]
    found = [(d["section"], d["line"], d["code"], d["wanted"]) for d in dump.diagnostics.to_pylist()]
    wanted = "NAME: VALUE, NAME {, } or a comment"
    assert found == [
        ("flags", 2, "unknown_line", wanted), ("flags", 3, "unknown_line", wanted), ("flags", 6, "truncated", "}"),
    ]  # fmt: skip
    assert dump["unknown_text"]["text"].to_pylist() == ["b\n", "}\n"]


def test_messages_in_too_many_others_are_unknown(tmp_path: Path) -> None:
    depth = 150
    data = b"a {\n" * depth + b"b: 1\n" + b"}\n" * depth + b"c: 2\n"
    dump = xlamem.read(with_flags(tmp_path, data), text=True)
    assert pairs(dump) == [("c", "2")]
    assert differences(dump, members(dump)) == []


def test_compiles_that_differ_in_a_path_are_one_content(tmp_path: Path) -> None:
    first = with_flags(tmp_path / "first", OPTIONS)
    second = with_flags(tmp_path / "second", OPTIONS.replace(b"/home/u/dump", b"/home/u/night"))
    xlamem.convert(first, to=tmp_path / "out", engine="here")
    xlamem.convert(second, to=tmp_path / "out", engine="here")
    dataset = xlamem.Dataset(tmp_path / "out")
    flags = dataset["flags"].to_table()
    assert list(zip(flags["name"].to_pylist(), flags["value"].to_pylist(), strict=True)) == ROWS
    assert dataset["modules"].to_table()["n_flags"].to_pylist() == [len(ROWS)]


SMALLEST = b"""\
BufferAssignment:
allocation 0: size 8, preallocated-temp:
 value: <0 a @0> (size=8,offset=0): f32[2]{0}

Total bytes used: 8 (8B)
"""
LINES = b"""\
# Default flag value: -1
a: 65536
b {
  c: "x { y"
  d {
  }
  e/f.g[2]-h: 1
}
"""


@pytest.mark.parametrize("seed", range(8))
def test_edits_of_flags(seed: int) -> None:
    """Both readers understand the same of lines with one change."""
    rng = random.Random(seed)
    lines = LINES.split(b"\n")
    for i in range(len(lines)):
        for kind in KINDS:
            changed = b"\n".join(edited(rng, kind, lines, i))
            files = {"buffer-assignment": SMALLEST, "debug-options": changed}
            assert differences(xlamem.read(source_of(files), text=True), files) == [], changed


@pytest.mark.parametrize("line", ["b { x", "b {}", "b{", "b  {", " {", "} ", "}}", "c:1", "c :1", ": 1", "#"])
def test_lines_that_are_nearly_flags(line: str) -> None:
    files = {"buffer-assignment": SMALLEST, "debug-options": f"{line}\na: 2\n".encode()}
    dump = xlamem.read(source_of(files), text=True)
    assert differences(dump, files) == []
    assert dump["flags"]["name"].to_pylist() == ["a"]
    assert dump.modules["understood"][0].as_py() == (line == "#")
