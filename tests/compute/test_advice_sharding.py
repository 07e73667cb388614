"""Advice on arguments that are sharded less than others, on small programs like ones that were recompiled."""

from __future__ import annotations

import pytest
from advice_programs import Buffer, Make, Row, advice, argument, loop, output, program

from xlamem.compute.advice import sharding

EXCHANGED = Buffer("g", "f32[8]", (0, 9), "jit(f)/psum", "all-reduce(%x)")
PARAMS = argument("params['a']['w']", "f32[16,64]", 0)
STATE = argument("opt[0].mu['a']['w']", "f32[64,64]", 1)


def shardings(make: Make, *buffers: Buffer, platform: str = "cpu") -> list[Row]:
    return advice(program(make, buffers, platform), "shard")


def test_optimizer_state_that_is_on_each_device(make: Make) -> None:
    """A quarter of it is left. What temporaries take may be saved as well, and an output in its place."""
    bias = argument("opt[0].nu['a']['w']", "f32[64,64]", 2)
    (row,) = shardings(make, EXCHANGED, PARAMS, STATE, bias)
    assert row["action"].startswith("Shard `opt` like `params`: on each device, it has arrays such as f32[64,64] where")
    assert "where `params` has f32[16,64]." in row["action"]
    assert (row["argument"], row["parameter"], row["n_buffers"], row["bytes"]) == ("opt", 1, 2, 2 * STATE.size)
    estimate = 2 * (STATE.size - PARAMS.size)
    assert row["lower"] == int(0.8 * estimate) - EXCHANGED.size // 20
    assert row["upper"] == estimate + 2 * PARAMS.size + EXCHANGED.size
    assert row["confidence"] == "likely"


@pytest.mark.parametrize("shape", ["f32[0,64]", "f32[64,0]"])
def test_empty_arrays_are_no_parts(shape: str, make: Make) -> None:
    exchanged = EXCHANGED._replace(instruction="all-reduce(%x), replica_groups=[1,4]<=[4]")
    assert not shardings(make, exchanged, PARAMS, STATE._replace(shape=shape))
    assert not shardings(make, exchanged, PARAMS._replace(shape=shape), STATE)


def test_arguments_without_a_path_or_in_the_memory_of_the_host(make: Make) -> None:
    """A number before the others does not change which of them is sharded. Nothing is saved on the host."""
    params, state = argument("params['a']['w']", "f32[16,64]", 1), argument("opt[0].mu['a']['w']", "f32[64,64]", 2)
    numbers = [argument("lr", "f32[]", 0), EXCHANGED]
    for platform, color, n in (("cpu", 0, 1), ("tpu", 0, 1), ("tpu", 5, 0)):
        placed = state._replace(allocation=f"color {color}, {state.allocation}")
        rows = shardings(make, *numbers, params, placed, platform=platform)
        assert [(r["argument"], r["parameter"], r["bytes"]) for r in rows] == [("opt", 2, state.size)] * n


def test_outputs_that_replace_it_are_sharded_as_well(make: Make) -> None:
    new = output("new", "f32[64,64]")
    (row,) = shardings(make, EXCHANGED, PARAMS, STATE, new)
    estimate = 2 * (STATE.size - PARAMS.size)
    assert row["upper"] == min(estimate + EXCHANGED.size, STATE.size + new.size + PARAMS.size + EXCHANGED.size)


@pytest.mark.parametrize(
    ("params", "state", "found"),
    [
        ({}, {}, "opt"),
        ({"shape": "f32[64,16]"}, {}, "opt"),  # in the last dimension
        ({"op_name": "opt[0].mu['a']['w']"}, {"op_name": "params['a']['w']"}, "params"),  # its state is sharded
        ({}, {"op_name": "opt[0].mu['a']['v']"}, None),
        ({}, {"op_name": "params['b']['a']['w']"}, None),  # of the same argument
        ({}, {"shape": "f32[16,64]"}, None),
        ({}, {"shape": "f32[60,64]"}, None),  # no multiple
        ({}, {"shape": "f32[64,64,2]"}, None),
        ({}, {"shape": "f32[64,32]"}, None),  # larger in one dimension, smaller in another
        ({}, {"shape": "bf16[64,64]"}, None),
        ({}, {"op_name": "opt"}, None),
        ({"op_name": "xs[0]"}, {"op_name": "ws[0]"}, None),  # of any two lists
        ({"op_name": "xs[0].w"}, {"op_name": "ws[0].w"}, "ws"),
        ({}, {"op_name": "<unnamed>: s['a']['w']"}, None),  # not the name of an argument
        ({"op_name": "params.decoder['a']['w']"}, {"op_name": "opt.encoder['a']['w']"}, None),
    ],
)
def test_arrays_with_the_same_path(
    params: dict[str, str], state: dict[str, str], found: str | None, make: Make
) -> None:
    rows = shardings(make, EXCHANGED, PARAMS._replace(**params), STATE._replace(**state))
    assert [r["argument"] for r in rows] == ([found] if found else [])


