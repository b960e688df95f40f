# SPDX-License-Identifier: Apache-2.0
"""Modules of engines' wheels, imported without the packages that the engines need.

Some packages of an engine are namespaces over the unpacked wheel, so that their __init__ modules
do not run. Modules that nothing under test uses have any name, as an empty class.
"""

from __future__ import annotations

import subprocess
import sys
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import headrace.kvcache  # noqa: F401 - before undone(): an extension is loaded once

#: Where tools/engines.sh unpacks wheels.
ENGINES = Path(__file__).parents[3] / "build" / "engines"


class StandIn(types.ModuleType):
    """A module that has any name, as an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init_subclass__": classmethod(lambda cls, **_: None)})
        setattr(self, name, made)
        return made


class _StandIns(MetaPathFinder, Loader):
    """Finds modules with these names, and all below them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if any(name == each or name.startswith(f"{each}.") for each in self._names):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def namespace(name: str, wheel: Path) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = [str(wheel.joinpath(*name.split(".")))]
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module


def stand_in(*names: str) -> None:
    sys.meta_path.insert(0, _StandIns(names))


@contextmanager
def undone() -> Iterator[None]:
    """Undoes what was imported and found within it."""
    modules, finders = set(sys.modules), list(sys.meta_path)
    try:
        yield
    finally:
        sys.meta_path[:] = finders
        for name in set(sys.modules) - modules:
            top = name.split(".")[0]
            if top in ("vllm", "lmcache", "sglang", "torch") or name.startswith("headrace."):
                del sys.modules[name]


def kill_a_writer(program: str, *arguments: object, stores: int) -> None:
    """Kills a program in a store, after some that are complete. It prints a line before each.
    Its first argument is the folder of this file.
    """
    words = [sys.executable, "-c", program, str(Path(__file__).parent), *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(stores + 1):
            assert writer.stdout.readline() == b"store\n"
        time.sleep(0.003 * stores)
        writer.kill()
