# SPDX-License-Identifier: Apache-2.0
"""Copies of weights in DRAM: read once, shared by processes, never of another file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from weight_files import write

import headrace
from headrace import safetensors
from headrace._weights import kept
from headrace.safetensors import Keep

SIZE = 24 << 20


def file_of(path: Path, seed: int = 1) -> Any:
    array = numpy.random.default_rng(seed).integers(0, 256, SIZE, numpy.uint8)
    write(path, {"w": ("U8", array)})
    return array


def copies(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()} - {"lock"}


LOADS = """
import sys, time
from headrace import safetensors
from headrace._weights import kept
if sys.argv[3:]:  # stops in the middle of making a copy
    def stop(*_):
        print("in the middle", flush=True)
        time.sleep(60)
    kept._sums = stop
weights = safetensors.load(sys.argv[1], keep=safetensors.Keep("64MiB", sys.argv[2]))
read = dict(line.split(": ") for line in open("/proc/self/io"))["read_bytes"]
print(int(read), int(weights["w"].sum()), flush=True)
"""


def start(path: Path, folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOADS, str(path), str(folder), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_four_processes_read_each_byte_once(tmp_path: Path) -> None:
    array = file_of(tmp_path / "m")
    headrace.File.open(headrace.Machine.discover(), tmp_path / "m").drop_page_cache()
    ranks = [start(tmp_path / "m", tmp_path / "kept") for _ in range(4)]
    answers = [rank.communicate(timeout=60)[0].split() for rank in ranks]
    assert {int(total) for _, total in answers} == {int(array.sum())}
    # Others read the header, and perhaps modules of Python.
    assert sum(int(read) >= SIZE for read, _ in answers) <= 1
    assert len(copies(tmp_path / "kept")) == 1


def test_a_process_killed_while_it_makes_a_copy_leaves_none(tmp_path: Path) -> None:
    array = file_of(tmp_path / "m")
    with start(tmp_path / "m", tmp_path / "kept", "stop") as killed:
        assert killed.stdout is not None and killed.stdout.readline() == "in the middle\n"
        (left,) = copies(tmp_path / "kept")
        assert left.endswith(".making")
        with pytest.raises(headrace.TimedOutError, match="another process still makes a copy"):
            safetensors.load(tmp_path / "m", keep=Keep("64MiB", tmp_path / "kept", wait=0.1))
        waiting = start(tmp_path / "m", tmp_path / "kept")
        killed.send_signal(signal.SIGKILL)
    assert int(waiting.communicate(timeout=60)[0].split()[1]) == int(array.sum())
    (made,) = copies(tmp_path / "kept")
    assert not made.endswith(".making")


def test_a_changed_file_has_another_copy(tmp_path: Path) -> None:
    keep = Keep("64MiB", tmp_path / "kept")
    for seed in (1, 2):
        array = file_of(tmp_path / "m", seed)
        for _ in range(2):
            assert (safetensors.load(tmp_path / "m", keep=keep)["w"] == array).all()


def test_a_damaged_copy_is_made_anew(tmp_path: Path) -> None:
    array = file_of(tmp_path / "m")
    keep = Keep("64MiB", tmp_path / "kept")
    safetensors.load(tmp_path / "m", keep=keep)
    (name,) = copies(tmp_path / "kept")
    for damage in (lambda file: file.write(b"\x01"), lambda file: file.truncate(SIZE // 2)):
        with (tmp_path / "kept" / name).open("r+b") as file:
            file.seek(SIZE // 2)
            damage(file)
        assert (safetensors.load(tmp_path / "m", keep=keep)["w"] == array).all()


def test_what_a_process_writes_stays_its_own(tmp_path: Path) -> None:
    array = file_of(tmp_path / "m")
    keep = Keep("64MiB", tmp_path / "kept", verify=False)
    safetensors.load(tmp_path / "m", keep=keep)["w"][:] = 0
    assert (safetensors.load(tmp_path / "m", keep=keep)["w"] == array).all()


def test_the_least_used_copies_leave_unless_they_are_used(tmp_path: Path) -> None:
    keep = Keep("64MiB", tmp_path / "kept")
    arrays = {name: file_of(tmp_path / name, seed) for seed, name in enumerate("abc")}
    for name in "abac":
        assert (safetensors.load(tmp_path / name, keep=keep)["w"] == arrays[name]).all()
    assert len(copies(tmp_path / "kept")) == 2
    held = [safetensors.load(tmp_path / name, keep=keep) for name in "ac"]
    assert len(copies(tmp_path / "kept")) == 2
    with pytest.raises(headrace.ExhaustedError, match=r"of which .* are in use"):
        safetensors.load(tmp_path / "b", keep=keep)
    assert (held[0]["w"] == arrays["a"]).all()
    del held
    assert (safetensors.load(tmp_path / "b", keep=keep)["w"] == arrays["b"]).all()
    assert sum(each.stat().st_size for each in (tmp_path / "kept").iterdir()) <= 64 << 20


def test_slips_of_the_folder_are_one_line(tmp_path: Path) -> None:
    file_of(tmp_path / "m")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(headrace.DeniedError, match="others may write"):
        safetensors.load(tmp_path / "m", keep=Keep("64MiB", tmp_path / "shared"))
    with pytest.raises(headrace.AbsentError, match="cannot keep weights in"):
        safetensors.load(tmp_path / "m", keep=Keep("64MiB", tmp_path / "no" / "folder"))
    with pytest.raises(headrace.InvalidError, match="'lots' is no size"):
        safetensors.load(tmp_path / "m", keep=Keep("lots", tmp_path / "kept"))
    with pytest.raises(headrace.ExhaustedError, match="give a larger budget"):
        safetensors.load(tmp_path / "m", keep=Keep(SIZE // 2, tmp_path / "kept"))


def test_a_lock_that_is_held_is_waited_for_with_a_bound(tmp_path: Path) -> None:
    file_of(tmp_path / "m")
    (tmp_path / "kept").mkdir(mode=0o700)
    with (
        kept._locked(tmp_path / "kept", time.monotonic() + 1),
        pytest.raises(headrace.TimedOutError, match="another process still makes a copy"),
    ):
        safetensors.load(tmp_path / "m", keep=Keep("64MiB", tmp_path / "kept", wait=0.1))


def test_the_default_folder_is_this_user_s() -> None:
    assert kept.default_folder().endswith(f"-{os.geteuid()}")