@pytest.mark.parametrize(
    ("params", "state", "found"),
    [
        ("state.params['a']['w']", "state.opt_state[0].mu['a']['w']", ("state.opt_state", "state.params")),
        ("state['opt']['a']['w']", "state['params']['a']['w']", ("state['params']", "state['opt']")),
        ("state[0]['a']['w']", "state[1][0].nu['a']['w']", ("state[1]", "state[0]")),
        ("state['a']['w']", "state['b']['w']", None),  # two layers
        ("state[0]['w']", "state[1]['w']", None),
        ("opt.mu['a']['w']", "opt.nu['a']['w']", None),
        ("opt[0].mu['a']['w']", "opt[1].mu['a']['w']", None),
        ("state.params['w']", "state.opt_state[0].mu['v']", None),
        ("state.params.decoder['a']['w']", "state.params.encoder['a']['w']", None),
    ],
)
def test_parameters_and_their_state_in_one_argument(
    params: str, state: str, found: tuple[str, str] | None, make: Make
) -> None:
    rows = shardings(make, EXCHANGED, PARAMS._replace(op_name=params), STATE._replace(op_name=state))
    assert [r["action"].split(":")[0] for r in rows] == ([f"Shard `{found[0]}` like `{found[1]}`"] if found else [])
    assert [(r["argument"], r["parameter"]) for r in rows] == ([("state", 1)] if found else [])


def test_a_program_for_one_device(make: Make) -> None:
    assert shardings(make, EXCHANGED._replace(instruction="add(%x)"), PARAMS, STATE) == []


@pytest.mark.parametrize(("devices", "n"), [(2, 0), (3, 0), (4, 1), (8, 1), (6, 0)])
def test_as_many_devices_have_parts(devices: int, n: int, make: Make) -> None:
    """An array of the same name may have other dimensions, such as the text of a batch and the weights that read it."""
    exchanged = EXCHANGED._replace(instruction=f"all-reduce(%x), replica_groups=[1,{devices}]<=[{devices}]")
    assert len(shardings(make, exchanged, PARAMS, STATE)) == n


@pytest.mark.parametrize(("other", "more", "n"), [(48, 0, 1), (0, 16, 1), (80, 0, 1), (80, 15, 1), (80, 17, 0)])
def test_most_arrays_have_the_same_names(other: int, more: int, n: int, make: Make) -> None:
    """At least half of one of the two arguments: a batch can have the name of a few weights."""
    buffers = [argument(f"{name}['b']", f"f32[{size},64]", 2 + i)
               for i, (name, size) in enumerate((("opt[0].mu", other), ("params", more))) if size]  # fmt: skip
    assert len(shardings(make, EXCHANGED, PARAMS, STATE, *buffers)) == n


def test_the_smallest_array_with_a_path_counts(make: Make) -> None:
    """Average weights may be on each device, too."""
    average = argument("ema['a']['w']", "f32[32,64]", 2)
    rows = shardings(make, EXCHANGED, PARAMS, STATE, average)
    assert sorted((r["argument"], "f32[16,64]" in r["action"]) for r in rows) == [("ema", True), ("opt", True)]


@pytest.mark.parametrize(("bias", "n"), [("f32[8]", 1), ("f32[16]", 0)])
def test_a_larger_model_of_the_same_layers(bias: str, n: int, make: Make) -> None:
    """Its weights are larger by two factors, its biases by one. Small arrays of a state are on each device."""
    small = argument("params['a']['b']", "f32[8]", 2)
    rows = shardings(make, EXCHANGED, PARAMS, STATE, small, argument("opt[0].mu['a']['b']", bias, 3))
    assert [r["n_buffers"] for r in rows] == [1] * n


