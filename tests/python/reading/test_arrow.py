# SPDX-License-Identifier: Apache-2.0
"""Datasets of pyarrow, scanned by plan."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from compare_readers import FaultyFileSystem

import headrace
from headrace import arrow

FILES, ROWS = 4, 6000
field = pyarrow.dataset.field


def part(number: int) -> pyarrow.Table:
    chance = random.Random(number)
    return pyarrow.table(
        {
            "a": range(number * ROWS, (number + 1) * ROWS),
            "b": [chance.randrange(1000) for _ in range(ROWS)],
            "text": [chance.choice(["x", "yy", None]) for _ in range(ROWS)],
        }
    )


@pytest.fixture(params=["local", "remote"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """FILES files in folders k=0, k=1, ... of three row groups each."""
    below = FaultyFileSystem() if request.param == "remote" else None
    for number in range(FILES):
        out = io.BytesIO()
        pyarrow.parquet.write_table(part(number), out, row_group_size=ROWS // 3)
        path = f"/k={number}/part.parquet"
        if below is not None:
            below.pipe("/rows" + path, out.getvalue())
        else:
            (tmp_path / f"k={number}").mkdir()
            Path(f"{tmp_path}{path}").write_bytes(out.getvalue())
    files = arrow.filesystem(below)
    place = str(tmp_path) if below is None else "/rows"
    return pyarrow.dataset.dataset(place, filesystem=files, partitioning="hive")


def test_scans_give_what_pyarrow_gives(dataset: Any) -> None:
    whole: list[Any] = [None, ["b"], ["text", "k"], []]
    for columns in whole:
        for wish in (
            None,
            field("a") < 100,
            (field("b") > 900) & (field("a") > ROWS * 2),
            field("k") == 2,
            field("text").is_null(),
            field("a") < 0,
        ):
            batches = list(arrow.scan(dataset, columns, wish, batch_rows=777))
            expected = dataset.to_table(columns=columns, filter=wish)
            found = pyarrow.Table.from_batches(batches, expected.schema)
            assert found.equals(expected), (columns, wish)
            assert all(0 < batch.num_rows <= 777 for batch in batches)
    partly = arrow.scan(dataset)
    next(partly)
    partly.close()  # type: ignore[attr-defined]


def test_the_next_file_is_on_its_way_and_no_other_row_group() -> None:
    below = FaultyFileSystem()
    big = pyarrow.table({"a": range(300_000), "b": range(300_000)})
    for number in range(3):
        out = io.BytesIO()
        pyarrow.parquet.write_table(
            big, out, row_group_size=100_000, use_dictionary=False, compression="none"
        )
        below.pipe(f"/rows/{number}", out.getvalue())
    size = below.size("/rows/0")
    data = pyarrow.dataset.dataset("/rows", filesystem=arrow.filesystem(below))
    batches = arrow.scan(data, ["b"], field("a") < 100_000)
    assert next(batches).num_rows > 0
    assert set(below.asked) == {"/rows/0", "/rows/1"}
    list(batches)
    # The blocks of the footer, and those of one row group.
    for number in range(3):
        asked = sum(end - start for start, end in set(below.asked[f"/rows/{number}"]))
        assert asked < size * 0.75


def test_bad_datasets_are_one_clear_error(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(part(0), tmp_path / "x.parquet")
    plain = pyarrow.dataset.dataset(tmp_path)
    with pytest.raises(headrace.InvalidError, match="not read through headrace.arrow.filesystem"):
        list(arrow.scan(plain))
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    files = arrow.filesystem()
    text = pyarrow.dataset.dataset(str(tmp_path / "x.csv"), filesystem=files, format="csv")
    with pytest.raises(headrace.InvalidError, match=r"x\.csv is not Parquet"):
        list(arrow.scan(text))
    data = pyarrow.dataset.dataset(str(tmp_path / "x.parquet"), filesystem=files)
    (tmp_path / "x.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        list(arrow.scan(data))


def test_columns_that_are_not_there_are_an_error(dataset: Any) -> None:
    with pytest.raises(headrace.InvalidError, match=r"no column aa; did you mean a\?"):
        list(arrow.scan(dataset, ["b", "aa"]))
