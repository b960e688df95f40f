# SPDX-License-Identifier: Apache-2.0
"""benchmarks/peers/lmcache_peer.py, which nothing else runs, over stand-ins for LMCache: it gives
`bench kvcache` a store as that asks one.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_lmcache_peer
import headrace_bench
import numpy
import pytest
from headrace_bench.llm import kv_store, layer
from headrace_bench.llm.stores import Shape, aligned

import headrace
from headrace._cli import app
from headrace._profile.nested import rows_of

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "peers"
SHAPE = Shape(layers=3, fragment=4096)
#: Requests that queue: some are loaded ahead.
SMALL = [
    "--requests", "24", "--block-tokens", "2", "--work", "0.02%", "--rounds", "1", "--seed", "5",
    "--policies", "layerwise,ahead,demand", "--store", "lmcache,lmcache-whole",
]  # fmt: skip


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program, which nothing of this process keeps."""
    fake_lmcache_peer.install(monkeypatch)
    monkeypatch.setattr(kv_store, "STORES", kv_store.STORES)
    monkeypatch.setattr(kv_store, "maker", kv_store.maker)
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "lmcache_peer", raising=False)
    yield importlib.import_module("lmcache_peer")
    del sys.modules["lmcache_peer"]


@pytest.mark.parametrize("name", ["lmcache", "lmcache-whole"])
def test_a_load_ahead_of_all_but_the_first_blocks(
    peer: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many at once that whole blocks come in several steps."""
    monkeypatch.setattr(app, "run", lambda _: 0)
    assert peer.main() == 0 and kv_store.STORES[-2:] == ("lmcache", "lmcache-whole")
    machine = headrace.Machine.discover(storage=[tmp_path])
    made = kv_store.maker(name, machine, tmp_path, 4, None)(SHAPE, [4, 40], False)
    blocks, first = list(range(23)), 2
    source, to = aligned(23 * SHAPE.block), aligned(23 * SHAPE.block)
    headrace_bench.fill_random(source, 3, [0])
    to[:] = 0
    made.store(blocks, source, blocks)
    made.settle()
    match = made.match([*blocks, 99])
    load = match.load(to, range(3), first, ahead=True)
    for number in range(3):
        load.wait(number)
    assert load.done() and load.ended() > 0
    match.release()
    made.close()
    at = first * SHAPE.block
    assert not to[:at].any() and numpy.array_equal(to[at : 23 * SHAPE.block], source[at:])
    # The other stores are made as before, a GPU's too.
    with pytest.raises(headrace.Error):
        kv_store.maker("headrace", machine, tmp_path / "nowhere", 4, None)(SHAPE, [4, 40], False)


@pytest.mark.slow
def test_the_whole_comparison(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = [{"kind": kind, "bytes_per_second": 1e9} for kind in ("cpu", "ssd")]
    monkeypatch.setattr(layer, "engine_rates", lambda *_: rates)
    monkeypatch.setattr(sys, "argv", ["lmcache_peer.py", *SMALL, "--data", str(tmp_path), "--json"])
    assert peer.main() == 0
    document = json.loads(capsys.readouterr().out)
    policies = rows_of(document, "kvcache")
    assert {(row["store"], row["policy"]) for row in policies} == {
        (store, policy)
        for store in ("lmcache", "lmcache-whole")
        for policy in ("layerwise", "ahead", "demand")
    }
    assert all(row["wrong"] == 0 and row["reason"] == "" for row in policies)
    assert all(row["with_cached"] > 0 for row in policies)
    loads = rows_of(document, "kvcache_load")
    assert [row["store"] for row in loads] == ["lmcache", "lmcache-whole"]
    assert list(tmp_path.iterdir()) == []
