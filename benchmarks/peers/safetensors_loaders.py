# SPDX-License-Identifier: Apache-2.0
"""Weights into DRAM: headrace.safetensors, safetensors, fastsafetensors, plain reads, and fio.

    pip install --target PEERS safetensors fastsafetensors torch  # 5 GB
    PYTHONPATH=PEERS .venv/bin/python benchmarks/peers/safetensors_loaders.py --data DIRECTORY

A file of one tensor, and one of as many bytes in 18 867 (the number of a model of experts). In each
round all loaders run in an order drawn anew, cold and warm; the page cache is asked whether it has
nothing, or all of the file. Each load is a process of its own, since a process loads weights once:
later loads would find memory and pages of former ones. It measures itself, after its imports. A
load ends when all tensors are there and a byte of each page was read, since some loaders map the
file and read it then. Loaders that are not installed are left out with a line. fastsafetensors runs
in its mode for CPUs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

import headrace
from headrace import safetensors
from headrace._format import size

_GIB = float(1 << 30)
_PAGE = 4096
_TENSORS = {"one tensor": 1, "18867 tensors": 18867}

#: Loads a file; the result holds its tensors.
Loader = Callable[[Path], Any]


def make(path: Path, count: int, total: int) -> None:
    each = total // count // 128 * 128
    tensors = {
        f"model.layers.{i // 128}.mlp.experts.{i % 128}.weight": {
            "dtype": "BF16", "shape": [each // 128, 64], "data_offsets": [i * each, (i + 1) * each],
        }
        for i in range(count)
    }  # fmt: skip
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    order = numpy.random.default_rng(count)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for at in range(0, count * each, 64 << 20):
            length = min(64 << 20, count * each - at)
            file.write(order.integers(0, 256, length, numpy.uint8).tobytes())
        os.fsync(file.fileno())


def touch(arrays: list[Any]) -> int:
    """Reads a byte of each page, at least one of each tensor."""
    return sum(int(each.reshape(-1).view(numpy.uint8)[::_PAGE].sum()) for each in arrays)


class Loaders:
    def __init__(self, kept: Path) -> None:
        self._keep = safetensors.Keep("1TiB", kept)
        self.all: dict[str, Loader] = {
            "headrace": self.headrace, "headrace kept": self.kept, "readinto": self.readinto,
            "mmap, copied": self.mapped, "safetensors": self.safetensors,
            "safetensors torch": self.safetensors_torch, "fastsafetensors": self.fastsafetensors,
        }  # fmt: skip
        self.modules = {
            "safetensors": ("ml_dtypes", "safetensors.numpy"),
            "safetensors torch": ("safetensors.torch", "torch"),
            "fastsafetensors": ("torch", "fastsafetensors"),
        }

    def installed(self) -> list[str]:
        found = []
        for name in self.all:
            try:
                self.bring(name)
                found.append(name)
            except ImportError as error:
                print(f"without {name}: {error}")
        return found

    def bring(self, name: str) -> None:
        """Imports the modules of a loader."""
        for module in self.modules.get(name, ()):
            importlib.import_module(module)

    def headrace(self, path: Path) -> Any:
        return touch(list(safetensors.load(path).values()))

    def kept(self, path: Path) -> Any:
        return touch(list(safetensors.load(path, keep=self._keep).values()))

    def safetensors(self, path: Path) -> Any:
        return touch(list(importlib.import_module("safetensors.numpy").load_file(path).values()))

    def safetensors_torch(self, path: Path) -> Any:
        return self._touch_torch(importlib.import_module("safetensors.torch").load_file(path))

    def _touch_torch(self, tensors: dict[str, Any]) -> int:
        torch = importlib.import_module("torch")
        return touch([each.view(torch.int16).numpy() for each in tensors.values()])

    def fastsafetensors(self, path: Path) -> Any:
        module = importlib.import_module("fastsafetensors")
        loader = module.SafeTensorsFileLoader(module.SingleGroup(), "cpu")
        loader.add_filenames({0: [str(path)]})
        buffer = loader.copy_files_to_device()
        try:
            return self._touch_torch({name: buffer.get_tensor(name) for name in loader.get_keys()})
        finally:
            buffer.close()
            loader.close()

    def readinto(self, path: Path) -> Any:
        memory = mmap.mmap(-1, path.stat().st_size)
        view, at = memoryview(memory), 0
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(view[at:]):
                at += count
        return touch(self._views(view))

    def mapped(self, path: Path) -> Any:
        memory = numpy.frombuffer(mmap.mmap(-1, path.stat().st_size), numpy.uint8)
        memory[:] = numpy.memmap(path, numpy.uint8, "r")
        return touch(self._views(memoryview(memory)))  # type: ignore[arg-type]

    def _views(self, memory: memoryview) -> list[Any]:
        begin = 8 + int.from_bytes(memory[:8], "little")
        header = json.loads(bytes(memory[8:begin]))
        return [
            numpy.ndarray(each["shape"], numpy.uint16, memory, begin + each["data_offsets"][0])
            for each in header.values()
        ]


def prepare(file: headrace.File, warm: bool) -> None:
    """Puts the page cache into the state, and asks it; programs beside may take pages away."""
    wanted = file.size if warm else 0
    for _ in range(5):
        if warm:
            buffer = bytearray(8 << 20)
            with open(file.path, "rb", buffering=0) as plain:
                while plain.readinto(buffer):
                    pass
        else:
            file.drop_page_cache()
        if file.page_cache_residency() == wanted:
            return
    raise SystemExit(f"not {wanted} bytes of {file.path} in the page cache; free memory")


def fio(path: Path) -> float:
    """GiB/s of its direct reads of 1 MiB, 16 at once."""
    done = subprocess.run(
        ["fio", "--name=read", f"--filename={path}", "--rw=read", "--bs=1m", "--iodepth=16",
         "--ioengine=io_uring", "--direct=1", "--readonly", "--output-format=json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]) / _GIB


def load_here(loaders: Loaders, name: str, path: Path) -> None:
    """Prints the sum, seconds and seconds of CPU time of one load."""
    loaders.bring(name)
    begun, cpu = time.perf_counter(), time.process_time()
    answer = loaders.all[name](path)
    print(answer, time.perf_counter() - begun, time.process_time() - cpu)


def load_there(name: str, path: Path, kept: Path) -> tuple[int, float, float]:
    """load_here() in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--data", str(kept), "--load", name, str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer, seconds, cpu = done.stdout.split()
    return int(answer), float(seconds), float(cpu)


