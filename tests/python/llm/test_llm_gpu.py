# SPDX-License-Identifier: Apache-2.0
"""bench layer and bench kvcache on a GPU made of software, and where there is none."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Headrace
from programs import outcome_of

import headrace
from headrace import _language_models as models
from headrace._profile.nested import rows_of
from headrace_bench.llm import kv_store, kvcache, layer
from headrace_bench.llm.stores import Shape

NONE = {"HEADRACE_LIBCUDA": "/nowhere/libcuda.so.1"}
LAYER = ["bench", "layer", "--model", "llama-3.2-1b", "--batch", "1", "--context", "64", "--dtype",
         "int8", "--repetitions", "2", "--directory", "/proc", "--on", "gpu"]  # fmt: skip
#: Compared by default where PyTorch has no GPU.
STORES = ["headrace", "asyncio"]
CACHE = ["bench", "kvcache", "--requests", "24", "--block-tokens", "2", "--work", "0.02%",
         "--rounds", "1", "--seed", "5", "--on", "gpu"]  # fmt: skip


@pytest.fixture
def gpu(fake_cuda: Path) -> dict[str, str]:
    return {"HEADRACE_LIBCUDA": str(fake_cuda), "HEADRACE_FAKE_CUDA": "memory=256M,sms=4"}


def test_a_layer_that_a_gpu_reads(run: Headrace, gpu: dict[str, str]) -> None:
    result = run(*LAYER, "--json", env=gpu)
    assert (result.returncode, result.stderr) == (0, ""), result
    document = json.loads(result.stdout)
    (row,) = rows_of(document, "layer")
    assert row["basis"] == "emulated" and row["device"] == "Headrace fake GPU"
    assert row["median"] > 0 and len(row["samples"]) == 2
    assert row["peak_bytes_per_second"] >= row["bytes_per_second"] > 0
    assert document["rests_on"]["level"] == "emulation"
    engines = {each["kind"]: each for each in document["engines"]}
    assert engines["cpu"]["bytes_per_second"] is None
    # Its copy engines bring what the link was seen to give, in this run.
    copies = engines["gpu"]
    assert copies["bytes_per_second"] > 0 and copies["bytes"] is not None
    assert (copies["source"], copies["basis"]) == ("this run", "emulated")
    assert copies["to_node"] == int(row["place"]) != copies["from_node"] == 0


def test_a_layer_larger_than_what_a_gpu_has_free(run: Headrace, gpu: dict[str, str]) -> None:
    result = run(*LAYER, env=gpu | {"HEADRACE_FAKE_CUDA": "memory=32M,sms=4"})
    assert result.returncode == 0, result
    assert " emulated Headrace fake GPU, " in result.stdout
    assert " again and again: not enough is free on gpu" in result.stdout


@pytest.mark.slow
def test_a_cache_in_a_gpu(run: Headrace, gpu: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    chosen = ["--policies", "layerwise,ahead", "--data", str(tmp_path), "--out", str(out)]
    result = run(*CACHE, *chosen, env=gpu)
    assert (result.returncode, result.stderr) == (0, ""), result
    document = json.loads(out.read_text())
    assert document["rests_on"]["level"] == "emulation"
    policies = rows_of(document, "kvcache")
    each = [(policy, store) for store in STORES for policy in ("layerwise", "ahead")]
    assert [(row["policy"], row["store"]) for row in policies] == each
    for row in policies:
        assert row["basis"] == "emulated" and row["wrong"] == 0 and row["requests"] == 24
        assert set(row["hit_rate"]) == {"gpu", "dram", "ssd"}
    loads = rows_of(document, "kvcache_load")
    each = [(tier, store) for tier in ("dram", "ssd") for store in STORES]
    assert [(row["tier"], row["store"]) for row in loads] == each
    assert all(row["basis"] == "emulated" and row["median"] > 0 for row in loads)
    assert set(document["rates"]) == {"gpu", "dram", "ssd"}
    assert result.stdout.count(" emulated\n") == 4
    assert "computing: cores of the host" in result.stdout


#: As much of PyTorch as the peer uses, by the driver: CPUs do not reach memory of the fake GPU.
TORCH = """
import contextlib, ctypes, os, sys, types
cuda = ctypes.CDLL(os.environ["HEADRACE_LIBCUDA"])
ordered_by = threading.local()
class Tensor:
    calls = 0
    def __init__(self, address, rows, size):
        self.address, self.rows, self.size = address, rows, size
    def index_copy_(self, axis, index, source):
        Tensor.calls += 1
        assert axis == 0 and len(set(index)) == len(index) == source.rows <= self.rows
        for i, row in enumerate(index):
            to, begin = (ctypes.c_uint64(each.address + at * self.size)
                         for each, at in ((self, row), (source, i)))
            size, stream = ctypes.c_size_t(self.size), ctypes.c_void_p(ordered_by.stream)
            assert cuda.cuMemcpyAsync(to, begin, size, stream) == 0
