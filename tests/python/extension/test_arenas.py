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
Golden = Callable[[str, str], None]

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


def test_memory_goes_back_when_the_last_array_goes(machine: headrace.Machine) -> None:
    arenas = headrace.Arenas(machine)
    arena = arenas.arena("index")
    for _ in range(3):
        memory = arena.allocate(16 << 20)
        memory.numpy()[:] = 1
        assert memory.node == machine.of_kind("dram")[0].id
        del memory
    (use,) = arenas.uses()
    assert (use.name, use.most, use.looks) == ("index", 16 << 20, 0)


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


def test_what_is_refused(machine: headrace.Machine) -> None:
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


def test_advise_arenas(tmp_path: Path, run: Run, golden: Golden) -> None:
    (tmp_path / "seen.txt").write_text(SEEN)
    help_text = run("advise", "arenas", "--help")
    golden("help/advise/arenas.txt", help_text.stdout)
    made = run("advise", "arenas", "seen.txt", "--tier", "hbm:dram=4MiB", "--tier", "dram=3,cxl=1")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == (
        "headrace arenas 1\n"
        "# name place most_bytes heat\n"
        "index hbm:dram 2097152 0.900\n"
        "values dram=3,cxl=1 8388608 0.050\n"
        "log dram=3,cxl=1 1048576 0.000\n"
    )


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
