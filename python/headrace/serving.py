# SPDX-License-Identifier: Apache-2.0
"""One KV store for all processes of a host: `headrace serve` keeps it, and they attach.

>>> import headrace, tempfile
>>> from headrace import kvcache, serving
>>> machine = headrace.Machine.discover()
>>> blocks = kvcache.opaque("my engine, float16", 4096)
>>> memory = [kvcache.Memory("dram", "1MiB")]
>>> store = kvcache.SharedStore(headrace.Mover(machine), blocks, memory)
>>> name = f"{tempfile.mkdtemp()}/socket"
>>> server = serving.Server(name, lambda geometry: store, machine)   # headrace serve does that
>>> cache = serving.Attached(name, blocks)                           # in any process of this user
>>> cache.store([b"a block"], bytes(4096)).wait().stored
1
>>> into = bytearray(4096)
>>> cache.load_blocks([b"a block", b"another"], [into, bytearray(4096)]).loaded
[True, False]
>>> cache.close()
>>> server.close()

How to use it: docs/howto/serve.md.
"""

from __future__ import annotations

from headrace._serving.client import Attached, Pinned
from headrace._serving.server import Server

__all__ = ["Attached", "Pinned", "Server"]
