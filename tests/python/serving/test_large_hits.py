# SPDX-License-Identifier: Apache-2.0
"""Hits of a served store that a Mover of the client copies."""

from __future__ import annotations

import os
from pathlib import Path

import headrace
from headrace import kvcache, serving


def test_large_hit_is_copied_by_the_clients_mover(tmp_path: Path) -> None:
    machine = headrace.Machine.discover(storage=[])
    blocks = kvcache.opaque("large", 1 << 20)
    tiers = [kvcache.Memory("dram", "16MiB")]
    store = kvcache.SharedStore(headrace.Mover(machine), blocks, tiers)
    name = str(tmp_path / "socket")
    keys = [b"%d" % number for number in range(9)]
    data = os.urandom(8 << 20)
    mover = headrace.Mover(machine)
    server = serving.Server(name, lambda _: store, machine)
    with serving.Attached(name, blocks, mover=mover) as client:
        client.store(keys[:8], data).wait()
        began = mover.stats().transfers
        into = bytearray(8 << 20)
        assert client.load_blocks(keys[:7], memoryview(into)[: 7 << 20]).loaded == [True] * 7
        assert mover.stats().transfers == began  # less than 8 MiB
        assert client.load_blocks(keys[:8], into).loaded == [True] * 8
        assert into == data
        assert mover.stats().transfers > began
        more = bytearray(9 << 20)
        assert client.load_blocks(keys, more).loaded == [True] * 8 + [False]
        assert more[: 8 << 20] == data
    server.close()
    store.close()
