# SPDX-License-Identifier: Apache-2.0
"""headrace.vllm_weights in vLLM's own loaders, from its wheel."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import real_vllm
import wheels
from weight_files import write

import headrace
from headrace import safetensors
from headrace._weights import kept

pytestmark = pytest.mark.skipif(
    not (real_vllm.WHEEL / "vllm/model_executor/model_loader").exists(),
    reason="no modules of vLLM; run tools/engines.sh",
)


@pytest.fixture(scope="module")
def loaders() -> Iterator[Any]:
    """vLLM's module of loaders, with ours."""
    with wheels.undone():
        real_vllm.install()
        real_vllm.install_loaders()
        importlib.import_module("headrace.vllm_weights").register()
        yield importlib.import_module("vllm.model_executor.model_loader")


def config(**extra: Any) -> SimpleNamespace:
    return SimpleNamespace(
        load_format="headrace", model_loader_extra_config=extra, download_dir=None,
        ignore_patterns=None, use_tqdm_on_load=False, safetensors_load_strategy=None, device=None,
    )  # fmt: skip


class Model:
    """A model that keeps what it is given."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def load_weights(self, weights: Any) -> None:
        self.found = {name: numpy.array(tensor) for name, tensor in weights}

    def named_parameters(self) -> list[Any]:
        return []


def load(loaders: Any, path: Path, **extra: Any) -> dict[str, Any]:
    loader = loaders.get_model_loader(config(**extra))
    assert type(loader).__name__ == "HeadraceModelLoader"
    model = Model()
    about = SimpleNamespace(
        model=str(path), revision=None, quantization="q", is_moe=False, multimodal_config=None
    )
    loader.load_weights(model, about)
    return model.found


def model(folder: Path) -> dict[str, Any]:
    """Three shards with an index, and a file that is not of the model."""
    random = numpy.random.default_rng(1)
    arrays = {f"w.{i}": random.random((30 + i, 1000)).astype(numpy.float32) for i in range(9)}
    of = {}
    for shard in range(3):
        file = f"model-{shard + 1:05}-of-00003.safetensors"
        mine = {name: array for i, (name, array) in enumerate(arrays.items()) if i // 3 == shard}
        write(folder / file, {name: ("F32", array) for name, array in mine.items()})
        of.update(dict.fromkeys(mine, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": of}))
    write(folder / "consolidated.safetensors", {"w.0": ("F32", arrays["w.1"])})
    return arrays


@pytest.mark.parametrize("keep", [False, True])
def test_a_model_of_shards_comes_as_it_is(loaders: Any, tmp_path: Path, keep: bool) -> None:
    wanted = model(tmp_path)
    extra = {"keep": "64MiB", "folder": str(tmp_path / "kept")} if keep else {}
    for _ in range(2):
        found = load(loaders, tmp_path, **extra)
        assert list(found) == list(wanted)
        assert all((found[name] == wanted[name]).all() for name in wanted)


def test_only_the_experts_of_a_rank_are_read(loaders: Any, tmp_path: Path) -> None:
    array = numpy.ones((100, 1000), numpy.float32)
    names = ["norm", *(f"l.experts.{i}.weight" for i in range(4))]
    write(tmp_path / "m.safetensors", {name: ("F32", array) for name in names})
    loader = loaders.get_model_loader(config())
    loader.local_expert_ids = {1}
    source = loader.Source(str(tmp_path), None)
    assert [name for name, _ in loader._get_weights_iterator(source)] == ["norm", names[2]]


def sources(loaders: Any, folder: Path, **more: Any) -> tuple[Any, Any]:
    loader = loaders.get_model_loader(config())
    return loader, loader.Source(str(folder), None, **more)


def test_files_of_weights_that_the_model_does_not_use_are_not_read(
    loaders: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = model(tmp_path)
    utilities = importlib.import_module("vllm.model_executor.model_loader.weight_utils")

    @contextmanager
    def opened(path: str, framework: str) -> Iterator[Any]:
        yield safetensors.header(path)

    monkeypatch.setattr(utilities, "safe_open", opened)
    unused = ["w.3", "w.4", "w.5", "w.8"]  # all of the second file
    loader, source = sources(loaders, tmp_path, is_unused_weight=unused.__contains__)
    found = [name for name, _ in loader._get_weights_iterator(source)]
    assert found == [name for name in wanted if name not in unused[:3]]


def test_an_encoder_alone_is_read_without_files_of_the_language_model(
    loaders: Any, tmp_path: Path
) -> None:
    model(tmp_path)
    loader, source = sources(loaders, tmp_path)
    loader._encoder_only_lm_prefixes = ("w.0", "w.1", "w.2", "w.3")
    found = [name for name, _ in loader._get_weights_iterator(source)]
    assert found == [f"w.{i}" for i in range(3, 9)]
    loader._encoder_only_lm_prefixes = ("w.",)
    with pytest.raises(headrace.InvalidError, match="leave --mm-encoder-only out"):
        list(loader._get_weights_iterator(source))


@pytest.mark.parametrize("extra", [{"keep": "1KiB"}, {"keep": "64MiB", "wait": 0}])
def test_an_engine_starts_where_no_copy_can_be_made(
    loaders: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, extra: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    wanted = model(tmp_path)
    monkeypatch.setattr(kept, "_SETTLED", 0.0)
    (tmp_path / "kept").mkdir(mode=0o700)
    with kept._locked(tmp_path / "kept", 0.0) if "wait" in extra else nullcontext():
        found = load(loaders, tmp_path, folder=str(tmp_path / "kept"), **extra)
    assert all((found[name] == wanted[name]).all() for name in wanted)
    assert caplog.text.count("weights are read without copies in DRAM") == 1


def test_a_vllm_that_raises_anything_is_a_warning(
    loaders: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise ValueError("is there already")

    monkeypatch.setattr(loaders, "register_model_loader", refuse)
    importlib.import_module("headrace.vllm_weights").register()
    assert "--load-format headrace is not there: ValueError: is there already" in caplog.text


def test_slips_are_one_line(loaders: Any, tmp_path: Path) -> None:
    with pytest.raises(headrace.InvalidError, match="no setting 'kep'; there are keep, folder"):
        load(loaders, tmp_path, kep=1)
    (tmp_path / "m.safetensors").write_bytes(b"no model")
    with pytest.raises(headrace.InvalidError, match="is no safetensors file"):
        load(loaders, tmp_path)


def test_without_vllm_registering_is_a_warning() -> None:
    program = "from headrace import vllm_weights; vllm_weights.register()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--load-format headrace needs vLLM 0.33" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_vllm_finds_it_by_its_entry_point() -> None:
    from importlib.metadata import entry_points

    (found,) = entry_points(group="vllm.general_plugins", name="headrace")
    assert found.load() is importlib.import_module("headrace.vllm_weights").register
