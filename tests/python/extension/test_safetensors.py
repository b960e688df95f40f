# SPDX-License-Identifier: Apache-2.0
"""headrace.safetensors: what a file has is what comes, and hostile headers are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import headrace
from headrace import safetensors

TYPES = {"F32": "float32", "I8": "int8", "F64": "float64", "BF16": "uint16", "BOOL": "bool"}


def write(path: Path, tensors: dict[str, tuple[str, Any]], gap: int = 0) -> None:
    """A file of these tensors, with some bytes between them."""
    found, data = {}, b""
    for name, (dtype, array) in tensors.items():
        data += b"\xee" * gap
        found[name] = {"dtype": dtype, "shape": list(array.shape),
                       "data_offsets": [len(data), len(data) + array.nbytes]}  # fmt: skip
        data += array.tobytes()
    header = json.dumps({"__metadata__": {"a": "b"}, **found}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def tensors(count: int, seed: int = 1) -> dict[str, tuple[str, Any]]:
    """Of all types and of sizes from nothing to 3 MiB, so that some are read alone."""
    random = numpy.random.default_rng(seed)
    made: dict[str, tuple[str, Any]] = {}
    for i in range(count):
        dtype, name = list(TYPES.items())[i % len(TYPES)]
        shape = (int(random.integers(0, 9)), int(random.integers(1, 9000 if i % 9 else 400_000)))
        array = random.integers(0, 2, shape).astype(name)
        made[f"layer.{i}"] = (dtype, array)
    made["scalar"] = ("F32", numpy.array(7, numpy.float32))
    return made


@pytest.mark.parametrize("gap", [0, 3, 10_000])
@pytest.mark.parametrize("warm", [True, False])
def test_tensors_come_as_they_are(tmp_path: Path, gap: int, warm: bool) -> None:
    path = tmp_path / "model.safetensors"
    wanted = tensors(60)
    write(path, wanted, gap)
    if not warm:
        headrace.File.open(headrace.Machine.discover(), path).drop_page_cache()
    found = safetensors.load(path)
    into = {name: numpy.empty_like(array) for name, (_, array) in wanted.items() if "1" in name}
    assert safetensors.load(path, into=into).keys() == into.keys()
    assert found.keys() == wanted.keys()
    for name, (_, array) in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert (found[name] == array).all()
        assert name not in into or (into[name] == array).all()


def test_a_slip_of_the_destination_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m"
    write(path, {"w": ("F32", numpy.ones((3, 4), numpy.float32))})
    for into, told in (
        ({"v": numpy.ones(12, numpy.float32)}, "no tensor 'v'"),
        ({"w": numpy.ones(11, numpy.float32)}, "'w' has 48 bytes, and 44"),
    ):
        with pytest.raises(headrace.InvalidError, match=told):
            safetensors.load(path, into=into)


def header_of(**fields: Any) -> bytes:
    tensor = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4], **fields}
    return json.dumps({"w": tensor}).encode()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "header has 0 bytes"),
        (b"\xff" * 16, "header has 18446744073709551615 bytes"),
        (b"{}{}", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"[1]", "is no object"),
        (b'{"w": 5}', "'w' is no tensor"),
        (header_of(dtype="X9"), "has the type 'X9'"),
        (header_of(shape=[5]), "has 4 bytes for its shape"),
        (header_of(shape=[-4]), "is no tensor"),
        (header_of(shape=[True, 4]), "is no tensor"),
        (header_of(data_offsets=[4, 8]), "lies outside the file"),
        (header_of(data_offsets=[0, 4.0]), "is no tensor"),
        (
            json.dumps({name: {"dtype": "U8", "shape": [2], "data_offsets": [at, at + 2]}
                        for name, at in (("a", 0), ("b", 1))}).encode(),
            "'b' lies outside the file, or on another tensor",
        ),
    ],
)  # fmt: skip
def test_hostile_headers_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "m"
    whole = content.startswith(b"\xff") or not content
    path.write_bytes(content if whole else len(content).to_bytes(8, "little") + content + b"data")
    with pytest.raises(headrace.InvalidError, match=told):
        safetensors.load(path)
    with pytest.raises(headrace.AbsentError, match="nothing"):
        safetensors.load(tmp_path / "nothing")