@pytest.mark.parametrize(
    ("of_params", "of_state", "n"),
    [("devices=[4,1]<=[4]", "replicated", 1), ("replicated", "devices=[1,4]<=[4]", 0), ("", "devices=[4]<=[4]", 1)],
)
def test_printed_shardings(of_params: str, of_state: str, n: int, make: Make) -> None:
    buffers = [
        b._replace(instruction=f"{b.instruction}, sharding={{{text}}}" if text else b.instruction)
        for b, text in ((PARAMS, of_params), (STATE, of_state))
    ]
    assert len(shardings(make, EXCHANGED, *buffers)) == n


SUM = Buffer("g", "f32[64,64]", (0, 9), "jit(f)/transpose(jvp())/dot", "all-reduce(%x), replica_groups=[1,4]<=[4]")
REPLICATED = PARAMS._replace(shape="f32[64,64]")


def test_state_on_all_devices_that_sum_the_gradients(make: Make) -> None:
    """XLA keeps a part of what is saved to gather the parameters, so the lower bound is a fifth."""
    (row,) = shardings(make, SUM, REPLICATED, STATE)
    assert row["action"].startswith("Shard `opt` over the 4 devices that sum the gradients of `params`: each of them")
    assert "has the same arrays, such as f32[64,64]." in row["action"]
    assert (row["argument"], row["parameter"], row["n_buffers"], row["bytes"]) == ("opt", 1, 1, STATE.size)
    estimate = STATE.size * 3 // 4
    assert row["lower"] == int(0.2 * estimate) - int(0.2 * estimate) // 3
    assert row["upper"] == int(1.05 * estimate + SUM.size / 10)
    assert row["confidence"] == "likely"


def test_the_first_and_the_largest_array_of_a_state(make: Make) -> None:
    """The row has the number of the one, and names the other."""
    small, large = (argument(f"{root}['a']['b']", "f32[32,64]", n) for n, root in enumerate(("opt[0].nu", "params"), 2))
    sums = [SUM, SUM._replace(name="h", shape="f32[32,64]")]
    (row,) = shardings(make, *sums, REPLICATED, STATE, small, large)
    assert (row["parameter"], row["n_buffers"]) == (1, 2)
    assert "such as f32[64,64]." in row["action"]


def test_an_output_that_replaces_the_state_is_sharded_as_well(make: Make) -> None:
    outputs = [output(name, "f32[64,64]") for name in ("params", "state")]
    (alone,), (both,) = (shardings(make, SUM, REPLICATED, STATE, *o) for o in ((), outputs))
    assert both["lower"] > 1.9 * alone["lower"]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (SUM, True),
        (SUM._replace(instruction="all-reduce-start(%x), replica_groups={{0,1,2,3}}"), True),
        (SUM._replace(instruction="all-reduce(%x), replica_groups=mesh['a'=2,'b'=4] {'b'}, x=true"), True),
        (SUM._replace(shape="(f32[64,64], f32[8])"), True),
        (SUM._replace(instruction="all-reduce(%x), replica_groups=mesh['a'=2,'b'=4] {'c'}"), False),
        (SUM._replace(instruction="all-reduce(%x), replica_groups={{0},{1}}"), False),
        (SUM._replace(instruction="all-reduce(%x)"), False),
        (SUM._replace(instruction="all-gather(%x), replica_groups=[1,4]<=[4]"), False),
        (SUM._replace(op_name="jit(f)/jvp()/dot"), False),  # activations
        (SUM._replace(shape="f32[64,32]"), False),
        (SUM._replace(instruction="all-reduce(%x), replica_groups=[1,5]<=[5]"), False),  # divides no dimension
    ],
)
def test_sums_of_gradients(changed: Buffer, found: bool, make: Make) -> None:
    rows = shardings(make, changed, REPLICATED, STATE)
    assert [r["action"].split(":")[0] for r in rows] == (
        ["Shard `opt` over the 4 devices that sum the gradients of `params`"] if found else []
    )


