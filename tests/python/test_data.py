"""TPC-H data as column files: right, reused, and never half-made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

import headrace
from headrace import _data

duckdb = pytest.importorskip("duckdb")

#: The smallest lineitem with some thousand rows.
SCALE = 0.001


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _data.prepare(SCALE, tmp_path_factory.mktemp("tpch"))


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / made.name))


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails when anything is generated."""

    def fail(*arguments: object) -> None:
        raise AssertionError("generated again")

    monkeypatch.setattr(_data, "_generate", fail)
    yield


def test_columns_hold_what_duckdb_reads(made: Path) -> None:
    description = json.loads((made / "table.json").read_text())
    assert next(iter(description)) == "schema_version"
    files = [str(path) for path in _data.parquet_files(made)]
    with duckdb.connect() as connection:
        for column in description["columns"]:
            name, factor = column["name"], 10 ** column["scale"]
            values = numpy.fromfile(made / f"{name}.bin", dtype=f"<i{column['width']}")
            assert len(values) == description["rows"]
            sql = {
                "l_shipdate": "l_shipdate - DATE '1970-01-01'",
                "l_returnflag": "ascii(l_returnflag)",
                "l_linestatus": "ascii(l_linestatus)",
            }.get(name, f"{name} * {factor}")
            rows = connection.execute(f"SELECT {sql} FROM read_parquet(?)", [files]).fetchall()
            assert values.tolist() == [int(row[0]) for row in rows], name


def test_columns_are_as_narrow_as_their_values(made: Path) -> None:
    columns = json.loads((made / "table.json").read_text())["columns"]
    widths = {column["name"]: column["width"] for column in columns}
    assert widths == {
        "l_shipdate": 2, "l_returnflag": 1, "l_linestatus": 1, "l_quantity": 2,
        "l_extendedprice": 4, "l_discount": 1, "l_tax": 1,
    }  # fmt: skip


def test_the_library_opens_it(made: Path) -> None:
    table = headrace.Table.open(headrace.Machine.discover(storage=[made]), made)
    assert table.rows == json.loads((made / "table.json").read_text())["rows"]


def test_parts_give_the_same_rows(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_data, "ROWS_PER_PART", 2000)
    parts = _data.prepare(SCALE, tmp_path)
    assert len(_data.parquet_files(parts)) == 3
    for name in ("l_extendedprice.bin", "l_shipdate.bin"):
        assert (parts / name).read_bytes() == (made / name).read_bytes()


@pytest.mark.usefixtures("unused")
def test_a_complete_table_is_reused(table: Path) -> None:
    assert _data.prepare(SCALE, table.parent) == table


@pytest.mark.parametrize("damage", ["missing", "short", "description", "parquet"])
def test_a_damaged_table_is_made_again(table: Path, damage: str) -> None:
    if damage == "missing":
        (table / "l_tax.bin").unlink()
    elif damage == "short":
        with (table / "l_tax.bin").open("r+b") as file:
            file.truncate(10)
    elif damage == "description":
        (table / "table.json").write_text('{"schema_version": 1, "rows": "many"}')
    else:
        _data.parquet_files(table)[0].unlink()
    assert not _data.is_complete(table)
    assert _data.is_complete(_data.prepare(SCALE, table.parent))


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_data, "_convert", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _data.prepare(SCALE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_the_killed_are_removed(made: Path, tmp_path: Path) -> None:
    # No process has this number: it is above the kernel's limit of 4194304.
    leftover = tmp_path / f".{made.name}.4194305.x"
    leftover.mkdir()
    mine = tmp_path / f".{made.name}.1.x"
    mine.mkdir()
    _data.prepare(SCALE, tmp_path)
    assert not leftover.exists()
    assert mine.exists()


def test_no_room_is_told_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(headrace.ExhaustedError, match=r"scale 1000 needs .* GB free"):
        _data.prepare(1000, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scale", [0, -1, 1e9, float("nan")])
def test_senseless_scales_are_refused(scale: float, tmp_path: Path) -> None:
    with pytest.raises(headrace.InvalidError, match="scale"):
        _data.prepare(scale, tmp_path)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(headrace.IoError, match="cannot make"):
        _data.prepare(SCALE, tmp_path / "file")


def test_a_failing_generator_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'out of ideas' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(_data, "_generator", lambda: str(broken))
    with pytest.raises(headrace.IoError, match="out of ideas"):
        _data.prepare(SCALE, tmp_path / "data")


def test_progress_rises_to_its_total(tmp_path: Path) -> None:
    told: list[tuple[float, float]] = []
    _data.prepare(SCALE, tmp_path, lambda what, done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


def test_the_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path))
    assert _data.table_directory(3) == tmp_path / "sf3"
    monkeypatch.delenv("HEADRACE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert _data.table_directory(0.01) == Path("/somewhere/headrace/tpch/sf0.01")
