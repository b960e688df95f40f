# SPDX-License-Identifier: Apache-2.0
"""Time to the first token of a real engine, llama.cpp, whose prefix is computed, read from a file
as llama.cpp itself writes it, or fetched block by block from the tiers of headrace.kvcache.

    V=$(mktemp -d)/venv; python -m venv $V; $V/bin/pip install . llama-cpp-python gguf
    $V/bin/python benchmarks/llm_engine/first_token.py --data DIRECTORY_ON_THE_DISK [--rounds 7]

The model has random weights of a stated geometry (model.py). In each round every way serves every
prefix once, in an order drawn anew. Whatever way the prefix came, the logits of the first token and
the tokens generated behind it must be those that computing gives, bit by bit: else it ends with 1.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp
import model
import numpy
from engine import BATCH, Engine, Form

import headrace
from headrace import kvcache
from headrace._format import plural

#: Generated behind the first token, to be compared.
_GENERATED = 16
#: Blocks of memory that stand before the folder where the disk is asked.
_FRONT = 4


@dataclass
class Found:
    """Times of one way for one prefix, in seconds."""

    way: str
    prefix: int
    first_token: list[float] = field(default_factory=list)
    fetch: list[float] = field(default_factory=list)  #: until the state is in the engine


class Tiers:
    """Blocks of one prompt in headrace.kvcache, all in memory or all on disk."""

    def __init__(
        self,
        machine: headrace.Machine,
        geometry: kvcache.Geometry,
        folder: Path | None,
        blocks: int,
    ) -> None:
        self._geometry = geometry
        # A store keeps some slots free.
        front = blocks + blocks // 8 + 1 if folder is None else _FRONT
        tiers: list[kvcache.Memory | kvcache.Folder] = [
            kvcache.Memory("dram", front * geometry.block_bytes)
        ]
        if folder is not None:
            budget = (blocks + 3 * _FRONT) * geometry.block_bytes
            tiers.append(kvcache.Folder(folder, budget, write="leaving"))
        self._wanted = 0 if folder is None else 1
        self._store = kvcache.Store(headrace.Mover(machine), geometry, tiers)
        self._pool = headrace.allocate(machine, blocks * geometry.block_bytes)

    def keep(self, tokens: Sequence[int], blocks: Any) -> None:
        """`blocks` of the leading tokens, one by one so that none is refused."""
        size = self._geometry.block_bytes
        keys = self._geometry.keys(tokens)
        other = self._geometry.keys([token + 1 for token in tokens])[: 2 * _FRONT]
        flat = blocks.reshape(-1)
        for i, key in enumerate(keys):
            self._store.store([key], flat[i * size :][:size]).wait()
        if self._wanted == 1:
            self._store.flush()
            for key in other:  # those of the prompt leave the memory in front of the folder
                self._store.store([key], flat[:size]).wait()
        with self._store.match_keys(keys) as found:
            if list(found.tiers) != [self._wanted] * len(keys):
                raise SystemExit(f"blocks are not where they are to be: {self._store.stats()}")

    def fetch(self, tokens: Sequence[int], form: Form, state: Any) -> None:
        """Puts the prefix into a state, layer by layer as they come."""
        g = self._geometry
        with self._store.match(tokens) as found:
            count = len(tokens) // g.block_tokens
            if len(found) != count:
                raise SystemExit(f"{len(found)} of {count} blocks are there")
            load = self._store.load(found.keys, self._pool, promote=False)
            pages = self._pool.numpy("uint8")[: count * g.block_bytes]
            pages = pages.reshape(count, g.layers, 2, g.fragment_bytes // 2)
            for layer in range(load.layers):
                load.layer(layer).wait()
                form.put_layer(pages, layer, state, len(tokens))


class Bench:
    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.options, self._scratch = options, scratch
        self.geometry = model.Geometry(layers=options.layers)
        longest = max(options.prefixes)
        context = longest + options.suffix + _GENERATED + 64
        gguf = scratch / "model.gguf"
        model.write(gguf, self.geometry, context, options.seed)
        self.engine = Engine(gguf, context, options.threads)
        draw = random.Random(options.seed)
        self.prompt = [draw.randrange(self.geometry.vocabulary) for _ in range(longest)]
        self.suffix = [draw.randrange(self.geometry.vocabulary) for _ in range(options.suffix)]
        self.machine = headrace.Machine.discover(storage=[scratch])
        self.right: dict[int, tuple[Any, list[int]]] = {}
        self._computed()

    def _computed(self) -> None:
        """Computes each prefix, and keeps its state and the right answer for every way."""
        o = self.options
        for prefix in sorted(o.prefixes):
            self.engine.forget()
            self.engine.compute(self.prompt[:prefix], 0)
            state = self.engine.state()
            self.engine.save_file(self._file(prefix), self.prompt[:prefix])
            self.right[prefix] = self._answer(prefix)
        self.form = Form.of(state)
        self.form.check(state, prefix, o.block_tokens)
        if self.form.row != self.geometry.kv_row or self.form.layers != self.geometry.layers:
            raise SystemExit("llama.cpp keeps keys and values of another geometry")
        geometry = kvcache.Geometry(
            "random weights", layers=self.geometry.layers, kv_heads=self.geometry.kv_heads,
            head_dim=self.geometry.head_dim, block_tokens=o.block_tokens,
            revision=f"f16, seed {o.seed}, llama-cpp-python {llama_cpp.__version__}",
        )  # fmt: skip
        self.kv = geometry
        blocks = self.form.to_blocks(state, prefix, o.block_tokens)
        self.dram = Tiers(self.machine, geometry, None, len(blocks))
        self.ssd = Tiers(self.machine, geometry, self._scratch / "kv", len(blocks))
        for tiers in (self.dram, self.ssd):
            tiers.keep(self.prompt, blocks)

    def _file(self, prefix: int) -> Path:
        return self._scratch / f"{prefix}.state"

    def _answer(self, prefix: int) -> tuple[Any, list[int]]:
        """The logits of the first token behind the suffix, and the likeliest tokens from there."""
        logits = self.engine.compute(self.suffix, prefix)
        return logits, self._generate(logits, prefix)

    def _generate(self, logits: Any, prefix: int) -> list[int]:
        tokens: list[int] = []
        while True:
            tokens.append(int(logits.argmax()))
            if len(tokens) == _GENERATED:
                return tokens
            logits = self.engine.compute(tokens[-1:], prefix + len(self.suffix) + len(tokens) - 1)

    def ways(self) -> dict[str, Callable[[int], None]]:
        """The ways to bring a prefix into the engine, by name."""

        def tiers(of: Tiers) -> Callable[[int], None]:
            def fetch(prefix: int) -> None:
                state = self._blank[prefix]
                of.fetch(self.prompt[:prefix], self.form, state)
                self.engine.restore(state)

            return fetch

        def compute(prefix: int) -> None:
            self.engine.compute(self.prompt[:prefix], 0)

        def file(prefix: int) -> None:
            self.engine.load_file(self._file(prefix), prefix)

        self._blank = {prefix: self.form.blank(prefix) for prefix in self.options.prefixes}
        return {
            "computed": compute,
            "file, from disk": file,
            "file, in the page cache": file,
            "headrace.kvcache, from SSD": tiers(self.ssd),
            "headrace.kvcache, from DRAM": tiers(self.dram),
        }

    def prepare(self, way: str, prefix: int) -> None:
        """Nothing of the prefix is left but where the way has it."""
        self.engine.forget()
        self._blank[prefix][:] = self.form.blank(prefix)
        if way.startswith("file"):
            with open(self._file(prefix), "rb") as file:
                os.fsync(file.fileno())
                if way.endswith("disk"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                else:
                    while file.read(1 << 20):
                        pass

    def run(self) -> list[Found]:
        ways, draw = self.ways(), random.Random(self.options.seed)
        found = {
            (way, prefix): Found(way, prefix) for prefix in self.options.prefixes for way in ways
        }
        for number in range(self.options.rounds + 1):  # the first is not counted
            order = list(found)
            draw.shuffle(order)
            for way, prefix in order:
                self.prepare(way, prefix)
                begin = time.perf_counter()
                ways[way](prefix)
                there = time.perf_counter()
                logits = self.engine.compute(self.suffix, prefix)
                end = time.perf_counter()
                self._check(way, prefix, logits)
                if number > 0:
                    found[way, prefix].fetch.append(there - begin)
                    found[way, prefix].first_token.append(end - begin)
        return list(found.values())

    def _check(self, way: str, prefix: int, logits: Any) -> None:
        right, tokens = self.right[prefix]
        if not numpy.array_equal(logits, right) or self._generate(logits, prefix) != tokens:
            raise SystemExit(f"{way}, {prefix} tokens: other logits or tokens than computed ones")


def show(bench: Bench, rows: Sequence[Found]) -> None:
    g, o = bench.geometry, bench.options
    print(
        f"llama-cpp-python {llama_cpp.__version__}, threads: {o.threads}; {g.layers} layers, "
        f"hidden {g.hidden}, {g.heads} heads, {g.kv_heads} of keys and values, feed forward "
        f"{g.feed_forward}: {g.parameters / 1e6:.0f} million parameters in layers, f16, random\n"
        f"blocks of {o.block_tokens} tokens, {headrace.format_bytes(bench.kv.block_bytes)}; "
        f"{o.suffix} new tokens behind each prefix; load average {os.getloadavg()[0]:.1f}\n\n"
        "| prefix | way | first token, ms (least to most) | of it the prefix, ms (least) |\n"
        "|---|---|---|---|"
    )
    for row in rows:
        times, prefix = ([1e3 * each for each in of] for of in (row.first_token, row.fetch))
        print(
            f"| {row.prefix} | {row.way} | {statistics.median(times):.1f} ({min(times):.1f} to "
            f"{max(times):.1f}) | {statistics.median(prefix):.1f} ({min(prefix):.1f}) |"
        )
    print(
        f"\nmedians of {plural(o.rounds, 'round')}, interleaved; in each of them the logits and "
        f"{_GENERATED} tokens from there are what computing gives, bit by bit"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=Path("."), help="a directory on the disk")
    parser.add_argument("--prefixes", type=lambda s: [int(x) for x in s.split(",")],
                        default=[512, 1024], help="tokens, whole batches of 512")  # fmt: skip
    parser.add_argument("--suffix", type=int, default=32, help="new tokens behind a prefix")
    parser.add_argument("--block-tokens", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if any(prefix % BATCH or prefix % options.block_tokens for prefix in options.prefixes):
        parser.error(f"prefixes are whole batches of {BATCH} tokens and whole blocks")
    with tempfile.TemporaryDirectory(prefix="headrace-llm-", dir=options.data) as scratch:
        bench = Bench(options, Path(scratch))
        show(bench, bench.run())
        bench.ssd = bench.dram = None  # type: ignore[assignment]  # before its folder goes


if __name__ == "__main__":
    main()
