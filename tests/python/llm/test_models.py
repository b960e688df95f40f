# SPDX-License-Identifier: Apache-2.0
"""The table of models, against the sizes that are known of them."""

from __future__ import annotations

import pytest

import headrace
from headrace._language_models import MODELS, element_bytes, model

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

#: KV cache of each model: bytes per token, bytes per token and layer, GiB for 8192 tokens.
KV = {
    "llama-3.2-1b": (32 * KIB, 2 * KIB, 0.25),
    "llama-3.1-8b": (128 * KIB, 4 * KIB, 1.0),
    "llama-3.1-70b": (320 * KIB, 4 * KIB, 2.5),
    "llama-3.1-405b": (504 * KIB, 4 * KIB, 3.94),
    "qwen2.5-7b": (56 * KIB, 2 * KIB, 0.44),
    "qwen3-32b": (256 * KIB, 4 * KIB, 2.0),
    "deepseek-v3": (61 * 1152, 1152, 0.54),
    "opt-175b": (4608 * KIB, 48 * KIB, 36.0),
}


def test_each_model_has_known_sizes() -> None:
    assert {each.name for each in MODELS} == set(KV)


@pytest.mark.parametrize("name", KV)
def test_kv_cache(name: str) -> None:
    found, (token, layer, context) = model(name), KV[name]
    assert found.kv_bytes() == token
    assert found.layer_kv_bytes() == layer
    assert found.kv_bytes(8192) / GIB == pytest.approx(context, abs=0.005)


@pytest.mark.parametrize(
    ("name", "layer", "step"),
    [
        ("llama-3.1-8b", 436.2e6, 15.01e9),
        ("llama-3.1-70b", 1711e6, 139.0e9),
        ("llama-3.1-405b", 6375e6, 807.5e9),
    ],
)
def test_weights(name: str, layer: float, step: float) -> None:
    found = model(name)
    assert found.layer_weight_bytes() == pytest.approx(layer, rel=1e-3)
    assert found.step_weight_bytes() == pytest.approx(step, rel=1e-3)


def test_a_block_of_vllm_and_a_chunk_of_lmcache() -> None:
    assert [model(name).kv_bytes(16) / MIB for name in ("llama-3.1-8b", "llama-3.2-1b")] == [2, 0.5]
    assert model("qwen2.5-7b").kv_bytes(16) / MIB == 0.875
    assert model("llama-3.1-8b").kv_bytes(256) == 32 * MIB


def test_parameters_add_up_to_the_model() -> None:
    """The models have the parameters in their names. Untied embeddings count twice."""
    whole = {
        "llama-3.1-8b": 8.03e9,
        "llama-3.1-70b": 70.6e9,
        "qwen3-32b": 32.8e9,
        "opt-175b": 175e9,
    }
    for name, parameters in whole.items():
        found = model(name)
        tables = 1 if name == "opt-175b" else 2
        counted = found.layers * found.layer_parameters() + tables * found.vocab * found.hidden
        assert counted == pytest.approx(parameters, rel=0.01), name


def test_a_mixture_reads_more_experts_for_more_tokens() -> None:
    found = model("deepseek-v3")
    assert found.step_weight_bytes(1, "fp8") == pytest.approx(37e9, rel=0.03)  # active, published
    assert found.step_weight_bytes(100_000, "fp8") == pytest.approx(671e9, rel=0.01)
    assert found.layer_weight_bytes(2) > 1.5 * found.layer_weight_bytes(1)


def test_elements() -> None:
    eight = model("llama-3.1-8b")
    assert 2 * eight.layer_weight_bytes(dtype="int8") == eight.layer_weight_bytes(dtype="bf16")
    with pytest.raises(headrace.InvalidError, match="no element type 'bf17'; there are"):
        element_bytes("bf17")
    with pytest.raises(headrace.InvalidError, match="no model 'gpt-2'; there are llama-3"):
        model("gpt-2")
