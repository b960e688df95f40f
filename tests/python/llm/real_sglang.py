# SPDX-License-Identifier: Apache-2.0
"""Modules of SGLang's wheel, without PyTorch and without the rest of SGLang."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import wheels

#: The version that headrace.sglang is tested with.
VERSION = "0.5.23"
WHEEL = wheels.ENGINES / f"sglang-{VERSION}"

_SRT = "sglang.srt"
_CACHE = f"{_SRT}.mem_cache"


class Tensor(numpy.ndarray):
    """A tensor of CPU memory, as far as SGLang's storage backends and host pools use it."""

    def data_ptr(self) -> int:
        return int(self.ctypes.data)

    def numel(self) -> int:
        return int(self.size)

    def element_size(self) -> int:
        return int(self.itemsize)

    def flatten(self) -> Any:
        """A view where it can be, as PyTorch's."""
        return self.reshape(-1)

    def contiguous(self) -> Tensor:
        return numpy.ascontiguousarray(self).view(Tensor)

    def numpy(self) -> Any:
        return self.view(numpy.ndarray)


def zeros(shape: Any, dtype: Any = numpy.float16, **_: Any) -> Tensor:
    return numpy.zeros(shape, dtype).view(Tensor)


def install(wheel: Path = WHEEL) -> None:
    """Makes `import sglang.srt.mem_cache…` work in this process."""
    wheels.stand_in(
        "torch", "psutil", "msgspec", "sgl_kernel", "sgl_kernel_npu", "sglang.kernels",
        "sglang.jit_kernel",
        *(f"{_SRT}.{name}" for name in (
            "utils", "platforms", "runtime_context", "distributed", "layers", "observability",
            "managers.schedule_batch",
        )),
        *(f"{_CACHE}.{name}" for name in (
            "memory_pool", "device_pool_info", "host_memory", "radix_cache", "events",
            "base_prefix_cache", "allocator", "page_interleave", "deepseek_v4_memory_pool",
            "common", "allocation", "l2_transfer", "hicache_key_scheme", "unified_cache",
            "storage_prefetch", "utils", "pool_host.common", "pool_host._kvcacheio",
            "pool_host.hisparse", "pool_host.page_unified",
        )),
    )  # fmt: skip
    for name in ("sglang", _SRT, f"{_SRT}.managers", _CACHE):
        wheels.namespace(name, wheel)
    import torch  # type: ignore[import-not-found]

    torch.zeros = zeros
    torch.uint8 = numpy.uint8


def host_pool(
    layout: str = "page_first",
    mla: bool = False,
    pages: int = 16,
    layers: int = 4,
    heads: int = 2,
    width: int = 32,
) -> Any:
    """A pool of SGLang's host memory, of 16 tokens a page, with SGLang's own addresses. With MLA
    there is one head of 72 elements.
    """
    from sglang.srt.mem_cache.pool_host.mha import (  # type: ignore[import-not-found]
        MHATokenToKVPoolHost,
    )
    from sglang.srt.mem_cache.pool_host.mla import (  # type: ignore[import-not-found]
        MLATokenToKVPoolHost,
    )

    kind = MLATokenToKVPoolHost if mla else MHATokenToKVPoolHost
    pool = object.__new__(kind)
    tokens = 16
    heads, width = (1, 72) if mla else (heads, width)
    pool.__dict__.update(
        layer_num=layers, size=pages * tokens, page_size=tokens, page_num=pages, head_num=heads,
        head_dim=width, kv_lora_rank=64, qk_rope_head_dim=8, kv_cache_dim=width,
        dtype=numpy.dtype(numpy.float16), device="cpu", pin_memory=False, layout=layout,
        start_layer=0, end_layer=layers, dcp_size=1,
    )  # fmt: skip
    by_layout = {
        "layer_first": (layers, pool.size, heads, width),
        "page_first": (pool.size, layers, heads, width),
        "page_first_direct": (pages, layers, tokens, heads, width),
        "page_head": (pages, heads, tokens, layers, width),
    }
    pool.kv_buffer = zeros(by_layout[layout] if mla else (2, *by_layout[layout]))
    return pool


def config(tp_rank: int = 0, tp_size: int = 1, mla: bool = False, **extra: Any) -> Any:
    from sglang.srt.mem_cache.hicache_storage import (  # type: ignore[import-not-found]
        HiCacheStorageConfig,
    )

    return HiCacheStorageConfig(
        tp_rank=tp_rank, tp_size=tp_size, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
        is_mla_model=mla, enable_storage_metrics=False, is_page_first_layout=True,
        model_name=extra.pop("model_name", "org/model"),
        extra_config={
            "backend_name": "headrace", "module_path": "headrace.sglang", "class_name": "Storage",
            "interface_v1": 1, **extra,
        },
    )  # fmt: skip


def controller(storage: Any, pool: Any) -> Any:
    """The parts of SGLang's controller of the cache that call a storage backend."""
    from sglang.srt.managers.cache_controller import (  # type: ignore[import-not-found]
        HiCacheController,
    )

    control = SimpleNamespace(
        storage_backend=storage, page_size=pool.page_size, storage_host_pool=pool
    )
    for name in ("_page_get_zero_copy", "_page_set_zero_copy", "_generic_page_get",
                 "_generic_page_set", "_page_backup"):  # fmt: skip
        setattr(control, name, getattr(HiCacheController, name).__get__(control))
    return control

