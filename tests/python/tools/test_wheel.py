# SPDX-License-Identifier: Apache-2.0
"""tools/wheel.sh --matching: which wheel of dist/ is used instead of compiling."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


class Tree:
    """A repository of one commit, with the interpreter of these tests as its .venv."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools").mkdir()
        (folder / "dist").mkdir()
        shutil.copy(ROOT / "tools" / "wheel.sh", folder / "tools")
        (folder / ".gitignore").write_text("/dist/\n/.venv\n")
        (folder / ".venv").symlink_to(sys.prefix)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
        self.commit = self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        result = subprocess.run(
            ["git", *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return result.stdout

    def add_wheel(self, tag: str, commit: str) -> str:
        """A wheel with nothing in it."""
        path = self.folder / "dist" / f"headrace-0.1.0-{tag}.whl"
        inside = "headrace-0.1.0.dist-info"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"{inside}/METADATA", "Metadata-Version: 2.1\nName: headrace\n"
                           "Version: 0.1.0\n")  # fmt: skip
            wheel.writestr(f"{inside}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
            wheel.writestr(f"{inside}/RECORD", "")
        path.with_name(path.name + ".commit").write_text(commit)
        return f"dist/{path.name}\n"

    def matching(self) -> str:
        result = subprocess.run(
            ["bash", "tools/wheel.sh", "--matching"], cwd=self.folder, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        assert result.stderr == ""
        return result.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_wheel_of_this_commit_matches_until_a_file_changes(tree: Tree) -> None:
    wheel = tree.add_wheel("py3-none-any", tree.commit)
    assert tree.matching() == wheel
    (tree.folder / "new").write_text("")
    assert tree.matching() == ""


def test_a_wheel_of_another_commit_or_interpreter_does_not_match(tree: Tree) -> None:
    tree.add_wheel("py3-none-any", "0" * 40)
    tree.add_wheel("cp39-cp39-manylinux_2_35_x86_64", tree.commit)
    assert tree.matching() == ""


def test_without_wheels_or_a_repository_nothing_is_printed(tree: Tree) -> None:
    assert tree.matching() == ""
    tree.add_wheel("py3-none-any", tree.commit)
    shutil.rmtree(tree.folder / ".git")
    assert tree.matching() == ""
