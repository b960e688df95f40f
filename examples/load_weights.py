# SPDX-License-Identifier: Apache-2.0
"""Loads the weights of a model, in the order of their file, and says at which rate.

Usage: load_weights.py [FILE]    a .safetensors file; made here if none is given
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy

from headrace import safetensors


def make(path: Path) -> None:
    """A file of 64 MiB with four tensors."""
    values = numpy.arange(1 << 24, dtype=numpy.float32)
    size = values.nbytes // 4
    header = {
        f"layer.{i}.weight": {
            "dtype": "F32", "shape": [2048, 2048], "data_offsets": [i * size, (i + 1) * size],
        }
        for i in range(4)
    }  # fmt: skip
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + values.tobytes())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder, "model.safetensors")
        if len(sys.argv) == 1:
            make(path)
        begin = time.perf_counter()
        weights = safetensors.load(path)
        seconds = time.perf_counter() - begin
        size = sum(tensor.nbytes for tensor in weights.values())
        print(f"{len(weights)} tensors, {size / 2**20:.0f} MiB, {size / seconds / 2**30:.2f} GiB/s")
        if len(sys.argv) == 1:
            first = weights["layer.1.weight"][0, 0]
            print("right" if first == 1 << 22 else f"WRONG: {first}")


if __name__ == "__main__":
    main()
