# SPDX-License-Identifier: Apache-2.0
"""Commands named by the CI workflow, the hooks and the guides exist."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import steps  # noqa: E402

GUIDES = ("CONTRIBUTING.md", "HACKING.md", "README.md")
SCRIPTS = (".ci/run", ".github/workflows/ci.yml", ".pre-commit-config.yaml")


def commands(file: str) -> str:
    """Lines of a script; of a guide only code."""
    text = (ROOT / file).read_text()
    if file in SCRIPTS:
        return re.sub(r"(?m)^\s*#.*", "", text)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", text)])


def words_after(command: str, text: str) -> Iterator[str]:
    """Words that follow a command, options left out."""
    for line in re.findall(rf"(?m){re.escape(command)}((?: +[\w=.\"-]+)*)", text):
        yield from (word for word in line.split() if re.fullmatch(r"[a-z][\w-]*", word))


@pytest.mark.parametrize("file", [*GUIDES, *SCRIPTS])
def test_named_command_exists(file: str) -> None:
    text = re.sub("apt install .*", "", commands(file))
    known = {
        step.name for step in steps.all_steps() + steps.NAMED_ONLY + steps.ON_HARDWARE
    }
    assert set(words_after("tools/test.sh", text)) <= known
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    assert set(re.findall(r"(?m)(?:^|[ `])make (\w+)", text)) <= targets
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    assert set(re.findall(r"--preset (\w+)", text)) <= {preset["name"] for preset in presets}
    for path in re.findall(r"(?<![\w/])(?:tools|tests|\.ci)/[\w./-]+", text):
        assert (ROOT / path).exists(), path


def test_workflow_covers_the_supported_systems() -> None:
    text = commands(".github/workflows/ci.yml")
    assert set(re.findall(r"image: (\S+:\S+)", text)) == {
        "debian:12", "debian:13", "ubuntu:24.04",
    }  # fmt: skip
    assert {"clang-tidy", "aarch64"} <= set(words_after("tools/test.sh", text))
    assert ".ci/run" in text


def test_hook_formats_as_the_step_does() -> None:
    hooks = commands(".pre-commit-config.yaml")
    (program,) = re.findall(r"entry: (clang-format\S*)", hooks)
    assert f" {program} " in steps.FORMAT
    (house,) = (step for step in steps.all_steps() if step.name == "house")
    assert f"entry: {house.command}\n" in hooks
