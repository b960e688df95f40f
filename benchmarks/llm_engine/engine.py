# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through llama-cpp-python: tokens in, logits out, and the state of a sequence as bytes,
which are cut into blocks of tokens and put together again.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy

#: Tokens that are computed at once.
BATCH = 512


class Engine:
    """One model and one sequence."""

    def __init__(self, model: Path, context: int, threads: int) -> None:
        llama_cpp.llama_backend_init()
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        of_model = llama_cpp.llama_model_default_params()
        of_model.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), of_model)
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {model}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise SystemExit("llama.cpp cannot make a context")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self._words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def forget(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, True)

    def compute(self, tokens: Sequence[int], at: int) -> Any:
        """The logits behind the last of `tokens`, the first of which has position `at`."""
        for begin in range(0, len(tokens), BATCH):
            part = tokens[begin : begin + BATCH]
            self._batch.n_tokens = len(part)
            for i, token in enumerate(part):
                self._batch.token[i] = token
                self._batch.pos[i] = at + begin + i
                self._batch.n_seq_id[i] = 1
                self._batch.seq_id[i][0] = 0
                self._batch.logits[i] = begin + i + 1 == len(tokens)
            if llama_cpp.llama_decode(self._context, self._batch) != 0:
                raise SystemExit("llama.cpp cannot compute; is the context too short?")
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        return numpy.ctypeslib.as_array(logits, (self._words,)).copy()

    def state(self) -> Any:
        """Its bytes, of all tokens so far."""
        size = llama_cpp.llama_state_seq_get_size(self._context, 0)
        found = numpy.empty(size, numpy.uint8)
        pointer = found.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if llama_cpp.llama_state_seq_get_data(self._context, pointer, size, 0) != size:
            raise SystemExit("llama.cpp cannot tell its state")
        return found

    def restore(self, state: Any) -> None:
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if llama_cpp.llama_state_seq_set_data(self._context, pointer, len(state), 0) == 0:
            raise SystemExit("llama.cpp does not take the state")

    def save_file(self, path: Path, tokens: Sequence[int]) -> None:
        """As llama.cpp keeps a sequence itself."""
        some = (llama_cpp.llama_token * len(tokens))(*tokens)
        name = str(path).encode()
        if not llama_cpp.llama_state_seq_save_file(self._context, name, 0, some, len(tokens)):
            raise SystemExit(f"llama.cpp cannot write {path}")

    def load_file(self, path: Path, tokens: int) -> None:
        some, count = (llama_cpp.llama_token * tokens)(), ctypes.c_size_t()
        found = llama_cpp.llama_state_seq_load_file(
            self._context, str(path).encode(), 0, some, tokens, ctypes.byref(count)
        )
        if not found or count.value != tokens:
            raise SystemExit(f"llama.cpp cannot read {path}")


@dataclass(frozen=True)
class Form:
    """How llama.cpp writes the state of one sequence (llama_kv_cache::state_write of the release
    that llama-cpp-python has): a head with a cell for each token, then the keys of all tokens layer
    by layer, then the values. It is no interface, so check() compares before anything rests on it.
    """

    magic: int
    kind: int  #: of the elements
    layers: int
    row: int  #: bytes of the keys, or of the values, of a token in a layer

    _HEAD = struct.Struct("<IiII")  # magic, sequence, streams, cells
    _CELL = struct.Struct("<iIi")  # position, sequences, the one
    _SHAPE = struct.Struct("<II")  # transposed values, layers
    _ROWS = struct.Struct("<iQ")  # kind, bytes of a row

    @classmethod
    def of(cls, state: Any) -> Form:
        """SystemExit: the state has another form."""
        magic, _, streams, cells = cls._HEAD.unpack_from(state)
        at = cls._HEAD.size + cells * cls._CELL.size
        transposed, layers = cls._SHAPE.unpack_from(state, at)
        kind, row = cls._ROWS.unpack_from(state, at + cls._SHAPE.size)
        form = cls(magic, kind, layers, row)
        if streams != 1 or transposed != 0 or form.size(cells) != len(state):
            raise SystemExit("this release of llama.cpp writes its state in another form")
        return form

    def _data(self, tokens: int) -> int:
        return self._HEAD.size + tokens * self._CELL.size + self._SHAPE.size

    def _part(self, tokens: int) -> int:
        return self._ROWS.size + tokens * self.row

    def size(self, tokens: int) -> int:
        return self._data(tokens) + 2 * self.layers * self._part(tokens)

    def blank(self, tokens: int) -> Any:
        """A state of a number of tokens from position 0, without its keys and values."""
        state = numpy.zeros(self.size(tokens), numpy.uint8)
        self._HEAD.pack_into(state.data, 0, self.magic, 0, 1, tokens)
        cells = numpy.zeros((tokens, 3), "<i4")
        cells[:, 0], cells[:, 1] = numpy.arange(tokens), 1
        end = self._HEAD.size + cells.nbytes
        state[self._HEAD.size : end] = cells.view(numpy.uint8).reshape(-1)
        self._SHAPE.pack_into(state.data, end, 0, self.layers)
        for part in range(2 * self.layers):
            self._ROWS.pack_into(state.data, self._data(tokens) + part * self._part(tokens),
                                 self.kind, self.row)  # fmt: skip
        return state

    def rows(self, state: Any, tokens: int, layer: int, values: bool) -> Any:
        """The bytes of the keys, or values, of all tokens in a layer; to be read or written."""
        part = layer + values * self.layers
        begin = self._data(tokens) + part * self._part(tokens) + self._ROWS.size
        return state[begin : begin + tokens * self.row]

    def to_blocks(self, state: Any, tokens: int, block_tokens: int) -> Any:
        """[block, layer, keys or values, bytes]: page first, as headrace.kvcache has it."""
        count = tokens // block_tokens
        blocks = numpy.empty((count, self.layers, 2, block_tokens * self.row), numpy.uint8)
        for layer in range(self.layers):
            for values in (False, True):
                rows = self.rows(state, tokens, layer, values)
                blocks[:, layer, int(values)] = rows.reshape(count, -1)
        return blocks

    def put_layer(self, blocks: Any, layer: int, state: Any, tokens: int) -> None:
        """A layer of all blocks into a state."""
        for values in (False, True):
            rows = self.rows(state, tokens, layer, values)
            rows.reshape(len(blocks), -1)[:] = blocks[:, layer, int(values)]

    def check(self, state: Any, tokens: int, block_tokens: int) -> None:
        """SystemExit: a state that is cut and put together is not the same bytes."""
        blocks, again = self.to_blocks(state, tokens, block_tokens), self.blank(tokens)
        for layer in range(self.layers):
            self.put_layer(blocks, layer, again, tokens)
        if not numpy.array_equal(state, again):
            raise SystemExit("a state that is put together from blocks is not what it was")
