# SPDX-License-Identifier: Apache-2.0
"""A wrong argument gives one line that names the function and the mistake. An argument for which
there is no memory gives a MemoryError."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from programs import outcome_of

import headrace
from headrace import kvcache

GEOMETRY = kvcache.Geometry("tiny", layers=3, kv_heads=2, head_dim=40, block_tokens=4)
KEYS = GEOMETRY.keys(list(range(8)))
BLOCKS = numpy.zeros(2 * GEOMETRY.block_bytes, numpy.uint8)
MEMORY = headrace.MemoryRange(BLOCKS, 0)

# Typed as Any: mypy would refuse the wrong calls below.
any_headrace: Any = headrace
any_kvcache: Any = kvcache
prompt: Any = GEOMETRY


class Odd:
    def __index__(self) -> int:
        raise OSError


def cache_of(mover: headrace.Mover) -> Any:
    return headrace.Cache(mover, {mover.machine.nodes[0].id: 1 << 20})


Slip = Callable[[Any, Any], Any]
SLIPS: list[tuple[Slip, str]] = [
    (
        lambda m, s: prompt.keys([5, -1]),
        "kvcache.Geometry.keys(): tokens[1] is -1, which is below 0",
    ),
    (
        lambda m, s: prompt.keys([5, 1 << 33]),
        "kvcache.Geometry.keys(): tokens[1] is 8589934592, which is too large",
    ),
    (
        lambda m, s: prompt.keys("text"),
        "kvcache.Geometry.keys(): tokens is 'text', not Sequence[int]",
    ),
    (lambda m, s: prompt.keys(), "kvcache.Geometry.keys(): tokens is missing"),
    (
        lambda m, s: prompt.keys(text=[]),
        "kvcache.Geometry.keys(): no argument is called text; there are tokens",
    ),
    (lambda m, s: prompt.keys([], []), "kvcache.Geometry.keys(): 3 arguments, and it takes tokens"),
    (
        lambda m, s: any_kvcache.Geometry("m", layers=-1, kv_heads=1, head_dim=1),
        "kvcache.Geometry(): layers is -1, which is below 0",
    ),
    (
        lambda m, s: any_kvcache.Geometry("m", layers=1),
        "kvcache.Geometry(): kv_heads, head_dim miss",
    ),
    (
        lambda m, s: s.load(KEYS, MEMORY, positions=[0, -1]),
        "kvcache.Store.load(): positions[1] is -1, which is below 0",
    ),
    (
        lambda m, s: s.load(["ab" * 16], MEMORY),
        "kvcache.Store.load(): keys[0] is 'abababababab...babababababab', not bytes",
    ),
    (
        lambda m, s: s.store(KEYS, BLOCKS).wait() and s.load(KEYS, BLOCKS).layer(-1),
        "kvcache.Load.layer(): layer is -1, which is below 0",
    ),
    (lambda m, s: s.store(KEYS, None), "MemoryRange(): memory is None"),
    (lambda m, s: s.store(KEYS, 5), "5 is no memory; give an array"),
    (lambda m, s: s.store(5, BLOCKS), "keys is 5; give a list"),
    (lambda m, s: s.load(KEYS, BLOCKS, positions=5), "positions is 5; give a list"),
    (lambda m, s: any_kvcache.Store(m, GEOMETRY, 5), "tiers is 5; give a list"),
    (
        lambda m, s: s.flush(float("nan")),
        "kvcache.Store.flush(): timeout is nan, which is not a number",
    ),
    (
        lambda m, s: s.flush(-0.5),
        "kvcache.Store.flush(): timeout is -0.5, which is below 0",
    ),
    (
        lambda m, s: cache_of(m).prefetch(headrace.Strided(MEMORY, 8), lead=float("nan")),
        "Cache.prefetch(): lead is nan, which is not a number",
    ),
    (
        lambda m, s: cache_of(m).prefetch([MEMORY], window=-1),
        "Cache.prefetch(): window is -1, which is below 0",
    ),
    (
        lambda m, s: cache_of(m).prefetch(each for each in [MEMORY]),
        "Cache.prefetch(): extents is a generator, not Sequence[Extent | Object] | Strided; give a "
        "list",
    ),
    (
        lambda m, s: cache_of(m).prefetch([MEMORY, None]),
        "Cache.prefetch(): extents[1] is None, not Extent | Object",
    ),
    (
        lambda m, s: any_headrace.CompletionQueue().add(5, 1),
        "CompletionQueue.add(): transfer is 5, not Transfer | Block | KvLayer | KvLoad | KvStored",
    ),
    (
        lambda m, s: cache_of(m).read(MEMORY, tenant="\udcff"),
        r"Cache.read(): tenant is '\udcff', which is not UTF-8",
    ),
    (
        lambda m, s: headrace.File.open(m.machine, "a\0b"),
        r"File.open(): path is 'a\x00b', which no path can be",
    ),
    (
        lambda m, s: m.machine.node(Odd()),
        "Machine.node(): id is a test_argument_errors.Odd, which gives no number: OSError",
    ),
    (
        lambda m, s: m.copy(MEMORY, BLOCKS),
        "Mover.copy(): source is a numpy.ndarray, not Extent | Object; headrace.MemoryRange() "
        "makes one of an array",
    ),
    (lambda m, s: m.machine.node("x"), "Machine.node(): id is 'x', not int"),
    (
        lambda m, s: any_headrace.Cache(m, {0: "1GiB"}),
        "Cache(): budgets[0] is '1GiB', not int",
    ),
    (lambda m, s: any_headrace.Cache(m, None), "Cache(): budgets is None, not Mapping[int, int]"),
    (lambda m, s: any_headrace.allocate(None, 5), "allocate(): machine is None, not Machine"),
    (
        lambda m, s: any_kvcache.Store(m, GEOMETRY, [("dram", 5)]),
        "tier 0 is ('dram', 5); give a kvcache.Memory or a kvcache.Folder",
    ),
    (
        lambda m, s: any_kvcache.Store(m, GEOMETRY, [kvcache.Memory("dram", -1)]),
        "tier 0 has -1 bytes; give a number, or as '4GiB'",
    ),
    (
        lambda m, s: any_kvcache.Store(m, GEOMETRY, [any_kvcache.Memory(5, 1 << 20)]),
        "kvcache.Store(): tiers[0][0] is 5, not str",
    ),
    (
        lambda m, s: any_kvcache.Store(m, GEOMETRY, [kvcache.Memory("dram", "4 apples")]),
        "'4 apples' is no size",
    ),
]


@pytest.mark.parametrize(("slip", "told"), SLIPS, ids=[told for _, told in SLIPS])
def test_wrong_arguments_give_one_line(mover: headrace.Mover, slip: Slip, told: str) -> None:
    store = kvcache.Store(mover, GEOMETRY, [kvcache.Memory("dram", "256 KiB")])
    with pytest.raises(headrace.InvalidError) as raised:
        slip(mover, store)
    text = str(raised.value)
    assert text.startswith(told) and "\n" not in text
    assert raised.value.code == "invalid"


def test_they_are_type_errors_too(mover: headrace.Mover) -> None:
    with pytest.raises(TypeError) as raised:
        headrace.Cache(mover, 5)  # type: ignore[arg-type]
    assert type(raised.value) is headrace.ArgumentError
    with pytest.raises(TypeError, match="^no$"):  # of the functions that are called

        class Buffers:
            def __dlpack_device__(self) -> Any:
                return (1, 0)

            def __dlpack__(self, **_: object) -> Any:
                raise TypeError("no")

        headrace.MemoryRange(Buffers())


def test_sizes_of_tiers_are_read_as_elsewhere(mover: headrace.Mover, tmp_path: Path) -> None:
    tiers = (kvcache.Memory("dram", "256KiB"), kvcache.Folder(tmp_path / "kv", "1 MiB"))
    stats = kvcache.Store(mover, GEOMETRY, tiers).stats()
    assert [tier.budget >> 16 for tier in stats.tiers] == [4, 16]


BEGIN = """
import resource
from headrace import kvcache

