"""The pairs: what each side is, what was edited between them, and where the bytes of the difference belong."""

from dataclasses import dataclass, field

ALL = ("cpu", "v5e", "h100")
TPU = ("v5e", "tpu7x")

RENAMES = {
    "train_step": "update_model",
    "decode_step": "next_token",
    "apply_layers": "run_stack",
    "attention": "self_attend",
    "block": "unit",
    "mlp": "feed_forward",
    "layer_{": "stage_{",
    '"head"': '"readout"',
    '"loss"': '"objective"',
    "cross_entropy": "negative_log_likelihood",
    "hidden": "inner",
    "tokens": "words",
    "targets": "labels",
}


@dataclass(frozen=True)
class Pair:
    """One edit: fields of `Config` on either side, the true cause in a word and in words, and its scopes (regex)."""

    cause: str
    words: str
    scope: str
    a: dict = field(default_factory=dict)
    b: dict = field(default_factory=dict)
    both: dict = field(default_factory=dict)
    platforms: tuple[str, ...] = ALL
    renamed: bool = False
    flags: dict = field(default_factory=dict)

    def side(self, side):
        """Return the fields of `Config`, whether names change, and the compiler options of side a or b."""
        edited = side == "b"
        return self.both | (self.b if edited else self.a), self.renamed and edited, self.flags if edited else {}


def pair(cause, words, scope, **options):
    return Pair(cause, words, scope, **options)


