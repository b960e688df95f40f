# SPDX-License-Identifier: Apache-2.0
"""headrace bench cache: its document, what it refuses, what ends a measurement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_documents import check_commands
from headrace_bench import cache
from headrace_bench.runner import check

from headrace._cli import app
from headrace._errors import WrongAnswer
from headrace._format import rounds_text
from headrace._profile.documents import all_fields

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TINY = ["--rounds", "2", "--seconds", "0.002", "--part-seconds", "0.02", "--extents", "500",
        "--budget", "1MiB", "--scan", "4MiB", "--threads", "2"]  # fmt: skip


def options(**changed: Any) -> cache.Options:
    usual: dict[str, Any] = {
        "implementations": [], "scenarios": [], "threads": [1], "rounds": 1, "seconds": 0.001,
        "part_seconds": 0.01, "extents": 100, "budget": 1 << 20, "scan": 1 << 20,
        "directory": None, "instructions": False, "seed": 1,
    }  # fmt: skip
    return cache.Options(**usual | changed)


def test_a_run(run: Run, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    names = ["--implementations", "headrace,sharded,chase"]
    scenarios = ["--scenarios", "hit-one-hot,miss-fill,small-miss,buffer-pool"]
    result = run(
        "bench", "cache", *TINY, *names, *scenarios, "--data", "files", "--json", "--out", "c.json"
    )
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "c.json").read_text())
    assert document["kind"] == "bench cache"
    assert {p.name for p in (tmp_path / "files").iterdir()} == {"lookups.bin", "scan.bin"}
    check_commands(document, run, tmp_path)
    on_files = [each["name"] for each in document["scenarios"] if each["files"]]
    assert sorted(on_files) == sorted(cache.FILE_SCENARIOS)
    rows = {(r["implementation"], r["scenario"]): r for r in all_fields(document)}
    assert len(rows) == 10  # chase reads no files
    for (_, scenario), row in rows.items():
        assert row["wrong"] == 0 and row["reason"] == "" and len(row["samples"]) == 2
        assert row["median"] > 0 and row["ops_per_second"] > 0
        assert row["threads"] == (8 if scenario in ("small-miss", "buffer-pool") else 2)
    assert rows["headrace", "hit-one-hot"]["hit_ratio"] == 1
    assert rows["sharded", "miss-fill"]["hit_ratio"] < 0.5
    fields = [
        ("document", document), ("row", document["rows"][0]),
        *((f"details of {row['parameters']['scenario']}", row["details"])
          for row in document["rows"] if row["parameters"]["implementation"] == "headrace"),
    ]  # fmt: skip
    text = "".join(f"{what}: {' '.join(of)}\n" for what, of in fields)
    golden("bench_cache_fields.txt", text)


def test_as_tables(run: Run) -> None:
    result = run(
        "bench", "cache", *TINY, "--implementations", "sharded,chase",
        "--scenarios", "hit-spread,small-miss,buffer-pool",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    for told in ("hit-spread: 10 000 blocks", "2 threads", "8 threads, 500 extents, 1 MiB",
                 "over budget", "p99.9", "CPU/miss", "lookups/s alone", "beside the scan",
                 "medians of 2 rounds"):  # fmt: skip
        assert told in result.stdout
    listed = run("bench", "cache", "--list").stdout
    assert "HyperClockCache" in listed and "small-miss" in listed


def test_long_run_says_so_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "_measure", lambda *_: json.loads(ROW))
    assert app.run(["bench", "cache", "--scenarios", "hit-spread,miss-fill", "--threads", "1",
                    "--implementations", "headrace,chase", "--seconds", "3", "--json"]) == 0
    told = capsys.readouterr().err
    assert told == "headrace: 24 measurements, about 74.4 s; Ctrl-C keeps what is measured\n"


@pytest.mark.parametrize(
    ("samples", "stopped", "told"),
    [([5, 5], False, "5 rounds"), ([2, 2], True, "2 rounds of 5, interrupted"),
     ([1, 0], True, "1 round of 5, interrupted"), ([2, 1], True, "1 to 2 rounds of 5, interrupted"),
     ([], True, "0 rounds of 5, interrupted")],
)  # fmt: skip
def test_an_interrupted_run_says_how_many_rounds_there_are(
    samples: list[int], stopped: bool, told: str
) -> None:
    rows = [{"samples": [1.0] * count} for count in samples]
    assert rounds_text({"rounds": 5, "rows": rows, "interrupted": stopped}) == told


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--implementations", "none"], 2,
         "no implementation 'none'; there are headrace, headrace-16, thesis"),
        (["--scenarios", "none"], 2, "no scenario 'none'; there are hit-spread"),
        (["--threads", "0"], 2, "'0' is no number of threads"),
        (["--budget", "big"], 2, "'big' is no size"),
        (["--scan", "1k"], 2, "'1k'; give 1MiB to 1TiB"),
        (["--rounds", "0"], 2, ""),
        (["--implementations", "chase", "--scenarios", "small-miss"], 4, "none of these has"),
        (["--out", "nowhere/x.json"], 3, "no directory nowhere"),
        (["--scenarios", "small-miss", "--data", "/proc/x"], 3, ""),
    ],
)
def test_nonsense_is_one_line(run: Run, arguments: list[str], code: int, told: str) -> None:
    result = run("bench", "cache", *arguments, "--json")
    assert result.returncode == code
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1


def script(path: Path, text: str) -> str:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


ROW = '{"operations": 1, "misses": 0, "wrong": 0, "seconds": 1, "thread_seconds": 1, ' \
      '"process_seconds": 1}'  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "io", "ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "exhausted", "was killed, as the kernel does"),
        ("import sys; sys.exit('headrace-bench-cache: no room')", "io", "no room"),
        ("import sys; print('?', file=sys.stderr); sys.exit(6)", "exhausted", "?"),
        ("print('not a row')", "io", "printed no row"),
    ],
)
def test_failure_is_a_row_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: str, reason: str
) -> None:
    monkeypatch.setattr(cache, "program", lambda: script(tmp_path / "program", text))
    variants = [cache.variant(name, "hit-spread", 1) for name in ("headrace", "chase")]
    _, [row, _] = cache.run(variants, options(rounds=3), lambda: False)
    assert row.median is None and row.words["code"] == code and reason in row.reason
    assert "wrong" not in row.details


def test_a_wrong_block_is_no_number_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ROW.replace('"wrong": 0', '"wrong": 1')
    text = f"print('{row}')"
    monkeypatch.setattr(cache, "program", lambda: script(tmp_path / "program", text))
    _, [row] = cache.run([cache.variant("headrace", "hit-spread", 1)], options(), lambda: False)
    with pytest.raises(WrongAnswer):
        check({"rows": [row.asdict()], "interrupted": False})


def test_no_answer_is_waited_for_as_long_as_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_SLACK_SECONDS", 0.1)
    sleeps = script(tmp_path / "program", "import time; time.sleep(60)")
    monkeypatch.setattr(cache, "program", lambda: sleeps)
    _, [row] = cache.run([cache.variant("headrace", "hit-spread", 1)], options(), lambda: False)
    assert row.words["code"] == "timed_out"


def test_a_stopped_run_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "program", lambda: script(tmp_path / "program", f"print('{ROW}')"))
    variants = [cache.variant(name, "hit-spread", 1) for name in ("headrace", "chase")]
    done: list[int] = []

    def note(number: int, total: int, what: str) -> None:
        done.append(number)
        if len(done) == 4:
            sleeps = script(tmp_path / "sleeps", "import time; time.sleep(60)")
            monkeypatch.setattr(cache, "program", lambda: sleeps)

    _, rows = cache.run(variants, options(), lambda: len(done) == 4, note)
    assert sorted(row.reason for row in rows) == ["", "interrupted"]
    assert sorted(len(row.samples) for row in rows) == [0, 1]


def test_threads_by_default_go_to_twice_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, expected in ((1, [1, 2]), (2, [1, 2, 4]), (6, [1, 2, 4, 6, 8, 12])):
        monkeypatch.setattr(cache, "cpus_for", lambda *_, n=cores: list(range(n)))
        assert cache.default_threads(None) == expected  # type: ignore[arg-type]


def test_missing_implementation_is_a_row_with_its_reason() -> None:
    known = {
        "implementations": [
            {"name": "chase", "about": "", "missing": "", "files": False},
            {"name": "rocksdb", "about": "", "missing": "built without RocksDB", "files": False},
        ],
        "scenarios": [{"name": "hit-spread", "about": "", "files": False}],
    }
    _, [row] = cache.run(cache.chosen(known, options())[1:], options(), lambda: False)
    assert row.parameters["implementation"] == "rocksdb"
    assert (row.words["code"], row.median) == ("absent", None)
    assert row.reason == "built without RocksDB"
