# SPDX-License-Identifier: Apache-2.0
"""Files of weights for tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, tensors: dict[str, tuple[str, Any]], gap: int = 0) -> None:
    """A file of these tensors (type, array), with some bytes between them, on the disk."""
    found, parts, end = {}, [], 0
    for name, (dtype, array) in tensors.items():
        parts += [b"\xee" * gap, array.tobytes()]
        found[name] = {"dtype": dtype, "shape": list(array.shape),
                       "data_offsets": [end + gap, end + gap + array.nbytes]}  # fmt: skip
        end += gap + array.nbytes
    header = json.dumps({"__metadata__": {"a": "b"}, **found}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + b"".join(parts))
        os.fsync(file.fileno())  # dirty pages would stay in the page cache