def as_tensor(array, device):
    described = array.__cuda_array_interface__
    return Tensor(described["data"][0], *described["shape"])
@contextlib.contextmanager
def ordered(stream):
    ordered_by.stream = stream
    yield
def stream_of(stream, device):
    assert stream and device == "cuda:0"
    return stream
sys.modules["torch"] = types.SimpleNamespace(
    as_tensor=as_tensor, tensor=lambda rows, device: rows,
    cuda=types.SimpleNamespace(
        is_available=lambda: True, stream=ordered, ExternalStream=stream_of
    ),
)
"""

#: Random requests to a store that loads to a GPU; every byte is compared.
REQUESTS = """
import random
from pathlib import Path
import headrace_bench
from headrace_bench.llm import kv_store
from headrace_bench.llm.stores import Shape, aligned
folder, shape = Path(sys.argv[1]), Shape(layers=3, fragment=4096)
machine = headrace.Machine.discover(storage=[folder])
gpu = next(node.id for node in machine.nodes if node.kind == "gpu")
source, seen, draw = aligned(20 * shape.block), set(), random.Random(2)
headrace_bench.fill_random(source, 3, [0])
store = kv_store.maker(sys.argv[2], machine, folder, 4, gpu)(shape, [3, 4, 6], False)
to, back = headrace.allocate(machine, 20 * shape.block, str(gpu)), aligned(20 * shape.block)
for _ in range(60):
    first = 4 * draw.randrange(5)
    blocks = [first + i for i in range(draw.randint(1, 4))]
    match = store.match(blocks)
    found = len(match.tiers)
    seen |= set(match.tiers)
    if found:
        back[:] = 0
        mover.copy(to, headrace.MemoryRange(back)).wait(60)
        load = match.load(to, range(3))
        load.wait(0)
        load.ended()
        mover.copy(headrace.MemoryRange(back), to).wait(60)
        right = source[first * shape.block :][: found * shape.block]
        assert (back[: found * shape.block] == right).all()
        assert not back[found * shape.block :].any()
    match.release()
    store.store(blocks, source, blocks)
    if draw.random() < 0.5:
        store.settle()
