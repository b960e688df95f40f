# SPDX-License-Identifier: Apache-2.0
"""Arenas: named heaps, placed by a plan and watched."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

import headrace

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SEEN = """\
headrace arenas 1
# name place most_bytes heat
index dram 2097152 0.900
values dram 8388608 0.050
log dram 1048576 0.000
"""

PROGRAM = """\
import headrace, numpy, time
index = headrace.empty(1 << 18, place=headrace.arena("index"))
values = headrace.empty(1 << 20, place=headrace.arena("values"))
values[:] = 1
for _ in range(24):
    index += 1
    time.sleep(0.1)
"""


def program(tmp_path: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, cwd=tmp_path, text=True,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip


def test_arrays_live_in_arenas_and_keep_them(machine: headrace.Machine) -> None:
    arenas = headrace.Arenas(machine)
    arena = arenas.arena("index")
    assert repr(arena) == "Arena('index')" and arena.name == "index"
    arrays = [headrace.empty(size, "int32", place=arena) for size in (3, 1000, 1 << 20)]
    for number, array in enumerate(arrays):
        array[:] = number
    del arenas, arena
    gc.collect()
    for number, array in enumerate(arrays):
        assert (array == number).all()


def test_a_plan_places_arenas(machine: headrace.Machine, memory_node: int) -> None:
    plan = f"headrace arenas 1\nplanned {memory_node} 0 0\n"
    arena = headrace.Arenas(machine, plan=plan, otherwise="largest").arena("planned")
    assert arena.placement.nodes == [(memory_node, 1)]
    array = headrace.empty(1 << 20, place=arena)
    array[:] = 1
    assert set(headrace.where(array).pages) == {memory_node}


def test_watched_arenas_tell_hot_from_cold(machine: headrace.Machine) -> None:
    try:
        arenas = headrace.Arenas(machine, look_every=3600)
    except (headrace.UnsupportedError, headrace.DeniedError) as error:
        pytest.skip(str(error))
    hot = headrace.empty(1 << 20, place=arenas.arena("hot"))
    cold = headrace.empty(1 << 20, place=arenas.arena("cold"))
    hot[:] = cold[:] = 1
    arenas.look()
    hot += 1
    arenas.look()
    seen = {use.name: use for use in arenas.uses()}
    assert seen["hot"].heat > 0.9 and seen["cold"].heat < 0.1
    plan = headrace.plan_arenas(arenas.uses(), [("hbm:dram", 8 << 20), ("dram", None)])
    assert [line.split()[:2] for line in plan.splitlines()[2:]] == [
        ["hot", "hbm:dram"], ["cold", "dram"],
    ]  # fmt: skip
    assert headrace.arenas_in_plan(plan)[0].most == hot.nbytes


def test_refused_plans(machine: headrace.Machine) -> None:
    arenas = headrace.Arenas(machine)
    with pytest.raises(headrace.InvalidError, match="64 letters"):
        arenas.arena("two words")
    with pytest.raises(headrace.InvalidError, match="no bytes"):
        arenas.arena("index").allocate(0)
    with pytest.raises(headrace.ExhaustedError, match="arena index"):
        arenas.arena("index").allocate(1 << 50)
    with pytest.raises(headrace.UnsupportedError, match="look_every"):
        arenas.look()
    with pytest.raises(headrace.InvalidError, match="first line"):
        headrace.Arenas(machine, plan="index hbm")
    with pytest.raises(headrace.AbsentError, match="arena index"):
        headrace.Arenas(machine, plan="headrace arenas 1\nindex 4095\n")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_has_arenas_of_its_own() -> None:
    array = numpy.asarray(headrace.empty(1000, place=headrace.arena("index")))
    array[:] = 7
    child = os.fork()
    if child == 0:
        own = headrace.empty(1000, place=headrace.arena("index"))
        own[:] = 8
        os._exit(0 if (array == 7).all() and (own == 8).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_program_is_watched_and_then_placed(tmp_path: Path, run: Run, memory_node: int) -> None:
    watched = program(tmp_path, PROGRAM, HEADRACE_ARENAS_SEEN="seen.txt")
    if "Unsupported" in watched.stderr or "Denied" in watched.stderr:
        pytest.skip(watched.stderr.splitlines()[-1])
    assert (watched.returncode, watched.stderr) == (0, "")
    seen = headrace.arenas_in_plan((tmp_path / "seen.txt").read_text())
    heat = {use.name: use.heat for use in seen}
    assert heat["index"] > 0.5 > heat["values"]
    tiers = ["--tier", f"{memory_node}:dram=2MiB", "--tier", "dram"]
    made = run("advise", "arenas", "seen.txt", *tiers, "--out", "plan.txt")
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    told = "import headrace; print(headrace.arena('index').placement.nodes)"
    placed = program(tmp_path, told, HEADRACE_ARENAS="plan.txt")
    assert f"[({memory_node}, 1)" in placed.stdout, placed


def test_advise_arenas(tmp_path: Path, run: Run) -> None:
    (tmp_path / "seen.txt").write_text(SEEN)
    made = run("advise", "arenas", "seen.txt", "--tier", "hbm:dram=4MiB", "--tier", "dram=3,cxl=1")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == (
        "headrace arenas 1\n"
        "# name place most_bytes heat\n"
        "index hbm:dram 2097152 0.900\n"
        "values dram=3,cxl=1 8388608 0.050\n"
        "log dram=3,cxl=1 1048576 0.000\n"
    )


def test_unseen_heap_is_not_placed(tmp_path: Path, run: Run) -> None:
    (tmp_path / "seen.txt").write_text(SEEN + "short dram 4096 - # no two looks\n")
    made = run("advise", "arenas", "seen.txt", "--tier", "hbm:dram=4MiB", "--tier", "cxl")
    assert made.returncode == 0
    assert made.stdout.splitlines()[-1] == "short - 4096 - # no two looks"
    assert "not placed" in made.stderr and "short;" in made.stderr
    assert len(made.stderr.splitlines()) == 1


#: Arenas of short life are not seen; others are, in two looks.
WATCHED = """\
import headrace, os, sys, time
kept = headrace.empty(1 << 18, place=headrace.arena("kept"))
headrace.empty(1 << 18, place=headrace.arena("short"))
"""


def skip_unless_watched(done: subprocess.CompletedProcess[str]) -> None:
    if "UnsupportedError" in done.stderr or "DeniedError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])


def lines_of(path: Path) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in path.read_text().splitlines()[2:]}


def test_unseen_heap_is_reported(tmp_path: Path) -> None:
    done = program(tmp_path, WATCHED, HEADRACE_ARENAS_SEEN="seen.txt")
    skip_unless_watched(done)
    assert (done.returncode, done.stderr) == (0, "")
    assert lines_of(tmp_path / "seen.txt")["short"][1:5] == ["-", "2097152", "-", "#"]


def test_a_program_that_is_killed_has_told(tmp_path: Path) -> None:
    code = (
        WATCHED
        + """\
