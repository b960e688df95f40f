# SPDX-License-Identifier: Apache-2.0
"""bench layer and bench kvcache on a GPU made of software, and where there is none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Headrace
from headrace_bench.llm import kvcache, layer
from headrace_bench.llm.stores import Shape

import headrace
from headrace import _language_models as models
from headrace._profile.nested import rows_of

NONE = {"HEADRACE_LIBCUDA": "/nowhere/libcuda.so.1"}
LAYER = ["bench", "layer", "--model", "llama-3.2-1b", "--batch", "1", "--context", "64", "--dtype",
         "int8", "--repetitions", "2", "--directory", "/proc", "--on", "gpu"]  # fmt: skip
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
    assert [row["policy"] for row in policies] == ["layerwise", "ahead"]
    for row in policies:
        assert row["basis"] == "emulated" and row["wrong"] == 0 and row["requests"] == 24
        assert set(row["hit_rate"]) == {"gpu", "dram", "ssd"}
    (load,) = rows_of(document, "kvcache_load")
    assert load["basis"] == "emulated" and load["median"] > 0
    assert set(document["rates"]) == {"gpu", "dram", "ssd"}
    assert result.stdout.count(" emulated\n") == 2


def checked(tiers: list[int], room: int) -> kvcache.Bench:
    """A bench of blocks of 1 MiB that finds so many on its GPU."""
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
        ([*CACHE, "--store", "asyncio"], "no store 'asyncio'; there are headrace"),
        ([*CACHE[:-1], "hope"], "no place 'hope'; there are dram, gpu"),
    ],
)
def test_nonsense_is_one_line(
    run: Headrace, gpu: dict[str, str], arguments: list[str], told: str
) -> None:
    result = run(*arguments, env=gpu)
    assert result.returncode == 2, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1
