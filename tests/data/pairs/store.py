"""Store some of the pairs that make.py compiled: `python store.py OUT CORPUS`. Writes *.tar.xz and index.json.

CORPUS is a folder with dumps of the same programs by several releases of the compiler.
"""

import io
import json
import sys
import tarfile
from pathlib import Path

from edits import PAIRS

HERE = Path(__file__).parent
STORED = {
    "cpu": (
        "names", "layer-added-sgd", "donation-removed-decode", "remat-removed-scan", "type-changed-scan",
        "batch-doubled-scan", "scan-unrolled", "sharding-lost-wholly", "einsum-rewritten-scan", "flag-fusion",
        "loss-whole", "scores-f32",
    ),
    "v5e": (
        "names", "layer-added-sgd", "donation-removed-decode", "remat-removed-scan", "type-changed-scan",
        "batch-doubled-scan", "scan-unrolled", "sharding-lost-wholly", "einsum-rewritten-scan", "flag-vmem",
        "cache-longer",
    ),
    "tpu7x": ("same", "remat-removed-scan", "offload-removed"),
    "h100": (
        "names", "layer-added-sgd", "donation-removed-decode", "remat-removed-scan", "type-changed-scan",
        "scan-unrolled", "einsum-rewritten-scan", "flag-cublas", "heads-doubled-scan", "vocabulary-doubled",
    ),
}  # fmt: skip
UPGRADES = {
    "cpu-upgraded": ("sweep-cpu-jaxlib-0.9.1/mlp_grad", "sweep-cpu-jaxlib-0.12.0/mlp_grad"),
    "v5e-upgraded": ("sweep-tpu-libtpu-0.0.11.4-v5e_2x2/mlp_grad", "sweep-tpu-libtpu-0.0.50.1-v5e_2x2/mlp_grad"),
    "tpu7x-upgraded": (
        "sweep-tpu-libtpu-0.0.35-tpu7x_2x2x1/donate_adam", "sweep-tpu-libtpu-0.0.50.1-tpu7x_2x2x1/donate_adam",
    ),
    "h100-upgraded": ("gpu-0.8.2/decode_kv_donated.h100", "gpu-0.10.2/decode_kv_donated.h100"),
}  # fmt: skip
UNUSED = (".hlo.pb", "oracle.json")


def store(name, sides):
    """Write both sides of a pair to an archive whose bytes depend on nothing else."""
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for side, folder in zip("ab", sides, strict=True):
            for file in sorted(folder.iterdir()):
                if not file.name.endswith(UNUSED):
                    entry = tarfile.TarInfo(f"{side}/{file.name}")
                    data = file.read_bytes()
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))


def row(name, platform, cause, words, scope):
    return {"name": name, "platform": platform, "cause": cause, "words": words, "scope": scope}


def main(out, corpus):
    rows = []
    for platform, names in STORED.items():
        for name in names:
            pair = PAIRS[name]
            store(f"{platform}-{name}", [out / platform / name / side for side in "ab"])
            rows.append(row(f"{platform}-{name}", platform, pair.cause, pair.words, pair.scope))
    for name, sides in UPGRADES.items():
        store(name, [corpus / side for side in sides])
        words = f"the compiler of {sides[0]} against that of {sides[1]}"
        rows.append(row(name, name.split("-")[0], "compiler_upgraded", words, ""))
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / "index.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
