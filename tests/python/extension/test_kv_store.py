# SPDX-License-Identifier: Apache-2.0
"""The store of KV blocks: numpy in and out, awaited, in tiers of memory and SSD."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import struct
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from programs import outcome_of

import headrace
from headrace import kvcache

GEOMETRY = kvcache.Geometry("tiny", layers=3, kv_heads=2, head_dim=40, block_tokens=4)
BLOCK = GEOMETRY.block_bytes
TOKENS = list(range(4 * 24))
KEYS = GEOMETRY.keys(TOKENS)


def tiers(folder: Path, blocks: int = 8) -> list[kvcache.Memory | kvcache.Folder]:
    return [kvcache.Memory("dram", blocks * 4096), kvcache.Folder(folder / "kv", 64 * 4096)]


@pytest.fixture
def store(mover: headrace.Mover, tmp_path: Path) -> kvcache.Store:
    return kvcache.Store(mover, GEOMETRY, tiers(tmp_path))


def blocks(keys: Sequence[bytes]) -> numpy.ndarray[Any, Any]:
    """Bytes that only these keys have."""
    rows = [
        numpy.random.default_rng(list(key)).integers(0, 256, BLOCK, numpy.uint8) for key in keys
    ]
    return numpy.concatenate(rows)


def test_sizes_are_those_of_the_models() -> None:
    assert kvcache.geometry("llama-3.1-8b").block_bytes == 2 << 20
    assert kvcache.geometry("llama-3.1-8b").fragment_bytes == 64 << 10
    assert kvcache.geometry("deepseek-v3").fragment_bytes == 18 << 10
    with pytest.raises(headrace.InvalidError, match=r"llama-3\.1-8b"):
        kvcache.geometry("llama-9")
    with pytest.raises(headrace.InvalidError, match="count of 0"):
        kvcache.Geometry("none", layers=0, kv_heads=1, head_dim=1)


def test_keys_can_be_computed_without_us() -> None:
    text = "headrace kv 1\n3 2 40 2 4 2\n4 0\ntiny"
    key = hashlib.blake2b(text.encode(), digest_size=16).digest()
    for block in range(3):
        tokens = struct.pack("<4I", *TOKENS[4 * block : 4 * block + 4])
        key = hashlib.blake2b(key + tokens, digest_size=16).digest()
        assert KEYS[block] == key
    assert GEOMETRY.keys(TOKENS[:7]) == KEYS[:1]


def test_what_goes_in_comes_out(store: kvcache.Store) -> None:
    assert store.store(KEYS, blocks(KEYS)).wait().stored == 24
    store.flush()
    into = numpy.empty(24 * BLOCK, numpy.uint8)
    with store.match(TOKENS) as found:
        assert len(found) == 24 and found.keys == KEYS
        assert set(found.tiers) <= {0, 1}
        load = store.load(found.keys, into)
        load.wait()
    assert load.leading == 24 and load.done()
    assert (into == blocks(KEYS)).all()
    stats = store.stats()
    assert sum(tier.hits for tier in stats.tiers) == 24
    assert stats.tiers[1].arrived == 24 and stats.pinned == 0 and stats.damaged == 0
    assert stats.asdict()["stores"]["stored"] == 24
    assert stats.asdict()["tiers"][1]["arrived"] == 24


def test_layers_are_awaited(store: kvcache.Store) -> None:
    pool = numpy.zeros((GEOMETRY.layers, 30, GEOMETRY.fragment_bytes), numpy.uint8)
    positions = numpy.arange(24)[::-1]

    async def prefill() -> None:
        counts = await store.store(KEYS, blocks(KEYS))
        assert counts.stored == 24
        load = store.load(
            KEYS, pool, layout="layer_first", positions=positions,
            deadlines=[0.0, 0.001, 0.03],
        )  # fmt: skip
        right = blocks(KEYS).reshape(24, GEOMETRY.layers, -1)
        for number in range(load.layers):
            await load.layer(number)
            assert (pool[number, positions] == right[:, number]).all()
        await load

    asyncio.run(prefill())
    assert not pool[:, 24:].any()


def test_memory_is_kept_while_it_is_needed(store: kvcache.Store) -> None:
    class Array(numpy.ndarray[Any, Any]):
        pass

    source = blocks(KEYS).view(Array)
    gone = weakref.ref(source)
    stored = store.store(KEYS, source)
    del source
    stored.wait()
    load = store.load(KEYS, bytearray(24 * BLOCK))
    del stored
    load.wait()
    del load
    for _ in range(200):
        store.stats()
        gc.collect()
        headrace.MemoryRange(bytearray(b"x"))
        if gone() is None:
            return
    raise AssertionError("the array is kept for ever")


def test_a_damaged_block_is_an_error_and_gone(mover: headrace.Mover, tmp_path: Path) -> None:
    store = kvcache.Store(mover, GEOMETRY, tiers(tmp_path))
    store.store(KEYS, blocks(KEYS)).wait()
    store.flush()
    del store
    gc.collect()
    data = bytearray((tmp_path / "kv" / "blocks").read_bytes())
    data[5 * 4096 + 100] ^= 1
    (tmp_path / "kv" / "blocks").write_bytes(data)
    store = kvcache.Store(mover, GEOMETRY, tiers(tmp_path))
    into = numpy.zeros(24 * BLOCK, numpy.uint8)
    load = store.load(KEYS, into)

    async def wait() -> None:
        with pytest.raises(headrace.IoError, match="not what was written"):
            await load

    asyncio.run(wait())
    good = load.leading
    assert good < 24 and (into[: good * BLOCK] == blocks(KEYS[:good])).all()
    assert store.stats().damaged == 1
    with store.match(TOKENS) as found:
        assert len(found) == good


def test_bad_input_is_one_line(mover: headrace.Mover, store: kvcache.Store, tmp_path: Path) -> None:
    into = bytearray(BLOCK)
    with pytest.raises(headrace.AbsentError, match="not there"):
        store.load(KEYS[:1], into)
    with pytest.raises(headrace.InvalidError, match="whole number of blocks"):
        store.store(KEYS[:1], bytearray(BLOCK + 1))
    with pytest.raises(headrace.InvalidError, match="position 7"):
        store.store(KEYS[:1], into, positions=[7])
    with pytest.raises(headrace.InvalidError, match="no layout 'x'"):
        store.store(KEYS[:1], into, layout="x")  # type: ignore[arg-type]
    store.store(KEYS[:1], into).wait()
    with pytest.raises(headrace.DeniedError, match="read-only"):
        store.load(KEYS[:1], bytes(BLOCK))
    with pytest.raises(headrace.InvalidError, match="no layer 3"):
        store.load(KEYS[:1], into).layer(3)
    found = store.match(TOKENS)
    found.release()
    with pytest.raises(headrace.InvalidError, match="released"):
        len(found)
    with pytest.raises(headrace.InvalidError, match="give it last"):
        kvcache.Store(mover, GEOMETRY, tiers(tmp_path)[::-1])
    with pytest.raises(headrace.InvalidError, match="one block takes"):
        kvcache.Store(mover, GEOMETRY, [kvcache.Memory("dram", 1)])
    for name, why in (("", "without a name"), (str(tmp_path / "new\0x"), "NUL")):
        with pytest.raises(headrace.InvalidError, match=why):
            kvcache.Store(
                mover, GEOMETRY, [kvcache.Memory("dram", 1 << 20), kvcache.Folder(name, 1 << 20)]
            )
    assert not (tmp_path / "new").exists()


def test_a_store_is_closed(mover: headrace.Mover, tmp_path: Path) -> None:
    with kvcache.Store(mover, GEOMETRY, tiers(tmp_path)) as store:
        store.store(KEYS, blocks(KEYS)).wait()
        assert not store.closed
    assert store.closed
    with kvcache.Store(mover, GEOMETRY, tiers(tmp_path)) as again:  # at once, and all was written
        assert again.stats().reopened == 24
        found = again.match(TOKENS)
        into = numpy.zeros(24 * BLOCK, numpy.uint8)
        load = again.load(found.keys, into)
        again.close(flush=False)
        again.close()
        assert load.done() and found.keys == KEYS
        load.cancel()
        found.release()
        uses: list[Callable[[], object]] = [
            lambda: again.match(TOKENS),
            lambda: again.store(KEYS, into),
            lambda: again.load(KEYS, into),
            again.flush,
            again.stats,
            again.clear,
            lambda: again.remove(KEYS),
            lambda: again.contains(KEYS),
        ]
        for use in uses:
            with pytest.raises(headrace.CancelledError, match="closed"):
                use()


def test_wrong_arguments_give_one_line(mover: headrace.Mover, tmp_path: Path) -> None:
    array = blocks(KEYS[:1])
    memory = kvcache.Memory("dram", 1 << 20)
    with kvcache.Store(mover, GEOMETRY, [memory]) as store:
        store.store(KEYS[:1], array).wait()
        with store.match(TOKENS[:4]) as found:
            pass
        masked = numpy.ma.masked_array(array, mask=True)
        wrong: Any = array
        slips: list[tuple[Callable[[], object], str]] = [
            (lambda: found.__enter__(), "released; match"),
            (lambda: store.store(KEYS[:1], masked), "a masked array.*filled"),
            (lambda: store.load(KEYS[:1], masked), "a masked array.*filled"),
            (lambda: headrace.MemoryRange(masked), "a masked array.*filled"),
            (lambda: store.store(KEYS[:1], array, stream=-1), "stream is -1; give the number"),
            (lambda: store.load(KEYS[:1], array, stream=1 << 64), "stream is 1844.*; give the"),
            (lambda: store.load(KEYS[:1], array, stream=wrong), "stream is array.*; give the"),
            (lambda: store.load(KEYS[:1], array, deadlines=[wrong[:2]]), "of layer 0 is"),
            (
                lambda: kvcache.Store(mover, GEOMETRY, [memory, kvcache.Folder(wrong, 1)]),
                "give its path",
            ),
            (
                lambda: kvcache.Store(mover, GEOMETRY, [memory, kvcache.Folder(b"/x\xff", 1)]),
                "no UTF-8",
            ),
        ]
        for slip, told in slips:
            with pytest.raises(headrace.InvalidError, match=told) as raised:
                slip()
            assert "\n" not in str(raised.value)
        for arguments in ({"stream": -1}, {"stream": 1 << 64}):
            with pytest.raises(headrace.InvalidError, match="stream is .*, which is "):
                store.store_object(
                    KEYS[:1], [headrace.MemoryRange(array)], layout="page_first", positions=[],
                    priority="demand", **arguments,
                )  # fmt: skip
    with pytest.raises(headrace.CancelledError, match="closed; open another"), store:
        pass


def test_a_folder_has_a_name_of_bytes(mover: headrace.Mover, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path / "kv")
    with kvcache.Store(
        mover, GEOMETRY, [kvcache.Memory("dram", 1 << 20), kvcache.Folder(name, 1 << 20)]
    ) as store:
        store.store(KEYS, blocks(KEYS)).wait()
    assert sorted(each.name for each in (tmp_path / "kv").iterdir()) == ["blocks", "index", "lock"]


HUNG = """
import signal
from headrace import kvcache
gpu = next(n.id for n in machine.nodes if n.kind == "gpu")
geometry = kvcache.Geometry("tiny", layers=3, kv_heads=2, head_dim=40, block_tokens=4)
tiers = [kvcache.Memory(str(gpu), 1 << 16), kvcache.Memory("dram", 1 << 16)]
store = kvcache.Store(mover, geometry, tiers)
store.store(geometry.keys([1] * 4), numpy.ones(geometry.block_bytes, numpy.uint8))
try:
    store.close(timeout=0.2)
