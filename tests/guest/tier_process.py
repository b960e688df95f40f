# SPDX-License-Identifier: Apache-2.0
"""headrace tier run on a real kernel whose node 1 is slow: the hot set that a program has there
comes to node 0, and makes room by what is cold, while the program checks each of its writes. And a
server of headrace bench kv that is interleaved, or kept by a tier.

Run in the guest slow by in_guest.sh, with the Python that has Headrace installed.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
import zlib
from array import array
from pathlib import Path

import forked
import headrace_bench.commands.kv  # noqa: F401  for the fork

import headrace._cli.tier.run  # noqa: F401  for the fork
from headrace import set_process_policy

PAGE, MIB = 4096, 1 << 20
SIZE = 4 * MIB
SECONDS = 240.0


def planted(node: int, advice: int) -> mmap.mmap:
    """Touched memory on a node, free to go; a mapping of its own by what it is advised."""
    area = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(advice)
    set_process_policy("bind", [node])
    area[:] = os.urandom(PAGE) * (SIZE // PAGE)
    set_process_policy("none")
    return area


def pages_on_each() -> dict[str, list[int]]:
    """Pages on nodes 0 and 1, by numa_maps, of each mapping as large as the planted ones."""
    found = {}
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        words = line.split()
        on = [next((int(w[3:]) for w in words if w.startswith(f"N{n}=")), 0) for n in (0, 1)]
        if sum(on) == SIZE // PAGE:
            found[words[0]] = on
    return found


def program() -> None:
    """Until the two have changed places; all bytes are checked."""
    hot, cold = planted(1, mmap.MADV_DONTDUMP), planted(0, mmap.MADV_DONTFORK)
    before = pages_on_each()
    words = memoryview(hot).cast("Q")[:: PAGE // 8]
    words[:] = zero = array("Q", bytes(8 * len(words)))
    sums = [zlib.crc32(hot), zlib.crc32(cold)]
    rounds, expected, begin = 0, zero, time.monotonic()
    while time.monotonic() < begin + SECONDS:
        for _ in range(100):
            assert words.tobytes() == expected.tobytes(), "a write was lost"
            rounds += 1
            expected = array("Q", [rounds]) * len(words)
            words[:] = expected
            time.sleep(0.01)
        now = pages_on_each()
        # A mapping of which a page is on its way is not among them.
        if all(now.get(each) == on[::-1] for each, on in before.items()):
            break
    words[:] = zero
    assert sums == [zlib.crc32(hot), zlib.crc32(cold)], "bytes changed"
    print(json.dumps({"rounds": rounds, "seconds": time.monotonic() - begin,
                      "before": before, "after": pages_on_each()}))  # fmt: skip


def check() -> None:
    balancing = Path("/proc/sys/kernel/numa_balancing")
    balancing.write_text("0")
    Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("never")
    # Less than Python has beside the hot set.
    result = forked.headrace(
        "tier", "run", "--budget", f"{SIZE + 4 * MIB}", "--decisions", "3", "--guard", "0",
        "--out", "/tmp/done.json", "--", sys.executable, __file__, "program",
    )  # fmt: skip
    print(result.stdout, result.stderr, flush=True)
    assert result.returncode == 0, result.returncode
    seen = json.loads(result.stdout)
    assert len(seen["before"]) == 2, seen
    assert balancing.read_text() == "0\n"
    done = json.loads(Path("/tmp/done.json").read_text())
    assert (done["fast"], done["slow"], done["source"]) == ([0], [1], "referenced"), done
    hot = next(on for each, on in seen["after"].items() if seen["before"][each][0] == 0)
    assert hot == [SIZE // PAGE, 0], seen


def a_server_interleaved_and_kept_by_a_tier() -> None:
    """The server is interleaved by the kernel's table of weights, which is restored afterwards."""
    table = Path("/sys/kernel/mm/mempolicy/weighted_interleave")
    before = [(table / f"node{node}").read_text() for node in (0, 1)]
    result = forked.headrace(
        "bench", "kv", "--server", "own", "--workloads", "C", "--configs", "3:1,Hot-Promote",
        "--records", "2000", "--rounds", "1", "--seconds", "1", "--settle", "3", "--json",
    )  # fmt: skip
    assert result.returncode == 0, result
    document = json.loads(result.stdout)
    assert document["rests_on"]["level"] == "guest", document["rests_on"]
    rows = {row["parameters"]["config"]: row["details"] for row in document["rows"]}
    # The data are on the slow node by a quarter and by a half, all other memory is on the fast one.
    # Promotion takes longer than this; check() and the tests of ProcessTier prove it.
    assert 0.05 < rows["3:1"]["slow_share"] < 0.25 < rows["Hot-Promote"]["slow_share"] < 0.5, rows
    assert rows["Hot-Promote"]["tier_cpu_us_per_op"] > 0, rows
    assert [(table / f"node{node}").read_text() for node in (0, 1)] == before


if sys.argv[1:] == ["program"]:
    program()
else:
    check()
    a_server_interleaved_and_kept_by_a_tier()
