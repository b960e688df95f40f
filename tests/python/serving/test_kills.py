# SPDX-License-Identifier: Apache-2.0
"""Kills clients and servers at any moment. `make soak` kills HEADRACE_KILLS clients, and a quarter
as many servers.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_serving import MACHINE, Served, attach, forked, get, named, put
from test_serving import served as served  # a fixture

import headrace

KILLS = int(os.environ.get("HEADRACE_KILLS", "40"))
SEED = int(os.environ.get("HEADRACE_SEED", "5"))


def test_clients_that_are_killed_leave_nothing(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = served(memory=16, kept=64)
    monkeypatch.setattr("headrace._serving.client.Machine.discover", lambda storage: MACHINE)
    client = attach(here.name)
    chance = random.Random(SEED)
    requests = mmap.mmap(-1, mmap.PAGESIZE)  # shared with the clients

    def work() -> None:
        other = attach(here.name)
        for number in itertools.count(1):
            keys = named(*(chance.randrange(40) for _ in range(3)))
            put(other, list(dict.fromkeys(keys)))
            other.pin(keys)
            get(other, keys)
            requests[:8] = number.to_bytes(8, "little")

    total = busy = 0
    for _ in range(KILLS):
        requests[:8] = bytes(8)
        pid = forked(work)
        until = time.monotonic() + 60 * chance.randrange(2)  # half of them may still attach
        while not any(requests[:8]) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        get(client, named(*(chance.randrange(40) for _ in range(3))))
        done = int.from_bytes(requests[:8], "little")
        total, busy = total + done, busy + (done > 0)
    print(f"clients: {KILLS} kills, {busy} after {total} rounds of requests")
    until = time.monotonic() + 60
    while here.server.clients > 2:  # those of `client`
        time.sleep(0.01)
        assert time.monotonic() < until
    assert client.stats().pinned == 0


def test_servers_that_are_killed_are_one_error_and_no_wrong_byte(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for _ in range(KILLS // 4):
        ready, go = os.pipe()

        def serve(go: int = go) -> None:
            Served(tmp_path, memory=16)
            os.write(go, b"x")
            time.sleep(60)

        pid = forked(serve)
        os.read(ready, 1)
        os.close(ready)
        os.close(go)
        client = attach(str(tmp_path / "socket"))
        threading.Timer(chance.random() * 0.02, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(headrace.Error, match=r"has ended|no server"):
            while True:
                keys = named(*(chance.randrange(40) for _ in range(3)))
                put(client, list(dict.fromkeys(keys)))
                get(client, keys)
        client.close()
        os.waitpid(pid, 0)
    print(f"servers: {KILLS // 4} kills")
