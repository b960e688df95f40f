# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all Python tests: the command as users run it, files of known bytes, golden texts."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
from forked import FORKS, can_fork, clean_environment
from hypothesis import settings
from small_host import small

import headrace
from headrace_bench import tpch

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

# A shell that starts the tests in the background has Ctrl-C ignored and nohup SIGHUP, for all that
# they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=200)


def pytest_configure(config: pytest.Config) -> None:
    """Tests that are slow are random tests' many examples too: `-m "slow or not slow"`."""
    quick = config.getoption("markexpr") == "not slow"
    settings.load_profile("quick" if quick else "thorough")


def pytest_collection_finish() -> None:
    """Freezes all that is loaded: no test that collects garbage looks through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def times() -> Callable[[int, int], int]:
    """times(10, 40): how often something is tried, here and where the slow tests run too."""
    quick = settings().max_examples == settings.get_profile("quick").max_examples
    return lambda few, many: few if quick else many


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): text must be what the file tests/golden/name holds."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no {path}; run pytest --update-golden and look at it"
        assert text == path.read_text()

    return compare


@pytest.fixture(scope="session")
def command() -> Path:
    """The installed command."""
    path = Path(sys.executable).parent / "headrace"
    assert path.exists(), "pip install . first"
    return path


Done = subprocess.CompletedProcess[str]
#: The fixtures `run` and `golden`.
Run = Headrace = Callable[..., Done]
Golden = Callable[[str, str], None]


def without_launcher(extra: Mapping[str, str]) -> dict[str, str]:
    """Variables for `run`: `extra`, and nothing that a launcher of ranks has left."""
    launchers = ("OMPI_", "PMI", "MPI_", "MV2_", "PALS_", "SLURM_", "LOCAL_")
    return {name: "" for name in os.environ if name.startswith(launchers)} | dict(extra)


@pytest.fixture
def run(command: Path, tmp_path: Path) -> Headrace:
    """run("topo", "--json", env={...}): the command in an empty directory. It is a fork of a
    process that has loaded it, except where the test says how it is started, or in which language.
    """

    def run_it(
        *arguments: str, env: dict[str, str] | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        clean = clean_environment() | (env or {})
        settings: dict[str, Any] = {"cwd": tmp_path, "timeout": 300} | options
        words = [str(command), *arguments]
        if settings.keys() == {"cwd", "timeout"} and can_fork(clean):
            return FORKS.run(words, environment=clean, **settings)
        settings = {"capture_output": True} | settings
        return subprocess.run(words, env=clean, text=True, check=False, **settings)

    return run_it


def pytest_sessionfinish() -> None:
    FORKS.end()


def built(path: Path, environment: Mapping[str, str]) -> Path:
    """A file made by a C++ build. Without it the test is skipped, or fails if tools/steps.py has
    built everything that tests need.
    """
    if not path.exists():
        miss = pytest.fail if environment.get("HEADRACE_EVERY_TEST") == "1" else pytest.skip
        miss(f"no {path}; cmake --build --preset release makes it")
    return path


@pytest.fixture(scope="session")
def fake_cuda() -> Path:
    """The driver of GPUs made of software, or a real one that `tools/test.sh gpu` names."""
    if real := os.environ.get("HEADRACE_TEST_LIBCUDA"):
        return Path(real)
    return built(ROOT / "build" / "release" / "libheadrace-fake-cuda.so", os.environ)


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> headrace.Machine:
    """This host, with little memory and small caches."""
    return small(headrace.Machine.discover(storage=[tmp_path_factory.getbasetemp()]))


@pytest.fixture(scope="session")
def measured(machine: headrace.Machine) -> headrace.Profile:
    """STREAM of this host, measured once for all that ask what a profile says, not how fast."""
    return headrace.measure(
        machine, experiments=["stream"], budget=2, rounds=1, repetitions=1, noise_checks=False
    )


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H's data at scale 0.01, made by the first process of the tests that needs them."""
    temporary = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        temporary = temporary.parent  # that of all of them
    with (temporary / "tables.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return tpch.prepare(0.01, temporary / "tables").parent


@pytest.fixture
def data(tables: Path, tmp_path: Path) -> None:
    """They are in `data` below the directory of the command."""
    (tmp_path / "data").symlink_to(tables)


@pytest.fixture(scope="session")
def memory_node(machine: headrace.Machine) -> int:
    """A memory node with CPUs."""
    return next(n.id for n in machine.nodes if n.byte_addressable and n.cpus)


@pytest.fixture
def mover(machine: headrace.Machine) -> headrace.Mover:
    return headrace.Mover(machine)


@pytest.fixture(scope="session")
def payload() -> bytes:
    """3 MiB and a bit: several pieces, odd at the end."""
    return numpy.random.default_rng(7).bytes((3 << 20) + 123)


@pytest.fixture
def payload_file(tmp_path: Path, payload: bytes) -> Path:
    path = tmp_path / "payload.bin"
    path.write_bytes(payload)
    return path