except headrace.TimedOutError as error:
    assert "after 200 ms copies " in str(error) and "close it again" in str(error), error
    print("timed out", flush=True)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    store.close()
except KeyboardInterrupt as interrupt:
    assert "close it again" in interrupt.__notes__[0]
    print("interrupted", flush=True)
os._exit(0)  # nobody lets go of memory that the GPU may still write
"""


def test_closing_waits_for_no_gpu_that_hangs(
    monkeypatch: pytest.MonkeyPatch, fake_cuda: Path
) -> None:
    """Neither beyond its timeout nor beyond a Ctrl-C."""
    monkeypatch.setenv("HEADRACE_LIBCUDA", str(fake_cuda))
    monkeypatch.setenv("HEADRACE_FAKE_CUDA", "stall_after=1")
    code, out, error = outcome_of(HUNG, timeout=25)
    assert (code, out.split("\n"), error) == (0, ["timed out", "interrupted", ""], "")


SLOW = """
import signal
from headrace import kvcache
interrupts = 0
def interrupt(*_):
    global interrupts
    interrupts += 1
    if interrupts < int(sys.argv[1]):
        later()
    raise KeyboardInterrupt(interrupts)
def later():
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
signal.signal(signal.SIGINT, interrupt)
gpu = next(n.id for n in machine.nodes if n.kind == "gpu")
geometry = kvcache.Geometry("tiny", layers=3, kv_heads=2, head_dim=40, block_tokens=4)
folder = tempfile.TemporaryDirectory()
def opened():
    tiers = [kvcache.Memory(str(gpu), 1 << 16), kvcache.Folder(folder.name + "/kv", 1 << 16)]
    return kvcache.Store(mover, geometry, tiers)
