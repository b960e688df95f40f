# SPDX-License-Identifier: Apache-2.0
"""tools/install.sh, jobs.sh and fresh.sh: what goes wrong is one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def clone(folder: Path) -> Path:
    """A tree with the scripts alone, in a path with a blank."""
    tree = folder / "a tree"
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def run(tree: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tree / "tools" / words[0], *words[1:]], capture_output=True, text=True,
        env=os.environ | environment,
    )  # fmt: skip


def test_read_only_clone_ends_with_one_line(tmp_path: Path) -> None:
    tree = clone(tmp_path)
    remount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$0/tools/$1" venv'
    words = ["unshare", "--mount", "bash", "-c", remount, str(tree), "install.sh"]
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mounts here: a read-only clone is NOT tested")
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        f"install: {tree} is read-only, and Headrace is built in its clone; clone it elsewhere\n"
    )


def test_half_made_environment_is_made_again(tmp_path: Path) -> None:
    tree = clone(tmp_path)
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "bin" / "python").symlink_to("/nonexistent")
    assert run(tree, "install.sh", "venv").returncode == 0
    python = tree / ".venv" / "bin" / "python"
    assert subprocess.run([python, "-m", "pip", "--version"]).returncode == 0


def test_environment_changes_only_with_what_it_records(tmp_path: Path) -> None:
    tree = clone(tmp_path)
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "bin" / "python").symlink_to(shutil.which("python3") or "")
    file = tree / "build" / "environment"
    assert run(tree, "install.sh", "environment", str(file)).returncode == 0
    made = file.stat().st_mtime_ns
    assert run(tree, "install.sh", "environment", str(file)).returncode == 0
    assert file.stat().st_mtime_ns == made
    file.write_text(file.read_text().replace("hiredis", "nothing"))
    assert run(tree, "install.sh", "environment", str(file)).returncode == 0
    assert "nothing" not in file.read_text()


def test_build_of_another_compiler_is_removed(tmp_path: Path) -> None:
    for name, version in (("old", "1.2.3"), ("now", "9.9.9")):
        facts = tmp_path / name / "CMakeFiles" / "3.25.1" / "CMakeCXXCompiler.cmake"
        facts.parent.mkdir(parents=True)
        compiler = tmp_path / "c++"
        compiler.write_text("#!/bin/sh\necho 9.9.9\n")
        compiler.chmod(0o755)
        facts.write_text(
            f'set(CMAKE_CXX_COMPILER "{compiler}")\n'
            f'set(CMAKE_CXX_COMPILER_VERSION "{version}")\n'
        )
    done = run(ROOT, "fresh.sh", *(str(tmp_path / name) for name in ("old", "now", "none")))
    assert done.returncode == 0 and "is 9.9.9 now; building anew" in done.stdout
    assert (tmp_path / "now").exists() and not (tmp_path / "old").exists()


def test_jobs_are_bounded_by_cpus_and_memory() -> None:
    assert 1 <= int(run(ROOT, "jobs.sh").stdout) <= len(os.sched_getaffinity(0))


def test_a_number_of_jobs_that_is_none_is_one_line() -> None:
    for jobs in ("0", "abc", "-1", "2.5"):
        done = run(ROOT, "jobs.sh", JOBS=jobs)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"jobs: JOBS={jobs} is no number of compilers; give one from 1 on\n"


def test_moved_clone_is_told_and_its_environment_made_anew(tmp_path: Path) -> None:
    """Its scripts name the old place, where another clone may be."""
    old = clone(tmp_path)
    file = str(tmp_path / "environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", old / ".venv"], check=True)
    [packages] = (old / ".venv").glob("lib/python3*/site-packages")
    (packages / "pip").mkdir()
    (packages / "pip" / "__main__.py").touch()  # so that nothing but the place is wrong
    moved = old.rename(tmp_path / "moved")
    done = run(moved, "install.sh", "environment", file)
    assert done.returncode == 1
    assert done.stderr == "install: this clone was moved; rm -rf .venv build, then run it again\n"
    assert run(moved, "install.sh", "venv").returncode == 0
    assert run(moved, "install.sh", "environment", file).returncode == 0


def test_python_or_compiler_that_cannot_serve_is_named(tmp_path: Path) -> None:
    tree = clone(tmp_path)
    done = run(tree, "install.sh", "venv", PYTHON="/bin/true")
    assert done.returncode == 1 and "Python 3.11, which /bin/true is not" in done.stderr
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "bin" / "python").symlink_to(shutil.which("python3") or "")
    done = run(tree, "install.sh", "environment", str(tmp_path / "environment"), CXX="nonsense")
    assert done.returncode == 1 and "no compiler nonsense" in done.stderr


def test_build_folder_of_another_place_is_removed(tmp_path: Path) -> None:
    for name, place in (("moved", "/nonexistent/moved"), ("here", str(tmp_path / "here"))):
        (tmp_path / name).mkdir()
        cache = tmp_path / name / "CMakeCache.txt"
        cache.write_text(f"CMAKE_CACHEFILE_DIR:INTERNAL={place}\n")
    done = run(ROOT, "fresh.sh", *(str(tmp_path / name) for name in ("moved", "here")))
    assert done.returncode == 0 and "was made in /nonexistent/moved; building anew" in done.stdout
    assert (tmp_path / "here").exists() and not (tmp_path / "moved").exists()
