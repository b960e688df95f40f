# SPDX-License-Identifier: Apache-2.0
"""A secondary tier of vLLM's KV offloading: chunks that leave the CPU tier, on SSD.

vLLM imports this module when its configuration names it (docs/howto/vllm.md):

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": 8589934592, "secondary_tiers": [
          {"type": "HeadraceTier", "module_path": "headrace.vllm",
           "folder": "/mnt/ssd/kv", "budget": "500GiB"}]}}'

Tested with vLLM 0.33; the interface is experimental there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import headrace
from headrace import _plugin, kvcache
from headrace._core import KvJobs
from headrace._plugin import Warner, bytes_of, make_folder, settings_of
from headrace._serving.client import Attached
from headrace._serving.jobs import Jobs
from headrace.kvcache import memory_range

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
        OffloadingConnectorStats,
    )
    from vllm.v1.kv_offload.base import (
        Locality,
        LookupResult,
        Medium,
        OffloadingCounterMetadata,
        OffloadingEvent,
        OffloadingGaugeMetadata,
        OffloadingMetricMetadata,
        OffloadKey,
        ReqContext,
        RequestOffloadingContext,
    )
    from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob
except ImportError as error:
    raise headrace.UnsupportedError(
        f"headrace.vllm needs vLLM 0.33, whose secondary tiers it implements ({error})"
    ) from error

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Longest wait of drain_jobs() and shutdown(). A disk that does not answer is an error by then.
_DRAIN_SECONDS = 600.0
#: Loads are divided into parts of this size: one is verified while the next is read.
_PART_BYTES = 8 << 20
#: vLLM asks for counts after each step; the store is asked this often.
_STATS_SECONDS = 1.0

_USED = "vllm:kv_offload_headrace_used_bytes"
_BUDGET = "vllm:kv_offload_headrace_budget_bytes"
_EVICTED = "vllm:kv_offload_headrace_evicted_chunks"
_DAMAGED = "vllm:kv_offload_headrace_damaged_chunks"


@dataclass(frozen=True)
class Settings(_plugin.Settings):
    """Keys of the tier's configuration, besides "type" and "module_path". Each data-parallel engine
    has a folder below `folder`; engines of one `server` have the same chunks. `enable_kv_events`,
    `locality`: as of vLLM's own tiers.
    """

    enable_kv_events: bool = False
    locality: str | None = None


@dataclass
class _Job:
    """A load or store that has not ended."""

    keys: tuple[OffloadKey, ...]
    loads: bool
    since: float

    def result(self, number: int, loaded: list[bool], there: int, chunk_bytes: int) -> JobResult:
        """`loaded`: which blocks came, of a load. `there`: how many came or were kept."""
        success = there == len(self.keys)
        good: tuple[OffloadKey, ...] | None = None
        if self.loads and not success:
            good = tuple(key for key, came in zip(self.keys, loaded, strict=True) if came) or None
        return JobResult(
            job_id=number,
            success=success,
            successful_keys=good,
            transfer_time=time.monotonic() - self.since,
            transfer_bytes=there * chunk_bytes,
        )


class HeadraceTier(SecondaryTierManager):
    """Chunks are verified when they are read; a damaged one is a miss, and no other is lost with
    it. The folder never exceeds its budget, and the next engine finds its chunks.

    Not thread-safe: vLLM makes all calls under a lock of its own, from any of its threads. None
    waits for a disk except drain_jobs() and shutdown().
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        **settings: Any,
    ) -> None:
        """`settings`: the fields of Settings. Errors: as of headrace.kvcache.Store."""
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        given = settings_of(Settings, settings, "HeadraceTier")
        self.locality = None if given.locality is None else Locality(given.locality)
        folder, storage = Path(), []
        if not given.server:
            folder = _folder_of(given.folder, offloading_spec.config.parallel)
            storage = [folder.parent]
        machine = headrace.Machine.discover(storage=storage)
        events = offloading_spec.kv_events_config
        tells = given.enable_kv_events and events.enable_kv_cache_events
        if tells and given.server:
            raise headrace.InvalidError("a server reports no events; leave enable_kv_events out")
        self._store = given.open_or_attach(
            headrace.Mover(machine),
            kvcache.opaque(
                _format_of(offloading_spec), self.block_size_bytes, revision=given.revision
            ),
            folder,
            list_dropped=tells,
        )
        self._promote = bytes_of(given.memory) > 0
        self._part = max(1, _PART_BYTES // self.block_size_bytes)
        # Another thread begins jobs. None: shut down, since vLLM releases the view then.
        view = memory_range(primary_kv_view, machine)
        self._jobs: KvJobs | Jobs | None = (
            Jobs(self._store, view)
            if isinstance(self._store, Attached)
            else KvJobs(self._store, view)
        )
        self._warned = False
        self._warner = Warner(_log)
        self._pending: dict[int, _Job] = {}  # by their numbers
        self._ready: list[JobResult] = []
        self._events: list[OffloadingEvent] = []
        # Keys by their names in the store; None: no events are wanted. `_stored`: vLLM has an event
        # that they are there. `_new`: their stores have ended since the last events.
        self._stored: dict[bytes, OffloadKey] | None = {} if tells else None
        self._new: dict[bytes, OffloadKey] = {}
        self._next_stats = 0.0
        self._told = (0, 0)

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        there = [False] if self._store.closed else self._served(self._store.contains, [key])
        return LookupResult.HIT if there and there[0] else LookupResult.MISS

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        if not self._store.closed:
            self._served(self._store.touch, list(keys))

    def _served(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """None: the server has ended, which is said once. Calls find a new one."""
        try:
            done = call(*arguments)
        except headrace.Error as error:
            if not isinstance(self._store, Attached):
                raise
            if not self._warned:
                _log.warning("no chunks are found: %s", error)
            self._warned = True
            return None
        self._warned = False
        return done

    def submit_store(self, job_metadata: TransferJob) -> None:
        job = job_metadata
        keys = tuple(job.keys)  # vLLM gives a set of stores, whose order is that of chunk_ids
        self._open_jobs().store(job.job_id, keys, job.chunk_ids)
        self._pending[job.job_id] = _Job(keys, False, time.monotonic())

    def submit_load(self, job_metadata: TransferJob) -> None:
        job = job_metadata
        keys = tuple(job.keys)
        self._open_jobs().load(
            job.job_id, keys, job.chunk_ids, part=self._part, promote=self._promote
        )
        self._pending[job.job_id] = _Job(keys, True, time.monotonic())

    def _open_jobs(self) -> KvJobs | Jobs:
        if self._jobs is None:
            raise headrace.CancelledError("the tier is shut down")
        return self._jobs

    def _take(self) -> None:
        """Jobs that have ended become results."""
        if self._jobs is None:
            return
        for number, loaded, there, error in self._jobs.take():
            job = self._pending.pop(number)
            if error:
                lost = "are computed again" if job.loads else "are not kept"
                self._warner.warn(f"chunks {lost}: %s", error)
            self._ready.append(job.result(number, loaded, there, self.block_size_bytes))
            if self._stored is not None and not job.loads:
                self._new.update((kvcache.key(key), key) for key in job.keys)

    def _tell(self, keys: list[OffloadKey], removed: bool) -> None:
        self._events.append(
            OffloadingEvent(
                keys=keys, medium=self.medium, removed=removed, locality=self.locality
            )
        )

    def get_finished_jobs(self) -> Iterable[JobResult]:
        self._take()
        ready, self._ready = self._ready, []
        return ready

    def has_pending_work(self) -> bool:
        return bool(self._pending or self._ready)

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Chunks that were stored and are still there, and those that have left since."""
        if (
            self._stored is not None
            and isinstance(self._store, kvcache.Store)
            and not self._store.closed
        ):
            dropped = [name for name in self._store.take_dropped() if name in self._stored]
            gone = self._missing(dropped)
            removed = [self._stored.pop(name) for name in dict.fromkeys(gone)]
            new = {name: key for name, key in self._new.items() if name not in self._stored}
            for name in self._missing(list(new)):
                del new[name]
            self._new.clear()
            self._stored.update(new)
            if removed:
                self._tell(removed, removed=True)
            if new:
                self._tell(list(new.values()), removed=False)
        events, self._events = self._events, []
        return events

    def _missing(self, names: list[bytes]) -> list[bytes]:
        there = self._store.contains(names)
        return [name for name, has in zip(names, there, strict=True) if not has]

    def drain_jobs(self) -> None:
        """TimedOutError: a disk does not answer."""
        if self._jobs is not None:
            self._jobs.wait(_DRAIN_SECONDS)
            self._take()

    def shutdown(self) -> None:
        """Ends what is in flight, and writes to the folder what is only in memory."""
        if self._jobs is None:
            return
        self.drain_jobs()
        self._jobs.close()
        self._jobs = None
        try:
            self._store.close(timeout=_DRAIN_SECONDS)
        except headrace.Error as error:
            _log.warning("not all chunks are kept: %s", error)
            if not self._store.closed:
                raise

    @classmethod
    def build_metric_definitions(
        cls, extra_config: dict[str, Any]
    ) -> dict[str, OffloadingMetricMetadata]:
        return {
            _USED: OffloadingGaugeMetadata("Bytes of chunks in the folder of Headrace."),
            _BUDGET: OffloadingGaugeMetadata("Most bytes of chunks in the folder of Headrace."),
            _EVICTED: OffloadingCounterMetadata("Chunks that Headrace evicted from its folder."),
            _DAMAGED: OffloadingCounterMetadata(
                "Chunks that Headrace dropped because they were unreadable or had wrong bytes."
            ),
        }

    def get_stats(self) -> OffloadingConnectorStats | None:
        now = time.monotonic()
        if now < self._next_stats or self._store.closed:
            return None
        self._next_stats = now + _STATS_SECONDS
        source = self._jobs if isinstance(self._jobs, Jobs) else self._store
        if (counts := source.stats()) is None:
            return None
        self._warner.not_kept("chunks", counts)
        folder = counts.tiers[-1]
        stats = OffloadingConnectorStats()
        stats.set_gauge(_USED, folder.used)
        stats.set_gauge(_BUDGET, folder.budget)
        dropped = (folder.dropped - counts.damaged, counts.damaged)
        for name, total, told in zip((_EVICTED, _DAMAGED), dropped, self._told, strict=True):
            if total > told:
                stats.increase_counter(name, total - told)
        self._told = dropped
        return stats


def _folder_of(folder: str, parallel: Any) -> Path:
    path = Path(folder).absolute()
    if parallel.data_parallel_size == 1:
        return path
    make_folder(path)
    return path / f"engine-{parallel.data_parallel_index}"


def _format_of(spec: Any) -> str:
    """Stands for all that decides the bytes of a chunk, except weights. As vLLM's own file tier,
    whose folders have such a name.
    """
    config = spec.config
    parallel = config.parallel
    alike = parallel.is_parallelism_agnostic or config.replicated_layout
    shape = (parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size)
    fields = [
        config.model.name,
        config.model.dtype,
        config.cache.tokens_per_hash,
        spec.blocks_per_chunk,
        [  # a key has the number of its group
            [group.group_id, group.tokens_per_block, list(group.layer_names)]
            for group in config.groups
        ],
        None if alike else [*shape, parallel.rank],
        config.replicated_layout,
        config.kv_cache_layout if config.canonical_layout else None,
    ]
    digest = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
    return f"vllm {config.model.name} {digest[:32]}"
