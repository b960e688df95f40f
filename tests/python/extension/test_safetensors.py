# SPDX-License-Identifier: Apache-2.0
"""headrace.safetensors: what a file has is what comes, and hostile headers are refused."""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import tempfile
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import pytest
from weight_files import write

import headrace
from headrace import safetensors
from headrace._weights import arrays, reading

TYPES = {"F32": "float32", "I8": "int8", "F64": "float64", "BF16": "uint16", "BOOL": "bool"}


def tensors(count: int, seed: int = 1) -> dict[str, tuple[str, Any]]:
    """Tensors of all types, of 0 bytes to 3 MiB: the large ones are read alone."""
    random = numpy.random.default_rng(seed)
    made: dict[str, tuple[str, Any]] = {}
    for i in range(count):
        dtype, name = list(TYPES.items())[i % len(TYPES)]
        shape = (int(random.integers(0, 9)), int(random.integers(1, 9000 if i % 9 else 400_000)))
        array = random.integers(0, 2, shape).astype(name)
        made[f"layer.{i}"] = (dtype, array)
    made["scalar"] = ("F32", numpy.array(7, numpy.float32))
    return made


@pytest.fixture(autouse=True)
def no_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Types that numpy does not have are unsigned integers."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    arrays.numpy_type.cache_clear()
    yield
    arrays.numpy_type.cache_clear()


