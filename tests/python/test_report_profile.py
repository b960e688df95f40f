"""The report of a profile: every experiment has its picture, its sentence and its table."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import profile_documents as documents
import pytest

import headrace
from headrace import _report

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TITLES = [
    "How long a load takes",
    "How many bytes per second",
    "How long a load takes while others use the memory",
    "STREAM&#x27;s kernels",
    "Copying by cores",
    "Moving pages to another node",
    "storage",
    "tlb",
    "What was not measured",
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "page.html"
    _report.build(documents.profile(), path)
    return path.read_text()


def test_every_experiment_has_its_figure_and_table(page: str) -> None:
    titles = re.findall("<h2>(.*?)</h2>", page.partition("<script>")[0])
    assert titles[1:] == TITLES, "after the machine"
    measured = [row for row in documents.profile()["rows"] if row["median"] is not None]
    assert page.count("<tr>") >= len(measured)
    figures = json.loads(re.search(r"const figures = (.*);\n", page)[1])  # type: ignore[index]
    assert len(figures) >= 8 and all(f'id="{name}"' in page for name in figures)
    assert "noisy" in page and "no memory free on node 3" in page


def test_sentences_are_made_from_the_numbers(tmp_path: Path) -> None:
    document = documents.machine() | {
        "conditions": {},
        "rows": [
            {
                "experiment": "bandwidth", "unit": "B/s", "median": 25e9, "samples": [25e9],
                "parameters": {"cpu_node": 0, "memory_node": 2, "mix": "read", "threads": 1},
            }
        ],
    }  # fmt: skip
    _report.build(document, tmp_path / "page.html", tmp_path / "page.png")
    page = (tmp_path / "page.html").read_text()
    assert "The most was 25 GB/s (read, CPUs of node 0, memory of node 2)." in page
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_draws_a_profile(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(documents.profile()))
    result = run("report", "p.json", "--html", "page.html")
    assert (result.returncode, result.stdout, result.stderr) == (0, "page.html\n", "")
    broken = documents.profile()
    broken["rows"][0]["samples"] = "many"
    (tmp_path / "p.json").write_text(json.dumps(broken))
    refused = run("report", "p.json", "--html", "page.html")
    assert refused.returncode == 2 and "rows[0].samples" in refused.stderr


def test_what_is_measured_can_be_drawn(machine: headrace.Machine, tmp_path: Path) -> None:
    profile = headrace.measure(machine, experiments=["stream", "migrate"], budget=6, width=1.0)
    _report.build(json.loads(profile.to_json()), tmp_path / "page.html")
    assert "STREAM" in (tmp_path / "page.html").read_text()
