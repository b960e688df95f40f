# SPDX-License-Identifier: Apache-2.0
"""A storage backend of SGLang's hierarchical KV cache: pages of its host memory, on SSD.

SGLang imports this module when its configuration names it (docs/howto/sglang.md):

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
      '{"backend_name": "headrace", "module_path": "headrace.sglang", "class_name": "Storage",
        "interface_v1": 1, "folder": "/mnt/ssd/kv", "budget": "500GiB", "revision": "2026-11"}'

Tested with SGLang 0.5.23.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import headrace
from headrace import _plugin, kvcache
from headrace._pages import Pages, PoolMemory, StoredPages, WritersPages
from headrace._plugin import bytes_of, make_folder, settings_of
from headrace._serving.client import Attached
from headrace._serving.server import Server, one_of

try:
    from sglang.srt.mem_cache.hicache_storage import (
        HiCacheStorage,
        PoolHitPolicy,
        PoolName,
        PoolTransferResult,
    )
except ImportError as error:
    raise headrace.UnsupportedError(
        f"headrace.sglang needs SGLang 0.5.23, whose HiCacheStorage it implements ({error})"
    ) from error

_log = logging.getLogger(__name__)

#: Keys of the extra configuration that SGLang reads itself.
_SGLANG_KEYS = frozenset(
    {
        "backend_name", "module_path", "class_name", "interface_v1", "tp_lcm_size",
        "prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token",
        "hicache_storage_pass_prefix_keys",
    }
)  # fmt: skip
_KV = PoolName.KV.value
_How = Literal["get", "set", "get_into", "set_from"]
#: Most calls that are kept for SGLang's metrics, which it asks for after each step, or never.
_MOST_MOVES = 1000
#: Longest wait of close().
_CLOSE_SECONDS = 600.0
#: In the folder of the rank that writes.
_SOCKET = "readers"


@dataclass(frozen=True)
class Settings(_plugin.Settings):
    """Keys of the extra configuration besides SGLang's own. Each rank has a folder below `folder`,
    and `budget`, `memory` and `in_flight` of its own.
    """


class Storage(HiCacheStorage):
    """Pages are verified when they are read; a damaged one is absent, and no other of its call is
    lost. The folder never exceeds its budget, and the next process finds its pages. Thread-safe.

    All pools of a hybrid model are kept, each in a folder of its own, and they share the budget as
    they share SGLang's host memory.
    """

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
        """InvalidError: wrong settings. The folders are opened once all pools are registered."""
        given = dict(storage_config.extra_config or {})
        self._zero_copy = bool(given.get("interface_v1", 0))
        self._settings = settings_of(
            Settings,
            {name: value for name, value in given.items() if name not in _SGLANG_KEYS},
            "headrace.sglang",
        )
        if self._settings.server:
            raise headrace.InvalidError("headrace.sglang has no server; give folder and budget")
        for each in ("budget", "memory", "in_flight"):
            bytes_of(getattr(self._settings, each))
        self._config = storage_config
        self._folder = Path(self._settings.folder).absolute()
        self._host_pools: dict[str, Any] = {}
        self._pools: dict[str, Pages] = {}
        self._stores: dict[str, kvcache.Store] = {}
        self._clients: list[Attached] = []
        self._server: Server | None = None
        # Pages and GB/s of calls, until SGLang asks.
        self._moves: dict[str, list[tuple[int, float]]] = {"prefetch": [], "backup": []}
        self._lock = threading.Lock()  # of what opens and closes

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._host_pools[_KV] = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        name = _plain(host_pool_name)
        self._host_pools.setdefault(name, host_pool)
        with self._lock:
            late = bool(self._pools) and name not in self._pools
        if late:
            _log.warning("pages of %s, a pool that was registered late, are not kept", name)

    def on_host_pools_registered(self) -> None:
        """Opens the folders. Errors: as of headrace.kvcache.Store, and InvalidError for pages that
        have no place that a single copy reaches. After an error all folders are closed.
        """
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        memories = {
            name: PoolMemory(pool, self._zero_copy and name == _KV)
            for name, pool in self._host_pools.items()
        }
        total = sum(each.pool_bytes for each in memories.values())
        shared = [name for name in memories if self._is_shared(name)]
        of_writer = self._folder_of(0)  # SGLang has no DCP with dynamic backends
        own = self._folder_of(self._config.tp_rank)
        machine = headrace.Machine.discover(storage=[own])
        mover = headrace.Mover(machine)
        with self._lock:
            reads = bool(shared) and not self._config.is_storage_writer
            serves = bool(shared) and not reads and self._config.tp_size > 1
            socket = str(of_writer / _SOCKET)
            for name, memory in memories.items():
                blocks = kvcache.opaque(
                    f"sglang {name} {self._format_of(name, memory)}", memory.page_bytes,
                    layers=memory.parts, revision=self._settings.revision,
                )  # fmt: skip
                if reads and name in shared:
                    self._clients.append(Attached(socket, blocks, mover=mover, lazy=True))
                    self._pools[name] = WritersPages(self._clients[-1], memory, machine)
                    continue
                store = self._settings.open(
                    mover,
                    blocks,
                    (of_writer if name in shared else own) / name,
                    share=memory.pool_bytes / total,
                    shared=serves and name in shared,
                )
                in_flight = bytes_of(self._settings.in_flight)
                self._pools[name] = StoredPages(store, memory, machine, in_flight)
                self._stores[name] = store
            if serves:
                stores = [self._stores[name] for name in shared]
                self._server = Server(socket, one_of(stores), machine)

    def _is_shared(self, name: str) -> bool:
        """Whether all ranks have the same pages, which one of them writes. As for SGLang's own
        file backend: the latent vectors of MLA are, states of Mamba are not.
        """
        return bool(self._config.is_mla_model) and name != PoolName.MAMBA.value

    def _folder_of(self, tp_rank: int) -> Path:
        config = self._config
        ranks = (config.dp_rank, config.pp_rank, config.attn_cp_rank, tp_rank)
        name = "-".join(
            f"{kind}{rank}" for kind, rank in zip(("dp", "pp", "cp", "tp"), ranks, strict=True)
        )
        for folder in (self._folder, self._folder / name):
            make_folder(folder)
        return folder

    def _format_of(self, name: str, memory: PoolMemory) -> str:
        """Stands for all that decides the bytes of a page, except weights."""
        config = self._config
        fields = [
            config.model_name,
            None if self._is_shared(name) else [config.tp_rank, config.tp_size],
            [config.pp_rank, config.pp_size, config.attn_cp_rank, config.attn_cp_size],
            memory.format,
        ]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:32]

    def _pages(self, name: str = _KV) -> Pages:
        pages = self._pools.get(name)
        if pages is None:
            raise headrace.CancelledError(f"the pages of {name} are not open")
        return pages

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        return _leading(self._pages().there(keys))

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def batch_get_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        return self._move("get", _KV, keys, host_indices)

    def batch_set_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        return self._move("set", _KV, keys, host_indices)

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[Any]:
        """Into tensors of one page each."""
        there = self._move("get_into", _KV, keys, target_locations)
        return [into if has else None
                for into, has in zip(target_locations, there, strict=True)]  # fmt: skip

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """From tensors of one page each."""
        pages = values if values is not None else target_locations
        return all(self._move("set_from", _KV, keys, pages))

    def set(
        self,
        key: str,
        value: Any = None,
        target_location: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        return self.batch_set([key], [value if value is not None else target_location])

    def batch_exists_v2(
        self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None
    ) -> Any:
        count = self.batch_exists(keys)
        hits: dict[str, int] = {PoolName.KV: count} if count else {}
        restorable = list(range(1, count + 1))
        for transfer in pool_transfers or []:
            if not restorable:
                break
            there = self._pages(_plain(transfer.name)).there(keys[:count])
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                good = set(range(1, _leading(there) + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                window = max(1, len(transfer.keys or ()))
                good = {n for n in range(1, count + 1) if all(there[max(0, n - window) : n])}
            else:
                raise headrace.UnsupportedError(
                    f"{transfer.hit_policy} of pool {transfer.name}; headrace.sglang has all_pages "
                    "and trailing_pages"
                )
            if good:
                hits[transfer.name] = max(good)
            restorable = [n for n in restorable if n in good]
        return PoolTransferResult(restorable[-1] if restorable else 0, hits, restorable)

    def batch_get_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return {each.name: self._move("get", _plain(each.name), each.keys or [], each.host_indices)
                for each in transfers}  # fmt: skip

    def batch_set_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return {each.name: self._move("set", _plain(each.name), each.keys or [], each.host_indices)
                for each in transfers}  # fmt: skip

    def _move(self, how: _How, pool: str, keys: list[str], where: Any) -> list[bool]:
        pages = self._pages(pool)
        begun = time.monotonic()
        there: list[bool] = getattr(pages, how)(keys, where)
        seconds = max(time.monotonic() - begun, 1e-9)
        moves = self._moves["prefetch" if how.startswith("get") else "backup"]
        if len(moves) < _MOST_MOVES:
            moves.append((sum(there), sum(there) * pages.page_bytes / seconds / 1e9))
        return there

    def clear(self) -> None:
        for store in self._stores.values():
            store.clear()

    def get_stats(self) -> Any:
        """SGLang's StorageMetrics: pages and GB/s of each call since the last time."""
        if not self._config.enable_storage_metrics:
            return None
        from sglang.srt.observability.metrics_collector import StorageMetrics

        metrics = StorageMetrics()
        for name in self._moves:
            moves, self._moves[name] = self._moves[name], []
            getattr(metrics, f"{name}_pgs").extend(count for count, _ in moves)
            getattr(metrics, f"{name}_bandwidth").extend(rate for _, rate in moves)
        return metrics

    def close(self) -> None:
        """Writes to the folders what is only in memory."""
        with self._lock:
            stores, self._stores, self._pools = self._stores, {}, {}
            server, self._server = self._server, None
            clients, self._clients = self._clients, []
        if server is not None:
            server.close()
        for client in clients:
            client.close()
        for name, store in stores.items():
            try:
                store.close(timeout=_CLOSE_SECONDS)
            except headrace.Error as error:
                _log.warning("not all pages of %s are kept: %s", name, error)


def _leading(there: Sequence[bool]) -> int:
    return there.index(False) if False in there else len(there)


def _plain(name: Any) -> str:
    return str(getattr(name, "value", name))
