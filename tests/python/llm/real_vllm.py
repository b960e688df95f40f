# SPDX-License-Identifier: Apache-2.0
"""Modules of vLLM's wheel, imported without PyTorch and without the rest of vLLM.

Some packages are namespaces over the unpacked wheel, so that their __init__ modules do not run.
Empty classes stand in for what tiers do not use.
"""

from __future__ import annotations

import importlib.machinery
import logging
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: The version that headrace.vllm is tested with.
VERSION = "0.33.0"
#: Where tools/engines.sh unpacks the wheel.
WHEEL = Path(__file__).parents[3] / "build" / "engines" / f"vllm-{VERSION}"

#: Packages whose __init__ modules import much more.
_PACKAGES = (
    "vllm", "vllm.distributed", "vllm.distributed.kv_transfer",
    "vllm.distributed.kv_transfer.kv_connector", "vllm.distributed.kv_transfer.kv_connector.v1",
    "vllm.utils",
)  # fmt: skip
_STAND_INS = (
    "torch", "torch.distributed", "prometheus_client", "vllm.v1.kv_hints", "vllm.config", "vllm.config.kv_transfer", "vllm.platforms",
    "vllm.utils.torch_utils", "vllm.distributed.device_communicators",
    "vllm.distributed.device_communicators.shm_broadcast",
    "vllm.distributed.device_communicators.cuda_wrapper", "vllm.v1.kv_cache_interface",
    "vllm.forward_context", "vllm.distributed.kv_events", "vllm.v1.core",
    "vllm.v1.core.kv_cache_utils", "vllm.distributed.kv_transfer.kv_connector.factory",
    "vllm.v1.kv_offload.factory",
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping",
)  # fmt: skip


class _StandIn(types.ModuleType):
    """A module that has any name, as an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


def _module(name: str, kind: type[types.ModuleType], path: list[str]) -> None:
    module = kind(name)
    module.__path__ = path
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)


def install(wheel: Path = WHEEL) -> None:
    """Makes `import vllm.v1.kv_offload…` work in this process."""
    for name in _PACKAGES:
        _module(name, types.ModuleType, [str(wheel.joinpath(*name.split(".")))])
    for name in _STAND_INS:
        _module(name, _StandIn, [])
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