@pytest.fixture(params=[False, True], ids=["direct", "staged"])
def staged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the hypervisor takes free pages back."""
    monkeypatch.setattr(reading, "reports_free_pages", lambda: request.param)
    return bool(request.param)


def drop_page_cache(path: Path) -> None:
    headrace.File.open(headrace.Machine.discover(), path).drop_page_cache()


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("gap", [0, 3, 10_000])
@pytest.mark.parametrize("warm", [True, False])
def test_tensors_come_as_they_are(tmp_path: Path, gap: int, warm: bool) -> None:
    path = tmp_path / "model.safetensors"
    wanted = tensors(60)
    write(path, wanted, gap)
    if not warm:
        drop_page_cache(path)
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
        ({"w": numpy.ones(12, numpy.int32)}, "'w' is of type F32, .* is of int32"),
        ({"w": numpy.ones(12, ">f4")}, "'w' is of type F32, .* is of >f4"),
    ):
        with pytest.raises(headrace.InvalidError, match=told):
            safetensors.load(path, into=into)
    raw = numpy.zeros(48, numpy.uint8)
    safetensors.load(path, into={"w": raw})
    assert (raw.view(numpy.float32) == 1).all()


def header_of(**fields: Any) -> bytes:
    tensor = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4], **fields}
    return json.dumps({"w": tensor}).encode()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "header has 0 bytes"),
        (b"\xff" * 16, "header has 18446744073709551615 bytes"),
        (b"{}{}", "is no JSON"),
        (b"[" * 100_000, "is no object"),
        (b'{"a": ' * 100_000, "is no JSON"),
        (b'{"w": {}}', "'w' is no tensor"),
        (b'{"w": {"dtype": 5, "shape": [4], "data_offsets": [0, 4]}}', "'w' is no tensor"),
        (b'{"w": {"dtype": "U8" "shape": [4], "data_offsets": [0, 4]}}', "is no JSON"),
        (b'{"w": {"dtype": "U8", "shape": [04], "data_offsets": [0, 4]}}', "'w' is no tensor"),
        (b'{"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4], "x": tru}}', "is no JSON"),
        (b'{"w', "is no JSON"),
        (b'{"w": {"more": ' + b"[" * 100_000, "is no JSON"),
        (b'{"__metadata__": [1]}', "'__metadata__' is no tensor"),
        (b"[1]", "is no object"),
        (b"55", "is no object"),
        (b'{"w": 5}', "'w' is no tensor"),
        (b'{"w": {"dtype": "U8", "shape": [4]}}', "'w' is no tensor"),
        (b'{"w": {"dtype": "U8", "shape": [[4]], "data_offsets": [0, 4]}}', "'w' is no tensor"),
        (b'{"\xff": 5}', "is no JSON"),
        (b'{"w\\n": 5}', r"'w\\n' is no tensor"),
        (header_of(shape=[2], data_offsets=[0, 2])[:-1] + b", "
         + header_of(shape=[2], data_offsets=[2, 4])[1:], "'w' is there twice"),
        (header_of(dtype="X9"), "has the type 'X9'"),
        (header_of(shape=[1 << 63, 4]), "has 4 bytes for its shape"),
        (header_of(shape=[0, 1 << 63], data_offsets=[0, 0]), "has 0 bytes for its shape"),
        (header_of(shape=[1] * 70, data_offsets=[0, 1]), "has 70 dimensions; the most are 64"),
        (header_of(data_offsets=[4, 0]), "has -4 bytes for its shape"),
        (header_of(data_offsets=[0, 1, 4]), "is no tensor"),
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


def shards(folder: Path, index: bool = True) -> dict[str, tuple[str, Any]]:
    """A model of three files."""
    wanted = tensors(60)
    of = {}
    for number in range(3):
        file = f"model-{number + 1}-of-3.safetensors"
        mine = {name: each for i, (name, each) in enumerate(wanted.items()) if i % 3 == number}
        write(folder / file, mine)
        of.update(dict.fromkeys(mine, file))
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": of}))
    return wanted


def same(found: Any, wanted: dict[str, tuple[str, Any]]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].shape == array.shape and found[name].tobytes() == array.tobytes()
        for name, (_, array) in wanted.items()
    )


@pytest.mark.parametrize("option", [{"keep": "64MiB"}, {"names": ["a"]}, {"into": [1]}])
def test_an_option_of_another_type_is_refused(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(headrace.ArgumentError, match=f"{next(iter(option))} is (str|list), not"):
        safetensors.load(tmp_path, **option)


@pytest.mark.parametrize("index", [True, False])
def test_a_model_of_shards_is_one_call(tmp_path: Path, index: bool) -> None:
    wanted = shards(tmp_path, index)
    weights = safetensors.load(tmp_path)
    assert same(weights, wanted)
    assert isinstance(weights, safetensors.Weights) and weights.metadata == {"a": "b"}
    assert weights.tensor("scalar").dtype == "F32" and "none" not in weights
    some = safetensors.load(tmp_path, names=lambda name: name.endswith("7"))
    assert same(some, {name: each for name, each in wanted.items() if name.endswith("7")})
    into = {name: numpy.empty_like(array) for name, (_, array) in wanted.items()}
    safetensors.load(tmp_path, into=into)
    assert same(into, wanted)
    if index:
        assert same(safetensors.load(tmp_path / "model.safetensors.index.json"), wanted)


def test_tensors_that_are_not_wanted_take_no_memory(tmp_path: Path) -> None:
    array = numpy.arange(1 << 20, dtype=numpy.uint8)
    wanted = {f"l.{i}": ("U8", array + i) for i in range(20)}
    write(tmp_path / "m", wanted)
    found = safetensors.load(tmp_path / "m", names=lambda name: name in ("l.3", "l.12"))
    assert same(found, {name: wanted[name] for name in ("l.3", "l.12")})
    assert isinstance(found, safetensors.Weights)
    assert found._parts[0].content.nbytes <= 2 * (array.nbytes + 2 * 4096)


def index_of(folder: Path, content: str) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is no index"),
        ("[" * 100_000, "is no index"),
        ("[]", "is no index"),
        ('{"weight_map": {}}', "is no index"),
        ('{"weight_map": {"w": 5}}', "is no index"),
        ('{"weight_map": {"w": "../m.safetensors"}}', "is no index"),
        ('{"weight_map": {"w": "m.safetensors", "v": "m.safetensors"}}', "'v' is not in m.safet"),
    ],
)
def test_hostile_indices_are_refused(tmp_path: Path, content: str, told: str) -> None:
    write(tmp_path / "m.safetensors", {"w": ("U8", numpy.ones(4, numpy.uint8))})
    with pytest.raises(headrace.InvalidError, match=told):
        safetensors.load(index_of(tmp_path, content))


def test_names_and_fields_that_are_rare_are_read(tmp_path: Path) -> None:
    """Names with escapes and beyond ASCII, spaces, other fields, another order than the file's."""
    header = r""" { "\u00fc\"\n" : {"shape" : [ 2 , 1 ], "more": [{"a": "]}\""}, -1.5e3],
        "dtype":"U8", "data_offsets":[2,4]},
        "ü": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]},
        "__metadata__": {"a": "b", "c": [1]}} """.encode()
    (tmp_path / "m").write_bytes(len(header).to_bytes(8, "little") + header + b"abcd")
    weights = safetensors.load(tmp_path / "m")
    assert list(weights) == ["ü", 'ü"\n'] and weights['ü"\n'].tobytes() == b"cd"
    assert weights["ü"].shape == () and weights['ü"\n'].shape == (2, 1)
    assert isinstance(weights, safetensors.Weights) and weights.metadata == {"a": "b"}


