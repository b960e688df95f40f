# SPDX-License-Identifier: Apache-2.0
"""Geometry of published models: bytes that a layer reads, and bytes that a token keeps in the KV
cache.

Figures are from each model's config.json. Weights are the matrices; norms and biases, less than one
part in a thousand, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace import InvalidError
from headrace._errors import unknown

#: Bytes of one element.
ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

#: Names of the element types elsewhere. Both kinds of fp8 are one: a geometry's revision differs.
_ELEMENT_TYPES = {
    "float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16",
    "float8": "fp8",
}  # fmt: skip


@dataclass(frozen=True)
class Latent:
    """Latent attention (MLA): one compressed vector per token stands for keys and values."""

    kv_rank: int
    rope: int  #: elements that carry the position, beside it
    q_rank: int
    nope: int  #: elements of a head's key that carry none
    value: int  #: elements of a head's value


@dataclass(frozen=True)
class Experts:
    """Mixture of experts, in all layers except the first `dense_layers`."""

    routed: int
    active: int  #: of these, for each token
    shared: int
    ffn: int
    dense_layers: int


@dataclass(frozen=True)
class Model:
    name: str
    source: str  #: whose config.json has these figures
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    ffn_matrices: int = 3  #: gate, up, down; 2 where there is no gate
    latent: Latent | None = None
    experts: Experts | None = None

    @property
    def kv_elements(self) -> int:
        """Number of elements that one token keeps in one layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope
        return 2 * self.kv_heads * self.head_dim

    def kv_bytes(self, tokens: int = 1, layers: int | None = None, dtype: str = "bf16") -> int:
        """Bytes kept for a number of tokens and layers (default: all layers)."""
        return tokens * (self.layers if layers is None else layers) * self.layer_kv_bytes(dtype)

    def layer_kv_bytes(self, dtype: str = "bf16") -> int:
        """Bytes kept for each token and layer."""
        return self.kv_elements * element_bytes(dtype)

    def layer_parameters(self, batch: int = 1) -> int:
        """Number of weights that one layer reads for a batch of tokens. With a mixture of experts:
        an expert layer, with the expected number of different experts if all are equally likely.
        """
        return self._attention + self._ffn(batch)

    def layer_weight_bytes(self, batch: int = 1, dtype: str = "bf16") -> int:
        return self.layer_parameters(batch) * element_bytes(dtype)

    def step_weight_bytes(self, batch: int = 1, dtype: str = "bf16") -> int:
        """Bytes of weights read by one decode step: all layers and the output matrix."""
        dense = self.experts.dense_layers if self.experts is not None else 0
        layers = self.layers - dense
        parameters = layers * self.layer_parameters(batch) + dense * self._dense_parameters
        return (parameters + self.vocab * self.hidden) * element_bytes(dtype)

    @property
    def token_parameters(self) -> int:
        """Number of weights that a token is multiplied with in one layer."""
        return self.layer_parameters(1)

    @property
    def _attention(self) -> int:
        if self.latent is None:
            return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        a = self.latent
        return (
            self.hidden * (a.q_rank + a.kv_rank + a.rope)
            + a.q_rank * self.heads * (a.nope + a.rope)
            + a.kv_rank * self.heads * (a.nope + a.value)
            + self.heads * a.value * self.hidden
        )

    @property
    def _dense_parameters(self) -> int:
        return self._attention + self.ffn_matrices * self.hidden * self.ffn

    def _ffn(self, batch: int) -> int:
        each = self.ffn_matrices * self.hidden
        if self.experts is None:
            return each * self.ffn
        e = self.experts
        touched = e.routed * (1 - (1 - e.active / e.routed) ** batch)
        router = e.routed * self.hidden
        return round((touched + e.shared) * each * e.ffn) + router

    def asdict(self) -> dict[str, Any]:
        return {
            "name": self.name, "layers": self.layers, "hidden": self.hidden, "heads": self.heads,
            "kv_heads": None if self.latent else self.kv_heads, "head_dim": self.head_dim,
            "ffn": self.ffn, "vocab": self.vocab, "source": self.source,
        }  # fmt: skip


MODELS: Sequence[Model] = (
    Model("llama-3.2-1b", "meta-llama/Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256),
    Model("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256),
    Model("llama-3.1-70b", "meta-llama/Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256),
    Model("llama-3.1-405b", "meta-llama/Llama-3.1-405B", 126, 16384, 128, 8, 128, 53248, 128256),
    Model("qwen2.5-7b", "Qwen/Qwen2.5-7B", 28, 3584, 28, 4, 128, 18944, 152064),
    Model("qwen3-32b", "Qwen/Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936),
    Model(
        "deepseek-v3", "deepseek-ai/DeepSeek-V3", 61, 7168, 128, 128, 128, 18432, 129280,
        latent=Latent(kv_rank=512, rope=64, q_rank=1536, nope=128, value=128),
        experts=Experts(routed=256, active=8, shared=1, ffn=2048, dense_layers=3),
    ),
    Model("opt-175b", "arXiv 2205.01068", 96, 12288, 96, 96, 128, 49152, 50272, ffn_matrices=2),
)  # fmt: skip


def model(name: str) -> Model:
    """A model by name. InvalidError: no such model, with all names."""
    last = name.strip().lower().rpartition("/")[2]  # as on the Hugging Face Hub
    found = next((each for each in MODELS if each.name == last), None)
    if found is None:
        raise unknown("model", name, (each.name for each in MODELS))
    return found


def element_bytes(dtype: str) -> int:
    """InvalidError: no such type; it says which there are."""
    return ELEMENT_BYTES[element_type(dtype)]


def element_type(dtype: str) -> str:
    """The short name, as of ELEMENT_BYTES, of what PyTorch and others call in their way.
    InvalidError: no such type; it says which there are.
    """
    last = dtype.strip().lower().removeprefix("torch.")
    found = _ELEMENT_TYPES.get(last, last)
    if found not in ELEMENT_BYTES:
        raise InvalidError(f"no element type '{dtype}'; there are {', '.join(ELEMENT_BYTES)}")
    return found
