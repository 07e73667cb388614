"""What kinds of programs `forge_bulk` forges: the mix of their operations, and their texts."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Profile:
    """The mix of one kind of program, as shares of its values unless said otherwise."""

    bytes_per_value: float  # over all four files
    reducers: float  # thread-local
    parameters: float  # each donated to an output
    copies: float  # in asynchronous copies: three values, two steps
    slices: float  # in asynchronous copies of slices: four values, three steps
    tuples: float  # in fusions of two outputs: three values, three steps
    collectives: float  # in fusions with an asynchronous collective: twelve values, twelve steps
    kept: float  # of the forward values: needed by the backward half
    configured: float  # of the instructions that are no parameters: carry a backend_config
    bitcasts: float  # of the array values: have a second name
    big_parameters: float  # of the parameters: make up nearly all of the bytes
    big_arrays: float  # of the array values: likewise
    names: dict[str, int]  # base -> weight
    operands: dict[int, int]  # number of operands of a fusion -> weight
    layer: int  # array values per layer
    configs: dict[str, int]  # backend_config -> weight
    scoped: bool = True  # op names have the layer's scope


FLAGS = '"flag_configs":[],"scoped_memory_configs":[]'
USED = '"used_scoped_memory_configs":[]'
COPY_CONFIG = f'{{{FLAGS},{USED},"dma_priority":1}}'
PLAIN_CONFIG = f'{{{FLAGS},{USED},"aliasing_operands":{{"lists":[]}}}}'
COLLECTIVE_CONFIG = (
    f'{{{FLAGS},"continuation_config":{{"output_tuple_original_start":"0","output_tuple_original_end":"0",'
    f'"operand_original_start":"9","operand_original_end":"10"}},{USED},"aliasing_operands":{{"lists":['
    + ",".join(f'{{"indices":["{i}","{i + 12}"]}}' for i in range(9))
    + "]}}"
)
KERNEL_CONFIG = f'{{{FLAGS},"custom_call_config":{{"body":"{"bW9kdWxlIHsK" * 600}"}}}}'
SHARDING = ', sharding={replicated}, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {}]>"}'
TPU_CONFIGS = {PLAIN_CONFIG: 99, KERNEL_CONFIG: 1}
PROFILES = {
    "cpu": Profile(
        bytes_per_value=697,
        reducers=0.26,
        parameters=0.119,
        copies=0.0,
        slices=0.0,
        tuples=0.0,
        collectives=0.0,
        kept=0.6,
        configured=0.64,
        bitcasts=0.03,
        big_parameters=0.6,
        big_arrays=0.3,
        names={
            "ynn_fusion": 27, "multiply_add_fusion": 13, "copy_bitcast_fusion": 9, "divide_subtract_fusion": 7,
            "copy": 6, "transpose_copy_fusion": 4, "dot": 4, "multiply_bitcast_fusion": 3, "reduce_max": 3,
        },
        operands={1: 25, 2: 35, 3: 20, 4: 12, 7: 5, 95: 3},
        layer=80,
        configs={
            '{"outer_dimension_partitions":["2"]}': 2,
            '{"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}': 1,
        },
    ),
    "tpu": Profile(
        bytes_per_value=620,
        reducers=0.042,
        parameters=0.036,
        copies=0.304,
        slices=0.457,
        tuples=0.104,
        collectives=0.0,
        kept=0.5,
        configured=1.0,
        bitcasts=0.5,
        big_parameters=0.75,
        big_arrays=0.5,
        names={"fusion": 20, "subtract_convert_fusion": 7, "convert_reduce_fusion": 5, "custom-call": 60, "copy": 2},
        operands={1: 5, 2: 30, 3: 25, 4: 25, 7: 15},
        layer=40,
        configs=TPU_CONFIGS,
    ),
}  # fmt: skip
PROFILES["sharded"] = replace(
    PROFILES["tpu"],
    bytes_per_value=1065,
    reducers=0.062,
    parameters=0.021,
    copies=0.277,
    slices=0.051,
    tuples=0.044,
    collectives=0.479,
    kept=0.2,
    operands={1: 30, 2: 30, 3: 10, 7: 30},
    names={"fusion": 40, "all-reduce": 8, "all-gather": 7, "custom-call": 5, "copy": 3},
)
"""Of TPU programs on several devices."""
BARE = ("custom-call",)
"""Names of instructions without metadata."""
PARTS = [
    f"{block}/{op}"
    for block in ("self_attention", "mlp", "self_attention/btd,bsd->bts", "mlp/jit(gelu)")
    for op in (
        "dot_general", "mul", "add", "tanh", "reduce_sum", "sub", "div", "transpose", "broadcast_in_dim", "exp",
    )
]  # fmt: skip
PROFILES["gpu"] = PROFILES["cpu"]
PROFILES["small"] = replace(
    PROFILES["tpu"],
    bytes_per_value=700,
    reducers=0.12,
    parameters=0.22,
    copies=0.3,
    slices=0.0,
    tuples=0.1,
    kept=1.0,
    scoped=False,
    configs={PLAIN_CONFIG: 1},
    names={"fusion": 40, "subtract_fusion": 7, "custom-call": 40, "copy": 10, "reduce_sum": 9},
    operands={1: 50, 2: 40, 3: 10},
)
"""Of TPU programs of some fifty values."""