store.close()
assert seen == {0, 1, 2}, seen
"""


@pytest.mark.parametrize("name", kv_store.STORES)
def test_Store_LoadsFromEachTierToGpu(
    gpu: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    for variable, value in gpu.items():
        monkeypatch.setenv(variable, value)
    stand_in = (TORCH, "assert Tensor.calls > 0") if name == "torch" else ("", "")
    code, _, error = outcome_of(REQUESTS.join(stand_in), str(tmp_path), name)
    assert (code, error) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "error"),
    [("dram", "the store torch loads to a GPU; give --on gpu"), ("gpu", "no PyTorch here")],
)
def test_TorchStore_NeedsGpuAndPyTorch(
    run: Headrace, gpu: dict[str, str], place: str, error: str
) -> None:
    if place == "gpu" and importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is here")
    result = run(*CACHE[:-1], place, "--store", "torch", env=gpu)
    assert result.returncode in (2, 3) and result.stdout == ""
    assert result.stderr.startswith(f"headrace: {error}") and result.stderr.count("\n") == 1


def checked(tiers: list[int], room: int) -> kvcache.Bench:
    """A bench of blocks of 1 MiB whose GPU has room for `room` of them."""
    nothing: Any = None
    device = SimpleNamespace(has_room=lambda size: size <= room << 20, words=lambda: "that GPU")
    options: Any = SimpleNamespace(
        scale=SimpleNamespace(blocks=lambda: tiers), device=device, policies=["ahead"],
        directory=Path(),
    )  # fmt: skip
    bench = kvcache.Bench(options, nothing, nothing, nothing, nothing)
    bench.shape, bench.most = Shape(256, 4096), 10
    return bench


def test_each_memory_is_asked_for_what_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places and the first tier are the GPU's, the second the host's, the last the disk's."""
    on_host, on_gpu, on_disk = 10 + kvcache.CONTENTS + 50, 4 * 10 + 30, 1536
    left = {"host": 2 * on_host, "disk": on_disk}
    monkeypatch.setattr(kvcache, "free_bytes", lambda: left["host"] << 20)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 0, left["disk"] << 20)
    )
    bench = checked([30, 50, on_disk], on_gpu)
    bench._check_memory()
    bench._check_disk()
    left |= {"host": on_host, "disk": on_disk - 1}
    with pytest.raises(headrace.ExhaustedError, match=r"^this takes 121 MiB of memory and"):
        bench._check_memory()
    with pytest.raises(headrace.ExhaustedError, match=r"^this takes 1\.5 GiB in "):
        bench._check_disk()
    with pytest.raises(headrace.ExhaustedError, match=r"^this takes 70 MiB of that GPU; give"):
        checked([30, 50, on_disk], on_gpu - 1)._check_memory()


def test_a_gpu_without_room_for_the_blocks(
    run: Headrace, gpu: dict[str, str], tmp_path: Path
) -> None:
    """Told in one line before anything is measured or a folder made."""
    small = gpu | {"HEADRACE_FAKE_CUDA": "memory=8M,sms=4"}
    result = run(*CACHE, "--requests", "200", "--data", str(tmp_path), env=small)
    assert (result.returncode, result.stdout) == (6, ""), result
    assert result.stderr.startswith("headrace: this takes ") and result.stderr.count("\n") == 1
    assert " of memory of " in result.stderr and "8 MiB; give fewer --requests" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_pages_have_the_size_that_the_kernel_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those that headrace.where() counts, which stand in the same column."""
    monkeypatch.setattr("mmap.PAGESIZE", 65536)
    nothing: Any = None
    node: Any = SimpleNamespace(id=7, capacity=1 << 30)
    load = layer.Load(models.model("llama-3.2-1b"), 1, 64, "int8", "bf16")
    bench = layer.GpuBench(nothing, load, "gpu", node)
    found: Any = SimpleNamespace(
        layers=[], others=[], emulated=True, device="", threads_per_block=256
    )  # fmt: skip
    bench.found = found
    assert bench.row()["residency"] == {7: bench.size // 65536}
    options: Any = SimpleNamespace(device=SimpleNamespace(node=node))
    cache = kvcache.Bench(options, nothing, nothing, nothing, nothing)
    cache.to = bytes(3 * 65536)
    assert cache.residency() == {"7": 3}


@pytest.mark.parametrize("arguments", [LAYER, CACHE])
def test_without_a_gpu_the_reason_and_the_remedy(run: Headrace, arguments: list[str]) -> None:
    result = run(*arguments, env=NONE)
    assert result.returncode == 3 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "HEADRACE_LIBCUDA" in result.stderr
    assert "or give --on dram" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*LAYER, "--threads", "1"], "--on gpu is read by a GPU; leave out --threads"),
        ([*CACHE, "--store", "hope"], "no store 'hope'; there are headrace, asyncio, torch"),
        ([*CACHE[:-1], "hope"], "no place 'hope'; there are dram, gpu"),
    ],
)
def test_nonsense_is_one_line(
    run: Headrace, gpu: dict[str, str], arguments: list[str], told: str
) -> None:
    result = run(*arguments, env=gpu)
    assert result.returncode == 2, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1