geometry = kvcache.Geometry("g", layers=4, kv_heads=2, head_dim=64, block_tokens=16)

def leave(megabytes):
    pages = int(open("/proc/self/statm").read().split()[0])
    size = pages * resource.getpagesize() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
"""


@pytest.mark.parametrize(
    "call",
    [
        "geometry.keys(numbers)",
        "store.match_keys(keys)",
        "store.load_object([], [memory], layout='page_first', positions=numbers, layer_order=True,"
        " priority='demand', deadlines=[], promote=True, stream=None)",
        "headrace.Placement.interleave(numbers)",
        "headrace.Cache(mover, table)",
        "headrace.Placement.parse(machine, text)",
        "headrace.File.open(machine, text)",
    ],
)
def test_an_argument_without_memory_for_it_is_a_memory_error(call: str) -> None:
    code, out, err = outcome_of(
        BEGIN
        + """
numbers = [0] * 8_000_000
keys = [b"x" * 16] * 8_000_000
text = "x" * (64 << 20)
class Table(dict):  # only the map that C++ makes of it needs new memory
    def items(self):
        return pairs
table, most = Table(), 8
if "table" in sys.argv[1]:
    pairs, most = [(i, 1) for i in range(2_000_000)], 48
memory = headrace.MemoryRange(bytearray(geometry.block_bytes), 0)
store = kvcache.Store(mover, geometry, [kvcache.Memory("dram", 1 << 20)])
leave(most)
try:
    eval(sys.argv[1])
except MemoryError:
    print("no memory")
""",
        call,
    )
    assert (code, out) == (0, "no memory\n"), err[-1000:]


def test_threads_that_first_fail_when_there_is_no_memory_go_on() -> None:
    code, _, err = outcome_of(
        BEGIN
        + """
folder = tempfile.mkdtemp()
tiers = [kvcache.Memory("dram", 1 << 20), kvcache.Folder(folder, 4 << 20)]
store = kvcache.Store(mover, geometry, tiers)
keys = geometry.keys(list(range(48 * 16)))
blocks = numpy.zeros(48 * geometry.block_bytes, numpy.uint8)
store.store(keys[:24], blocks[:24 * geometry.block_bytes]).wait()
store.flush()
leave(2)
hog = []
for size in (1 << 20, 1 << 16, 1 << 12, 256):
    try:
        while True:
            hog.append(bytearray(size))
    except MemoryError:
        pass
for i in range(10):
    try:
        store.load(keys[:8], blocks[:8 * geometry.block_bytes]).wait(20)
    except (headrace.Error, MemoryError):
        pass
    try:
        store.store(keys[24 + i:28 + i], blocks[:4 * geometry.block_bytes]).wait(20)
    except (headrace.Error, MemoryError):
        pass
del hog
import shutil
shutil.rmtree(folder)
os._exit(0)
"""
    )
    assert code == 0, err[-1000:]
