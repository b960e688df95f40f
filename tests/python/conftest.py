"""What the Python tests share: the command as users run it, files of known bytes, golden texts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy
import pytest

import headrace

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

# A shell that starts the tests in the background has Ctrl-C ignored and nohup SIGHUP, for all that
# they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
Headrace = Callable[..., Done]


def clean_environment() -> dict[str, str]:
    """This process's, without what says how headrace behaves."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE", "MEMKIND"))}
    return kept | {"COLUMNS": "80"}


@pytest.fixture
def run(command: Path, tmp_path: Path) -> Headrace:
    """run("topo", "--json", env={...}): the command in an empty directory."""

    def run_it(
        *arguments: str, env: dict[str, str] | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        clean = clean_environment() | (env or {})
        settings: dict[str, object] = {"cwd": tmp_path, "capture_output": True, "timeout": 300}
        return subprocess.run(
            [str(command), *arguments], env=clean, text=True, check=False, **settings | options
        )  # type: ignore[call-overload,no-any-return]

    return run_it


#: A process that has loaded what commands load, and a fork of it for each command: which, and where
#: to write what they print.
EACH = """
import json, os, sys
import headrace._cli.app, headrace._cli.tables, typer.exceptions
from headrace._cli import main
for number, arguments in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        for descriptor in (1, 2):
            file = f"{sys.argv[2]}/{number}.{descriptor}"
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.argv = ["headrace", *arguments]
        main()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def finished(script: Sequence[str], cwd: Path, timeout: float) -> tuple[bool, str, str]:
    """Whether it ended in time, and what it printed. Nothing that it started outlives it."""
    with subprocess.Popen(
        script, env=clean_environment(), cwd=cwd, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, error = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False, *process.communicate(timeout=60)
        except BaseException:  # Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, error
    return True, out, error


@pytest.fixture
def run_each(
    command: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Iterator[Done]]:
    """run_each([["topo"], ["doctor"]]): as `run`, each in a process, but loaded once for all."""

    def run_them(commands: Sequence[Sequence[str]], timeout: float = 300) -> Iterator[Done]:
        said = tmp_path_factory.mktemp("said")
        script = [sys.executable, "-c", EACH, json.dumps(commands), str(said)]
        in_time, printed, error = finished(script, tmp_path, timeout)
        codes = printed.split()
        assert in_time, f"after {timeout:g} s there ran: {[*commands, 'none'][len(codes)]}; {error}"
        for number, code in enumerate(codes):
            out, error = ((said / f"{number}.{end}").read_text() for end in (1, 2))
            yield subprocess.CompletedProcess(commands[number], int(code), out, error)

    return run_them


def built(path: Path, environment: Mapping[str, str]) -> Path:
    """What a C++ build makes. A test is skipped where there is none, but fails where all that are
    needed were built, which tools/steps.py says.
    """
    if not path.exists():
        miss = pytest.fail if environment.get("HEADRACE_EVERY_TEST") == "1" else pytest.skip
        miss(f"no {path}; cmake --build --preset release makes it")
    return path


@pytest.fixture(scope="session")
def fake_cuda() -> Path:
    """The driver of GPUs made of software."""
    return built(ROOT / "build" / "release" / "libheadrace-fake-cuda.so", os.environ)


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> headrace.Machine:
    return headrace.Machine.discover(storage=[tmp_path_factory.getbasetemp()])


@pytest.fixture(scope="session")
def measured(machine: headrace.Machine) -> headrace.Profile:
    """STREAM of this host, measured once for all that ask what a profile says, not how fast."""
    return headrace.measure(
        machine, experiments=["stream"], budget=2, rounds=1, repetitions=1, noise_checks=False
    )


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
