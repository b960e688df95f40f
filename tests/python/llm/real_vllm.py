# SPDX-License-Identifier: Apache-2.0
"""Modules of vLLM's wheel, without PyTorch and without the rest of vLLM."""

from __future__ import annotations

import importlib
import logging
import re
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import wheels

#: The version that headrace.vllm is tested with.
VERSION = "0.33.0"
WHEEL = wheels.ENGINES / f"vllm-{VERSION}"

#: Loaders whose modules need more of vLLM than there is.
_OTHER_LOADERS = ("dummy", "modelexpress", "runai_streamer", "sharded_state", "tensorizer")
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


def spec(
    model: str = "m", events: bool = False, engines: int = 1, engine: int = 0,
    groups: tuple[tuple[Any, ...], ...] = ((16, ("layer.0", "layer.1"), 0),),
) -> Any:  # fmt: skip
    """An offloading spec, as far as tiers look at it."""
    from vllm.v1.kv_offload.config import (
        OffloadingCacheConfig,
        OffloadingConfig,
        OffloadingGroupConfig,
        OffloadingModelConfig,
        OffloadingParallelConfig,
    )

    config = OffloadingConfig(
        groups=tuple(OffloadingGroupConfig(*group) for group in groups),
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


def install_loaders(wheel: Path = WHEEL) -> None:
    """After install(): the same for `vllm.model_executor.model_loader`, with the loader of
    safetensors and without the others. PyTorch's tensors are arrays of numpy.
    """
    loaders = "vllm.model_executor.model_loader"
    wheels.stand_in(
        "transformers", "filelock", "huggingface_hub", "safetensors", "tqdm", "vllm.tracing",
        "vllm.transformers_utils", "vllm.model_executor.layers", "vllm.model_executor.models",
        "vllm.utils.mem_utils", "runai_model_streamer", "fastsafetensors", "instanttensor",
        *(f"{loaders}.{name}_loader" for name in _OTHER_LOADERS),
        f"{loaders}.utils", f"{loaders}.weight_cache", f"{loaders}.reload",
    )  # fmt: skip
    wheels.namespace("vllm.model_executor", wheel)
    sys.modules["regex"] = re  # the pattern that is used is one of both
    environment = types.ModuleType("vllm.envs")
    environment.__getattr__ = lambda name: None  # type: ignore[method-assign]
    sys.modules["vllm.envs"] = sys.modules["vllm"].envs = environment  # type: ignore[attr-defined]
    files = importlib.import_module("transformers.utils")
    files.SAFE_WEIGHTS_INDEX_NAME = "model.safetensors.index.json"  # type: ignore[attr-defined]
    distributed: Any = sys.modules["vllm.distributed"]
    for each in ("rank", "world_size"):
        setattr(distributed, f"get_tensor_model_parallel_{each}", lambda: 0)
    distributed.get_world_group = lambda: None
    parallel = SimpleNamespace(enable_expert_parallel=False)
    config: Any = importlib.import_module("vllm.config")
    config.get_current_vllm_config = lambda: SimpleNamespace(parallel_config=parallel)
    tracing: Any = importlib.import_module("vllm.tracing")
    importlib.import_module("torch.nn")
    torch: Any = importlib.import_module("torch")
    tracing.instrument = torch.no_grad = lambda **_: lambda function: function
    torch.frombuffer = numpy_view
    torch.float32, torch.bfloat16 = numpy.float32, numpy.uint16


class _View:
    """An array with the methods of a tensor that headrace.safetensors calls."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def view(self, shape: tuple[int, ...]) -> Any:
        return self.array.reshape(shape)


def numpy_view(content: Any, *, dtype: Any, count: int, offset: int) -> _View:
    return _View(numpy.frombuffer(content, dtype, count, offset))
