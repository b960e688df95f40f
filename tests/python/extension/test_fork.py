# SPDX-License-Identifier: Apache-2.0
"""fork() in a program that has used movers, caches and files (docs/design/fork.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from programs import outcome_of

USED = """
MIB = 1 << 20
file = some_file(8 * MIB)
source, target = (headrace.allocate(machine, 4 * MIB) for _ in range(2))
source.numpy()[:] = 5
cache = headrace.Cache(mover, {node: 4 * MIB})
ready = cache.access(file.extent(0, MIB))
assert ready.wait(60)[0] == 7
mover.copy(target, source).wait()

def child(body):
    pid = os.fork()
    if pid == 0:
        import signal
        signal.alarm(30)
        try:
            body()
        except SystemExit:  # of a child of this child
            raise
        except BaseException as failure:
            print(repr(failure), flush=True)
            os._exit(1)
        raise SystemExit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status

def refused(use):
    try:
        use()
    except headrace.UnsupportedError as error:
        assert "made before a fork()" in str(error)
    else:
        raise AssertionError("not refused")

def parent_works():
    mover.copy(target, file.extent(MIB, 4 * MIB)).wait()
    with cache.access(file.extent(5 * MIB, MIB)) as block:
        assert block.wait(60)[0] == 7
    assert target.numpy()[0] == 7
"""

CHILDREN = {
    "discovers while other threads do": """
import threading
over = threading.Event()
def discover_on():
    while not over.is_set():
        headrace.Machine.discover(storage=[])
threads = [threading.Thread(target=discover_on) for _ in range(3)]
for thread in threads: thread.start()
try:
    for _ in range(int(sys.argv[1])):
        child(lambda: headrace.Machine.discover(storage=[]))
finally:
    over.set()
    for thread in threads: thread.join()
""",
    "drops all": """
def body():
    global mover, cache, ready, file, source, target
    del mover, cache, ready, file, source, target
    gc.collect()
child(body)
""",
    "drops all while moves are in flight": """
file.drop_page_cache()
moves = [mover.copy(target, file.extent(k * MIB, 4 * MIB)) for k in range(4)]
plan = cache.prefetch([file.extent(k * MIB, MIB) for k in range(8)])
def body():
    global mover, cache, ready, moves, plan
    del mover, cache, ready, moves, plan
    gc.collect()
child(body)
for move in moves:
    move.wait()
""",
    "uses what was the parent's": """
file.drop_page_cache()
move = mover.copy(target, file.extent(0, 4 * MIB))
def body():
    refused(lambda: mover.copy(target, source).wait())
    if not move.done():
        refused(move.wait)
        refused(move.fileno)
    refused(lambda: cache.access(file.extent(6 * MIB, MIB)).wait())
    refused(lambda: cache.resize(node, MIB))
    refused(lambda: headrace.Cache(mover, {node: MIB}).access(file.extent(0, MIB)).wait())
    assert cache.prefetch([file]).progress().cancelled
    cache.flush()
    cache.clear()
    cache.invalidate(file)
    assert ready.wait()[0] == 7 and memoryview(ready)[-1] == 7
    assert cache.access(source).wait()[0] == 5
    assert cache.stats().hits == mover.stats().transfers == 0
child(body)
move.wait()
""",
    "makes its own": """
def body():
    own = headrace.Mover(machine)
    own.copy(target, file.extent(0, 4 * MIB)).wait()
    assert target.numpy()[0] == 7
    with headrace.Cache(own, {node: MIB}).access(file.extent(MIB, MIB)) as block:
        assert block.wait()[0] == 7
    import asyncio
    async def main():
        return [await own.copy(target, source) for _ in range(3)]
    assert len(asyncio.run(main())) == 3
    child(lambda: None)
child(body)
assert target.numpy()[0] == 5
""",
    "measures": """
