# SPDX-License-Identifier: Apache-2.0
"""A model of random weights for llama.cpp, as GGUF: what it computes means nothing and costs what a
trained one of this geometry would.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy


@dataclass(frozen=True)
class Geometry:
    """Sizes of a model like Llama's, with weights, keys and values in f16."""

    layers: int = 8
    hidden: int = 1024
    heads: int = 16
    kv_heads: int = 8
    feed_forward: int = 2816
    vocabulary: int = 4096

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_row(self) -> int:
        """Bytes of the keys, or of the values, of a token in a layer."""
        return 2 * self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of parameters of all layers."""
        attention = 2 * self.hidden * (self.hidden + self.kv_heads * self.head_dim)
        return self.layers * (attention + 3 * self.hidden * self.feed_forward)


def write(path: Path, geometry: Geometry, context: int, seed: int) -> None:
    """The same seed gives the same file."""
    g, draw = geometry, numpy.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(g.hidden)
    writer.add_block_count(g.layers)
    writer.add_feed_forward_length(g.feed_forward)
    writer.add_head_count(g.heads)
    writer.add_head_count_kv(g.kv_heads)
    writer.add_rope_dimension_count(g.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(g.vocabulary)
    writer.add_tokenizer_model("none")  # tokens are numbers here
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)

    def weights(name: str, outputs: int, inputs: int) -> None:
        drawn = draw.standard_normal((outputs, inputs), numpy.float32) / inputs**0.5
        writer.add_tensor(f"{name}.weight", drawn.astype(numpy.float16))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", numpy.ones(g.hidden, numpy.float32))

    weights("token_embd", g.vocabulary, g.hidden)
    for i in range(g.layers):
        norm(f"blk.{i}.attn_norm")
        weights(f"blk.{i}.attn_q", g.hidden, g.hidden)
        weights(f"blk.{i}.attn_k", g.kv_heads * g.head_dim, g.hidden)
        weights(f"blk.{i}.attn_v", g.kv_heads * g.head_dim, g.hidden)
        weights(f"blk.{i}.attn_output", g.hidden, g.hidden)
        norm(f"blk.{i}.ffn_norm")
        weights(f"blk.{i}.ffn_gate", g.feed_forward, g.hidden)
        weights(f"blk.{i}.ffn_up", g.feed_forward, g.hidden)
        weights(f"blk.{i}.ffn_down", g.hidden, g.feed_forward)
    norm("output_norm")
    weights("output", g.vocabulary, g.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
