"""headrace bench kv: what the model says, in words and as JSON, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Golden = Callable[[str, str], None]

MODEL = ["bench", "kv", "--model", "cxl-a1000"]


def rounded(value: Any) -> Any:
    """To six digits: mathematical libraries differ in the last ones."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def test_the_model_in_words(run: Run, golden: Golden) -> None:
    lines = []
    for arguments in ([], ["--workloads", "C", "--threads", "600", "--clients", "600"]):
        result = run(*MODEL, *arguments)
        assert (result.returncode, result.stderr) == (0, ""), result
        lines.append(f"$ headrace {' '.join([*MODEL, *arguments])}\n{result.stdout}")
    golden("bench_kv.txt", "\n".join(lines))


def test_the_model_as_a_document(run: Run, tmp_path: Path, golden: Golden) -> None:
    result = run(*MODEL, "--workloads", "C,A,C", "--json", "--out", "kv.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (tmp_path / "kv.json").read_text()
    document = json.loads(result.stdout)
    assert document["kind"] == "bench kv" and document["basis"] == "modelled"
    assert [r["workload"] for r in document["rows"]] == ["C"] * 9 + ["A"] * 9
    for row in document["rows"]:
        assert row["basis"] == "model" and row["p50_us"] <= row["p99_us"]
    del document["version"]
    golden("bench_kv.json", json.dumps(rounded(document), indent=1) + "\n")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--model", "cxl-a1000", "--workloads", "E"], 3, "no workload 'E'; there are A, B, C, D"),
        (["--model", "nowhere"], 3, ""),
        (["--model", "one-node"], 3, ""),
        (["--model", "cxl-a1000", "--value", "2MiB"], 2, "'2MiB'; give 1 to 1MiB"),
        (["--model", "cxl-a1000", "--records", "1"], 2, ""),
        (["--model", "cxl-a1000", "--out", "nowhere/x.json"], 3, "no directory nowhere"),
    ],
)
def test_nonsense_is_one_line(run: Run, arguments: list[str], code: int, told: str) -> None:
    result = run("bench", "kv", *arguments)
    assert result.returncode == code, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1
