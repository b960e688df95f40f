#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the house rules that a script can check (HACKING.md lists them). No dependencies.

    tools/tidy.py            check; one line per finding, exit 1 if there is any
    tools/tidy.py --update   also rewrite tools/budgets.json where the code got better

Budgets are ratcheted: what exceeds one today is recorded in tools/budgets.json and may only shrink.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cpp_code
import language
import python_code

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tools" / "budgets.json"

CHECKED = {".cpp", ".h", ".py", ".sh", ".cmake"}
LICENSED = CHECKED | {".c", ".cu"}
LICENCE = "SPDX-License-Identifier: Apache-2.0"
MAX_LINE = 100
MAX_FILE = 600
MAX_FUNCTION = 70
USUAL_FUNCTION = 40
USUAL_SHARE = 0.95
MAX_PARAMETERS = 8
MAX_NESTING = 4
# Member functions, mutexes and files of definitions: a class beyond that is two.
MAX_CLASS = {"functions": 40, "mutexes": 2, "files": 3}

# Bottom-up: a folder may include only folders before it. Those of one component (before the first
# slash below src/) may include each other's headers; others only its facade, NAME/NAME.h.
LAYERS = [
    "src/core/turns", "src/core", "src/core/waiting", "src/core/text", "src/host",
    "src/host/settings",
    "src/backend/cuda",
    "src/topology", "src/topology/discovery", "src/profile",
    "src/place", "src/place/advice", "src/model", "src/memory/device", "src/memory",
    "src/memory/heap",
    "src/tier", "src/tier/page", "src/tier/process", "src/tier/arena",
    "src/backend",
    "src/backend/cpu", "src/backend/storage",
    "src/backend/dsa/queue", "src/backend/dsa",
    "src/backend/cuda/engines", "src/backend/registry",
    "src/move", "src/cache/structures", "src/cache/accounts", "src/cache/plans", "src/cache",
    "src/cache/shards",
    "src/cache/observe",
    "src/kvcache/keys", "src/kvcache/shared", "src/kvcache/state", "src/kvcache",
    "src/kvcache/client",
    "src/measure/instruments", "src/measure/instruments/counters",
    "src/measure/instruments/traffic",
    "src/measure/instruments/side_by_side",
    "src/measure/instruments/gpu", "src/measure/session",
    "src/measure/experiments", "src/measure/experiments/dsa",
    "src/measure/experiments/gpu", "src/measure/experiments/migrate",
    "src/measure", "src/sim",
    "tests/support/dsa", "dsa_sim", "dsa_sim/driver", "dsa_sim/fuse",
    "benchmarks", "benchmarks/query/input", "benchmarks/query", "benchmarks/query/simulated",
    "benchmarks/kvcache", "benchmarks/histogram",
    "benchmarks/unified_memory", "benchmarks/layer",
    "benchmarks/cache/stores", "benchmarks/cache",
    "benchmarks/keyvalue/ycsb", "benchmarks/keyvalue/model", "benchmarks/keyvalue/live",
    "benchmarks/keyvalue/store", "benchmarks/keyvalue", "benchmarks/gpu",
    "tests/support",
]
# The same for modules of Python. One belongs to the longest name here that its own begins with; the
# first name is the package's own modules, which everything may import.
PYTHON_LAYERS = [
    "headrace", "headrace._language_models", "headrace.kvcache", "headrace._serving",
    "headrace.serving", "headrace._reading",
    "headrace.fsspec", "headrace.parquet", "headrace.arrow", "headrace._plugin",
    "headrace._key_list", "headrace._pages", "headrace.lmcache",
    "headrace.lmcache_mp", "headrace._weights", "headrace.safetensors", "headrace.sglang",
    "headrace.vllm", "headrace.vllm_weights", "headrace._run",
    "headrace._tiering", "headrace._doctor", "headrace._profile", "headrace._model",
    "headrace._report",
    "headrace._cli", "headrace._cli.advise", "headrace._cli.tier",
    "headrace.__main__", "headrace_bench", "headrace_bench.llm", "headrace_bench.predict",
    "headrace_bench.commands",
    "headrace._cli.demo",
]
# The folder that implements each public header.
PUBLIC = {
    "advice/cost.h": "place/advice", "advice/hotness.h": "place/advice",
    "advice/interleave.h": "place/advice",
    "backend.h": "backend", "buffer.h": "memory", "cache.h": "cache/structures",
    "clock.h": "core/waiting", "cpus.h": "core/text", "copy.h": "backend", "dsa.h": "backend/dsa",
    "eviction.h": "cache/structures", "export.h": "core", "file.h": "backend/storage",
    "findings.h": "profile", "headrace.h": "measure", "heap.h": "memory/heap",
    "histogram.h": "core", "machine.h": "topology", "malloc.h": "memory/heap",
    "measure.h": "measure/instruments", "mover.h": "move", "object.h": "memory",
    "cache/explain.h": "cache/shards", "cache/observe.h": "cache/observe",
    "cache/stats.h": "cache/structures",
    "overview.h": "topology",
    "placement.h": "place", "process.h": "host", "profile.h": "profile",
    "random.h": "core", "result.h": "core", "route.h": "place",
    "statistics.h": "core", "storage/user_source.h": "backend/storage", "units.h": "core",
    "version.h": "core", "waiting.h": "core/waiting", "kvcache/store.h": "kvcache/keys",
    "gpu/memory.h": "memory/device",
    "tier/arena.h": "tier/arena", "tier/hotness.h": "tier", "tier/page_tier.h": "tier/page",
    "tier/process_tier.h": "tier/process",
}
# Headers of hardware and systems that only one folder, or one below it, may see.
VENDOR = {
    r"hwloc": "src/topology", r"liburing": "src/backend/storage", r"libaio": "src/backend/storage",
    r"fuse": "dsa_sim/fuse", r"\btbb/": ("src/memory/heap", "benchmarks/cache"),
    r"rocksdb": "benchmarks/cache",
    r"hiredis": "benchmarks/keyvalue/live", r"sys/sdt": "src/cache",
    r"CLI/": "dsa_sim/fuse",
    r"linux/idxd": "src/backend/dsa", r"accel-config": "src/backend/dsa",
    r"cuda|nvml|hip/|level_zero": "src/backend/cuda",
    r"numaif|numa\.h|linux/mempolicy": ("src/host", "src/memory"),
}
NAMED_FILE = re.compile(
    r"(?<![\w/.$}>*-])"
    r"((?:src|include|dsa_sim|benchmarks|workload|bench|python|tests|tools|docs|examples)/"
    r"[\w./-]+\.(?:h|cpp|py|md|sh|txt|c))\b")
