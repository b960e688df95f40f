# SPDX-License-Identifier: Apache-2.0
"""Copies of weights in DRAM: read once, shared by processes, never of another file."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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


@pytest.fixture(autouse=True)
def new_files_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_SETTLED", 0.0)


def file_of(path: Path, seed: int = 1) -> Any:
    array = numpy.random.default_rng(seed).integers(0, 256, SIZE, numpy.uint8)
    write(path, {"w": ("U8", array)})
    return array


def copies(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()} - {"lock"}


def damage(path: Path, at: int = SIZE // 2, by: bytes = b"\x01\x02") -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(by)


LOADS = """
import sys, time
from headrace import safetensors
from headrace._weights import kept
kept._SETTLED = 0.0
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
    for break_it in (damage, lambda path: os.truncate(path, SIZE // 2)):
        break_it(tmp_path / "kept" / name)
        assert (safetensors.load(tmp_path / "m", keep=keep)["w"] == array).all()


@pytest.mark.parametrize("length", [0, SIZE // 2])
def test_a_copy_that_was_cut_off_is_made_anew_without_checksums(
    tmp_path: Path, length: int
) -> None:
    array = file_of(tmp_path / "m")
    keep = Keep("64MiB", tmp_path / "kept", verify=False)
    safetensors.load(tmp_path / "m", keep=keep)
    (name,) = copies(tmp_path / "kept")
    os.truncate(tmp_path / "kept" / name, length)
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
        Keep("lots")
    with pytest.raises(headrace.InvalidError, match=r"wait is -1; give seconds"):
        Keep("1GiB", wait=-1)
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


def test_foreign_files_in_the_folder_stay(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    (folder / "mine").mkdir(parents=True)
    folder.chmod(0o700)
    names = ("notes", "a.making", "0" * 31, "0" * 33, f"{'0' * 32}.txt")
    for name in names:
        (folder / name).write_bytes(b"text" * 1000)
    for name in "abc":
        file_of(tmp_path / name)
        safetensors.load(tmp_path / name, keep=Keep("25MiB", folder))
    assert all((folder / name).read_bytes() == b"text" * 1000 for name in names)
    assert len(copies(folder)) == len(names) + 2


def test_zeros_and_swapped_parts_are_noticed(tmp_path: Path) -> None:
    array = file_of(tmp_path / "m")
    keep = Keep("64MiB", tmp_path / "kept")
    safetensors.load(tmp_path / "m", keep=keep)
    (name,) = copies(tmp_path / "kept")
    whole = (tmp_path / "kept" / name).read_bytes()
    part, sums = kept._PART, whole[-16:]
    data = whole[:-16].ljust(2 * part, b"\0")
    swapped = data[part:] + data[:part]
    for content in (bytes(len(whole)), swapped[: len(whole) - 16] + sums[8:] + sums[:8]):
        (tmp_path / "kept" / name).write_bytes(content)
        assert (safetensors.load(tmp_path / "m", keep=keep)["w"] == array).all()
    zeros = mmap.mmap(-1, 4 * part)
    values = numpy.frombuffer(kept._sums(zeros, 4 * part, name), numpy.uint64)
    assert len(set(values.tolist()) | {0}) == 5


def test_a_copy_is_on_its_device_before_it_has_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file_of(tmp_path / "m")
    names: list[set[str]] = []
    monkeypatch.setattr(os, "fsync", lambda file: names.append(copies(tmp_path / "kept")))
    safetensors.load(tmp_path / "m", keep=Keep("64MiB", tmp_path / "kept"))
    ((name,),) = names
    assert name.endswith(".making")


def test_a_file_that_has_just_changed_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept, "_SETTLED", 3600.0)
    array = file_of(tmp_path / "m")
    os.utime(tmp_path / "m", (1, 1))  # the time of the data is set back
    for _ in range(2):
        found = safetensors.load(tmp_path / "m", keep=Keep("64MiB", tmp_path / "kept"))
        assert (found["w"] == array).all()
    assert not (tmp_path / "kept").exists()


def test_a_change_whose_time_is_set_back_has_another_copy(tmp_path: Path) -> None:
    keep = Keep("64MiB", tmp_path / "kept")
    for seed in (1, 2):
        array = file_of(tmp_path / "m", seed)
        os.utime(tmp_path / "m", (1, 1))
        assert (safetensors.load(tmp_path / "m", keep=keep)["w"] == array).all()


def test_ranks_that_find_a_damaged_copy_together_make_one(tmp_path: Path) -> None:
    array = file_of(tmp_path / "m")
    keep = Keep("64MiB", tmp_path / "kept")
    safetensors.load(tmp_path / "m", keep=keep)
    (name,) = copies(tmp_path / "kept")
    path = tmp_path / "kept" / name
    old = path.stat().st_ino
    damage(path)
    both, made = threading.Barrier(2, timeout=60), []
    whole, make = kept._is_whole, kept._make

    def together(found: Any, *arguments: Any, **more: Any) -> bool:
        right = whole(found, *arguments, **more)
        if found.number == old:
            both.wait()  # each has seen the damage before one makes it anew
        return right

    def counted(*arguments: Any) -> None:
        made.append(arguments)
        make(*arguments)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as ranks:
        patch.setattr(kept, "_is_whole", together)
        patch.setattr(kept, "_make", counted)
        loads = [ranks.submit(safetensors.load, tmp_path / "m", keep=keep) for _ in range(2)]
        assert all((load.result(60)["w"] == array).all() for load in loads)
    assert len(made) == 1 and copies(tmp_path / "kept") == {name}


def test_a_child_of_fork_does_not_keep_the_lock(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    read, write_end = os.pipe()
    with kept._locked(tmp_path, time.monotonic()):
        child = os.fork()
        if child == 0:
            os.read(read, 1)  # until the test ends
            os._exit(0)
    try:
        with kept._locked(tmp_path, time.monotonic()):
            pass
    finally:
        os.write(write_end, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write_end)


def test_a_full_file_system_evicts_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep = Keep("1GiB", tmp_path / "kept")
    arrays = {name: file_of(tmp_path / name, seed) for seed, name in enumerate("abc")}
    held = safetensors.load(tmp_path / "a", keep=keep)
    safetensors.load(tmp_path / "b", keep=keep)
    allocate = os.posix_fallocate

    def with_space_for_two(file: int, offset: int, length: int) -> None:
        if len(copies(tmp_path / "kept")) > 2:
            raise OSError(errno.ENOSPC, "full")
        allocate(file, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", with_space_for_two)
    more = safetensors.load(tmp_path / "c", keep=keep)
    assert (more["w"] == arrays["c"]).all() and (held["w"] == arrays["a"]).all()
    with pytest.raises(headrace.ExhaustedError, match="cannot keep"):
        safetensors.load(tmp_path / "b", keep=keep)
    assert len(copies(tmp_path / "kept")) == 2


def test_a_folder_that_is_a_link_is_one(tmp_path: Path) -> None:
    array = file_of(tmp_path / "m")
    (tmp_path / "kept").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("kept")
    found = safetensors.load(tmp_path / "m", keep=Keep("64MiB", tmp_path / "link"))
    assert (found["w"] == array).all() and len(copies(tmp_path / "kept")) == 1
