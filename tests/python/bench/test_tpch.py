# SPDX-License-Identifier: Apache-2.0
"""TPC-H data as column files: right, reused, and never half-made."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace_bench
import numpy
import pytest
from headrace_bench import tpch
from hypothesis import given
from hypothesis import strategies as st

import headrace

duckdb = pytest.importorskip("duckdb")

#: The smallest lineitem with some thousand rows.
SCALE = 0.001


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.prepare(SCALE, tmp_path_factory.mktemp("tpch"))


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / made.name))


@pytest.fixture
def ready(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provides the generator's tables, which take a second at any scale."""

    def copy(scale: float, part: int, parts: int, work: Path) -> None:
        shutil.copytree(made / "lineitem", work / "lineitem")

    monkeypatch.setattr(tpch, "_generate", copy)


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails when anything is generated."""

    def fail(*arguments: object) -> None:
        raise AssertionError("generated again")

    monkeypatch.setattr(tpch, "_generate", fail)
    yield


def test_columns_hold_what_duckdb_reads(made: Path) -> None:
    description = json.loads((made / "table.json").read_text())
    assert next(iter(description)) == "schema_version"
    files = [str(path) for path in tpch.parquet_files(made)]
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
    table = headrace_bench.Table.open(headrace.Machine.discover(storage=[made]), made)
    assert table.rows == json.loads((made / "table.json").read_text())["rows"]


def test_parts_give_the_same_rows(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tpch, "ROWS_PER_PART", 3000)
    parts = tpch.prepare(SCALE, tmp_path)
    assert len(tpch.parquet_files(parts)) == 2
    for name in ("l_extendedprice.bin", "l_shipdate.bin"):
        assert (parts / name).read_bytes() == (made / name).read_bytes()


@pytest.mark.usefixtures("unused")
def test_a_complete_table_is_reused(table: Path) -> None:
    assert tpch.prepare(SCALE, table.parent) == table


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("damage", ["missing", "short", "description", "parquet"])
def test_a_damaged_table_is_made_again(
    table: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if damage == "missing":
        (table / "l_tax.bin").unlink()
    elif damage == "short":
        with (table / "l_tax.bin").open("r+b") as file:
            file.truncate(10)
    elif damage == "description":
        (table / "table.json").write_text('{"schema_version": 1, "rows": "many"}')
    else:
        tpch.parquet_files(table)[0].unlink()
    assert not tpch.is_complete(table)
    if damage == "missing":
        assert tpch.is_complete(tpch.prepare(SCALE, table.parent))
        return

    def make(*arguments: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(tpch, "_make", make)
    with pytest.raises(headrace.Error):
        tpch.prepare(SCALE, table.parent)


@pytest.mark.usefixtures("ready")
def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tpch, "_convert", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tpch.prepare(SCALE, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("ready")
def test_only_leftovers_nobody_works_on_are_removed(tmp_path: Path) -> None:
    names = (".sf0.001.abcd_123", ".sf0.001.busy4567", ".sf0.001.5.abcd_123")
    left, busy, other = (tmp_path / name for name in names)
    for folder in (left, busy, other):
        folder.mkdir()
        (folder / "lock").touch()
    with (busy / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        tpch.prepare(SCALE, tmp_path)
    assert not left.exists()
    assert busy.exists() and other.exists()


@pytest.mark.parametrize("precious", ["precious.txt", "lineitem/mine.parquet", "folder/file"])
def test_a_directory_of_somebody_else_is_left_alone(table: Path, precious: str) -> None:
    (table / "l_tax.bin").unlink()
    (table / precious).parent.mkdir(exist_ok=True)
    (table / precious).write_text("precious")
    with pytest.raises(headrace.InvalidError, match="was not made by headrace; choose another"):
        tpch.prepare(SCALE, table.parent)
    assert (table / precious).read_text() == "precious"


def test_folder_that_only_looks_like_ours_is_kept(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "lineitem", tmp_path / made.name / "lineitem")
    with pytest.raises(headrace.InvalidError, match="was not made by headrace"):
        tpch.prepare(SCALE, tmp_path)
    (tmp_path / "sf0.002").symlink_to(made)
    with pytest.raises(headrace.InvalidError, match="was not made by headrace"):
        tpch.prepare(0.002, tmp_path)
    assert tpch.is_complete(made)


@pytest.mark.usefixtures("unused")
def test_file_that_appears_meanwhile_is_kept(made: Path, tmp_path: Path) -> None:
    work, table = tmp_path / "work", tmp_path / made.name
    (work / "new").mkdir(parents=True)
    table.mkdir()
    (table / "precious.txt").touch()
    with pytest.raises(headrace.InvalidError, match="was not made by headrace"):
        tpch._put_in_place(work, table, tpch.is_complete, tpch._is_ours)
    shutil.rmtree(table)
    shutil.copytree(made, table)
    tpch._put_in_place(work, table, tpch.is_complete, tpch._is_ours)
    assert tpch.is_complete(table)


@pytest.mark.usefixtures("ready")
def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    (tmp_path / "sf0.001").mkdir()
    assert tpch.is_complete(tpch.prepare(SCALE, tmp_path))


def test_no_room_is_told_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(headrace.ExhaustedError, match=r"scale 1000 needs .*iB free"):
        tpch.prepare(1000, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scale", [0, -1, 1e9, float("nan")])
def test_senseless_scales_are_refused(scale: float, tmp_path: Path) -> None:
    with pytest.raises(headrace.InvalidError, match="scale"):
        tpch.prepare(scale, tmp_path)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(headrace.IoError, match="cannot make"):
        tpch.prepare(SCALE, tmp_path / "file")


@pytest.mark.parametrize(
    ("script", "kind", "told"),
    [
        ("echo 'out of ideas' >&2; exit 3", headrace.IoError, "out of ideas"),
        ("kill -9 $$", headrace.ExhaustedError, "tpchgen-cli was killed, as the kernel does"),
        ("echo 'Error: No space left (os error 28)' >&2; exit 1", headrace.ExhaustedError,
         "free space or choose another --data"),
    ],
)  # fmt: skip
def test_a_failing_generator_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type, told: str
) -> None:
    program = tmp_path / "generator"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(tpch, "_generator", lambda: str(program))
    with pytest.raises(kind, match=told):
        tpch.prepare(SCALE, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.usefixtures("ready")
def test_a_disk_that_fills_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(tpch, "_convert", fail)
    with pytest.raises(headrace.ExhaustedError, match="Disk quota .* choose another --data"):
        tpch.prepare(SCALE, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_duckdbs_errors_are_ours() -> None:
    with pytest.raises(headrace.IoError, match="DuckDB: "), tpch.duckdb_connection() as connection:
        connection.execute("SELECT * FROM read_parquet('/nowhere')")


@pytest.mark.usefixtures("ready")
def test_progress_rises_to_its_total(tmp_path: Path) -> None:
    told: list[tuple[float, float]] = []
    tpch.prepare(SCALE, tmp_path, lambda what, done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


def test_the_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path))
    assert tpch.table_directory(3) == tmp_path / "sf3"
    monkeypatch.delenv("HEADRACE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert tpch.table_directory(0.01) == Path("/somewhere/headrace/tpch/sf0.01")


def test_each_scale_has_its_directory(table: Path, tmp_path: Path) -> None:
    names = {tpch.table_directory(scale, tmp_path).name for scale in (1, 1.0, 1.0000001, 0.5)}
    assert names == {"sf1", "sf1.0000001", "sf0.5"}
    # A copy under the name of another scale is not that scale's table.
    assert not tpch.is_complete(table.rename(table.with_name("sf0.002")))


#: Wrong values, each put in place of any value of a description.
ODD = (None, True, -1, 0.5, 1e308, 10**400, "", "x", [], [[]], {}, {"name": []})


@given(data=st.data())
def test_a_damaged_description_is_refused_by_all(made: Path, data: st.DataObject) -> None:
    """Never a crash, and whatever `is_complete` says, the library opens it or says why not."""
    text = (made / "table.json").read_text()
    description = json.loads(text)
    holder, key = data.draw(st.sampled_from(list(places_in(description))))
    holder[key] = data.draw(st.sampled_from(ODD))
    with tempfile.TemporaryDirectory() as folder:
        damaged = Path(folder) / made.name
        damaged.mkdir()
        for path in made.iterdir():
            (damaged / path.name).symlink_to(path)
        (damaged / "table.json").unlink()
        (damaged / "table.json").write_text(json.dumps(description))
        complete = tpch.is_complete(damaged)
        try:
            headrace_bench.Table.open(headrace.Machine.load("one-node"), damaged)
        except headrace.Error as error:
            assert str(error)
        else:
            assert complete or description != json.loads(text)


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) within a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places_in(value[key])
