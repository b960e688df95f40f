# SPDX-License-Identifier: Apache-2.0
"""Code in the documents works: examples, README, the stub, the package."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import headrace._core
import numpy
import pytest
import weight_files
from conftest import ROOT

import headrace

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
#: Packages that examples read with: those of large packages are run by hand.
READERS = {
    "dask_workers.py": "dask",
    "huggingface.py": "datasets",
    "ray_workers.py": "ray",
    "zarr_array.py": "zarr",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60
    if (reader := READERS.get(path.name)) is not None:
        pytest.importorskip(reader)
    result = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == "" or reader is not None  # a busy machine makes Dask warn
    assert "right" in result.stdout and "WRONG" not in result.stdout


HOWTO = ROOT / "docs" / "howto"
DOCUMENTS = [ROOT / "README.md", HOWTO / "python.md", HOWTO / "kv-store.md", HOWTO / "weights.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_in_documents(path: Path, tmp_path: Path) -> None:
    if not path.exists():
        pytest.skip(f"no {path.name}")
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    # A reader goes from top to bottom: later blocks use the names of earlier ones.
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks))
    (tmp_path / "column.bin").write_bytes(bytes(8 << 20))
    (tmp_path / "model").mkdir()
    array = numpy.ones((2, 3), numpy.float32)
    weight_files.write(tmp_path / "model" / "model.safetensors", {"w": ("F32", array)})
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_cpp_in_the_readme_is_from_an_example() -> None:
    """The examples are compiled and run against an installed library (tests/install)."""
    blocks = (ROOT / "README.md").read_text().split("```cpp\n")[1:]
    (block,) = [block.split("```")[0] for block in blocks]
    assert block in (ROOT / "examples" / "prefetch.cpp").read_text()


def test_the_stub(golden: Callable[[str, str], None]) -> None:
    """The generated types, so that a change of the interface is seen in review."""
    stub = Path(headrace.__file__).with_name("_core.pyi")
    golden("_core.pyi", stub.read_text())
    assert Path(headrace.__file__).with_name("py.typed").exists()


#: Names of python/src/host.cpp: for the package's own commands, not public.
OWN = {
    "CpuTimeLimit", "HostFiles", "KDAMONDS", "Kdamond", "LARGEST_DOCUMENT", "MemoryGroup",
    "NUMA_BALANCING", "STATE_FOLDER", "WEIGHTS", "kdamond_files",
}  # fmt: skip


def test_all_names_are_public_and_documented() -> None:
    for name in headrace.__all__:
        thing = getattr(headrace, name)
        if callable(thing):
            assert thing.__doc__, name
    public = {name for name in vars(headrace._core) if not name.startswith("_")}
    assert public - OWN <= set(headrace.__all__)


def test_the_version_is_that_of_the_build() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"project\(headrace VERSION ([0-9.]+)", text)
    assert found is not None and headrace.__version__ == found[1]


def test_users_code_is_typed(tmp_path: Path) -> None:
    code = tmp_path / "user.py"
    code.write_text(USER)
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(code)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout


USER = """
import numpy
import headrace

async def use(path: str) -> int:
    machine = headrace.Machine.discover(storage=[path])
    mover = headrace.Mover(machine, route="smart")
    placement = headrace.Placement.on("dram", pages="huge_2m")
    buffer = headrace.allocate(machine, 4096, placement)
    file = headrace.File.open(machine, path)
    stats: headrace.MoveStats = await mover.copy(buffer, file.extent(0, 4096), priority="prefetch")
    cache = headrace.Cache(mover, {0: 1 << 20})
    with cache.access(file) as block:
        memoryview(block)
        memoryview(buffer)
        numpy.from_dlpack(block)
    seconds: float = stats.total
    return stats.bytes
"""