def test_sums_of_the_gradients_of_each_layer_of_a_stack(make: Make) -> None:
    stacked = (b._replace(shape="f32[3,64,64]") for b in (PARAMS, STATE))
    assert len(shardings(make, SUM, *stacked)) == 1


@pytest.mark.parametrize(("rest", "n"), [(16, 1), (17, 0)])
def test_sums_of_a_part_of_the_gradients(rest: int, n: int, make: Make) -> None:
    """The rest, a fifth at most, may be sharded already."""
    others = [argument(f"{root}['a']['v']", f"f32[{rest},64]", 2 + i) for i, root in enumerate(["params", "opt[0].mu"])]
    assert len(shardings(make, SUM, REPLICATED, STATE, *others)) == n


def test_the_sum_of_a_bias_is_not_that_of_a_matrix(make: Make) -> None:
    """Only arrays of three or more dimensions are stacks of layers."""
    assert shardings(make, SUM._replace(shape="f32[64]"), REPLICATED, STATE) == []
    stacked = [b._replace(shape="f32[3,64,8]") for b in (PARAMS, STATE)]
    assert len(shardings(make, SUM._replace(shape="f32[64,8]"), *stacked)) == 1
    assert len(shardings(make, SUM._replace(shape="f32[1,64,8]"), *stacked)) == 1


def test_sums_over_several_numbers_of_devices(make: Make) -> None:
    """The arrays with most bytes count, and of two sums of equal arrays the one over more devices."""
    over_two = SUM._replace(name="h", instruction="all-reduce(%x), replica_groups=[2,2]<=[4]")
    for sums in ([SUM, over_two], [over_two, SUM]):
        (row,) = shardings(make, *sums, REPLICATED, STATE)
        assert "over the 4 devices" in row["action"]
    small = [argument(f"{root}['a']['v']", "f32[8,64]", 2 + i) for i, root in enumerate(["params", "opt[0].mu"])]
    (row,) = shardings(make, SUM, over_two._replace(shape="f32[8,64]"), REPLICATED, STATE, *small)
    assert ("over the 4 devices" in row["action"], row["n_buffers"]) == (True, 1)


def test_parameters_are_found_in_any_order_of_arguments(make: Make) -> None:
    mu, nu = (argument(f"{n}['a']['w']", "f32[64,64]", i) for i, n in enumerate(["mu", "nu"]))
    params = argument("params['a']['w']", "bf16[64,64]", 2)
    rows = shardings(make, SUM, mu, nu, params)
    assert sorted(r["action"].split(":")[0] for r in rows) == [
        f"Shard `{n}` over the 4 devices that sum the gradients of `params`" for n in ("mu", "nu")
    ]


@pytest.mark.parametrize("number", [2, 3])
def test_parameters_rather_than_a_frozen_model(number: int, make: Make) -> None:
    """Whichever comes first."""
    numbers = {"frozen": 5 - number, "params": number}
    models = [argument(f"{name}['a']['w']", "f32[64,64]", n) for name, n in numbers.items()]
    (row,) = shardings(make, SUM, *sorted(models, key=lambda b: b.name), STATE)
    assert row["action"].startswith("Shard `opt` over the 4 devices that sum the gradients of `params`:")


def test_a_state_with_printed_shards(make: Make) -> None:
    sharded = STATE._replace(instruction="parameter(1), sharding={devices=[4,1]<=[4]}")
    assert shardings(make, SUM, REPLICATED, sharded) == []


@pytest.mark.parametrize(
    "groups", ["[1,<n>]<=[4]", "{{<n>,1}}", "mesh['a'=<n>] {'a'}", "[1,999999999]", "mesh[" * 9000, "{{" + "1," * 90000]
)
def test_groups_of_devices_that_are_none(groups: str, make: Make) -> None:
    """Of more digits than a number has, of more devices than there are, and without an end."""
    instruction = f"all-reduce(%x), replica_groups={groups.replace('<n>', '9' * 5000)}"
    assert shardings(make, SUM._replace(instruction=instruction), REPLICATED, STATE) == []
    axes = "mesh['a'=999999999,'b'=999999999,'c'=999999999] {'a','b','c'}"
    empty = [b._replace(shape="f32[0,64]") for b in (REPLICATED, STATE)]
    assert shardings(make, SUM._replace(instruction=f"all-reduce(%x), replica_groups={axes}"), *empty) == []