MAY_NAME_ANY_FILE = ("CHANGELOG.md", "tools/tidy.py", "tests/python/tools/")
MAX_FILES = 30  # of a folder: beyond that it holds two concepts
MAX_WORDS = 24  # of the project's own in ARCHITECTURE.md


@dataclass
class Finding:
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def tracked() -> list[Path]:
    """Files git knows or would add; in an exported tree, all files."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        return [p for p in ROOT.rglob("*") if p.is_file() and "build" not in p.parts]
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def folder_of(path: Path) -> str | None:
    """The layer of a source file: src/backend/cpu/x.cpp -> src/backend/cpu."""
    folder = path.parent.relative_to(ROOT).as_posix()
    if folder.startswith("benchmarks/python"):
        return None  # the extension, as python/src
    if folder.split("/")[0] in {"src", "dsa_sim", "benchmarks"} or folder == "tests/support":
        return folder
    if folder == "tests/support/dsa" or folder.startswith("tests/support/dsa/"):
        return folder
    return None


def included_as(folder: str) -> str:
    """How a header of that layer is named in an #include: src/backend/cpu -> backend/cpu."""
    return folder.removeprefix("src/")


def component(folder: str) -> str:
    """Folders of one component are one concept; each backend is a component of its own."""
    parts = included_as(folder).split("/")
    return "/".join(parts[:2]) if parts[0] == "backend" else parts[0]


