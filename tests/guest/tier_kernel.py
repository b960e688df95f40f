"""headrace tier kernel on a real kernel whose node 1 is slow: a hot set planted there is promoted
while a writer checks its bytes, and every setting comes back, also after a kill.

Run in the guest slow by in_guest.sh, with the Python that has Headrace installed.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy
from forked import headrace as command

from headrace import set_process_policy
from headrace._cli.tier import kernel, status  # noqa: F401  for every fork
from headrace._tiering import damon, plan, state, switch
from headrace._tiering.files import Files

PAGE, MIB = 4096, 1 << 20
HOT, COLD = 8 * MIB, 16 * MIB
FILES = Files()
SCAN = Path("/sys/kernel/debug/sched/numa_balancing")


def settings() -> dict[str, str | None]:
    """All that tier kernel may change, but for what is in a kdamond."""
    names = [plan.BALANCING, plan.RATE_LIMIT, plan.DEMOTION, damon.COUNT]
    names += FILES.names(f"{plan.WEIGHTS}/*")
    return {name: FILES.read(name) for name in names}


def pages_on(node: int, address: int, pid: int) -> int:
    """By numa_maps, of the mapping that begins there."""
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        words = line.split()
        if int(words[0], 16) == address:
            return next((int(w[3:]) for w in words if w.startswith(f"N{node}=")), 0)
    raise AssertionError(f"no mapping at {address:x}")


def planted(size: int, advice: int) -> numpy.ndarray:
    """Touched memory on node 1, free to go; a mapping of its own by what it is advised."""
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(advice)
    set_process_policy("bind", [1])
    pages = numpy.frombuffer(area, dtype=numpy.uint64).reshape(-1, PAGE // 8)
    pages[:] = numpy.arange(pages.size, dtype=numpy.uint64).reshape(pages.shape)
    set_process_policy("none")
    return pages


def write_and_check(out: int, stop: int) -> None:
    """Counts in the first word of each page of the hot set until told to stop."""
    hot, cold = planted(HOT, mmap.MADV_DONTDUMP), planted(COLD, mmap.MADV_DONTFORK)
    sums = [zlib.crc32(hot[:, 1:].tobytes()), zlib.crc32(cold.tobytes())]
    hot[:, 0] = 0
    os.write(out, f"{hot.ctypes.data} {cold.ctypes.data}\n".encode())
    os.set_blocking(stop, False)
    rounds = 0
    while True:
        try:
            if os.read(stop, 1):
                break
        except BlockingIOError:
            pass
        assert (hot[:, 0] == rounds).all(), "a write was lost"
        rounds += 1
        hot[:, 0] = rounds
    assert sums == [zlib.crc32(hot[:, 1:].tobytes()), zlib.crc32(cold.tobytes())]
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


def done(*arguments: str) -> subprocess.CompletedProcess[str]:
    result = command("tier", *arguments)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result


def promotes(least: float, seconds: float, *options: str) -> None:
    """Switches on, and off when so much of the hot set has come to node 0."""
    before = settings()
    with writer() as (pid, hot, cold):
        begin = time.monotonic()
        print(done("kernel", "--on", *options).stdout, flush=True)
        found = until(lambda: pages_on(0, hot, pid) >= least * HOT / PAGE, seconds)
        share = pages_on(0, hot, pid) * PAGE / HOT
        along = pages_on(0, cold, pid) * PAGE / COLD
        print(f"  {share:.0%} of the hot set and {along:.0%} of the cold promoted "
              f"in {time.monotonic() - begin:.1f} s", flush=True)  # fmt: skip
        assert found, f"{share:.0%} of the hot set promoted"
        said = json.loads(done("status", "--json").stdout)
        assert said["tier_kernel"]["state"] == "on", said
        if not options:
            assert said["since_boot"]["pgpromote_success"] > 0, said
        assert {each["owner"] for each in said["kdamonds"]} <= {"headrace"}, said
        print(done("kernel", "--off").stdout, flush=True)
        assert settings() == before
        assert not Path("/", state.NAME).exists()


def the_kernel_promotes_what_is_hot() -> None:
    promotes(0.8, 60)


def damon_promotes_what_is_hot() -> None:
    """A part is enough: DAMON looks at one page of a region, and may miss some for long."""
    promotes(0.3, 60, "--no-promotion", "--no-demotion", "--damon", "hot")


def off_restores_after_a_kill() -> None:
    before = settings()
    wish = plan.Wish(rate=float(100 * MIB), weights={0: 3, 1: 1}, schemes=("hot", "cold"))
    for after in (1, 3, 30):
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
    assert [each.state for each in damon.kdamonds(FILES) or ()] == ["on", "on"]
    switch.off(FILES)
    assert settings() == before, (settings(), before)


def killed_after(writes: int) -> None:
    """This process dies when it has written so often."""
    write, count = Files._write, 0

    def counted(files: Files, name: str, value: str) -> None:
        nonlocal count
        if count == writes:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        write(files, name, value)

    Files._write = counted  # type: ignore[method-assign]


def check_all() -> None:
    subprocess.run(["mount", "-t", "debugfs", "none", "/sys/kernel/debug"], check=True)
    # What is hot is found in seconds; as it is, the kernel takes a minute.
    for name in ("scan_period_min_ms", "scan_period_max_ms", "scan_delay_ms"):
        (SCAN / name).write_text("100")
    Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("never")
    FILES.write(plan.BALANCING, "0")
    print(done("status").stdout, flush=True)
    for check in (
        the_kernel_promotes_what_is_hot, damon_promotes_what_is_hot, off_restores_after_a_kill,
    ):  # fmt: skip
        begin = time.monotonic()
        check()
        print(f"ok {check.__name__} {time.monotonic() - begin:.0f} s", flush=True)


check_all()
