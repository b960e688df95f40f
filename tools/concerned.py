#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What changed since main, and which steps and test programs that concerns.

A C++ file concerns the test program of its folder; a header also those whose files include it,
however indirectly. The whole is still run before a change is handed in: what a folder does for
another without any header having changed is seen there.

    tools/concerned.py build/asan/test_programs.txt [LABEL]
        the names of the test programs concerned, of those that a build has, with the label only
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from scheduler import Step

ROOT = Path(__file__).resolve().parent.parent
CPP = {".cpp", ".h", ".c"}
#: Branches that a change is compared with, the first that there is.
MAIN = ("refs/heads/main", "refs/remotes/origin/main")


def git(root: Path, *arguments: str) -> list[str]:
    """The entries that a git command prints, separated by NUL with -z and by newlines without."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        sys.exit("concerned: no git; run tools/test.sh without --changed")
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or "no commit in common with main").splitlines()[0]
        sys.exit(f"concerned: git {arguments[0]}: {said}; run tools/test.sh without --changed")
    separator = "\0" if "-z" in arguments else "\n"
    return [entry for entry in done.stdout.split(separator) if entry]


def changed_files(root: Path) -> list[str]:
    """By git: since the branch left main (a clone may have only the remote's), what is not
    committed included."""
    known = git(root, "for-each-ref", "--format=%(refname:short)", *MAIN)
    if not known:
        sys.exit("concerned: no branch main to compare with; run tools/test.sh without --changed")
    [base] = git(root, "merge-base", "HEAD", known[0])
    untracked = git(root, "ls-files", "-z", "--others", "--exclude-standard")
    return sorted({*git(root, "diff", "-z", "--name-only", "--no-renames", base), *untracked})


def includes(root: Path, file: str) -> set[str]:
    """What a file includes of ours, as paths in the tree."""
    text = (root / file).read_text(errors="replace")
    found = set()
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE):
        for folder in ("", "include/", "src/", "tests/"):
            if (root / folder / name).is_file():
                found.add(folder + name)
    return found


def concerned_files(root: Path, changed: Iterable[str], files: Sequence[str]) -> set[str]:
    """The changed files and all that include them, however indirectly."""
    users: dict[str, set[str]] = {}
    for file in files:
        for included in includes(root, file):
            users.setdefault(included, set()).add(file)
    found: set[str] = set()
    left = [file for file in changed if Path(file).suffix in CPP]
    while left:
        if (file := left.pop()) not in found:
            found.add(file)
            left += users.get(file, ())
    return found


def cpp_files(root: Path) -> list[str]:
    listed = git(root, "ls-files", "-z", "-co", "--exclude-standard", "--", "*.cpp", "*.h", "*.c")
    return [file for file in listed if (root / file).is_file()]


def programs_for(folders: set[str], programs: Iterable[str], label: str = "") -> list[str]:
    """Takes lines `program folder label...`, gives the programs of these folders."""
    words = [line.split() for line in programs]
    return sorted(
        program for program, folder, *labels in words
        if folder in folders and (not label or label in labels)
    )  # fmt: skip


def changed_only(step: Step, preset: str) -> tuple[Step, Step]:
    """A build of the test programs concerned, and their run in place of all tests of a preset."""
    label = " threaded" if preset == "tsan" else ""
    list_them = f"programs=$(tools/concerned.py build/{preset}/test_programs.txt{label})\n"
    nothing = '[ -n "$programs" ] || exit 0\n'
    configure = f"cmake --preset {preset} >/dev/null\n"
    build = Step(
        f"build-{preset}",
        configure + list_them + nothing + f"cmake --build --preset {preset} --target $programs",
        ("packages",), is_build=True,
    )  # fmt: skip
    run = f'ctest --preset {preset} -j "$JOBS" -R "^($(echo $programs | tr " " "|"))([.]|$)"'
    return build, replace(step, command=list_them + nothing + run)


#: Which steps files concern besides the C++ tests; the first pattern that matches counts.
STEPS = [
    (r"((.*/)?CMakeLists\.txt|CMakePresets\.json|Makefile|cmake/.*)", ["*"]),
    (r"tools/(packages.*|(setup|install|jobs|fresh)\.sh)", ["*"]),
    (r"tests/bare/.*|tools/wheel\.sh", ["python", "bare"]),
    (r"tests/python/.*|python/.*|pyproject\.toml", ["types", "python", "docs"]),
    (r"bench/.*", ["types", "python"]),
    (r".*_bench\.cpp", ["benchmarks"]),
    (r"tests/guest/.*", ["guest"]),
    (r"tests/aarch64/.*", ["aarch64"]),
    (r"tests/install/.*|examples/.*", ["install"]),
    (r"src/backend/cuda/kernels\.(cu|ptx)|tools/make_ptx\.sh", ["ptx"]),
    (r"tests/abi/.*|src/backend/cuda/driver_api\.h", ["abi"]),
    (r"include/.*", ["headers", "docs"]),
    (r"tools/mutat.*|tools/one_file\.py", ["python", "mutate"]),
    (r"tools/.*|docs/.*|.*\.md|tests/golden/.*|machines/.*", ["python", "docs"]),
    (r"\.(ci|github|pre-commit).*", ["python"]),
]  # fmt: skip


def steps_for(files: Sequence[str], everything: Sequence[Step]) -> tuple[list[Step], list[str]]:
    """All steps, with those of ASan and TSan made shorter, and the names of those to run."""
    names = {"house", "format"}
    for file in files:
        for pattern, steps in STEPS:
            if re.fullmatch(pattern, file):
                names.update(steps)
                break
    if "*" in names:
        return list(everything), [step.name for step in everything]
    steps = {step.name: step for step in everything}
    if any(Path(file).suffix in CPP for file in files):
        names |= {"asan", "tsan"}
        for preset in ("asan", "tsan"):
            steps[f"build-{preset}"], steps[preset] = changed_only(steps[preset], preset)
    return list(steps.values()), sorted(names)


def main() -> int:
    found = concerned_files(ROOT, changed_files(ROOT), cpp_files(ROOT))
    programs = Path(sys.argv[1]).read_text().splitlines()
    print(*programs_for({str(Path(file).parent) for file in found}, programs, *sys.argv[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