deadline = time.monotonic() + 60
while not os.path.exists("seen.txt") and time.monotonic() < deadline:
    kept += 1
    time.sleep(0.02)
os.kill(os.getpid(), 9)
"""
    )
    done = program(tmp_path, code, HEADRACE_ARENAS_SEEN="seen.txt")
    skip_unless_watched(done)
    assert done.returncode == -9
    assert float(lines_of(tmp_path / "seen.txt")["kept"][3]) > 0


def test_each_process_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    code = (
        WATCHED
        + """\
child = os.fork()
here = headrace.arena("child" if child == 0 else "parent")
if child:
    os.waitpid(child, 0)
"""
    )
    done = program(tmp_path, code, HEADRACE_ARENAS_SEEN="seen.%p.txt")
    skip_unless_watched(done)
    assert done.returncode == 0, done.stderr
    files = [lines_of(path).keys() for path in tmp_path.glob("seen.*.txt")]
    assert sorted(map(sorted, files)) == [["child"], ["kept", "parent", "short"]]


def test_another_process_does_not_write_the_same_file(tmp_path: Path) -> None:
    code = (
        WATCHED
        + """\
import subprocess
subprocess.run([sys.executable, "-c", "import headrace; headrace.arena('other')"], check=True)
"""
    )
    done = program(tmp_path, code, HEADRACE_ARENAS_SEEN="seen.txt")
    skip_unless_watched(done)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1
    assert "%p" in done.stderr
    assert lines_of(tmp_path / "seen.txt").keys() == {"kept", "short"}


@pytest.mark.parametrize("name", ["plan.txt", "./plan.txt", "link.txt"])
def test_the_plan_is_not_replaced_by_what_is_seen(tmp_path: Path, name: str) -> None:
    (tmp_path / "plan.txt").write_text(SEEN)
    (tmp_path / "link.txt").symlink_to("plan.txt")
    done = program(tmp_path, WATCHED, HEADRACE_ARENAS="plan.txt", HEADRACE_ARENAS_SEEN=name)
    assert done.returncode != 0
    assert "HEADRACE_ARENAS_SEEN=" in done.stderr.splitlines()[-1]
    assert (tmp_path / "plan.txt").read_text() == SEEN


def test_errors_name_the_variable(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("headrace arenas 1\nindex 4095\n")
    for plan in ("plan.txt", "none.txt"):
        done = program(tmp_path, WATCHED, HEADRACE_ARENAS=plan)
        assert f"HEADRACE_ARENAS={plan}: " in done.stderr.splitlines()[-1]


def test_difference_from_the_plan_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("headrace arenas 1\r\nkept\tdram\r\nvalues dram\r\n")
    done = program(tmp_path, WATCHED, HEADRACE_ARENAS="plan.txt")
    assert (done.returncode, done.stderr) == (
        0,
        "headrace: the plan plan.txt (HEADRACE_ARENAS) names arenas that were not used: values; "
        "it does not name some that were: short\n",
    )


def test_a_signal_handler_may_ask_while_the_arenas_are_opened(tmp_path: Path) -> None:
    code = """\
