# SPDX-License-Identifier: Apache-2.0
"""headrace tier kernel on a real kernel whose node 1 is slow: a hot set planted there is promoted
while a writer checks its bytes, and every setting comes back, also after a kill.

Run in the guest slow by in_guest.sh, with the Python that has Headrace installed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace._core import HostFiles as Files

from headrace import set_process_policy
from headrace._tiering import damon, plan, state, status, switch

PAGE, MIB = 4096, 1 << 20
HOT, COLD = 8 * MIB, 8 * MIB
MIGRATE_PAGES = 256  # the number of the system call
FILES = Files()
SCAN = Path("/sys/kernel/debug/sched/numa_balancing")


def settings() -> dict[str, str | None]:
    """All settings that tier kernel may change, except those inside a kdamond."""
    names = [plan.BALANCING, plan.RATE_LIMIT, plan.DEMOTION, damon.COUNT]
    names += FILES.names(f"{plan.WEIGHTS}/*")
    return {name: FILES.read(name) for name in names}


def pages_on(node: int, address: int, pid: int) -> int:
    """Pages on the node, by numa_maps, of the mapping that begins at `address`."""
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        words = line.split()
        if int(words[0], 16) == address:
            return next((int(w[3:]) for w in words if w.startswith(f"N{node}=")), 0)
    raise AssertionError(f"no mapping at {address:x}")


def planted(size: int, advice: int) -> tuple[mmap.mmap, int]:
    """Touched memory on node 1, free to go, and where it is; a mapping of its own by what it is
    advised. No two pages are alike.
    """
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(advice)
    set_process_policy("bind", [1])
    area[:] = os.urandom(PAGE) * (size // PAGE)
    memoryview(area).cast("Q")[1 :: PAGE // 8] = array("Q", range(size // PAGE))
    set_process_policy("none")
    return area, address_of(area)


def address_of(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def write_and_check(out: int, stop: int) -> None:
    """Counts in the first word of each page of the hot set until told to stop."""
    (hot, at), (cold, cold_at) = planted(HOT, mmap.MADV_DONTDUMP), planted(COLD, mmap.MADV_DONTFORK)
    words = memoryview(hot).cast("Q")[:: PAGE // 8]
    zero = array("Q", bytes(8 * len(words)))
    words[:] = zero
    sums = [zlib.crc32(hot), zlib.crc32(cold)]
    os.write(out, f"{at} {cold_at}\n".encode())
    os.set_blocking(stop, False)
    rounds, expected = 0, zero
    while True:
        try:
            if os.read(stop, 1):
                break
        except BlockingIOError:
            pass
        assert words.tobytes() == expected.tobytes(), "a write was lost"
        rounds += 1
        expected = array("Q", [rounds]) * len(words)
        words[:] = expected
        time.sleep(0.005)  # often enough for who samples each 20 ms, and the kernel has a CPU too
    words[:] = zero
    assert sums == [zlib.crc32(hot), zlib.crc32(cold)]
    os.write(out, f"{rounds}\n".encode())


@contextmanager
def writer() -> Iterator[tuple[int, int, int]]:
    """PID, and where its hot and its cold memory begin; both all on node 1 at first. Whoever wrote
    checks all bytes at the end.
    """
    told, out = os.pipe()
    stop, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            write_and_check(out, stop)
            code = 0
        finally:
            os._exit(code)
    os.close(out)
    with os.fdopen(told) as lines:
        hot, cold = map(int, lines.readline().split())
        assert pages_on(1, hot, pid) > 0.9 * HOT / PAGE and pages_on(0, cold, pid) == 0
        try:
            yield pid, hot, cold
        finally:
            os.write(end, b"x")
            os.close(end)
        print(f"  rounds of the writer: {lines.readline().strip()}", flush=True)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "bytes changed"


def until(what: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def promotes(pid: int, hot: int, cold: int, least: float, wish: plan.Wish) -> None:
    """Switches on, and off when the share `least` of the hot set has come to node 0."""
    before = settings()
    begin = time.monotonic()
    for each in switch.on(FILES, wish).settings:
        if each.before is not None:
            print(f"  /{each.file}: {each.before} -> {each.wanted}", flush=True)
    found = until(lambda: pages_on(0, hot, pid) >= least * HOT / PAGE, 60)
    share = pages_on(0, hot, pid) * PAGE / HOT
    along = pages_on(0, cold, pid) * PAGE / COLD
    print(f"  {share:.0%} of the hot set and {along:.0%} of the cold on node 0 "
          f"in {time.monotonic() - begin:.1f} s", flush=True)  # fmt: skip
    assert found, f"{share:.0%} of the hot set on node 0"
    said = status.status(FILES)
    assert said["tier_kernel"]["state"] == "on", said
    assert {each["owner"] for each in said["kdamonds"]} <= {"headrace"}, said
    undone = switch.off(FILES).undone
    assert {each.outcome for each in undone} == {"put back"}, undone
    assert settings() == before, (settings(), before)
    assert not Path("/", state.NAME).exists()


def sent_back(pid: int) -> None:
    """All pages of a process on node 0 go to node 1."""
    here, there = ctypes.c_ulong(1), ctypes.c_ulong(2)
    left = ctypes.CDLL(None).syscall(
        MIGRATE_PAGES, pid, ctypes.c_ulong(64), ctypes.byref(here), ctypes.byref(there)
    )
    assert left >= 0, "migrate_pages failed"


def what_is_hot_is_promoted() -> None:
    """Hot pages are promoted: by the kernel, beside its balancing between nodes; then by DAMON.
    With DAMON a part is enough: it samples one page of a region, and may miss others for long.
    """
    with writer() as (pid, hot, cold):
        FILES.write(plan.BALANCING, "1")
        promotes(pid, hot, cold, 0.8, plan.Wish())
        assert FILES.read(plan.BALANCING) == "1"
        assert status.counters(FILES)["pgpromote_success"] > 0
        FILES.write(plan.BALANCING, "0")
        sent_back(pid)
        assert pages_on(0, hot, pid) < 0.05 * HOT / PAGE
        schemes = plan.Wish(promotion=False, demotion=False, schemes=("hot",))
        promotes(pid, hot, cold, 0.1, schemes)


def off_restores_after_a_kill() -> None:
    before = settings()
    wish = plan.Wish(rate=float(100 * MIB), weights={0: 3, 1: 1}, schemes=("hot", "cold"))
    for after in (3, 30):  # the settings; in the middle of a kdamond
        child = os.fork()
        if child == 0:
            killed_after(after)
            switch.on(FILES, wish)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert settings() != before
        switch.off(FILES)
        assert settings() == before, (after, settings(), before)
    switch.on(FILES, wish)
    assert [each.state for each in FILES.kdamonds() or ()] == ["on", "on"]
    switch.off(FILES)
    assert settings() == before, (settings(), before)


def killed_after(writes: int) -> None:
    """This process dies after this number of writes."""
    write, count = Files._write, 0

    def counted(files: Files, name: str, value: str) -> None:
        nonlocal count
        if count == writes:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        write(files, name, value)

    Files._write = counted  # type: ignore[method-assign]


def check_all() -> None:
    assert os.system("mount -t debugfs none /sys/kernel/debug") == 0
    # Find hot pages in seconds; with its defaults the kernel takes a minute.
    for name in ("scan_period_min_ms", "scan_period_max_ms", "scan_delay_ms"):
        (SCAN / name).write_text("100")
    Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("never")
    FILES.write(plan.BALANCING, "0")
    for check in (what_is_hot_is_promoted, off_restores_after_a_kill):
        begin = time.monotonic()
        check()
        print(f"ok {check.__name__} {time.monotonic() - begin:.0f} s", flush=True)


check_all()