@pytest.mark.parametrize(
    ("params", "state", "n"),
    [
        ("params['a']['w']", "opt['a']['w']", 1),
        ("params['a']['w']", "average['a']['w']", 0),
        ("teacher['a']['w']", "student['a']['w']", 0),  # neither is the state of the other
        ("params['a']['w']", "reference['a']['w']", 0),  # the forward pass reads it
        ("opt['mu']['a']['w']", "opt['nu']['a']['w']", 0),  # no parameter is known
        ("params['a']['w']", "exp_avg_sq['a']['w']", 1),
        ("state.params['w']", "state.opt_state[0].mu['w']", 1),
    ],
)
def test_names_of_a_state(params: str, state: str, n: int, make: Make) -> None:
    assert len(shardings(make, SUM, REPLICATED._replace(op_name=params), STATE._replace(op_name=state))) == n


@pytest.mark.parametrize("shape", ["f32[64,,64]", "f32[,]", f"f32[{'9' * 400},64]", "f32[]"])
def test_shapes_that_are_no_shapes(shape: str, make: Make) -> None:
    assert shardings(make, EXCHANGED, PARAMS, STATE._replace(shape=shape)) == []


# -- results of loops ----------------------------------------------------------------------------


CACHES = [argument(f"cache['{name}']", "f32[12,8,64,4]", i) for i, name in enumerate("kv")]
BY_FOUR = EXCHANGED._replace(instruction="all-reduce(%x), replica_groups={{0,1,2,3}}")
RESULTS = [output(f"while.{i}", "f32[12,8,64,1]", instruction=loop("while", 12).instruction) for i in range(2)]


QUARTERS = EXCHANGED._replace(instruction="all-reduce(%x), replica_groups=[1,4]<=[4]")
EMBEDDING, HEAD = argument("params['embed']", "f32[512,16]", 0), argument("params['head']", "f32[16,128]", 1)


@pytest.mark.parametrize(
    ("embedding", "head", "found"),
    [
        ({}, {}, True),
        ({}, {"shape": "f32[128,16]"}, True),
        ({}, {"shape": "f32[4,512]"}, True),  # a part of the features
        ({"shape": "f32[16,512]"}, {}, True),
        ({"op_name": "params['wte'].weight"}, {}, True),
        ({"op_name": "params['up']"}, {}, False),  # any two matrices may have such dimensions
        ({}, {"op_name": "other['head']"}, False),
        ({}, {"op_name": "params['embed2']"}, False),
        ({}, {"shape": "f32[16,256]"}, False),  # a half, but four devices exchange data
        ({}, {"shape": "f32[16,512]"}, False),
        ({}, {"shape": "bf16[16,128]"}, False),
        ({}, {"shape": "f32[2,8,128]"}, False),
    ],
)
def test_an_embedding_that_is_whole_beside_a_head(
    embedding: dict[str, str], head: dict[str, str], found: bool, make: Make
) -> None:
    rows = shardings(make, QUARTERS, EMBEDDING._replace(**embedding), HEAD._replace(**head), platform="tpu")
    assert len(rows) == found
    if found:
        assert "along the dimension of 512 over 4 devices, as `params['head']` is" in rows[0]["action"]
        assert rows[0]["upper"] == EMBEDDING.size * 3 // 4 + QUARTERS.size // 50


def test_groups_of_one_device_share_nothing(make: Make) -> None:
    """Another matrix as large as the embedding is no part of it."""
    alone = EXCHANGED._replace(name="alone", instruction="all-gather(%x), replica_groups={{0},{1},{2},{3}}")
    other = argument("params['out']", "f32[16,512]", 2)
    (row,) = shardings(make, QUARTERS, alone, EMBEDDING, HEAD, other, platform="tpu")
    assert "over 4 devices, as `params['head']` is" in row["action"]


def test_a_matrix_of_which_the_larger_dimension_cannot_be_divided(make: Make) -> None:
    whole, large = argument("params['table']", "f32[66,16]", 0), argument("params['up']", "f32[16,256]", 1)
    whole, large = (
        a._replace(instruction=f"{a.instruction}, sharding={text}")
        for a, text in ((whole, "{replicated}"), (large, "{devices=[1,4]<=[4]}"))
    )
    (row,) = shardings(make, QUARTERS, whole, large)
    assert "along the dimension of 16 over 4 devices, as most of `params` is" in row["action"]