def body():
    chosen = ("copy", {"engine": "memcpy", "bytes": 4096})
    assert headrace.measure(machine, selections=[chosen], rounds=1, noise_checks=False).rows
child(body)
""",
    "borrows": """
array = bytearray(MIB)
class Exporter(numpy.ndarray): pass
borrowed = headrace.MemoryRange(array, node=node)
move = mover.copy(borrowed, file.extent(0, MIB))
def body():
    global borrowed
    own = headrace.MemoryRange(bytearray(MIB), node=node)
    headrace.Mover(machine).copy(own, source.extent(0, MIB)).wait()
    assert own.numpy()[0] == 5
child(body)
move.wait()
""",
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_child(kind: str, times: Callable[[int, int], int]) -> None:
    body = USED + CHILDREN[kind] + "parent_works()\n"
    assert outcome_of(body, str(times(10, 40))) == (0, "", "")


#: Threads that look through what a cache was asked for, most of the time without the GIL. The
#: garbage collection of a child asks the same list, for its blocks of borrowed memory.
LOOKING = """
cache = headrace.Cache(mover, {node: 64 * MIB})
arrays = [numpy.ones(64, numpy.uint8) for _ in range(20_000)]
kept = [headrace.MemoryRange(array, node=node) for array in arrays]
borrowed = cache.access(kept[0].extent(0, 64))
borrowed.wait(60)
for block in cache.access_all([each.extent(0, 64) for each in kept]):
    block.release()
stop = threading.Event()
def work(i):
    while not stop.is_set():
        cache.flush()
threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
for thread in threads: thread.start()
def body():
    global cache, borrowed
    assert cache.access(kept[1].extent(0, 64)).wait()[0] == 1
    cache.flush()
    cache.clear()
    gc.collect()
    del cache, borrowed
    gc.collect()
for _ in range(10):
    child(body)
stop.set()
for thread in threads: thread.join()
parent_works()
"""


def test_children_while_threads_look_through_a_cache() -> None:
    assert outcome_of(USED + LOOKING, timeout=120) == (0, "", "")


#: The completion of a move that was reported before the loop looked.
AWAITING = """
import asyncio, select
queue = headrace.CompletionQueue()
def ended():
    transfer = mover.copy(target, source)
    queue.add(transfer, 7)
    transfer.wait()
    return select.select([queue], [], [], 60)[0]
def body():
    global queue
    assert queue.take() == []
    refused(queue.fileno)
    queue.add(mover.copy(target, source), 8)
    del queue
    gc.collect()
assert ended() == [queue]
child(body)
assert select.select([queue], [], [], 0)[0] == [queue]
assert queue.take() == [7]

async def main():
    transfer = mover.copy(target, source)
    end = asyncio.create_task(outcome(transfer))
    await asyncio.sleep(0)
    transfer.wait()
    time.sleep(0.1)  # not the loop's: the completion is reported, the loop has not looked yet
    child(lambda: None)  # its interpreter ends, and drops the loop
    await asyncio.wait_for(end, 20)
async def outcome(transfer):
    return await transfer
source, target = (headrace.allocate(machine, 64 * MIB) for _ in range(2))
target.numpy()[0] = source.numpy()[0] = 7
asyncio.run(main())
"""


def test_children_while_moves_are_awaited() -> None:
    assert outcome_of(USED + AWAITING, timeout=120) == (0, "", "")


POOLS = """
import concurrent.futures, multiprocessing
context = multiprocessing.get_context("fork")
def job(i):
    own = headrace.Mover(machine)
    one, other = (headrace.allocate(machine, MIB) for _ in range(2))
    own.copy(one, other).wait()
    return i
with context.Pool(2) as pool:
    assert pool.map(job, range(4)) == [0, 1, 2, 3]
with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
    assert list(pool.map(job, range(4))) == [0, 1, 2, 3]
parent_works()
"""


def test_pools_of_forked_workers() -> None:
    assert outcome_of(USED + POOLS) == (0, "", "")