def test_slips_of_the_path_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(headrace.AbsentError, match="has no file"):
        safetensors.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(headrace.InvalidError, match="is no regular file"):
        safetensors.load(tmp_path / "pipe")
    index_of(tmp_path, '{"weight_map": {"w": "gone.safetensors"}}')
    with pytest.raises(headrace.AbsentError, match="gone"):
        safetensors.load(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    for file in "ab":
        write(tmp_path / f"{file}.safetensors", {"w": ("U8", numpy.ones(4, numpy.uint8))})
    with pytest.raises(headrace.InvalidError, match="'w' is in another file"):
        safetensors.load(tmp_path)
    with pytest.raises(headrace.InvalidError, match="keep= has its own memory"):
        safetensors.load(tmp_path, keep=safetensors.Keep("1GiB"), pin=True)


def test_files_without_tensors_or_bytes(tmp_path: Path) -> None:
    write(tmp_path / "none", {})
    assert dict(safetensors.load(tmp_path / "none")) == {}
    empty = {"a": ("F32", numpy.empty((0, 3), numpy.float32)), "b": ("U8", numpy.empty(0, "u1"))}
    write(tmp_path / "empty", empty)
    assert same(safetensors.load(tmp_path / "empty"), empty)
    assert same(safetensors.load(tmp_path / "empty", names=lambda name: True), empty)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("warm", [True, False])
def test_the_file_of_another_user(warm: bool) -> None:
    """The kernel does not say whether it is in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "m"
        wanted = {"w": ("U8", numpy.arange(9 << 20, dtype=numpy.uint8))}
        write(path, wanted)
        if not warm:
            drop_page_cache(path)
        mover = headrace.Mover(headrace.Machine.discover(storage=[folder]))
        try:
            os.seteuid(65534)
            assert same(safetensors.load(path, mover=mover), wanted)
            os.seteuid(0)
            path.chmod(0)
            os.seteuid(65534)
            with pytest.raises(headrace.DeniedError, match="cannot read"):
                safetensors.load(path, mover=mover)
        finally:
            os.seteuid(0)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: Path) -> None:
    path.with_name("new").write_bytes(path.read_bytes())
    path.with_name("new").rename(path)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"other")


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("change", [truncate, replace, overwrite])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: Callable[[Path], None],
    into: bool,
    warm: bool,
) -> None:
    path = tmp_path / "m"
    wanted = tensors(60)
    write(path, wanted)
    if not warm:
        drop_page_cache(path)
    memory = {name: numpy.empty_like(array) for name, (_, array) in wanted.items()}
    ask = reading.Source.__init__

    def opened_then_changed(self: Any, *arguments: Any) -> None:
        ask(self, *arguments)
        change(path)

    monkeypatch.setattr(reading.Source, "__init__", opened_then_changed)
    with pytest.raises(headrace.IoError, match=r"was changed|became shorter|is shorter"):
        safetensors.load(path, into=memory if into else None)


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("warm", [True, False])
def test_after_an_error_nothing_keeps_the_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, warm: bool
) -> None:
    path = tmp_path / "m"
    write(path, {"w": ("U8", numpy.zeros(2 * reading.SMALL, numpy.uint8))})
    monkeypatch.setattr(reading.Source, "resident", lambda *_: warm)
    into = numpy.empty(2 * reading.SMALL, numpy.uint8)
    memory = weakref.ref(into)
    gc.disable()  # which would find cycles
    try:
        with monkeypatch.context() as patch, suppress(headrace.IoError):
            begin = reading.Reading.read

            def cut(*given: Any) -> None:
                truncate(path)
                begin(*given)

            patch.setattr(reading.Reading, "read", cut)
            safetensors.load(path, into={"w": into})
            raise AssertionError
        del into
        write(path, {})
        safetensors.load(path)  # ended moves release their memory in later calls
        assert memory() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("staged")
def test_partly_resident_files_come_as_they_are(tmp_path: Path) -> None:
    order = random.Random(1)
    wanted = tensors(200, seed=2)
    write(tmp_path / "m", wanted, gap=5)
    size = (tmp_path / "m").stat().st_size
    for _ in range(8):
        drop_page_cache(tmp_path / "m")
        with (tmp_path / "m").open("rb") as file:
            for _ in range(order.randrange(4)):
                begin = order.randrange(size)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(file.fileno(), order.randrange(20 << 20), begin)
        some = order.sample(list(wanted), order.randrange(1, len(wanted)))
        into = {name: numpy.empty_like(wanted[name][1]) for name in some}
        safetensors.load(tmp_path / "m", into=into)
        assert same(into, {name: wanted[name] for name in some})
        assert same(safetensors.load(tmp_path / "m"), wanted)


@pytest.mark.parametrize("cold", [{1, 2, 4}, set()])
def test_only_resident_parts_are_read_through_the_page_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cold: set[int]
) -> None:
    part = reading._PART
    array = numpy.random.default_rng(1).integers(0, 256, 5 * part, numpy.uint8)
    write(tmp_path / "m", {"w": ("U8", array)})
    resident = lambda _, offset: offset // part not in cold  # noqa: E731
    monkeypatch.setattr(reading.Source, "resident", resident)
    calls: list[tuple[int, int]] = []
    scatter = reading._scatter

    def seen(opened: Any, buffers: list[Any], offset: int) -> None:
        calls.append((offset // part, sum(len(each) for each in buffers)))
        scatter(opened, buffers, offset)

    monkeypatch.setattr(reading, "_scatter", seen)
    assert (safetensors.load(tmp_path / "m")["w"] == array).all()
    assert {number for number, _ in calls} == set(range(6)) - cold
    assert all(length <= part for _, length in calls)  # so that several threads read


def test_free_page_reporting_stages_parts_of_at_most_a_buffer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, staged: bool
) -> None:
    array = numpy.random.default_rng(1).integers(0, 256, 3 * reading._PART, numpy.uint8)
    small = array[:70_000]
    write(tmp_path / "m", {"w": ("U8", array), "small": ("U8", small)}, gap=10_001)
    monkeypatch.setattr(reading.Source, "resident", lambda *_: False)
    parts: list[tuple[int, int]] = []
    stage = reading.Reading._stage

    def seen(self: Any, source: Any, array: Any, offset: int) -> None:
        parts.append((offset, offset + len(array)))
        stage(self, source, array, offset)

    monkeypatch.setattr(reading.Reading, "_stage", seen)
    found = safetensors.load(tmp_path / "m", names=lambda name: name == "small")
    assert (found["small"] == small).all() and not parts
    into = numpy.empty_like(array)
    safetensors.load(tmp_path / "m", into={"w": into})
    assert (into == array).all()
    assert sum(end - begin for begin, end in parts) == (array.nbytes if staged else 0)
    assert all(begin // reading._PART == (end - 1) // reading._PART for begin, end in parts)
    mover = headrace.Mover(headrace.Machine.discover())
    assert reading.place(mover, "dram", False).pages == ("base" if staged else "transparent")


@pytest.mark.parametrize(
    ("device", "features", "reports"),
    [("0x0005\n", "0110010\n", True), ("0x0005\n", "0110000\n", False),
     ("0x0005\n", "0\n", False), ("0x0002\n", "1111111\n", False), (None, None, False)],
)  # fmt: skip
def test_free_page_reporting_is_a_feature_of_the_balloon(
    tmp_path: Path, device: str | None, features: str | None, reports: bool
) -> None:
    (tmp_path / "virtio0").mkdir()
    if device is not None and features is not None:
        (tmp_path / "virtio0" / "device").write_text(device)
        (tmp_path / "virtio0" / "features").write_text(features)
    assert reading.reports_free_pages(tmp_path) == reports


def test_after_an_error_pieces_in_flight_are_waited_for_to_their_end() -> None:
    log: list[str] = []

    class Late:
        def cancel(self) -> None:
            log.append("cancel")

        def done(self) -> bool:
            return log.count("wait") == 4

        def wait(self) -> None:
            log.append("wait")
            raise headrace.TimedOutError("still there")

    mover: Any = None
    with pytest.raises(ZeroDivisionError), reading.Reading(mover) as started:
        late: Any = Late()
        started._transfers += [late, late]
        raise ZeroDivisionError
    assert log == ["cancel"] * 2 + ["wait"] * 4


def test_tensors_without_bytes_are_on_their_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = types.ModuleType("torch")
    torch.float32 = numpy.float32  # type: ignore[attr-defined]
    torch.empty = lambda shape, dtype, device: (shape, device)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    write(tmp_path / "m", {"w": ("F32", numpy.empty((0, 3), numpy.float32))})
    found = safetensors.load(tmp_path / "m", device="cuda:1", names=lambda name: True)
    assert found["w"] == ((0, 3), "cuda:1")


def test_tensors_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    wanted = tensors(30)
    write(tmp_path / "m", wanted, gap=3)
    kinds = {"F32": torch.float32, "I8": torch.int8, "F64": torch.float64,
             "BF16": torch.bfloat16, "BOOL": torch.bool}  # fmt: skip
    found = safetensors.load(tmp_path / "m", device="cpu")
    for name, (kind, array) in wanted.items():
        assert found[name].dtype == kinds[kind] and tuple(found[name].shape) == array.shape
        assert bytes(found[name].reshape(-1).view(torch.uint8).numpy()) == array.tobytes()
    into = {name: torch.empty(array.shape, dtype=kinds[kind])
            for name, (kind, array) in wanted.items()}  # fmt: skip
    safetensors.load(tmp_path / "m", into=into)
    assert all(bytes(each.reshape(-1).view(torch.uint8).numpy()) == wanted[name][1].tobytes()
               for name, each in into.items())  # fmt: skip


def test_types_of_ml_dtypes_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.SimpleNamespace(bfloat16=numpy.dtype("V2"))
    monkeypatch.setitem(sys.modules, "ml_dtypes", module)
    assert arrays.numpy_type("BF16") == numpy.dtype("V2")
    assert arrays.numpy_type("F8_E4M3") == numpy.uint8  # an older one
