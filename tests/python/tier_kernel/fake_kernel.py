# SPDX-License-Identifier: Apache-2.0
"""A kernel made of files, as far as tiering goes: it spells switches in words, makes the folders of
DAMON, and refuses what the real one does.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace._core import HostFiles as Files

import headrace
from headrace._tiering.damon import COUNT, KDAMONDS
from headrace._tiering.plan import BALANCING, DEMOTION, RATE_LIMIT, WEIGHTS

BLOCK = 128 << 20
_SCHEME = (
    "action", "target_nid", "access_pattern/sz/min", "access_pattern/sz/max",
    "access_pattern/nr_accesses/min", "access_pattern/nr_accesses/max", "access_pattern/age/min",
    "access_pattern/age/max", "quotas/bytes", "quotas/ms", "quotas/reset_interval_ms",
    "quotas/weights/nr_accesses_permil", "quotas/weights/age_permil",
)  # fmt: skip
_CONTEXT = {
    "operations": "vaddr", "monitoring_attrs/intervals/sample_us": "5000",
    "monitoring_attrs/intervals/aggr_us": "100000", "monitoring_attrs/nr_regions/min": "10",
    "targets/nr_targets": "0", "schemes/nr_schemes": "0",
}  # fmt: skip


class FakeKernel(Files):
    """`tiers`: tier -> nodes; `cpus`: node -> its CPUs. `refuse`: files it takes nothing in.
    `kill_after`: this process dies by SIGKILL after this number of writes.
    """

    def __init__(self, root: Path, tiers: dict[int, str], cpus: dict[int, str]) -> None:
        super().__init__(root)
        self.refuse: set[str] = set()
        self.kill_after: int | None = None
        self.written: list[str] = []
        self.knows_bandwidths = True
        self.actions = {"pageout", "migrate_hot", "migrate_cold"}
        nodes = sorted(cpus)
        self.put("proc/sys/kernel/random/boot_id", "boot-1")
        self.put(BALANCING, "1")
        self.put(RATE_LIMIT, "65536")
        self.put(DEMOTION, "false")
        self.put("sys/devices/system/memory/block_size_bytes", f"{BLOCK:x}")
        self.put("sys/devices/system/node/online", f"0-{nodes[-1]}")
        for number, text in tiers.items():
            self.put(f"sys/devices/virtual/memory_tiering/memory_tier{number}/nodelist", text)
        for node in nodes:
            at = f"sys/devices/system/node/node{node}"
            self.put(f"{at}/cpulist", cpus[node])
            self.put(f"{at}/distance", " ".join("10" if n == node else "20" for n in nodes))
            for block in (4 * node, 4 * node + 1, 4 * node + 3):  # with a hole
                self.put(f"{at}/memory{block}/online", "1")
            self.put(f"{WEIGHTS}/node{node}", "1")

    def put(self, name: str, text: str) -> None:
        """As somebody else, or the kernel by itself."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def with_damon(self) -> FakeKernel:
        self.put(COUNT, "0")
        return self

    def everything(self) -> dict[str, str]:
        """Contents of all files in /proc and /sys."""
        return {
            str(path.relative_to(self.root)): path.read_text()
            for top in ("proc", "sys")
            for path in sorted((self.root / top).rglob("*"))
            if path.is_file()
        }

    def _write(self, name: str, value: str) -> None:
        if self.kill_after == len(self.written):
            os.kill(os.getpid(), signal.SIGKILL)
        if not self.path(name).exists():
            raise OSError(errno.ENOENT, "No such file or directory")
        if name in self.refuse:
            raise OSError(errno.EINVAL, "Invalid argument")
        if name == f"{WEIGHTS}/auto" and value == "1" and not self.knows_bandwidths:
            raise OSError(errno.ENODEV, "No such device")
        self.written.append(name)
        if name.startswith(KDAMONDS):
            self._damon(name, value)
        elif name == DEMOTION:
            value = {"0": "false", "1": "true"}[value]
        elif name.startswith(f"{WEIGHTS}/node") and self.path(f"{WEIGHTS}/auto").exists():
            self.put(f"{WEIGHTS}/auto", "false")
        elif name == f"{WEIGHTS}/auto":
            value = {"0": "false", "1": "true"}[value]
        self.put(name, value)

    def _damon(self, name: str, value: str) -> None:
        folder, _, last = name.rpartition("/")
        if last == "nr_kdamonds":
            if any(self.read(state) == "on" for state in self.names(f"{KDAMONDS}/*/state")):
                raise OSError(errno.EBUSY, "Device or resource busy")
            self._make(
                folder, int(value), {"state": "off", "pid": "-1", "contexts/nr_contexts": "0"}
            )
        elif last == "nr_contexts":
            self._make(folder, int(value), _CONTEXT)
        elif last == "nr_targets":
            self._make(folder, int(value), {"regions/nr_regions": "0"})
        elif last == "nr_regions":
            self._make(folder, int(value), {"start": "0", "end": "0"})
        elif last == "nr_schemes":
            self._make(folder, int(value), dict.fromkeys(_SCHEME, "0"))
        elif last == "state":
            self.put(f"{folder}/pid", "4711" if value == "on" else "-1")
        elif last == "action" and value not in self.actions:
            raise OSError(errno.EINVAL, "Invalid argument")

    def _make(self, folder: str, count: int, files: dict[str, str]) -> None:
        for old in self.path(folder).glob("[0-9]*"):
            shutil.rmtree(old)
        for number in range(count):
            for name, text in files.items():
                self.put(f"{folder}/{number}/{name}", text)


def killed(kernel: FakeKernel, after: int, act: Callable[[], object]) -> bool:
    """Whether a process that does it dies, which it does at write `after` + 1."""

    def child() -> None:
        kernel.written.clear()
        kernel.kill_after = after
        act()

    code = forked(child)
    assert code in (0, 1, -signal.SIGKILL)
    return code < 0


def forked(act: Callable[[], object]) -> int:
    """How a process that does it ends: 1 by an Error, less than 0 by a signal."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            act()
            code = 0
        except headrace.Error:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def slow(root: Path) -> FakeKernel:
    """Node 0 with the CPUs, and node 1, slower, that firmware rates at 25 GiB/s."""
    made = FakeKernel(root, {4: "0", 54: "1"}, {0: "0-1", 1: ""})
    made.put("sys/devices/system/node/node1/access0/initiators/write_bandwidth", "25600")
    return made


@contextmanager
def in_memory() -> Iterator[FakeKernel]:
    """One that has all, in memory, as /run and /sys are: thousands of small writes are cheap there.
    """
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="headrace-") as folder:
        made = slow(Path(folder)).with_damon()
        made.put(f"{WEIGHTS}/auto", "true")
        yield made


def xeon_max(root: Path) -> FakeKernel:
    """Nodes 0 to 7 DDR with CPUs; HBM on nodes 8 to 15, which is faster."""
    cpus = {node: str(node) if node < 8 else "" for node in range(16)}
    return FakeKernel(root, {1: "8-15", 4: "0-7"}, cpus)
