# SPDX-License-Identifier: Apache-2.0
"""headrace.sglang behind SGLang's factory, interface and controller, on modules of its wheel."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import real_sglang
import wheels

import headrace

PAGES = 16
Open = Callable[..., Any]

needs_the_wheel = pytest.mark.skipif(
    not real_sglang.WHEEL.exists(), reason="needs SGLang's wheel: tools/engines.sh"
)


def test_without_sglang_the_error_is_one_line() -> None:
    program = "import sys; sys.modules['sglang'] = None; import headrace.sglang"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith(
        "headrace.UnsupportedError: headrace.sglang needs SGLang 0.5.23"
    )


class Rank:
    """A rank of SGLang: its host memory, and a backend that is attached as SGLang does."""

    def __init__(
        self, folder: Path, config: Any = None, pool: Any = None, pools: Any = (), **extra: Any
    ) -> None:
        from sglang.srt.mem_cache.storage import (  # type: ignore[import-not-found]
            StorageBackendFactory,
        )

        self.pool = pool if pool is not None else real_sglang.host_pool()
        page = self.pool.kv_buffer.nbytes // PAGES
        given = {"folder": str(folder), "budget": 64 * page, **extra}
        config = config or real_sglang.config()
        config.extra_config.update(given)
        self.storage = StorageBackendFactory.create_backend("dynamic", config, self.pool)
        self.storage.register_mem_pool_host(self.pool)
        for name, each in pools:
            self.storage.register_mem_host_pool_v2(each, name)
        self.storage.on_host_pools_registered()
        self.control = real_sglang.controller(self.storage, self.pool)
        v1 = config.extra_config.get("interface_v1")
        self._set = self.control._page_set_zero_copy if v1 else self.control._generic_page_set
        self._get = self.control._page_get_zero_copy if v1 else self.control._generic_page_get

    def key(self, number: int) -> str:
        return number.to_bytes(32, "little").hex()

    def content(self, number: int) -> Any:
        page = self.pool.get_dummy_flat_data_page()
        values = numpy.random.default_rng(number).integers(0, 1 << 16, page.size, numpy.uint16)
        return values.view(numpy.float16)

    def indices(self, positions: list[int]) -> Any:
        tokens = self.pool.page_size
        each = [numpy.arange(at * tokens, (at + 1) * tokens) for at in positions]
        return numpy.concatenate(each).view(real_sglang.Tensor)

    def store(self, numbers: list[int], positions: list[int] | None = None) -> bool:
        at = positions or list(range(len(numbers)))
        for number, position in zip(numbers, at, strict=True):
            self.pool.set_from_flat_data_page(
                position * self.pool.page_size, self.content(number)
            )
        return bool(self._set([self.key(number) for number in numbers], self.indices(at)))

    def load(self, numbers: list[int], positions: list[int] | None = None) -> int:
        """How many leading pages came; they are compared."""
        at = positions or list(range(len(numbers)))
        self.pool.kv_buffer[...] = 0
        operation = SimpleNamespace(request_id="r", is_terminated=lambda: False)
        count = self._get(operation, [self.key(number) for number in numbers], self.indices(at))
        for number, position in list(zip(numbers, at, strict=True))[:count]:
            got = self.pool.get_data_page(position * self.pool.page_size)
            assert (got.view(numpy.uint16) == self.content(number).view(numpy.uint16)).all()
        return int(count)

    def has(self, numbers: list[int]) -> int:
        return int(self.storage.batch_exists([self.key(number) for number in numbers]))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    ranks: list[Rank] = []

    def open_one(*given: Any, **extra: Any) -> Rank:
        ranks.append(Rank(tmp_path / "kv", *given, **extra))
        return ranks[-1]

    with wheels.undone():
        real_sglang.install()
        yield open_one
        for rank in ranks:
            rank.storage.close()


LAYOUTS = [
    ("page_first", False), ("page_first_direct", False), ("page_head", False),
    ("layer_first", False), ("page_first", True), ("page_first_direct", True),
]  # fmt: skip


@needs_the_wheel
@pytest.mark.parametrize("v1", [1, 0])
@pytest.mark.parametrize("layout, mla", LAYOUTS)
def test_pages_come_back_now_and_after_a_restart(
    opened: Open, layout: str, mla: bool, v1: int
) -> None:
    if layout == "page_head" and not v1:
        pytest.skip("SGLang's own flat pages of page_head are in another order")
    for again in (False, True):
        pool = real_sglang.host_pool(layout, mla)
        rank = opened(real_sglang.config(mla=mla, interface_v1=v1), pool)
        if not again:
            assert rank.store(list(range(8)), [3, 1, 15, 0, 7, 8, 9, 2])
        assert rank.has(list(range(10))) == 8
        assert rank.load(list(range(10))) == 8
        assert rank.load([5, 3, 7], [15, 0, 4]) == 3
        rank.storage.close()


@needs_the_wheel
def test_a_flipped_bit_costs_one_page(opened: Open, tmp_path: Path) -> None:
    rank = opened()
    rank.store(list(range(8)))
    (path,) = (tmp_path / "kv").glob("*/kv/blocks")
    with path.open("r+b") as file:
        right = rank.content(3).tobytes()
        at = file.read().index(right)
        file.seek(at + 100)
        file.write(bytes([right[100] ^ 1]))
    assert rank.load(list(range(8))) == 3
    assert rank.has(list(range(8))) == 3
    assert rank.load([4, 5, 6, 7]) == 4
    assert rank.store([3]) and rank.load(list(range(8))) == 8


@needs_the_wheel
def test_the_budget_holds_and_clear_empties(opened: Open) -> None:
    page = real_sglang.host_pool().kv_buffer.nbytes // PAGES
    rank = opened(budget=8 * page)
    for first in range(0, 64, 4):
        assert rank.store(list(range(first, first + 4)))
    assert sum(rank.has([number]) for number in range(64)) == 8
    rank.storage.clear()
    assert not any(rank.has([number]) for number in range(64))
    assert rank.store([1]) and rank.has([1])


@needs_the_wheel
def test_calls_of_more_than_in_flight_are_divided(opened: Open) -> None:
    page = real_sglang.host_pool().kv_buffer.nbytes // PAGES
    rank = opened(in_flight=3 * page)
    assert rank.store(list(range(16))) and rank.load(list(range(16))) == 16


@needs_the_wheel
def test_a_backup_of_the_controller_counts_its_tokens(opened: Open) -> None:
    rank = opened()
    rank.store([0])
    operation = SimpleNamespace(
        hash_value=[rank.key(number) for number in range(4)],
        host_indices=rank.indices([0, 1, 2, 3]), prefix_keys=None, completed_tokens=0,
    )  # fmt: skip
    rank.control.page_set_func = rank.control._page_set_zero_copy
    rank.control._page_backup(operation)
    assert operation.completed_tokens == 4 * rank.pool.page_size and rank.has([0, 1, 2, 3]) == 4


@needs_the_wheel
def test_sglangs_failure_injector_makes_no_page_wrong(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.2")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.002")
    page = real_sglang.host_pool().kv_buffer.nbytes // PAGES
    rank = opened(budget=24 * page)
    assert type(rank.storage).__name__ == "HiCacheStorageFailureInjector"
    choice = random.Random(1)
    came = failed = 0
    for _ in range(200):
        numbers = choice.sample(range(40), choice.randrange(1, 16))
        if choice.random() < 0.5:
            failed += not rank.store(numbers)
        else:
            came += rank.load(numbers)
    assert came > 0 and failed > 0


@needs_the_wheel
def test_each_rank_has_pages_of_its_own(opened: Open) -> None:
    ranks = [opened(real_sglang.config(tp, 2)) for tp in (0, 1)]
    assert ranks[0].store([0, 1])
    assert (ranks[0].has([0, 1]), ranks[1].has([0, 1])) == (2, 0)
    with pytest.raises(headrace.DeniedError, match="open already"):
        opened(real_sglang.config(1, 2))


@needs_the_wheel
@pytest.mark.parametrize("v1", [1, 0])
def test_ranks_of_mla_read_what_the_first_one_wrote(
    opened: Open, v1: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._serving.client._AGAIN_SECONDS", 0)

    def rank(tp: int) -> Rank:
        pool = real_sglang.host_pool(mla=True)
        made: Rank = opened(real_sglang.config(tp, 3, True, interface_v1=v1), pool)
        return made

    readers = [rank(1), rank(2)]
    assert readers[0].has([0]) == 0  # the writer has not come
    writer = rank(0)
    assert writer.store(list(range(6)))
    for reader in readers:
        assert not reader.storage.batch_set_v1([reader.key(9)], reader.indices([0]))[0]
        assert reader.has(list(range(8))) == 6
        assert reader.load(list(range(8))) == 6
        assert reader.load([5, 3], [15, 0]) == 2
    writer.storage.close()
    assert readers[0].load([0]) == 0
    writer = rank(0)
    assert readers[0].load(list(range(6))) == 6


@needs_the_wheel
def test_ranks_of_mla_read_at_once_while_the_writer_stores(opened: Open) -> None:
    pools = [real_sglang.host_pool(mla=True) for _ in range(3)]
    ranks = [opened(real_sglang.config(tp, 3, True), pool) for tp, pool in enumerate(pools)]
    ranks[0].store(list(range(8)))
    wrong: list[BaseException] = []

    def read(rank: Rank) -> None:
        try:
            for _ in range(50):
                assert rank.load(list(range(8))) == 8
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(rank,)) for rank in ranks[1:]]
    for thread in threads:
        thread.start()
    for first in range(100, 400, 8):
        ranks[0].store(list(range(first, first + 8)))
        if not any(thread.is_alive() for thread in threads):
            break
        if ranks[0].has(list(range(8))) < 8:
            ranks[0].store(list(range(8)))
        ranks[0].load(list(range(8)))  # used again: they stay
    for thread in threads:
        thread.join()
    assert not wrong


@needs_the_wheel
@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_pages_of_a_pool_that_moves_them_are_where_it_says(opened: Open, layout: str) -> None:
    pool = real_sglang.host_pool(layout)
    rank = opened(pool=pool)
    meta, moved = pool.get_page_buffer_meta, list(range(PAGES))

    def resolved(indices: Any) -> Any:
        first = indices.tolist()[:: pool.page_size]
        return meta(rank.indices([moved[each // pool.page_size] for each in first]))

    pool.get_page_buffer_meta = resolved
    random.Random(1).shuffle(moved)
    keys, numbers = [rank.key(number) for number in range(6)], list(range(6))
    for number in numbers:
        pool.set_from_flat_data_page(moved[number] * pool.page_size, rank.content(number))
    assert all(rank.storage.batch_set_v1(keys, rank.indices(numbers)))
    pool.kv_buffer[...] = 0
    random.Random(2).shuffle(moved)
    assert all(rank.storage.batch_get_v1(keys, rank.indices(numbers)))
    for number in numbers:
        page = pool.get_data_page(moved[number] * pool.page_size)
        assert (page.view(numpy.uint16) == rank.content(number).view(numpy.uint16)).all()
    pool.get_page_buffer_meta = lambda indices: ([each + 2 for each in meta(indices)[0]],
                                                 meta(indices)[1])  # fmt: skip
    for move in (rank.storage.batch_get_v1, rank.storage.batch_set_v1):
        with pytest.raises(headrace.InvalidError, match="not where"):
            move(keys, rank.indices(numbers))
    with pytest.raises(headrace.InvalidError, match="16 indices for 2 pages"):
        rank.storage.batch_get_v1(keys[:2], rank.indices([0]))


def side_pools() -> list[tuple[Any, Any]]:
    from sglang.srt.mem_cache.hicache_storage import PoolName  # type: ignore[import-not-found]

    return [(PoolName.SWA, real_sglang.host_pool(layers=1)),
            (PoolName.INDEXER, real_sglang.host_pool("layer_first", layers=2))]  # fmt: skip


@needs_the_wheel
def test_pools_of_hybrid_models_come_back(opened: Open) -> None:
    from sglang.srt.mem_cache.hicache_storage import PoolTransfer

    pools = side_pools()
    rank = opened(pools=pools)
    assert rank.store([0, 1, 2])
    transfers = []
    for i, (name, pool) in enumerate(pools):
        pool.kv_buffer[...] = numpy.random.default_rng(i).random(pool.kv_buffer.shape)
        transfers.append(PoolTransfer(name, rank.indices([4, 2]), keys=[rank.key(1), rank.key(2)]))
    right = [pool.kv_buffer.copy() for _, pool in pools]
    assert rank.storage.batch_set_v2(transfers) == {name: [True, True] for name, _ in pools}
    for _, pool in pools:
        pool.kv_buffer[...] = 0
    assert rank.storage.batch_get_v2(transfers) == {name: [True, True] for name, _ in pools}
    for (_, pool), kept in zip(pools, right, strict=True):
        for at in (4, 2):
            page = pool.get_data_page(at * pool.page_size)
            pool.kv_buffer, before = kept, pool.kv_buffer
            assert (page == pool.get_data_page(at * pool.page_size)).all()
            pool.kv_buffer = before
    assert rank.load([0, 1, 2]) == 3


@needs_the_wheel
def test_hits_of_pools_are_those_of_sglangs_file_backend(opened: Open, tmp_path: Path) -> None:
    from sglang.srt.mem_cache.hicache_storage import (
        HiCacheFile,
        PoolHitPolicy,
        PoolTransfer,
    )

    pools = side_pools()
    rank = opened(pools=pools, budget=1 << 24)
    config = real_sglang.config()
    config.extra_config = {"file_storage_path": str(tmp_path / "files")}
    files = HiCacheFile(config)
    files.register_mem_pool_host(rank.pool)
    for name, pool in pools:
        files.register_mem_host_pool_v2(pool, name)
    choice = random.Random(2)
    lengths = set()
    for case in range(60):
        keys = [rank.key(case * 100 + i) for i in range(6)]
        kept = [key for key in keys if choice.random() < 0.85]
        for key in kept:
            assert rank.storage.set(key, rank.pool.get_data_page(0))
            assert files.set(key, rank.pool.get_data_page(0))
        transfers = []
        for name, _ in pools:
            some = [key for key in keys if choice.random() < 0.7]
            each = PoolTransfer(name, rank.indices([0] * len(some)) if some else None, keys=some)
            if some:
                assert all(rank.storage.batch_set_v2([each])[name])
                assert all(files.batch_set_v2([each])[name])
            policy = choice.choice([PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES])
            asked = keys[: choice.randrange(4)]
            transfers.append(PoolTransfer(name, keys=asked, hit_policy=policy))
        assert rank.storage.batch_exists(keys) == files.batch_exists(keys)
        ours = rank.storage.batch_exists_v2(keys, transfers)
        assert ours == files.batch_exists_v2(keys, transfers)
        lengths.add(ours.kv_hit_pages)
    assert len(lengths) > 3


@needs_the_wheel
def test_settings_are_checked(opened: Open) -> None:
    for settings, told in (
        ({"fodler": "x"}, "headrace.sglang has no setting 'fodler'; there are folder, budget"),
        ({"budget": "many"}, "many"),
        ({"other": "x"}, "other is 'x'; there are refuse, discard"),
        ({"workers": 0}, "give at least 1"),
    ):
        with pytest.raises(headrace.InvalidError, match=told):
            opened(**settings)
    for folder, kind in (("/nowhere/kv", headrace.AbsentError), ("/proc/kv", headrace.Error)):
        with pytest.raises(kind, match=r"no folder /nowhere; make it|/proc"):
            Rank(Path(folder))
    irregular = real_sglang.host_pool()
    irregular.get_page_buffer_meta = lambda indices: ([0, 100, 8192, 8292], [100, 50, 100, 50])
    with pytest.raises(headrace.InvalidError, match=r"differ in size.*leave interface_v1 out"):
        opened(pool=irregular)
    rank = opened()
    rank.store([0])
    rank.storage.close()
    for other in (
        {"config": real_sglang.config(model_name="other")},
        {"revision": "2"},
        {"pool": real_sglang.host_pool("page_first_direct")},
    ):
        with pytest.raises(headrace.InvalidError, match="another geometry, model or revision"):
            opened(**other)
    assert opened(revision="2", other="discard").has([0]) == 0


@needs_the_wheel
def test_a_pool_that_cannot_be_opened_leaves_no_folder_open(opened: Open, tmp_path: Path) -> None:
    from sglang.srt.mem_cache.hicache_storage import PoolName

    first = opened(pools=side_pools())
    first.storage.close()
    (index,) = (tmp_path / "kv").glob(f"*/{PoolName.INDEXER.value}/index")
    right = index.read_bytes()
    index.write_bytes(b"no list" * 1000)
    with pytest.raises(headrace.InvalidError, match="lists no KV blocks") as caught:
        opened(pools=side_pools())
    index.write_bytes(right)
    assert opened(pools=side_pools()).store([0])
    assert caught.tb is not None  # until now it kept the backend


@needs_the_wheel
def test_pages_that_no_disk_takes_are_a_line_a_minute(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = opened()
    assert rank.store([0])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        for number in range(1, 6):
            assert not rank.store([number])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caplog.text.count("1 pages were not kept, and 1 were, since the last warning: ") == 1
    monkeypatch.setattr("headrace._plugin._AGAIN_SECONDS", -1.0)
    rank.storage._pools["kv"]._warner._again.clear()
    assert rank.store([0])
    assert "4 pages were not kept, and 0 were, since" in caplog.text


@needs_the_wheel
def test_metrics_are_those_of_sglang(opened: Open) -> None:
    module = pytest.importorskip("sglang.srt.observability.metrics_collector")
    module.StorageMetrics = lambda: SimpleNamespace(
        prefetch_pgs=[], backup_pgs=[], prefetch_bandwidth=[], backup_bandwidth=[]
    )
    config = real_sglang.config()
    config.enable_storage_metrics = True
    rank = opened(config)
    rank.store([0, 1])
    rank.load([0, 1, 2])
    metrics = rank.storage.get_stats()
    assert (metrics.backup_pgs, metrics.prefetch_pgs) == ([2], [2])
    assert all(rate > 0 for rate in metrics.prefetch_bandwidth + metrics.backup_bandwidth)
    assert rank.storage.get_stats().backup_pgs == []


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import real_sglang
real_sglang.install()
from pathlib import Path
import test_sglang
rank = test_sglang.Rank(Path(sys.argv[2]))
first = 0
while True:
    print("store", flush=True)
    rank.store(list(range(first, first + 16)))
    first = (first + 16) % 48
"""


@needs_the_wheel
def test_an_engine_killed_while_it_writes_leaves_no_wrong_page(
    opened: Open, tmp_path: Path
) -> None:
    found = 0
    for attempt in range(3):
        wheels.kill_a_writer(WRITER, tmp_path / "kv", stores=2 * attempt + 1)
        rank = opened()
        found += sum(rank.load([number]) for number in range(48))
        rank.storage.close()
    assert found > 0