def test_the_state_of_an_embedding_is_sharded_with_it(make: Make) -> None:
    shapes = {"embed": "f32[512,16]", "head": "f32[16,128]"}
    names = [(f"state.{field}['{name}']", shape) for field in ("mu", "params") for name, shape in shapes.items()]
    arrays = [argument(name, shape, i) for i, (name, shape) in enumerate(names)]
    (row,) = shardings(make, QUARTERS, *arrays, platform="tpu")
    assert row["action"].startswith("Shard `state.params['embed']` and 1 more of that name along the dimension of 512")
    assert (row["n_buffers"], row["argument"]) == (2, "state")


@pytest.mark.parametrize(
    ("of_embedding", "of_others", "found"),
    [
        ("{replicated}", "{devices=[1,4]<=[4]}", True),
        ("{replicated}", "{devices=[1,2,2]<=[4] last_tile_dim_replicate}", True),
        ("{replicated}", "{replicated}", False),
        ("{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}", False),
    ],
)
def test_a_matrix_that_is_printed_as_replicated(of_embedding: str, of_others: str, found: bool, make: Make) -> None:
    whole, large = argument("params['table']", "f32[64,16]", 0), argument("params['up']", "f32[16,256]", 1)
    both = [
        a._replace(instruction=f"{a.instruction}, sharding={text}")
        for a, text in ((whole, of_embedding), (large, of_others))
    ]
    rows = shardings(make, QUARTERS, *both)
    assert len(rows) == found
    if found:
        n = 2 if "[1,2,2]" in of_others else 4
        assert f"along the dimension of 64 over {n} devices, as most of `params` is" in rows[0]["action"]


@pytest.mark.parametrize(("by_two", "n"), [("f32[16,60]", 0), ("f32[32,16]", 1), ("f32[16,16]", 1)])
def test_most_of_an_argument_is_sharded_over_as_many_devices(by_two: str, n: int, make: Make) -> None:
    shards = {"f32[64,16]": "{replicated}", "f32[16,32]": "{devices=[1,4]<=[4]}",
              by_two: "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"}  # fmt: skip
    arrays = [argument(f"params['{i}']", shape, i) for i, shape in enumerate(shards)]
    printed = zip(arrays, shards.values(), strict=True)
    found = shardings(make, QUARTERS, *(a._replace(instruction=f"{a.instruction}, sharding={s}") for a, s in printed))
    assert len(found) == n


@pytest.mark.parametrize(
    ("shape", "others", "dimension"),
    [("f32[63,16]", "f32[16,256]", 16), ("f32[64,16]", "f32[16,48]", 64), ("f32[64,16]", "f32[16,12]", None)],
)
def test_what_is_divided_and_how_large_the_shards_are_together(
    shape: str, others: str, dimension: int | None, make: Make
) -> None:
    """The largest dimension that the devices divide; most of an argument, counted on all devices, is sharded."""
    whole = argument("params['table']", shape, 0)
    sharded = argument("params['up']", others, 1)
    both = [
        a._replace(instruction=f"{a.instruction}, sharding={text}")
        for a, text in ((whole, "{replicated}"), (sharded, "{devices=[1,4]<=[4]}"))
    ]
    found = [row["action"].partition(" along the ")[2][:16] for row in shardings(make, QUARTERS, *both)]
    assert found == ([] if dimension is None else [f"dimension of {dimension} "])


def test_donated_state_leaves_nothing_behind(make: Make) -> None:
    """Its memory is that of the output which replaces it."""
    donated = STATE._replace(allocation=STATE.allocation.replace("{}:", "{}, maybe-live-out:"))
    (row,) = shardings(make, EXCHANGED, PARAMS, donated)
    (kept,) = shardings(make, EXCHANGED, PARAMS, STATE)
    assert kept["upper"] - row["upper"] == PARAMS.size