store = opened()
store.store(geometry.keys([1] * 4), numpy.ones(geometry.block_bytes, numpy.uint8)).wait()
later()
try:
    store.close()
except KeyboardInterrupt as raised:
    print(raised, *getattr(raised, "__notes__", []))
assert store.closed
try:
    opened().close()
    print("opened")
except headrace.DeniedError:
    store.close()
    opened().close()
    print("opened later")
"""


@pytest.mark.parametrize("latency, signals", [("400ms", 1), ("2000ms", 1), ("2000ms", 2)])
def test_an_interrupted_flush_closes_the_store_or_says_that_it_did_not(
    monkeypatch: pytest.MonkeyPatch, fake_cuda: Path, latency: str, signals: int
) -> None:
    """Copies in flight, here from a slow GPU, have a second, or until the next Ctrl-C."""
    monkeypatch.setenv("HEADRACE_LIBCUDA", str(fake_cuda))
    monkeypatch.setenv("HEADRACE_FAKE_CUDA", f"latency={latency}")
    code, out, error = outcome_of(SLOW, str(signals))
    note = (
        " headrace: copies of the KV store are still in flight, so it keeps its memory and its "
        "folder; close it again"
    )
    told = ("1", "opened") if latency == "400ms" else (f"{signals}{note}", "opened later")
    assert (code, out, error) == (0, "\n".join([*told, ""]), "")


def test_blocks_are_removed(mover: headrace.Mover, tmp_path: Path) -> None:
    with kvcache.Store(mover, GEOMETRY, tiers(tmp_path)) as store:
        store.store(KEYS, blocks(KEYS)).wait()
        store.flush()
        with store.match(TOKENS) as found:
            assert store.remove([KEYS[3], KEYS[20], bytes(16)]) == 2
            assert len(found) == 24
        assert store.contains(KEYS[2:5]) == [True, False, True]
        assert store.stats().missed == 0
    with kvcache.Store(mover, GEOMETRY, tiers(tmp_path)) as store:
        assert store.stats().reopened == 22
        assert store.contains(KEYS).count(False) == 2
        assert store.clear() == 22 and store.clear() == 0
    with kvcache.Store(mover, GEOMETRY, tiers(tmp_path)) as store:
        assert store.stats().reopened == 0


def test_a_salt_keeps_tenants_apart(store: kvcache.Store) -> None:
    one = GEOMETRY.keys(TOKENS, salt="one")
    assert GEOMETRY.keys(TOKENS, salt="") == KEYS and not set(one) & set(KEYS)
    root = hashlib.blake2b(b"headrace kv 1\n3 2 40 2 4 2\n4 0\ntiny", digest_size=16).digest()
    salted = hashlib.blake2b(b"headrace kv salt" + root + b"one", digest_size=16).digest()
    first = hashlib.blake2b(salted + struct.pack("<4I", *TOKENS[:4]), digest_size=16).digest()
    assert one[0] == first
    store.store(one, blocks(one)).wait()
    with store.match(TOKENS, salt="one") as found, store.match(TOKENS) as others:
        assert len(found) == 24 and len(others) == 0


def test_deadlines_are_checked(store: kvcache.Store) -> None:
    store.store(KEYS[:1], blocks(KEYS[:1])).wait()
    for bad in (float("nan"), -1.0, -1e-12):
        with pytest.raises(headrace.InvalidError, match="deadline of layer 1 is"):
            store.load(KEYS[:1], bytearray(BLOCK), deadlines=[0.0, bad, 0.0])
    store.load(KEYS[:1], bytearray(BLOCK), deadlines=numpy.zeros(3)).wait()
    store.load(KEYS[:1], bytearray(BLOCK), deadlines=[0, 1e30, float("inf")]).wait()


def test_names_as_others_write_them() -> None:
    usual = kvcache.geometry("llama-3.2-1b")
    assert kvcache.geometry("meta-llama/Llama-3.2-1B", dtype="bfloat16") == usual
    assert kvcache.geometry("Llama-3.2-1B", dtype="torch.bfloat16") == usual
    assert kvcache.geometry("llama-3.2-1b", dtype="float16") != usual
    with pytest.raises(headrace.InvalidError, match="no element type 'float17'; there are fp32"):
        kvcache.geometry("llama-3.2-1b", dtype="float17")


def test_folders_of_one_tier_share_blocks(mover: headrace.Mover, tmp_path: Path) -> None:
    disks = [kvcache.Folder(tmp_path / name, 16 * 4096, write="stored") for name in ("a", "b")]
    memory = kvcache.Memory("dram", 4 * 4096)
    into = numpy.zeros(24 * BLOCK, numpy.uint8)
    with kvcache.Store(mover, GEOMETRY, [memory, *disks]) as store:
        assert store.stats().tiers[1].budget == 32 * 4096
        assert store.store(KEYS, blocks(KEYS)).wait().stored == 24
    with kvcache.Store(mover, GEOMETRY, disks) as store:
        store.load(KEYS, into).wait()
        assert (into == blocks(KEYS)).all()
    for disk in disks:  # each has its own blocks
        with kvcache.Store(mover, GEOMETRY, [disk]) as store:
            load = store.load_blocks(KEYS, into)
            load.wait()
            assert sum(load.loaded) == 12
            assert (into == blocks(KEYS)).all()
    with pytest.raises(headrace.InvalidError, match="tier 0 is a folder; give it last"):
        kvcache.Store(mover, GEOMETRY, [disks[0], memory])
    other = kvcache.Folder(tmp_path / "c", 16 * 4096)
    with pytest.raises(headrace.InvalidError, match="differ in write, verify or other"):
        kvcache.Store(mover, GEOMETRY, [*disks, other])


def test_extents_of_a_load_must_not_overlap(store: kvcache.Store) -> None:
    store.store(KEYS[:2], blocks(KEYS[:2])).wait()
    into = headrace.MemoryRange(numpy.zeros(2 * BLOCK, numpy.uint8))
    with pytest.raises(headrace.InvalidError, match="two extents of a load overlap"):
        store.load_blocks(KEYS[:2], [into.extent(0, BLOCK), into.extent(BLOCK - 1, BLOCK)])
