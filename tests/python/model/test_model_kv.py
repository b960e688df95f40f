# SPDX-License-Identifier: Apache-2.0
"""headrace model kv: its tables and document, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Golden, Run

MODEL = ["model", "kv"]


def rounded(value: Any) -> Any:
    """To six digits: mathematical libraries differ in the last ones."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def test_as_a_document(run: Run, tmp_path: Path, golden: Golden) -> None:
    result = run(*MODEL, "--workloads", "C,A,C", "--json", "--out", "kv.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (tmp_path / "kv.json").read_text()
    document = json.loads(result.stdout)
    assert document["kind"] == "model kv" and document["basis"] == "modelled"
    assert [r["workload"] for r in document["rows"]] == ["C"] * 9 + ["A"] * 9
    for row in document["rows"]:
        assert row["basis"] == "modelled" and row["p50_us"] <= row["p99_us"]
    assert all(each["basis"] == "fitted" and each["source"] for each in document["constants"])
    del document["version"]
    golden("model_kv.json", json.dumps(rounded(document), indent=1) + "\n")


@pytest.mark.parametrize(("threads", "too_many"), [(7, False), (600, True)])
def test_a_model_says_when_it_takes_more_cpus_than_there_are(
    run: Run, threads: int, too_many: bool
) -> None:
    words = [*MODEL, "--workloads", "C", "--threads", str(threads)]
    document = json.loads(run(*words, "--json").stdout)
    assert document["cpus"] == 96 and (document["cpus_busy"] > 96) == too_many
    assert ("WARNING: the model does not limit CPU time" in run(*words).stdout) == too_many
