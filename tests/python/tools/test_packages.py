# SPDX-License-Identifier: Apache-2.0
"""Packages to install: the README names them, and the package has the contents it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def listed(name: str) -> set[str]:
    text = re.sub(r"#.*", "", (ROOT / "tools" / name).read_text())
    return set(text.split())


def test_the_readme_names_every_package() -> None:
    install = (ROOT / "README.md").read_text().split("## Install")[1].split("\n## ")[0]
    commands = re.findall(r"apt install ((?:.*\\\n)*.*)", install)
    named = {word for command in commands for word in command.split()}
    assert listed("packages.txt") <= named


def test_packages_cmake_names_are_those_installed() -> None:
    text = (ROOT / "cmake" / "dependencies.cmake").read_text()
    package = r"\b(?:lib[\w-]+-dev|nlohmann-json3-dev|pkg-config|g\+\+)(?=[ )\"])"
    named = set(re.findall(package, text))
    assert "libhwloc-dev" in named
    assert named <= listed("packages.txt") | listed("packages-test.txt")


def test_neither_library_nor_extension_has_the_dsa_emulator() -> None:
    """Its classes have type names, which no linker strips."""
    from headrace import _core

    bytes_of_it = Path(_core.__file__).read_bytes()
    assert b"N8headrace" in bytes_of_it, "other classes have theirs"
    assert b"N8headrace8emulator" not in bytes_of_it and b"DsaModel" not in bytes_of_it


def test_the_emulator_comes_with_the_package() -> None:
    if subprocess.run(["pkg-config", "--exists", "fuse3 >= 3.12"]).returncode != 0:
        pytest.skip("no fuse3, so no headrace-dsa-sim: it is NOT tested here")
    program = Path(sys.executable).parent / "headrace-dsa-sim"
    assert subprocess.run([program, "--help"], capture_output=True).returncode == 0
