"""How `of` asks JAX for a program, with stand-ins for JAX, devices and what XLA dumps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from with_jax import jax

from xlamem.errors import UsageError
from xlamem.gate import ahead, hook
from xlamem.gate.ahead import compile_ahead, lower

HERE, THERE, ELSEWHERE = "d0", "d1", "other"
"""Devices of the topology, and one that is attached."""


class Sharding:
    def __init__(self, *devices: str) -> None:
        self.device_set = set(devices)

    def __repr__(self) -> str:
        return "/".join(sorted(self.device_set))


class Array(SimpleNamespace):
    """An array, or its shape."""

    def __init__(self, shape: tuple[int, ...] = (2,), dtype: str = "f32", **more: Any) -> None:
        super().__init__(shape=shape, dtype=dtype, **more)


def lowered_for(*args: Any, **kwargs: Any) -> tuple[Any, Any, list[str]]:
    """Return the arguments with which a function is lowered for two devices, and the default devices meanwhile."""
    places: list[str] = []

    @contextmanager
    def default_device(device: str) -> Iterator[None]:
        places.append(device)
        yield

    fake: Any = SimpleNamespace(
        tree=jax.tree, ShapeDtypeStruct=Array, default_device=default_device,
        sharding=SimpleNamespace(SingleDeviceSharding=Sharding),
    )  # fmt: skip
    jitted = SimpleNamespace(lower=lambda *a, **k: SimpleNamespace(lowered=(a, k)))
    a, k = ahead._lower_for(fake, jitted, args, kwargs, [HERE, THERE])
    return a, k, places


def test_arguments_are_placed_on_the_first_device() -> None:
    """Also those that are on a device of their own now; other values are passed on."""
    given = Array((3, 4), "bf16"), [Array(sharding=Sharding(ELSEWHERE), weak_type=True)], 5
    (a, b, c), kwargs, places = lowered_for(*given, x=Array((7,)))
    assert (a.shape, a.dtype, repr(a.sharding), a.weak_type) == ((3, 4), "bf16", HERE, False)
    assert (repr(b[0].sharding), b[0].weak_type) == (HERE, True)
    assert c == 5
    assert (kwargs["x"].shape, repr(kwargs["x"].sharding)) == ((7,), HERE)
    assert places == [HERE]


@pytest.mark.parametrize("devices", [(HERE,), (THERE,), (HERE, THERE)])
def test_a_sharding_over_the_topology_is_kept(devices: tuple[str, ...]) -> None:
    """The other arguments are replicated then, whichever comes first."""
    own = Sharding(*devices)
    for arguments in ((Array(sharding=own), Array()), (Array(), Array(sharding=own))):
        found, _, _ = lowered_for(*arguments)
        assert [x.sharding for x in found] == [getattr(x, "sharding", None) for x in arguments]
    (_, second), _, _ = lowered_for(Array(sharding=own), Array(sharding=Sharding(ELSEWHERE)))
    assert second.sharding is None


@pytest.mark.parametrize("devices", [(HERE, ELSEWHERE), (ELSEWHERE, "another"), (HERE, THERE, ELSEWHERE)])
def test_a_sharding_over_other_devices_is_an_error(devices: tuple[str, ...]) -> None:
    for kwargs in ({}, {"x": Array(sharding=Sharding(*devices))}):
        with pytest.raises(UsageError, match=f"sharded over {len(devices)} devices that are not of the topology"):
            lowered_for(*([] if kwargs else [Array(sharding=Sharding(*devices))]), **kwargs)


def test_devices_of_a_topology() -> None:
    topology = SimpleNamespace(devices=(HERE, THERE))
    assert ahead._devices(topology) == [HERE, THERE]


@pytest.mark.parametrize(
    ("libtpu", "error", "hint"),
    [
        (None, "lockfile", ". TPUs that are not attached need libtpu: pip install libtpu"),
        ("there", "see the lockfile.", " Another process uses libtpu: set ALLOW_MULTIPLE_LIBTPU_LOAD=1"),
        ("there", "no such topology", ". Names of topologies are such as 'v5e:2x2'"),
    ],
)
def test_what_to_do_about_a_topology(
    libtpu: str | None, error: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "find_spec", lambda name: libtpu if name == "libtpu" else None)
    assert ahead._hint(error).startswith(hint)


# -- what is lowered or compiled already ---------------------------------------------------------


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """JAX with types of stages of which there can be instances."""
    types = SimpleNamespace(Lowered=type("Lowered", (), {}), Compiled=type("Compiled", (), {}))
    fake = SimpleNamespace(stages=types, jit=lambda f: SimpleNamespace(lower=lambda *a, **k: (f, a, k)))
    monkeypatch.setattr(hook, "require_jax", lambda what: fake)
    return types


@pytest.mark.parametrize("given", [((1,), {}, None), ((), {"x": 1}, None), ((), {}, "v5e:2x2"), ((), {}, 0)])
def test_what_is_lowered_takes_nothing_more(given: tuple[Any, dict[str, Any], Any], stages: Any) -> None:
    lowered = stages.Lowered()
    for stage in (lowered, SimpleNamespace(lowered=lowered)):  # such as one of Equinox
        with pytest.raises(UsageError, match="has its arguments and its devices already"):
            lower(stage, *given)
        assert lower(stage, (), {}, None) is lowered


@pytest.mark.parametrize(
    "given", [{"args": (1,)}, {"x": 1}, {"topology": 0}, {"compiler_options": {}}, {"compiler_options": {"a": 1}}]
)
def test_what_is_compiled_takes_nothing_more(
    given: dict[str, Any], stages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = stages.Compiled()
    monkeypatch.setattr(ahead, "read_compiled", lambda program: ("dump", program))
    for stage in (compiled, SimpleNamespace(compiled=compiled)):
        options = dict(given)
        with pytest.raises(UsageError, match="has its arguments, its devices and its options already"):
            ahead.of(stage, *options.pop("args", ()), **options)
        assert ahead.of(stage) == ("dump", compiled)
        with pytest.raises(UsageError, match="compiled already"):
            lower(stage, (), {}, None)


def test_a_plain_function_is_compiled_by_jax(stages: Any) -> None:
    assert lower(len, (1,), {"x": 2}, None) == (len, (1,), {"x": 2})
    jitted = SimpleNamespace(lower=lambda *a, **k: ("own", a, k), __call__=None)
    with pytest.raises(UsageError, match="a function is needed, not SimpleNamespace"):
        lower(jitted, (), {}, None)


# -- the compile ---------------------------------------------------------------------------------


class Lowered:
    """A program whose compile dumps modules of these sizes, in this thread and in another, and may fail."""

    def __init__(self, *sizes: int | None, others: tuple[int, ...] = (), error: Exception | None = None) -> None:
        self.sizes, self.others, self.error = sizes, others, error
        self.unread: Exception | None = None
        self.options: list[dict[str, Any]] = []

    def compile(self, compiler_options: dict[str, Any]) -> None:
        self.options.append(compiler_options)
        (listener,) = hook._listeners

        def tell(*sizes: int | None) -> None:
            if sizes:
                listener.compiled(hook.Compile(sizes, of_jax=False))  # type: ignore[arg-type]

        tell(*self.sizes[:1])
        tell(*self.sizes[1:])
        thread = threading.Thread(target=lambda: (tell(*self.others), self.others and listener.failed(OSError("mine"))))
        thread.start()
        thread.join()
        if self.unread:
            listener.failed(self.unread)
        if self.error:
            raise self.error


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dumps are their sizes."""
    monkeypatch.setattr(ahead, "read_program", lambda source: source)
    monkeypatch.setattr(hook, "in_memory", lambda source: source)
    monkeypatch.setattr(ahead, "device_total", lambda dump: None if dump == 77 else dump)


