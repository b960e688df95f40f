# SPDX-License-Identifier: Apache-2.0
"""headrace bench um on a GPU made of software, and where there is none."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench_documents import check_rows

from headrace._errors import WrongAnswer
from headrace._model.um_cases import Case
from headrace._profile.nested import rows_of
from headrace._provenance import EMULATED_GPUS
from headrace_bench import um_live
from headrace_bench.commands import um as bench_um
from headrace_bench.runner import row_of

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def gpu(fake_cuda: Path) -> Callable[[str], dict[str, str]]:
    """Environments with a fake driver of these settings."""
    return lambda settings: {"HEADRACE_LIBCUDA": str(fake_cuda), "HEADRACE_FAKE_CUDA": settings}


def test_without_a_driver_the_reason_and_the_remedy(run: Run) -> None:
    for arguments in (["bench", "um"], ["advise", "um", "--size", "1GiB"]):
        result = run(*arguments, env={"HEADRACE_LIBCUDA": "/nowhere/libcuda.so.1"})
        assert result.returncode == 3 and not result.stdout
        assert "HEADRACE_LIBCUDA" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "case",
    [
        [],
        ["--accessed-by", "--preferred-location-cpu", "--touch-on-host"],
        ["--read-mostly", "--kernel", "wide"],
        ["--memory", "node:0", "--op", "write"],
        ["--prefetch-block", "1MiB", "--streams", "3", "--op", "write"],
    ],
)
def test_every_row_is_emulated_and_right(
    run: Run, gpu: Callable[[str], dict[str, str]], case: list[str]
) -> None:
    env = gpu("memory=64M,paradigm=ats,sms=4")
    result = run("bench", "um", "--size", "4MiB", "--runs", "2", *case, "--json", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["emulated"] and document["basis"] == "emulated" and document["written"]
    assert document["rests_on"] == EMULATED_GPUS and document["paradigm"] == "ats"
    assert document["node"] == 0
    check_rows(document)
    *own, later = rows_of(document, "um")
    assert len(own) == 2 and all(row["flags"] == [] for row in own)
    for row in own:
        assert row["basis"] == "emulated" and row["wrong"] == 0 and row["median"] > 0
    assert (later["run"], later["median"]) == ("after 1", own[1]["median"])
    assert {row["basis"] for row in document["published"]} <= {"published"}


def test_ones_own_rows_stand_beside_what_was_published(
    run: Run, gpu: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    env = gpu("memory=64M,sms=4")
    result = run("bench", "um", "--runs", "3", "--out", "um.json", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    for told in ("28 MiB  emulated", "207.7", "x86-pcie3", "Emulated by", "4 KiB in flight"):
        assert told in result.stdout, result.stdout
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    assert run("report", "um.json", "--html", "um.html").returncode == 0
    assert "measured" in (tmp_path / "um.html").read_text()


def test_the_node_that_runs_it(run: Run, gpu: Callable[[str], dict[str, str]]) -> None:
    env = gpu("memory=64M,sms=4,host_node=-1")
    asked = ["bench", "um", "--size", "1MiB", "--runs", "1"]
    document = json.loads(run(*asked, "--node", "0", "--json", env=env).stdout)
    assert document["node"] == 0 and document["cases"][0]["case"] == "managed + from node 0"
    assert any(row["published"] for row in document["published"]), "of any node"
    for wrong, code, why in (
        (["--node", "77"], 3, "no memory node 77"),
        (["--node", "0", "--memory", "node:0"], 2, "leave one out"),
    ):
        refused = run(*asked, *wrong, env=env)
        assert (refused.returncode, refused.stdout) == (code, "") and why in refused.stderr, refused


def test_the_lines_of_the_original(run: Run, gpu: Callable[[str], dict[str, str]]) -> None:
    arguments = ["bench", "um", "--accessed-by", "--size", "1MiB", "--runs", "1", "--as-reprex"]
    result = run(*arguments, env=gpu("memory=64M,sms=80"))
    mark = "headrace: emulated by software, no speed of a GPU\n"
    assert (result.returncode, result.stderr) == (0, mark)
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "Running on device 0 with grid dim 160 and block dim 128",
        "Managed memory enabled",
        "cudaMemAdviseSetAccessedBy enabled",
        "Running read kernel",
    ]
    assert len(lines) == 5 and lines[4].startswith("Throughput: ")


def test_wrong_answer_is_reported_after_the_document_is_written() -> None:
    def document(wrong: int, written: bool) -> dict[str, Any]:
        rows = [row_of("um", {"run": 1}, "GiB/s", [1.0], details={"wrong": 0}),
                row_of("um", {"run": 2}, "GiB/s", [1.0], details={"wrong": wrong})]  # fmt: skip
        made = [row.asdict() for row in rows]
        return {"rows": made, "written": written, "interrupted": False}

    um_live.check_written(document(0, written=True))
    with pytest.raises(WrongAnswer, match="run=2: the kernel's sum is wrong"):
        um_live.check_written(document(1, written=True))
    with pytest.raises(WrongAnswer, match="does not hold what the kernel wrote"):
        um_live.check_written(document(0, written=False))


@pytest.mark.parametrize(
    ("memory", "pages", "absent", "flagged"),
    [
        ("system", {1: 9}, 0, []),
        ("system", {1: 8, 0: 1}, 0, [1]),  # a GPU that moves pages moves them after the first run
        ("system", {1: 8}, 1, [1]),
        ("node:1", {1: 9}, 0, []),
        ("node:1", {1: 8}, 1, [1]),
        ("node:1", {0: 9}, 0, [1, 2]),
        ("node:0", {0: 9}, 0, []),
        ("managed", {0: 4}, 5, []),
    ],
)
def test_an_array_on_the_wrong_node_is_told(
    memory: str, pages: dict[int, int], absent: int, flagged: list[int]
) -> None:
    case = Case(memory=memory, size=9 * 4096, runs=2, op="write")
    where = SimpleNamespace(pages=pages, absent=absent)
    run = SimpleNamespace(time=1.0, correct=True, before=where, after=None)
    result: Any = SimpleNamespace(
        runs=[run, run], emulated=False, in_flight=1, device="a GPU", paradigm="ats",
        device_free=1, node=1, blocks=1, threads_per_block=1, advice_confirmed=None, written=True,
    )  # fmt: skip
    document = um_live.fields("here", case, result)
    rows = rows_of(document, "um")
    assert [row["run"] for row in rows if row["flags"] == ["misplaced"]] == flagged
    told = bench_um.text(document | {"interrupted": False})
    assert told.count("Misplaced: run ") == len(flagged)
    assert ("Misplaced: run 1 began with pages on node 0 100% and not all on node 1" in
            " ".join(told.split())) == (flagged == [1, 2])  # fmt: skip


def test_pages_have_the_size_that_the_kernel_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmap.PAGESIZE", 65536)
    found: Any = SimpleNamespace(pages={0: 3, 1: 2}, absent=1)
    assert um_live._where(found) == {
        "host_bytes": {"0": 3 * 65536, "1": 2 * 65536}, "absent_bytes": 65536
    }  # fmt: skip


def test_more_than_the_gpu_has_is_refused_or_told(
    run: Run, gpu: Callable[[str], dict[str, str]]
) -> None:
    arguments = ["bench", "um", "--size", "32MiB", "--runs", "1"]
    refused = run(*arguments, env=gpu("memory=16M,sms=4"))
    assert refused.returncode == 6 and "--oversubscribe" in refused.stderr
    assert refused.stderr.count("\n") == 1
    allowed = run(*arguments, "--oversubscribe", env=gpu("memory=16M,sms=4"))
    assert allowed.returncode == 0, allowed.stderr
    evicted = "pages may be evicted for others in each run, which headrace predict um"
    assert evicted in allowed.stderr


def test_memory_of_other_programs_is_not_free(
    run: Run, gpu: Callable[[str], dict[str, str]]
) -> None:
    """The context and what is spared for the driver are no room either: 15 MiB of 16 do not fit."""
    env = gpu("memory=16M,sms=4")
    arguments = ["bench", "um", "--size", "15MiB", "--runs", "1"]
    assert run(*arguments, env=env).returncode == 6
    allowed = run(*arguments, "--oversubscribe", env=env)
    assert allowed.returncode == 0 and "pages may be evicted" in allowed.stderr, allowed.stderr
    fits = run("bench", "um", "--size", "4MiB", "--runs", "1", "--oversubscribe", env=env)
    assert (fits.returncode, fits.stderr) == (0, "")
    advised = run("advise", "um", "--size", "15MiB", env=env)
    assert advised.returncode == 0 and "is more than the" in advised.stdout, advised.stdout


def test_advice_for_the_gpu_of_this_host(
    run: Run, gpu: Callable[[str], dict[str, str]]
) -> None:
    result = run("advise", "um", "--size", "40MiB", env=gpu("memory=16M,paradigm=managed"))
    assert (result.returncode, result.stderr) == (0, "")
    assert "with the figures of x86-pcie3" in result.stdout
    assert "SET_ACCESSED_BY" in result.stdout and "is more than the 14 MiB" in result.stdout
    refused = run("advise", "um", "--size", "1GiB", env=gpu("paradigm=limited"))
    assert refused.returncode == 4 and "(limited); give --machine" in refused.stderr
    full = run("advise", "um", "--size", "1GiB", env=gpu("memory=1M"))
    assert full.returncode == 6 and "no room for managed memory" in full.stderr


def test_advice_where_the_gpu_reads_the_host_by_faults(
    run: Run, gpu: Callable[[str], dict[str, str]]
) -> None:
    """Managed memory alone: what reading the host by such faults costs nobody published."""
    asked = ["advise", "um", "--size", "40MiB", "--json"]
    env = {how: gpu(f"memory=64M,paradigm={how}") for how in ("hmm", "managed")}
    made = {how: json.loads(run(*asked, env=env[how]).stdout) for how in env}
    hmm = made["hmm"]
    assert hmm["paradigm"] == "hmm" and hmm["basis"] == "modelled"
    assert hmm["advised"] == made["managed"]["advised"] != "system"
    rows = {row["recipe"]: row for row in hmm["rows"]}
    assert rows.pop("system")["rate"] is None
    assert list(rows.values()) == [
        row for row in made["managed"]["rows"] if row["recipe"] != "system"
    ]
    words = " ".join(run(*asked[:-1], env=env["hmm"]).stdout.split())
    assert "by faults (HMM), and nobody told how fast" in words
    assert "figures of x86-pcie3, which reaches managed memory as it does" in words
