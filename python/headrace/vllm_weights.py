# SPDX-License-Identifier: Apache-2.0
"""A loader of weights for vLLM: `vllm serve MODEL --load-format headrace`.

vLLM finds it by the entry point vllm.general_plugins of this package (docs/howto/weights.md).
Tested with vLLM 0.33.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace import safetensors
from headrace._plugin import settings_of

__all__ = ["Settings", "register"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """Keys of --model-loader-extra-config.

    `keep`: budget of copies in DRAM that the ranks of this host share and the next start finds, as
    "64GiB"; default: none are kept. `folder`: where, see headrace.safetensors.Keep. `wait`: most
    seconds for another rank that makes a copy of a file. After them, or without space for a copy,
    the rank warns and reads the rest without copies. `pin`: whether memory is registered for copies
    to GPUs.
    """

    keep: int | str | None = None
    folder: str | None = None
    wait: int = 600
    pin: bool = False


def register() -> None:
    """Makes the load format "headrace" known to vLLM. An error is a warning, since vLLM calls this
    in all its processes, whatever they load.
    """
    try:
        _loader()
    except headrace.UnsupportedError as error:
        _log.warning("%s", error)
    except Exception as error:  # vLLM's modules may raise anything
        _log.warning("--load-format headrace is not there: %s: %s", type(error).__name__, error)


def _loader() -> type[Any]:
    """The loader's class, registered. UnsupportedError: another vLLM."""
    try:
        from vllm.model_executor.model_loader import register_model_loader
        from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
        from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
        from vllm.model_executor.model_loader.weight_utils import (
            filter_mm_encoder_only_safetensors_files as with_encoder,
        )
        from vllm.model_executor.model_loader.weight_utils import (
            filter_safetensors_files_by_weight_name as with_used_weights,
        )

        for method in ("_prepare_weights", "_get_weights_iterator"):
            getattr(DefaultModelLoader, method)  # an AttributeError, if it is another interface
    except (ImportError, AttributeError) as error:
        raise headrace.UnsupportedError(
            f"--load-format headrace needs vLLM 0.33, whose loaders it extends ({error})"
        ) from error

    @register_model_loader("headrace")
    class HeadraceModelLoader(DefaultModelLoader):
        """vLLM's own loader of safetensors, whose files are read by headrace.safetensors."""

        counter_before_loading_weights: float

        def __init__(self, load_config: Any) -> None:
            given = load_config.model_loader_extra_config or {}
            self._settings = settings_of(Settings, given, "headrace.vllm_weights")
            plain = copy.copy(load_config)
            plain.load_format, plain.model_loader_extra_config = "safetensors", {}
            super().__init__(plain)

        def _get_weights_iterator(self, source: Any) -> Generator[tuple[str, Any], None, None]:
            folder, files, are_safetensors, index = self._prepare_weights(
                source.model_or_path,
                source.subfolder,
                source.revision,
                source.fall_back_to_pt,
                source.allow_patterns_overrides,
            )
            if not are_safetensors or self.load_config.safetensors_load_strategy == "torchao":
                raise headrace.UnsupportedError(
                    f"--load-format headrace loads no {Path(files[0]).suffix} files and no torchao "
                    "models; leave the option out"
                )
            files = self._needed(source, folder, files, index)
            experts = self.local_expert_ids
            wanted = None if experts is None else lambda name: not should_skip_weight(name, experts)
            if self.counter_before_loading_weights == 0.0:
                self.counter_before_loading_weights = time.perf_counter()
            for name, tensor in _tensors(files, self._settings, wanted):
                yield source.prefix + name, tensor

        def _needed(self, source: Any, folder: str, files: list[str], index: str) -> list[str]:
            """The files that this rank needs, as vLLM's own loader chooses them."""
            prefixes = self._encoder_only_lm_prefixes
            if prefixes is not None:
                mapper = self._encoder_only_weights_mapper
                files = with_encoder(files, folder, index, prefixes, weights_mapper=mapper)
                if not files:
                    raise headrace.InvalidError(
                        f"{source.model_or_path} has no file with weights of an encoder; leave "
                        "--mm-encoder-only out"
                    )
            if source.is_unused_weight is not None:
                files = with_used_weights(files, source.is_unused_weight)
            return files

    return HeadraceModelLoader


def _tensors(
    files: Iterable[str], settings: Settings, wanted: Any
) -> Generator[tuple[str, Any], None, None]:
    """The tensors of each file, while the next one is read."""
    keep = None
    if settings.keep is not None:
        keep = safetensors.Keep(settings.keep, settings.folder, wait=settings.wait)
    paths = sorted(files)
    mover = headrace.Mover(headrace.Machine.discover(storage=[Path(paths[0]).absolute().parent]))

    def load(path: str) -> Mapping[str, Any]:
        nonlocal keep
        if keep is not None:
            try:
                return safetensors.load(
                    path, names=wanted, device="cpu", pin=settings.pin, keep=keep, mover=mover
                )
            except (headrace.ExhaustedError, headrace.TimedOutError) as error:
                _log.warning("weights are read without copies in DRAM: %s", error)
                keep = None  # else each file would wait as long
        return safetensors.load(path, names=wanted, device="cpu", pin=settings.pin, mover=mover)

    with ThreadPoolExecutor(1, "headrace-shard") as ahead:
        following = ahead.submit(load, paths[0])
        for number in range(len(paths)):
            weights = following.result()
            if number + 1 < len(paths):
                following = ahead.submit(load, paths[number + 1])
            yield from weights.items()
            del weights