@pytest.mark.usefixtures("sizes")
def test_the_dump_of_a_compile() -> None:
    """That of the module that needs most, of what this thread compiles."""
    assert compile_ahead(Lowered(3, 9, 5), None) == (9, None)
    assert compile_ahead(Lowered(77, 5), None) == (5, None)
    assert compile_ahead(Lowered(77), None) == (77, None)
    assert compile_ahead(Lowered(3, others=(100,)), None) == (3, None)
    assert compile_ahead(Lowered(others=(100,)), None) == (None, None)
    assert hook._listeners == []


@pytest.mark.usefixtures("sizes")
def test_every_compile_has_an_option_of_its_own() -> None:
    """Otherwise JAX would not compile a program again. Not even an option of the caller takes its place."""
    program, options = Lowered(1), {"xla_a": 1, "xla_dump_to": "mine"}
    for _ in range(2):
        compile_ahead(program, options)
    assert [given["xla_a"] for given in program.options] == [1, 1]
    assert len({given["xla_dump_to"] for given in program.options} | {"mine"}) == 3
    assert options == {"xla_a": 1, "xla_dump_to": "mine"}


@pytest.mark.usefixtures("sizes")
def test_errors_of_a_compile() -> None:
    """That of the compile counts more than that of its dump."""
    failed, unread = RuntimeError("RESOURCE_EXHAUSTED"), OSError("disk")
    assert compile_ahead(Lowered(4, error=failed), None) == (4, failed)
    assert compile_ahead(Lowered(error=failed), None) == (None, failed)
    program = Lowered(4, error=failed)
    program.unread = unread
    assert compile_ahead(program, None) == (4, failed)
    program.error = None
    with pytest.raises(OSError, match="disk"):
        compile_ahead(program, None)
    with pytest.raises(KeyboardInterrupt):
        compile_ahead(Lowered(4, error=KeyboardInterrupt()), None)  # type: ignore[arg-type]
    assert hook._listeners == []


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("size", [None, 3 << 20])
def test_a_program_that_does_not_fit_says_what_it_needs(
    size: int | None, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how to keep the dump, unless a block does."""
    monkeypatch.setattr(ahead, "lower", lambda *_: None)
    monkeypatch.setattr(ahead, "device_total", lambda _: size)
    monkeypatch.setattr(hook, "is_used", lambda: captured)
    error = RuntimeError("RESOURCE_EXHAUSTED")
    monkeypatch.setattr(ahead, "compile_ahead", lambda *_: ("dump", error))
    with pytest.raises(RuntimeError) as raised:
        ahead.of(len)
    (note,) = raised.value.__notes__
    text = "xlamem: XLA dumped the program nevertheless" + ("" if size is None else ": 3.00 MiB must fit")
    assert note == text + ("" if captured else
                           ". `with xlamem.capture() as captured:` around the call keeps the dump, as `captured.dump`")
    other = RuntimeError("another")
    monkeypatch.setattr(ahead, "compile_ahead", lambda *_: (None, other))
    with pytest.raises(RuntimeError) as raised:
        ahead.of(len)
    assert not hasattr(raised.value, "__notes__")
    monkeypatch.setattr(ahead, "compile_ahead", lambda *_: (None, None))
    with pytest.raises(UsageError, match="XLA wrote no dump"):
        ahead.of(len)
