"""What the Python tests share: the command as users run it, files of known bytes, golden texts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
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


#: A process that has loaded what commands load, and a fork of it for each command.
EACH = """
import json, os, sys
import headrace._cli.app, headrace._cli.tables, typer.exceptions
from headrace._cli import main
for number, arguments in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        for descriptor in (1, 2):
            os.dup2(os.open(f".{number}.{descriptor}", os.O_WRONLY | os.O_CREAT), descriptor)
        sys.argv = ["headrace", *arguments]
        main()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture
def run_each(command: Path, tmp_path: Path) -> Callable[..., Iterator[Done]]:
    """run_each([["topo"], ["doctor"]]): as `run`, each in a process, but loaded once for all."""

    def run_them(commands: Sequence[Sequence[str]]) -> Iterator[Done]:
        script = [sys.executable, "-c", EACH, json.dumps(commands)]
        done = subprocess.run(
            script, env=clean_environment(), cwd=tmp_path, capture_output=True, text=True,
            check=True, timeout=300,
        )  # fmt: skip
        for number, code in enumerate(done.stdout.split()):
            said = [tmp_path / f".{number}.{descriptor}" for descriptor in (1, 2)]
            out, error = (path.read_text() for path in said)
            for path in said:
                path.unlink()
            yield subprocess.CompletedProcess(commands[number], int(code), out, error)

    return run_them


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