def test_the_largest_array_and_its_part_are_named(make: Make) -> None:
    caches = [CACHES[0], argument("cache['v']", "f32[24,8,64,4]", 1)]
    results = [RESULTS[0], output("while.1", "f32[24,8,64,1]", instruction=RESULTS[1].instruction)]
    (row,) = shardings(make, BY_FOUR, *caches, *results)
    assert "such as f32[24,8,64,4], of which a loop returns f32[24,8,64,1]." in row["action"]


def test_caches_of_which_each_device_returns_a_part(make: Make) -> None:
    """Donated, they need no other memory than the results, which have a quarter of the heads."""
    caches = [argument(cache.op_name, cache.shape, i) for i, cache in enumerate(CACHES, 3)]
    (row,) = shardings(make, BY_FOUR, *caches, *RESULTS)
    assert row["action"].startswith("Shard `cache` like what the program returns instead of it: on each device, it has")
    assert "such as f32[12,8,64,4], of which a loop returns f32[12,8,64,1]." in row["action"]
    assert (row["argument"], row["parameter"], row["n_buffers"]) == ("cache", 3, 2)
    assert (row["lower"], row["confidence"]) == (0, "try")
    assert row["upper"] == 2 * CACHES[0].size + EXCHANGED.size


@pytest.mark.parametrize(
    ("cache", "result"),
    [
        ({"shape": "f32[12,8,64,1]"}, {}),
        ({"shape": "f32[12,8,64,2]"}, {"shape": "f32[12,8,64,4]"}),
        ({}, {"shape": "f32[12,8,32,1]"}),
        ({}, {"shape": "f32[12,8,64,3]"}),
        ({}, {"shape": "bf16[12,8,64,1]"}),
        ({"shape": "f32[64,8]"}, {"shape": "f32[64,2]"}),  # perhaps a product with weights
        ({}, {"instruction": "dot(%x, %y)"}),
        ({}, {"shape": "f32[]"}),
        ({}, {"shape": "f32[12,8,1,4]"}),  # the cache of one step, of 64
        ({}, {"shape": "f32[12,8,64,2]"}),  # no two devices exchange anything
        ({"shape": "f32[12,8,64,4,1,1,1,1,1]"}, {"shape": "f32[12,8,64,1,1,1,1,1,1]"}),
    ],
)
def test_results_that_are_no_part_of_an_argument(cache: dict[str, str], result: dict[str, str], make: Make) -> None:
    arguments = [argument(c.op_name, cache.get("shape", c.shape), i) for i, c in enumerate(CACHES)]
    results = [output(r.name, **{"shape": r.shape, "instruction": r.instruction} | result) for r in RESULTS]
    assert not shardings(make, BY_FOUR, *arguments, *results)


@pytest.mark.parametrize(("groups", "n"), [("", 0), ("{{0},{1}}", 0), ("{{0,1},{2,3}}", 0), ("[1,4]<=[4]", 1)])
def test_as_many_devices_exchange_data(groups: str, n: int, make: Make) -> None:
    exchanged = EXCHANGED._replace(instruction=f"all-gather(%x), replica_groups={groups}")
    assert len(shardings(make, exchanged, *CACHES, *RESULTS)) == n


def test_a_result_of_a_loop_is_a_part_of_one_argument(make: Make) -> None:
    (row,) = shardings(make, BY_FOUR, *CACHES, RESULTS[0])
    assert row["n_buffers"] == 1


def test_an_argument_that_an_output_replaces_is_no_part_of_a_result(make: Make) -> None:
    (row,) = shardings(make, BY_FOUR, *CACHES, *RESULTS, output("new", CACHES[0].shape))
    assert row["n_buffers"] == 1


def test_a_long_name_takes_no_quadratic_time(make: Make) -> None:
    """It took minutes."""
    assert not shardings(make, EXCHANGED, PARAMS, STATE._replace(op_name="opt" + "[" * (1 << 20)))


def test_an_argument_is_compared_with_the_smallest_one() -> None:
    """Of those of a size, with the first."""
    sizes = {"a": (8, 4), "b": (2, 4), "c": (4, 2)}
    arrays = [sharding._Array(i, name, name, ("['w']",), "f32", n) for i, (name, n) in enumerate(sizes.items())]
    found = sharding._smallest(arrays, ends=False)
    assert {key: a.argument for key, a in found.items()} == {(("['w']",), "f32"): "b"}
