# SPDX-License-Identifier: Apache-2.0
"""Modules of vLLM's wheel, without PyTorch and without the rest of vLLM."""

from __future__ import annotations

import logging
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import wheels

#: The version that headrace.vllm is tested with.
VERSION = "0.33.0"
WHEEL = wheels.ENGINES / f"vllm-{VERSION}"

_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector"


def install(wheel: Path = WHEEL) -> None:
    """Makes `import vllm.v1.kv_offload…` work in this process."""
    wheels.stand_in(
        "torch", "prometheus_client", "msgspec", "vllm.config", "vllm.platforms",
        "vllm.utils.torch_utils", "vllm.distributed.device_communicators", "vllm.forward_context",
        "vllm.distributed.kv_events", "vllm.v1.kv_hints", "vllm.v1.kv_cache_interface",
        "vllm.v1.core", "vllm.v1.kv_offload.factory", f"{_CONNECTOR}.factory",
        f"{_CONNECTOR}.v1.offloading.canonical_mapping",
    )  # fmt: skip
    for name in ("vllm", "vllm.distributed", "vllm.distributed.kv_transfer", _CONNECTOR,
                 f"{_CONNECTOR}.v1", "vllm.utils"):  # fmt: skip
        wheels.namespace(name, wheel)
    logger = types.ModuleType("vllm.logger")
    logger.init_logger = _logger  # type: ignore[attr-defined]
    sys.modules["vllm.logger"] = logger


class _Logger(logging.LoggerAdapter[logging.Logger]):
    warning_once = logging.LoggerAdapter.warning
    info_once = logging.LoggerAdapter.info


def _logger(name: str) -> _Logger:
    return _Logger(logging.getLogger(name), {})


def spec(model: str = "m", events: bool = False, engines: int = 1, engine: int = 0) -> Any:
    """An offloading spec, as far as tiers look at it."""
    from vllm.v1.kv_offload.config import (
        OffloadingCacheConfig,
        OffloadingConfig,
        OffloadingGroupConfig,
        OffloadingModelConfig,
        OffloadingParallelConfig,
    )

    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(16, ("layer.0", "layer.1"), 0),),
        worker_kv_bytes_per_block=4096,
        enable_kv_cache_events=events,
        extra_config={},
        engine_id="engine",
        model=OffloadingModelConfig(model, "bfloat16"),
        cache=OffloadingCacheConfig(16, 1),
        parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, engine, engines, None, True),
    )
    return SimpleNamespace(
        config=config,
        blocks_per_chunk=1,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=events),
    )