SCAN = {"scan": True}
BF16 = {"dtype": "bfloat16"}
SMALL = {"layers": 2}
SHARDED = {"sharded": "both"}
PAIRS = {
    "same": pair("none", "the same program compiled twice", "", both=SMALL, platforms=("cpu", "v5e", "tpu7x", "h100")),
    "names": pair(
        "names", "functions, variables and scopes have other names and lines", "", both=SMALL, renamed=True,
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "names-scan": pair("names", "other names and lines in a scanned model", "", both=SCAN, renamed=True),
    "layer-added": pair(
        "layer_added", "a fifth layer", "layer_4", b={"layers": 5}, platforms=("cpu", "v5e", "tpu7x", "h100")
    ),
    "layer-added-sgd": pair(
        "layer_added", "a third layer, optimizer SGD", "layer_2", a={"layers": 2}, b={"layers": 3},
        both={"optimizer": "sgd"},
    ),
    "layer-added-scan": pair(
        "layer_added", "six layers instead of four in a scanned stack", "attention|mlp", b={"layers": 6}, both=SCAN
    ),
    "donation-removed": pair(
        "donation_removed", "params and optimizer state are no longer donated", "", b={"donate": False},
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "donation-removed-scan": pair(
        "donation_removed", "params and optimizer state are no longer donated, scanned", "", b={"donate": False},
        both=SCAN,
    ),
    "donation-removed-decode": pair(
        "donation_removed", "the cache of keys and values is no longer donated and is copied", "attention",
        b={"donate": False}, both={"program": "decode"},
    ),
    "remat-removed": pair(
        "remat_removed", "jax.checkpoint is gone", "attention|mlp", a={"remat": True},
        platforms=("v5e", "tpu7x", "h100"),  # the CPU compiler undoes it
    ),
    "remat-removed-scan": pair(
        "remat_removed", "jax.checkpoint is gone from the body of the scan", "attention|mlp", a={"remat": True},
        both=SCAN, platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "remat-policy": pair(
        "remat_policy", "the checkpoint policy saves everything instead of nothing", "attention|mlp",
        b={"saved": "everything"}, both=SCAN | {"remat": True},
    ),
    "type-changed": pair(
        "type_changed", "activations are f32 instead of bf16", "attention|mlp|head", a=BF16,
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "type-changed-scan": pair(
        "type_changed", "activations are f32 instead of bf16, scanned", "attention|mlp|head", a=BF16, both=SCAN
    ),
    "scores-f32": pair(
        "type_changed", "the attention scores are f32 instead of bf16", "attention", b={"f32_scores": True},
        both=BF16, platforms=("cpu",),
    ),
    "batch-doubled": pair(
        "batch_doubled", "16 rows in a batch instead of 8", "attention|mlp|head|loss", b={"batch": 16},
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "batch-doubled-scan": pair(
        "batch_doubled", "16 rows in a batch instead of 8, scanned", "attention|mlp|head|loss", b={"batch": 16},
        both=SCAN,
    ),
    "sequence-longer": pair(
        "sequence_longer", "384 tokens in a sequence instead of 256", "attention|mlp|head|loss", b={"times": 384}
    ),
    "sequence-longer-8": pair(
        "sequence_longer", "264 tokens in a sequence instead of 256", "attention|mlp|head|loss", b={"times": 264},
        platforms=("cpu", "v5e", "tpu7x"),
    ),
    "scan-unrolled": pair(
        "scan_unrolled", "the scan over layers is unrolled wholly", "attention|mlp", b={"unroll": 4}, both=SCAN,
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "scan-to-loop": pair(
        "scan_unrolled", "a Python loop over layers instead of a scan", "attention|mlp", a=SCAN, b={"scan": False}
    ),
    "sharding-lost-parameter": pair(
        "sharding_lost", "the head and its moments are no longer sharded", "head|optimizer",
        both={"vocabulary": 8192}, a=SHARDED, b={"sharded": "parameters lost"},
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "sharding-lost-activation": pair(
        "sharding_lost", "the activations lost their sharding constraints", "attention|mlp|embed", both=SMALL,
        a=SHARDED, b={"sharded": "activations lost"}, platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "sharding-lost-wholly": pair(
        "sharding_lost", "nothing is sharded any more: one device holds everything", "", both=SMALL, a=SHARDED,
        platforms=("cpu", "v5e"),
    ),
    "einsum-rewritten": pair(
        "einsum_rewritten", "attention projects the values before it mixes them: a [b,s,h,e] intermediate",
        "attention", b={"project_values_first": True}, platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "einsum-rewritten-scan": pair(
        "einsum_rewritten", "attention projects the values before it mixes them, scanned", "attention",
        b={"project_values_first": True}, both=SCAN,
    ),
    "flag-fusion": pair(
        "flag_changed", "xla_disable_hlo_passes=fusion", "", flags={"xla_disable_hlo_passes": "fusion"},
        both=SMALL, platforms=("cpu",),
    ),
    "flag-vmem": pair(
        "flag_changed", "xla_tpu_scoped_vmem_limit_kib is 65536", "",
        flags={"xla_tpu_scoped_vmem_limit_kib": "65536"}, both=SMALL, platforms=TPU,
    ),
    "flag-scheduler-tpu": pair(
        "flag_changed", "xla_memory_scheduler is bfs", "", flags={"xla_memory_scheduler": "bfs"}, platforms=TPU,
    ),
    "flag-prefetch": pair(
        "flag_changed", "xla_enable_cross_program_prefetch is off", "",
        flags={"xla_enable_cross_program_prefetch": "false"}, both=SMALL, platforms=("v5e",),
    ),
    "flag-lhs": pair(
        "flag_changed", "xla_gpu_enable_latency_hiding_scheduler is on", "", both=SHARDED,
        flags={"xla_gpu_enable_latency_hiding_scheduler": True}, platforms=("h100",),
    ),
    "flag-cublas": pair(
        "flag_changed", "xla_gpu_enable_triton_gemm is off", "", flags={"xla_gpu_enable_triton_gemm": False},
        both=SMALL, platforms=("h100",),
    ),
    "logits-returned": pair(
        "output_added", "the step returns the logits too", "head", b={"logits": True},
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "optimizer-adam": pair(
        "optimizer_changed", "Adam instead of SGD: two moments for each parameter", "optimizer",
        a={"optimizer": "sgd"}, platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "optimizer-state-type": pair(
        "state_type_changed", "Adam's moments are f32 instead of bf16", "optimizer", a={"moments": "bfloat16"}
    ),
    "average-added": pair(
        "state_added", "a moving average of the parameters", "average", b={"average": True}, both=SMALL
    ),
    "embedding-trained": pair(
        "state_added", "the embedding is trained and has moments", "embed|optimizer", a={"frozen": True},
        both=SMALL | {"vocabulary": 8192},
    ),
    "heads-doubled": pair(
        "heads_doubled", "8 heads instead of 4", "attention", b={"heads": 8},
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "heads-doubled-scan": pair(
        "heads_doubled", "8 heads instead of 4, scanned", "attention", b={"heads": 8}, both=SCAN
    ),
    "features-doubled": pair("features_doubled", "2048 features of mlp instead of 1024", "mlp", b={"features": 2048}),
    "vocabulary-doubled": pair(
        "vocabulary_doubled", "4096 words instead of 2048", "head|loss|embed", b={"vocabulary": 4096}, both=SMALL
    ),
    "accumulation-removed": pair(
        "accumulation_removed", "gradients of the whole batch at once instead of four microbatches",
        "attention|mlp|head", a={"microbatches": 4},
    ),
    "aux-loss": pair(
        "loss_added", "an auxiliary loss with logits of its own", "aux_loss", b={"aux": True},
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "loss-whole": pair(
        "loss_chunking_removed", "the loss is computed at once instead of in eight chunks", "head|loss",
        a={"loss_chunks": 8}, both=SMALL | {"vocabulary": 8192},
    ),
    "activation-changed": pair(
        "activation_changed", "gelu instead of relu: more residuals", "mlp", a={"activation": "relu"},
        platforms=("cpu", "v5e", "tpu7x", "h100"),
    ),
    "activation-changed-scan": pair(
        "activation_changed", "gelu instead of relu, scanned", "mlp", a={"activation": "relu"}, both=SCAN
    ),
    "offload-removed": pair(
        "offload_removed", "Adam's moments are on the device instead of on the host", "optimizer",
        a={"offload": True}, both=SMALL, platforms=("v5e", "tpu7x", "h100"),
    ),
    "dropout-added": pair("op_added", "dropout of the attention weights", "attention", b={"dropout": True}),
    "clipping-added": pair("op_added", "gradients are clipped by their global norm", "clip", b={"clip": True}),
    "cache-longer": pair(
        "cache_longer", "2048 positions in the cache instead of 1024", "attention", b={"cache": 2048},
        both={"program": "decode"},
    ),
    "cache-not-returned": pair(
        "outputs_gone", "the cache of keys and values is not returned, so nothing can take its memory", "attention",
        b={"cache_returned": False}, both={"program": "decode"}, platforms=("cpu",),
    ),
    "decode-names": pair("names", "other names in a decoding step", "", both={"program": "decode"}, renamed=True),
}