def role(path: Path) -> str:
    stem = path.stem
    if stem.endswith("testing"):
        return "test"
    return next((r for r in ("test", "bench", "fuzz") if stem.endswith("_" + r)), "source")


def layer_of(included: str) -> str:
    """The layer whose headers are included as `included`/x.h; "" if there is none."""
    return next((f for f in (included, "src/" + included) if f in LAYERS), "")


def check_glossary() -> Iterator[Finding]:
    """The table of words in ARCHITECTURE.md is short, so that it can be known by heart."""
    path = ROOT / "ARCHITECTURE.md"
    _, _, rest = path.read_text().partition("\n## The words\n")
    words = [row for row in rest.partition("\n## ")[0].splitlines() if row.startswith("| ")][1:]
    if not 1 <= len(words) <= MAX_WORDS:
        yield Finding(path, 1, f"{len(words)} words in the table; at most {MAX_WORDS}")


def check_folders(paths: list[Path]) -> Iterator[Finding]:
    for folder, count in sorted(Counter(path.parent for path in paths).items()):
        if count > MAX_FILES:
            yield Finding(folder, 1, f"{count} files; at most {MAX_FILES}: it holds two concepts")


def check_layers(path: Path, lines: list[str]) -> Iterator[Finding]:
    """Upward includes, deep includes, vendor headers."""
    folder = folder_of(path)
    include = ROOT / "include" / "headrace"
    public = path.relative_to(include).as_posix() if path.is_relative_to(include) else None
    layer = layer_of(PUBLIC.get(public, "")) if public else folder
    if public and public not in PUBLIC:
        yield Finding(path, 1, "public header without a folder: add it to PUBLIC in tools/tidy.py")
        return
    if layer is None:
        return
    if layer not in LAYERS:
        yield Finding(path, 1, f"folder {layer} has no place in the order: add it to LAYERS")
        return
    rank = LAYERS.index(layer)
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^">]+)[">]', line)
        if not match:
            continue
        included = match[2]
        for pattern, owner in VENDOR.items():
            if re.search(pattern, included) and match[1] == "<" and not layer.startswith(owner):
                yield Finding(path, number, f"{included} belongs in {owner} only")
        if match[1] == "<":
            continue
        if included.startswith("headrace/"):
            name = included.removeprefix("headrace/")
            target = layer_of(PUBLIC.get(name, ""))
            if target == "":
                yield Finding(path, number, f"no such public header: {included}")
            elif LAYERS.index(target) > rank and role(path) == "source":
                yield Finding(path, number, f"upward include: {layer} must not see {target}")
        elif "/" in included and (target := layer_of(str(Path(included).parent))) != "":
            if target == folder:
                continue
            if LAYERS.index(target) > rank and role(path) == "source":
                yield Finding(path, number, f"upward include: {layer} must not see {target}")
            facade = Path(target).name
            visible = component(target) in {component(layer), "core", "host", "tests"}
            visible = visible or layer.startswith("benchmarks/")  # they measure the parts too
            if not visible and Path(included).stem not in {facade, "testing"}:
                yield Finding(path, number, f"deep include: only {target}/{facade}.h is for others")


def python_modules(paths: list[Path]) -> dict[str, Path]:
    """Modules of the package by name, and the extension."""
    found = {"headrace._core": ROOT / "python/src/module.cpp"}
    for path in paths:
        for package in (ROOT / "python/headrace", ROOT / "benchmarks/python/headrace_bench"):
            if path.suffix == ".py" and path.is_relative_to(package):
                parts = path.relative_to(package.parent).with_suffix("").parts
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


