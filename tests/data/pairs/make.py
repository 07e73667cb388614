"""Compile pairs of programs that differ in one edit: `python make.py OUT [PLATFORM[/PAIR] …]` (needs jax and libtpu).

Writes OUT/PLATFORM/PAIR/a and …/b: the memory files, the HLO text and the flags. Platforms: cpu, v5e, tpu7x and h100
(the last needs jax[cuda12]).
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4", "TPU_WORKER_HOSTNAMES": "localhost"}
os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import numpy as np
from edits import PAIRS, RENAMES
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

HERE = Path(__file__).parent
TOPOLOGIES = {"v5e": "v5e:2x2", "tpu7x": "tpu7x:2x2x1"}
MEMORY_FILES = ("buffer-assignment", "live-range", "memory-usage-report", "after_optimizations.txt")
FLAG_FILES = ("debug_options", "tpu_comp_env.txt")


def load(renamed):
    """Return the namespace of program.py, or of the same program under other names and on other lines."""
    text = (HERE / "program.py").read_text()
    if renamed:
        for old, new in RENAMES.items():
            text = text.replace(old, new)
        text = "# Moved\n" * 40 + text
    name = "trainer.py" if renamed else "program.py"
    namespace = {"__name__": name.removesuffix(".py")}
    sys.modules[namespace["__name__"]] = type(sys)(namespace["__name__"])
    exec(compile(text, f"/home/u/train/{name}", "exec"), namespace)
    return namespace


def devices_of(platform):
    if platform == "cpu":
        return jax.devices()
    if platform == "h100":
        spec = (HERE / "h100.txtpb").read_text()
        return topologies.get_topology_desc(
            platform="cuda", topology_name="x", target_config=spec, topology="1x1x4"
        ).devices
    return topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGIES[platform]).devices


def placed(arguments, mesh, c):
    """Give every argument a sharding: a matrix's last dimension on `model`, a batch's first on `data`."""

    def place(s, *names, kind=None):
        return jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, P(*names), memory_kind=kind))

    def by_model(path, s):
        lost = c.sharded == "parameters lost" and "head" in jax.tree_util.keystr(path)
        last = "model" if c.sharded and s.ndim > 1 and not lost else None
        kind = "pinned_host" if c.offload and "adam" in jax.tree_util.keystr(path) else None
        return place(s, *[None] * (s.ndim - 1), *[last] * (s.ndim > 0), kind=kind)

    params, state, *tokens = arguments
    batch = ("data",) if c.sharded else ()
    return (
        *jax.tree_util.tree_map_with_path(by_model, (params, state)),
        *(place(s, *batch[: s.ndim]) for s in tokens),
    )


def compile_to(folder, platform, flags, c, namespace):
    step, arguments = namespace["step_and_arguments"](c)
    devices = devices_of(platform)
    mesh = Mesh(np.array(devices if c.sharded else devices[:1]).reshape(2 if c.sharded else 1, -1), ("data", "model"))
    options = {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True, **dict(flags)}
    if platform == "h100":
        options["xla_gpu_autotune_level"] = 0
    with jax.sharding.set_mesh(mesh):
        if platform in TOPOLOGIES:  # XLA writes the flags last: take those of a program that compiles at once
            tiny = jax.ShapeDtypeStruct((), np.float32, sharding=NamedSharding(mesh, P()))
            jax.jit(lambda x: x).lower(tiny).compile(compiler_options=options | {"xla_dump_to": f"{folder}/tiny"})
        step.lower(*placed(arguments, mesh, c), c=c).compile(compiler_options=options)


def compile_until_assigned(folder, *arguments):
    """Compile in a process that is killed once the buffers are assigned: generating code takes 30 times as long."""
    child = os.fork()
    if not child:
        try:
            compile_to(folder, *arguments)
        except Exception as error:
            print("FAILED", str(error)[:500].replace("\n", " "), flush=True)
        os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if any(folder.glob("*after_buffer_assignment.txt")):
            time.sleep(0.5)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.1)
    stem = next(folder.glob("*after_optimizations.txt")).name.removesuffix(".after_optimizations.txt")
    next(folder.glob("tiny/*debug_options")).rename(folder / f"{stem}.debug_options")


def tidy(folder):
    """Remove what is not read, and the paths of this machine."""
    for file in folder.iterdir():
        if any(part in file.name for part in MEMORY_FILES) or file.name.endswith(FLAG_FILES):
            text = file.read_text()
            paths = {f"{folder}/tiny": "dump", folder: "dump", HERE.resolve(): "train", sys.prefix: "env"}
            for path, shown in paths.items():
                text = text.replace(str(path), f"/home/u/{shown}")
            file.write_text(text)
        elif file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()


def make(out, platform, name):
    for side in ("a", "b"):
        config, renamed, flags = PAIRS[name].side(side)
        namespace = load(renamed)
        folder = out / platform / name / side
        folder.mkdir(parents=True)
        run = compile_until_assigned if platform in TOPOLOGIES else compile_to
        run(folder, platform, flags, namespace["Config"](**config), namespace)
        tidy(folder)


def wanted(selected):
    """TPUs are first: a process must not fork once it has compiled."""
    for platform in (*TOPOLOGIES, "cpu", "h100"):
        for name, pair in PAIRS.items():
            named = not selected or any(s in (platform, name, f"{platform}/{name}") for s in selected)
            if named and platform in pair.platforms:
                yield platform, name


if __name__ == "__main__":
    for platform, name in wanted(sys.argv[2:]):
        if (Path(sys.argv[1]) / platform / name / "b").exists():
            continue
        try:
            make(Path(sys.argv[1]), platform, name)
            print(platform, name, flush=True)
        except Exception as error:
            print(platform, name, "FAILED", str(error)[:300].replace("\n", " "), flush=True)
