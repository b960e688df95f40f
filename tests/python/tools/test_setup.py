# SPDX-License-Identifier: Apache-2.0
"""tools/setup.sh, with an apt, a dpkg, an id and a sudo that only look so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[3] / "tools" / "setup.sh"

#: Programs of the system that the script calls.
NEEDED = ("bash", "env", "sed", "mktemp", "rm", "grep", "tail")


class System:
    """A PATH of its own, where g++ is installed, and apt keeps what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.calls = folder / "calls"
        self.list = folder / "packages.txt"
        self.bin.mkdir()
        for name in NEEDED:
            (self.bin / name).symlink_to(f"/usr/bin/{name}")
        self.has("id", "echo 0")
        self.has("dpkg-query", '[ "$4" = g++ ] && printf installed')
        self.has("apt-cache", '[ "$2" = chromium-browser ] && echo "chromium-browser | 1"')
        self.has("apt-get", f'echo "$@" >>{self.calls}')

    def has(self, name: str, script: str) -> None:
        program = self.bin / name
        program.write_text(f"#!/usr/bin/bash\n{script}\n")
        program.chmod(0o755)

    def run(self, packages: str) -> subprocess.CompletedProcess[str]:
        self.list.write_text(packages)
        return subprocess.run(
            ["/usr/bin/bash", SETUP, self.list], capture_output=True, text=True,
            stdin=subprocess.DEVNULL, env={"PATH": str(self.bin), "TMPDIR": str(self.list.parent)},
        )  # fmt: skip

    def installed(self) -> str:
        """The arguments of apt-get install that are packages."""
        if not self.calls.exists():
            return ""
        return self.calls.read_text().splitlines()[-1].partition("--no-install-recommends ")[2]


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_only_missing_packages_are_installed(system: System) -> None:
    result = system.run("# the compiler\ng++\ncmake # the build\nninja-build\n")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "setup: installing cmake ninja-build\n"
    assert system.installed() == "cmake ninja-build"


def test_with_everything_there_apt_is_not_called(system: System) -> None:
    result = system.run("g++\nclang++|g++\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not system.calls.exists()


def test_the_first_choice_that_apt_knows_is_taken(system: System) -> None:
    assert system.run("chromium|chromium-browser\ncmake|cmake3\n").returncode == 0
    assert system.installed() == "chromium-browser cmake"


@pytest.mark.parametrize("sudo", [None, "exit 1"])
def test_without_root_one_line_says_what_to_run(system: System, sudo: str | None) -> None:
    system.has("id", "echo 1000")
    if sudo:
        system.has("sudo", sudo)
    result = system.run("g++ cmake chromium|chromium-browser")
    assert (result.returncode, result.stdout) == (5, "")
    assert result.stderr == (
        "setup: packages are missing; install them as root: apt install cmake chromium\n"
    )
    assert not system.calls.exists()


def test_sudo_is_used_without_a_question(system: System) -> None:
    system.has("id", "echo 1000")
    system.has("sudo", f'echo "sudo $1" >>{system.calls}; [ "$1" = -n ] && shift && exec "$@"')
    (system.bin / "true").symlink_to("/usr/bin/true")
    assert system.run("cmake").returncode == 0
    assert system.installed() == "cmake" and "sudo -n" in system.calls.read_text()


@pytest.mark.parametrize(
    ("apt", "told"),
    [
        ('[[ "$*" == *update* ]] && echo "W: Failed to fetch x" && exit 0\n'
         'echo "E: Unable to locate package cmake"; exit 100',
         "no reply from the mirror of packages; when online again: make, or apt install cmake"),
        ('[[ "$*" == *update* ]] || { echo "E: disk full"; exit 100; }',
         "apt says: disk full; to see more: apt install cmake"),
    ],
    ids=["network", "disk"],
)  # fmt: skip
def test_a_failure_of_apt_is_one_line(system: System, apt: str, told: str) -> None:
    system.has("apt-get", apt)
    result = system.run("cmake")
    assert (result.returncode, result.stderr) == (5, f"setup: {told}\n")


def test_without_apt_it_names_what_is_needed(system: System) -> None:
    (system.bin / "apt-get").unlink()
    result = system.run("g++\nchromium|chromium-browser\n")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == (
        "setup: no apt here, so install what Debian's packages hold: g++ chromium\n"
    )