def python_layer(module: str) -> int:
    """The place of a module in PYTHON_LAYERS."""
    own = [layer for layer in PYTHON_LAYERS if f"{module}.".startswith(f"{layer}.")]
    return PYTHON_LAYERS.index(max(own, key=len))


def check_python_layers(paths: list[Path]) -> Iterator[Finding]:
    """Upward imports, and modules that import each other."""
    modules = python_modules(paths)
    edges: dict[str, set[str]] = {}
    for name, path in modules.items():
        if path.suffix != ".py":
            continue
        for line, imported in python_code.imports(path.read_text(), modules):
            edges.setdefault(name, set()).add(imported)
            if python_layer(imported) > python_layer(name):
                yield Finding(path, line, f"upward import: {name} must not see {imported}")
    for cycle in python_code.cycles(edges):
        yield Finding(modules[cycle[0]], 1, f"a cycle of imports: {' -> '.join(cycle)}")


def check_licence(path: Path) -> Iterator[Finding]:
    """Each source says its licence, so that a file copied elsewhere still does."""
    if path.suffix not in LICENSED and path.name != "CMakeLists.txt":
        return
    if not any(LICENCE in line for line in path.read_text().splitlines()[:3]):
        yield Finding(path, 1, f"no licence in the first 3 lines: add {LICENCE}")