Figures = dict[tuple[str, str, str], list[tuple[float, float]]]


def one_round(loaders: list[str], files: dict[str, headrace.File], kept: Path) -> Figures:
    figures: Figures = {}
    order = random.Random()
    names = [*loaders, *(["fio"] if shutil.which("fio") else [])]
    for case, file in files.items():
        expected = None
        for state in ("cold", "warm"):
            for name in order.sample(names, len(names)):
                if (state, name) in (("cold", "headrace kept"), ("warm", "fio")):
                    continue  # neither reads the file then
                prepare(file, state == "warm")
                gib = file.size / _GIB
                if name == "fio":
                    figures.setdefault((case, state, name), []).append((fio(Path(file.path)), 0.0))
                    continue
                answer, seconds, cpu = load_there(name, Path(file.path), kept)
                expected = answer if expected is None else expected
                assert answer == expected, (case, name)
                figures.setdefault((case, state, name), []).append((gib / seconds, cpu / gib))
    return figures


def rounds(
    loaders: list[str], files: dict[str, headrace.File], kept: Path, count: int
) -> Figures:
    """The first is not counted. Ctrl-C ends them."""
    figures: Figures = {}
    try:
        for number in range(count + 1):
            found = one_round(loaders, files, kept)
            print(f"round {number} of {count}", flush=True)
            for key, samples in sorted(found.items() if number > 0 else ()):
                figures.setdefault(key, []).extend(samples)
    except KeyboardInterrupt:
        pass
    return figures


def show(figures: Figures) -> None:
    print("GiB/s, median [least .. most]; CPU seconds per GiB; GiB/s by headrace's in its round")
    for (case, state, name), found in figures.items():
        rates = [rate for rate, _ in found]
        cpu = statistics.median(each for _, each in found)
        ours = [rate for rate, _ in figures[case, state, "headrace"]]
        ratio = statistics.median(a / b for a, b in zip(rates, ours, strict=True))
        print(
            f"{case}, {state}, {name}: {statistics.median(rates):.2f} "
            f"[{min(rates):.2f} .. {max(rates):.2f}], CPU {cpu:.2f}, {ratio:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--load", nargs=2, metavar=("LOADER", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        load_here(Loaders(kept=given.data), given.load[0], Path(given.load[1]))
        return
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    with (
        tempfile.TemporaryDirectory(dir=given.data) as directory,
        tempfile.TemporaryDirectory(dir="/dev/shm") as kept,
    ):
        folder = Path(directory)
        loaders = Loaders(Path(kept))
        machine = headrace.Machine.discover(storage=[folder])
        files = {}
        for case, count in _TENSORS.items():
            path = folder / f"{count}.safetensors"
            make(path, count, size(given.size))
            files[case] = headrace.File.open(machine, path)
            loaders.kept(path)
        show(rounds(loaders.installed(), files, Path(kept), given.rounds))


if __name__ == "__main__":
    main()
