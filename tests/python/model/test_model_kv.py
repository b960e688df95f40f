# SPDX-License-Identifier: Apache-2.0
"""headrace model kv: its tables and document, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Golden = Callable[[str, str], None]

MODEL = ["model", "kv"]


def rounded(value: Any) -> Any:
    """To six digits: mathematical libraries differ in the last ones."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def test_in_words(run: Run, golden: Golden) -> None:
    lines = []
    for arguments in ([], ["--workloads", "C", "--threads", "600", "--clients", "600"]):
        result = run(*MODEL, *arguments)
        assert (result.returncode, result.stderr) == (0, ""), result
        lines.append(f"$ headrace {' '.join([*MODEL, *arguments])}\n{result.stdout}")
    golden("model_kv.txt", "\n".join(lines))


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


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--workloads", "E"], 2, "no workload 'E'; there are A, B, C, D"),
        (["--machine", "nowhere"], 3, ""),
        (["--machine", "one-node"], 3, ""),
        (["--value", "2MiB"], 2, "'2MiB'; give 1 to 1MiB"),
        (["--records", "1"], 2, ""),
        (["--threads", "100000"], 2, ""),
        (["--out", "nowhere/x.json"], 3, "no directory nowhere"),
        (["--rounds", "7"], 2, "No such option: --rounds"),
    ],
)
def test_nonsense_is_one_line(run: Run, arguments: list[str], code: int, told: str) -> None:
    result = run(*MODEL, *arguments)
    assert result.returncode == code, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1
