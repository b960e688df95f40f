# SPDX-License-Identifier: Apache-2.0
"""The package headrace-bench: the commands of `headrace bench`, which headrace lists without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from nanobind.stubgen import StubGen

import headrace
import headrace_bench
from headrace._cli import app

ROOT = Path(__file__).resolve().parents[3]
#: The command where no package of benchmarks is installed.
WITHOUT = """
import sys
from importlib import metadata
metadata.entry_points = lambda **kind: []
sys.modules["headrace_bench"] = None
from headrace._cli import main
sys.argv = ["headrace", *{}]
main()
"""


@pytest.mark.parametrize(
    "arguments", [["bench"], ["bench", "--help"], ["bench", "query"], ["predict", "kv"]]
)
def test_bench_without_the_package_says_what_to_install(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(arguments)], capture_output=True, text=True
    )
    assert done.returncode == 3, done
    assert done.stderr == (
        "headrace: no benchmarks are installed; run: make install, in a clone of Headrace, or "
        "pip install 'headrace[bench]'\n"
    )


def test_Completion_WithoutThePackage_SaysNothing() -> None:
    words = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": "headrace bench --h",
             "COMP_CWORD": "2"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format([])], capture_output=True, text=True,
        env=os.environ | words,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_help_without_the_package_lists_bench() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(["--help"])], capture_output=True, text=True
    )
    assert done.returncode == 0, done
    assert "  bench " in done.stdout


def test_entry_points_are_commands() -> None:
    commands = app._added("headrace.bench")
    assert len(commands) == 11
    for module in (commands | app._added("headrace.model")).values():
        assert callable(import_module(module).command)


def test_both_packages_have_one_version() -> None:
    told = re.findall(r'headrace(?:-bench)?(?:\[\w+\])?==([^"]+)"', _text("pyproject.toml"))
    told += re.findall(r'(?:\nversion = "|headrace==)([^"]+)"', _text("benchmarks/pyproject.toml"))
    assert len(told) == 4
    assert set(told) == {headrace.__version__}


def test_PackagesOfDifferentBuilds_AreRefusedInALine() -> None:
    assert re.fullmatch("[0-9a-f]{16}", headrace_bench._core._build_id())
    code = (
        "from headrace import _core; _core._build_id = lambda: 'another'\n"
        "from headrace._cli import main; import sys\n"
        "sys.argv = ['headrace', 'bench', 'histogram']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done
    assert "different builds; run: make install" in done.stderr


def test_the_stub_is_that_of_the_extension(request: pytest.FixtureRequest) -> None:
    made = StubGen(headrace_bench._core, include_docstrings=False)
    made.put(headrace_bench._core)
    text = made.get().rstrip().replace("os.PathLike)", "os.PathLike[str])")
    path = ROOT / "benchmarks/python/headrace_bench/_core.pyi"
    head = "".join(path.read_text().splitlines(keepends=True)[:2])
    if request.config.getoption("--update-golden"):
        path.write_text(head + text + "\n")
    assert path.read_text() == head + text + "\n"


def _text(file: str) -> str:
    return (ROOT / file).read_text()


def test_a_refused_argument_is_one_line() -> None:
    with pytest.raises(headrace.ArgumentError, match="machine is 'x', not Machine"):
        headrace_bench.Engines("x")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidError, match="no query 'zz'"):
        headrace_bench.query_columns("zz")
