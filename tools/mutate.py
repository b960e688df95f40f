#!/usr/bin/env python3
"""Breaks the cache's protocol of hits without a lock in one way after the other and shows that a
test notices each. Minutes; needs what `tools/test.sh release` needs.

Usage: mutate.py [NAME...]   (names from the table that it prints; none: all)
Exit status: 1 if a mutation was not noticed, 2 if one does not apply any more or does not compile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITES = [
    "ReadersTest",
    "CacheEntryTest",
    "CacheHits",
    "CacheStress",
    "CacheAccess",
    "BlockTest",
    "CacheModel",
    "PrefetchTest",
    "PlanTest",
]
#: A break may let threads wait for each other.
RUN_BOUND = 240


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    code: str
    broken: str


MUTATIONS = [
    Mutation(
        "no look at the word after the slot is set (P3)",
        "src/cache/entry.h",
        "return is_open(word.load()) && range().contains(wanted);",
        "return range().contains(wanted);",
    ),
    Mutation(
        "no look at the key after the slot is set (P4)",
        "src/cache/entry.h",
        "return is_open(word.load()) && range().contains(wanted);",
        "return is_open(word.load()) && wanted.length > 0;",
    ),
    Mutation(
        "nothing is looked at after the slot is set (P3, P4)",
        "src/cache/hits.cpp",
        "if (entry.is_open_for(range)) [[likely]] {",
        "if (entry.is_open_for(range) || true) {",
    ),
    Mutation(
        "no heavy fence before the slots are read (D2)",
        "src/cache/readers.h",
        "    if (fences_) heavy_fence();\n",
        "",
    ),
    Mutation(
        "readers are not asked before the slots are read (D1)",
        "src/cache/readers.h",
        "    for (const auto& reader : readers_) reader->ask(true);\n",
        "",
    ),
    Mutation(
        "a counted pin lets go without the lock (L3)",
        "src/cache/readers.h",
        "(marks & (Reader::kAsked | reader.bit(slot))) == 0;",
        "(marks & Reader::kAsked) == 0;",
    ),
    Mutation(
        "who is asked lets go without the lock (L3)",
        "src/cache/readers.h",
        "(marks & (Reader::kAsked | reader.bit(slot))) == 0;",
        "(marks & reader.bit(slot)) == 0;",
    ),
    Mutation(
        "the word of what is about to go stays open (D1)",
        "src/cache/hits.cpp",
        "    entry->word.fetch_or(CacheEntry::kCounted);\n    any = true;\n",
        "    any = true;\n",
    ),
    Mutation(
        "pins in slots are not looked for (D3)",
        "src/cache/hits.cpp",
        "  if (!any) return;\n",
        "  if (any) return;\n",
    ),
    Mutation(
        "a pin is counted each time it is found",
        "src/cache/readers.h",
        "if (entry == nullptr || reader->is_counted(slot) || !wanted(*entry)) continue;",
        "if (entry == nullptr || !wanted(*entry)) continue;",
    ),
    Mutation(
        "a block of another thread's is let go without the lock",
        "src/cache/hits.cpp",
        "const bool own = slot != nullptr && Readers::own(*slot);",
        "const bool own = slot != nullptr;",
    ),
    Mutation(
        "a failed copy does not look for pins in slots",
        "src/cache/access.cpp",
        "  CacheEntry* const one = &entry;\n  count_pins({&one, 1});\n  Fill& fill",
        "  Fill& fill",
    ),
    Mutation(
        "accesses that a plan waits for take no lock",
        "src/cache/hits.cpp",
        "entry.word = noticed ? ready | CacheEntry::kNoticed : ready;",
        "entry.word = noticed ? ready : ready;",
    ),
    Mutation(
        "an invalidated block stays in the index",
        "src/cache/space.cpp",
        "  index_.remove(entry);\n  nodes_[entry.node].order->remove(entry);\n  spare(entry);",
        "  nodes_[entry.node].order->remove(entry);\n  spare(entry);",
    ),
]


def build(tree: Path) -> str | None:
    """What the compiler said, if it failed."""
    done = subprocess.run(
        ["cmake", "--build", "build/release", "--target", "cache_test"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else done.stdout[-2000:]


def notices(tree: Path) -> str | None:
    """How the tests notice, or None."""
    tests = ":".join(f"{suite}*" for suite in SUITES)
    try:
        done = subprocess.run(
            ["build/release/cache_test", f"--gtest_filter={tests}", "--gtest_repeat=2"],
            cwd=tree,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RUN_BOUND,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {RUN_BOUND} s"
    if done.returncode == 0:
        return None
    lines = (done.stdout + done.stderr).splitlines()
    for mark in ("CHECK failed", "[  FAILED  ]"):
        for line in lines:
            if mark in line:
                return line.strip()
    return f"exit status {done.returncode}"


def prepare(tree: Path) -> None:
    environment = os.environ | {
        "CCACHE_DIR": str(ROOT / ".cache" / "ccache"),
        "CCACHE_BASEDIR": str(tree),
        "CCACHE_NOHASHDIR": "1",
    }
    os.environ.update(environment)
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(tree)], check=True)
    preset = ["cmake", "--preset", "release"]
    subprocess.run(preset, cwd=tree, stdout=subprocess.DEVNULL, check=True)


def main(names: list[str]) -> int:
    chosen = [m for m in MUTATIONS if not names or m.name in names]
    if not chosen:
        print("\n".join(m.name for m in MUTATIONS))
        return 2
    worst = 0
    with tempfile.TemporaryDirectory(prefix="headrace-mutate-") as directory:
        tree = Path(directory) / "tree"
        prepare(tree)
        if why := build(tree) or notices(tree):
            print(f"without any mutation: {why}")
            return 2
        for mutation in chosen:
            path = tree / mutation.file
            text = path.read_text()
            if text.count(mutation.code) != 1:
                print(f"STALE      {mutation.name}: its code is not in {mutation.file} once")
                worst = 2
                continue
            path.write_text(text.replace(mutation.code, mutation.broken))
            failed = build(tree)
            said = None if failed else notices(tree)
            path.write_text(text)
            if failed:
                print(f"STALE      {mutation.name}: it does not compile\n{failed}")
                worst = 2
                continue
            print(f"{'noticed' if said else 'NOT NOTICED':12}{mutation.name}: {said}", flush=True)
            worst = max(worst, 0 if said else 1)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