import headrace, os, signal
from headrace import _arenas
discover = _arenas.Machine.discover
def interrupted(**options):
    os.kill(os.getpid(), signal.SIGUSR1)
    return discover(**options)
class Machine:
    discover = staticmethod(interrupted)
_arenas.Machine = Machine
signal.signal(signal.SIGUSR1, lambda *_: print(headrace.arena("handler")))
signal.alarm(60)
print(headrace.arena("main"))
"""
    done = program(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["Arena('handler')", "Arena('main')"]


SLOW = """\
import headrace, os, signal, sys, threading, time
from headrace import _arenas
discover, began = _arenas.Machine.discover, threading.Event()
class Machine:
    @staticmethod
    def discover(**options):
        began.set()
        time.sleep(0.2)
        return discover(**options)
_arenas.Machine = Machine
"""


def test_a_fork_while_the_arenas_are_opened_gets_its_own(tmp_path: Path) -> None:
    code = (
        SLOW
        + """\
opener = threading.Thread(target=headrace.arena, args=("main",))
opener.start()
began.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    headrace.empty(8, place=headrace.arena("child"))
    sys.exit(0)
opener.join()
assert os.waitpid(child, 0)[1] == 0
"""
    )
    done = program(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_a_handler_may_fork_while_the_arenas_are_opened(tmp_path: Path) -> None:
    code = (
        SLOW
        + """\
children = []
def fork(*_):
    children.append(os.fork())
    if children[0] == 0:
        signal.alarm(30)
signal.signal(signal.SIGUSR1, fork)
def interrupt():
    began.wait()
    os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=interrupt).start()
headrace.empty(8, place=headrace.arena("either"))
assert children
if children[0] != 0:
    assert os.waitpid(children[0], 0)[1] == 0
"""
    )
    done = program(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_a_last_look_that_fails_loses_nothing(tmp_path: Path) -> None:
    code = (
        WATCHED
        + """\
from headrace import _arenas
def failing(self):
    raise headrace.ExhaustedError("no memory")
arenas = _arenas._of_process
for _ in range(3):
    kept += 1
    arenas.look()
headrace.Arenas.look = failing
"""
    )
    done = program(tmp_path, code, HEADRACE_ARENAS_SEEN="seen.txt")
    skip_unless_watched(done)
    assert done.returncode == 0
    assert "last look" in done.stderr and "no memory" in done.stderr
    assert float(lines_of(tmp_path / "seen.txt")["kept"][3]) > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["none.txt", "--tier", "dram"], "none.txt"),
        (["seen.txt", "--tier", "hbm", "--tier", "dram"], "--tier hbm=16GiB"),
        (["seen.txt", "--tier", "hbm=4XB"], "no size"),
        (["other.txt", "--tier", "dram"], "first line"),
        (["seen.txt", "--tier", ""], "place"),
    ],
)
def test_advise_arenas_refuses(tmp_path: Path, run: Run, arguments: list[str], told: str) -> None:
    (tmp_path / "seen.txt").write_text(SEEN)
    (tmp_path / "other.txt").write_text("something else\n")
    made = run("advise", "arenas", *arguments)
    assert made.returncode != 0 and made.stdout == ""
    assert told in made.stderr and len(made.stderr.splitlines()) == 1