def check_lines(path: Path, lines: list[str]) -> Iterator[Finding]:
    cpp = path.suffix in {".cpp", ".h"}
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            yield Finding(path, number, f"line of {len(line)} characters; at most {MAX_LINE}")
        if re.search(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", line):
            yield Finding(path, number, "unfinished: do it or write an issue")
        if cpp and re.match(r"\s*//[^/].*[;{]\s*$", line) and re.search(r"[=()]", line):
            if not re.search(r"//.*(:|->|e\.g\.|Requires)", line):
                yield Finding(path, number, "looks like commented-out code: delete it")
        if cpp and re.search(r"memory_order(_|::)(relaxed|acquire|release|acq_rel|consume)", line):
            context = " ".join(lines[max(0, number - 5) : number])
            if "pairs with" not in context.lower():
                yield Finding(path, number, "weak memory order without 'pairs with ...' beside it")
        if cpp and folder_of(path) and role(path) == "source" and re.search(r"\bthrow\b", line):
            if not line.lstrip().startswith("//"):
                yield Finding(path, number, "the library throws nothing: return a Result")


def check_named_files(paths: list[Path]) -> Iterator[Finding]:
    """A file that a comment or a document names is there; a test's may be made up."""
    known = {path.relative_to(ROOT).as_posix() for path in paths}
    for path in paths:
        own = path.relative_to(ROOT).as_posix()
        if path.suffix not in CHECKED | {".md"} or own.startswith(MAY_NAME_ANY_FILE):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for named in set(NAMED_FILE.findall(line)) - known:
                inside = any(name.endswith(f"/{named}") for name in known)
                if not inside and not (path.parent / named).exists():
                    yield Finding(path, number, f"names {named}, which is not there")


def check_single_threaded() -> Iterator[Finding]:
    """Tests that the list leaves out of TSan are there."""
    path = ROOT / "tests/single_threaded.txt"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("#") and not (ROOT / line).exists():
            yield Finding(path, number, f"names {line}, which is not there")


def check_header(path: Path, lines: list[str]) -> Iterator[Finding]:
    if path.suffix != ".h":
        return
    # Highway includes files of this name several times.
    if "#pragma once" not in lines and not path.name.endswith("-inl.h"):
        yield Finding(path, 1, "header without #pragma once")
    first = next((line for line in lines if LICENCE not in line), "")
    if not first.startswith("//"):
        yield Finding(path, 1, "a header opens with what it is, and what it is not")
    if "include" in path.parts and path.name not in {"headrace.h", "export.h"}:
        if not re.search(r"(Thread-safe|Thread-compatible|Single-thread)", "\n".join(lines)):
            yield Finding(path, 1, "a public header says Thread-safe, -compatible or Single-thread")


def check_first_include(path: Path, lines: list[str]) -> Iterator[Finding]:
    """x.cpp includes x.h first, which proves that x.h compiles alone."""
    if path.suffix != ".cpp" or folder_of(path) is None or role(path) != "source":
        return
    own = path.with_suffix(".h")
    first = next((line for line in lines if line.startswith("#include")), "")
    if own.is_file() and f'{own.name}"' not in first:
        yield Finding(path, 1, f"include {own.name} first")


#: The head of a type's definition on one line.
TYPE = re.compile(
    r"(?:template\s*<[^{;]*>\s*)?(?:class|struct|union|enum(?:\s+class)?)\s+"
    r"(?:\[\[\w+\]\]\s*|(?:[A-Z]+_[A-Z_]+|[A-Z]+\([^)]*\))\s+|alignas\(\d+\)\s*)*"
    r"([\w:]+)(?:\s+final)?\s*(?::(?!:)[^;]*)?\{")


def defined_types(path: Path, lines: list[str]) -> Iterator[tuple[str, Finding]]:
    """Types of named namespaces, by full name."""
    scope: list[str] = []
    for number, line in enumerate(lines, 1):
        if match := re.match(r"namespace\s+(?:HEADRACE_API\s+)?([\w:]*)\s*\{", line):
            scope.append(match[1])
        elif scope and re.match(r"\}\s*// namespace", line):
            scope.pop()
        elif all(scope) and (match := TYPE.match(line)):
            name = "::".join([*scope, match[1]])
            yield name, Finding(path, number, f"a second {name}: give it another name")


def check_one_definition(paths: list[Path]) -> Iterator[Finding]:
    """Two types of one name are undefined behaviour that no compiler sees."""
    known: set[str] = set()
    for path in paths:
        if path.suffix in {".cpp", ".h"} and (folder_of(path) or "include" in path.parts):
            for name, finding in defined_types(path, path.read_text().splitlines()):
                if name in known:
                    yield finding
                known.add(name)


def check_tests_beside(paths: list[Path]) -> list[str]:
    """Sources in src/ without a test beside them that bears their name."""
    sources = [p for p in paths if p.suffix == ".cpp" and folder_of(p) and role(p) == "source"]
    known = set(paths)
    return sorted(
        str(p.relative_to(ROOT)) for p in sources
        if p.with_name(p.stem + "_test.cpp") not in known
    )


def long_files(paths: list[Path]) -> dict[str, int]:
    lengths = {
        str(path.relative_to(ROOT)):
            sum(LICENCE not in line for line in path.read_text().splitlines())
        for path in paths if path.suffix in CHECKED or path.name == "CMakeLists.txt"
    }
    return {name: length for name, length in lengths.items() if length > MAX_FILE}


def functions_of(paths: list[Path]) -> Iterator[cpp_code.Function]:
    for path in paths:
        if path.suffix in {".cpp", ".h"}:
            yield from cpp_code.functions(path, path.read_text().splitlines())
        elif path.suffix == ".py":
            yield from python_code.functions(path, path.read_text())


def large(functions: list[cpp_code.Function], what: str, most: int) -> dict[str, int]:
    """Functions of which a property is above its limit, by the name of their file and their own:
    that of the folder may change.
    """
    found: dict[str, int] = {}
    for each in functions:
        if (value := getattr(each, what)) > most:
            name = f"{each.path.name}:{each.name}"
            found[name] = max(value, found.get(name, 0))
    return found


def large_classes(paths: list[Path]) -> dict[str, int]:
    """Properties of classes above their limits: of CacheCore, its functions, its mutexes, ..."""
    sources = [p for p in paths if p.suffix in {".cpp", ".h"} and role(p) == "source"]
    files = Counter(name for p in sources if p.suffix == ".cpp" and folder_of(p)
                    for name in cpp_code.defined_members(p.read_text()))
    found: dict[str, int] = {}
    for path in sources:
        for each in cpp_code.classes(path, path.read_text()):
            its = {"functions": each.functions, "mutexes": each.mutexes, "files": files[each.name]}
            for what, value in its.items():
                if value > MAX_CLASS[what]:
                    key = f"{each.name}: {what}"
                    found[key] = max(value, found.get(key, 0))
    return found


def findings_of(paths: list[Path]) -> Iterator[Finding]:
    """Findings of the rules without a budget."""
    yield from check_one_definition(paths)
    yield from check_glossary()
    yield from check_folders(paths)
    yield from check_named_files(paths)
    yield from check_single_threaded()
    yield from check_python_layers(paths)
    for path in paths:
        yield from check_licence(path)
        if path.suffix in CHECKED or path.name == "CMakeLists.txt":
            lines = path.read_text().splitlines()
            yield from check_lines(path, lines)
            if path.suffix in {".cpp", ".h"}:
                yield from check_layers(path, lines)
                yield from check_header(path, lines)
                yield from check_first_include(path, lines)


def measure(paths: list[Path]) -> dict[str, object]:
    """Everything that has a budget."""
    functions = list(functions_of(paths))
    usual = sum(f.length <= USUAL_FUNCTION for f in functions) / max(1, len(functions))
    return {
        "language": language.counts(paths),
        "large_classes": large_classes(paths),
        "long_files": long_files(paths),
        "long_functions": large(functions, "length", MAX_FUNCTION),
        "many_parameters": large(functions, "parameters", MAX_PARAMETERS),
        "deep_nesting": large(functions, "nesting", MAX_NESTING),
        "usual_functions_percent": round(100 * usual, 1),
        "without_own_test": check_tests_beside(paths),
    }


#: For each budget: the limit for names that are not listed, and the words of a finding.
LIMITS = {
    "language": (0, "sentences break this rule", "tools/language.py lists them"),
    "long_files": (MAX_FILE, "lines", "it holds two concepts"),
    "long_functions": (MAX_FUNCTION, "lines", "split it along a concept"),
    "many_parameters": (MAX_PARAMETERS, "parameters", "some belong together"),
    "deep_nesting": (MAX_NESTING, "nested blocks", "give the inner ones a name"),
}


def worse(measured: dict, allowed: dict) -> Iterator[str]:
    """Budgets that are exceeded, in words."""
    for budget, (limit, unit, remedy) in LIMITS.items():
        for name, value in measured[budget].items():
            if value > (most := allowed.get(budget, {}).get(name, limit)):
                yield f"{name}: {value} {unit}; at most {most}: {remedy}"
    for name, value in measured["large_classes"].items():
        most = allowed.get("large_classes", {}).get(name, MAX_CLASS[name.rpartition(" ")[2]])
        if value > most:
            yield f"{name}: {value}; at most {most}: split it along its data and locks"
    floor = min(100 * USUAL_SHARE, allowed["usual_functions_percent"])
    if measured["usual_functions_percent"] < floor:
        yield (f"only {measured['usual_functions_percent']} % of functions have at most"
               f" {USUAL_FUNCTION} lines; at least {floor} %")
    for name in sorted(set(measured["without_own_test"]) - set(allowed["without_own_test"])):
        yield f"{name}: no {Path(name).stem}_test.cpp beside it"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--update", action="store_true", help="tighten tools/budgets.json")
    arguments = parser.parse_args()
    paths = sorted(tracked())
    measured = measure(paths)
    allowed = json.loads(BUDGETS.read_text()) if BUDGETS.is_file() else {
        "usual_functions_percent": 100 * USUAL_SHARE, "without_own_test": [],
    }
    problems = [str(f) for f in findings_of(paths)] + list(worse(measured, allowed))
    for problem in problems:
        print(problem)
    if arguments.update and not problems:
        BUDGETS.write_text(json.dumps(measured, indent=2) + "\n")
    print(f"tidy: {len(problems)} findings" if problems else "tidy: well")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
