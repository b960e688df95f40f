"""headrace tier attach, headrace tier run: live where there is swap, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from headrace._cli.tier import watch

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Golden = Callable[[str, str], None]
MIB = 1 << 20


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """With 32 MiB touched."""
    script = "x = bytearray(b'x' * (32 << 20)); print('ready', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait(30)
    process.stdin.close()
    process.stdout.close()


def balancing() -> str | None:
    path = Path("/proc/sys/kernel/numa_balancing")
    return path.read_text() if path.exists() else None


def live_or_skip(result: subprocess.CompletedProcess[str], code: int) -> None:
    if result.returncode in (4, 5):
        assert result.stderr.count("\n") == 1, result.stderr
        pytest.skip(result.stderr.strip())
    assert result.returncode == code, result.stderr


def test_help(run: Run, golden: Golden) -> None:
    golden("help/tier/attach.txt", run("tier", "attach", "--help").stdout)
    golden("help/tier/run.txt", run("tier", "run", "--help").stdout)


def test_what_makes_no_sense_is_refused_in_a_line(run: Run) -> None:
    for code, word, *arguments in (
        (3, "no process", "attach", "999999999", "--budget", "1MiB"),
        (2, "no size", "attach", "1", "--budget", "many"),
        (2, "budget", "attach", "1", "--budget", "0"),
        (2, "no share", "attach", "1", "--budget", "1MiB", "--guard", "200%"),
        (2, "budget", "attach", "1"),
        (127, "no such program", "run", "--budget", "1MiB", "--", "nosuchprogram"),
    ):
        result = run("tier", *arguments)
        assert result.returncode == code, (arguments, result.stderr)
        assert word in result.stderr and "Traceback" not in result.stderr


def test_a_running_program_is_kept_within_its_budget(
    run: Run, program: subprocess.Popen[str]
) -> None:
    before = balancing()
    result = run(
        "tier", "attach", str(program.pid), "--budget", "16MiB", "--for", "3.5", "--guard", "0",
        "--decisions", "2", "--json",
    )  # fmt: skip
    live_or_skip(result, 0)
    document = json.loads(result.stdout)
    assert document["kind"] == "tier_process" and document["pid"] == program.pid
    assert document["source"] == "refaults" and "one thread" in document["why"]
    assert document["ended"] == "as asked"
    assert document["resident"] <= 17 * MIB and document["out"] >= 8 * MIB
    assert document["totals"]["went_out"] >= 8 * MIB
    assert len(document["decisions"]) == 2 and document["decisions"][0]["reason"]
    assert balancing() == before


def test_it_ends_with_the_program(command: Path, program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    attached = subprocess.Popen(
        [str(command), "tier", "attach", str(program.pid), "--budget", "1GiB"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1.5)
    program.kill()
    program.wait(30)
    output, errors = attached.communicate(timeout=30)
    live_or_skip(subprocess.CompletedProcess([], attached.returncode, output, errors), 0)
    assert "has ended" in output


def test_a_program_is_run_and_its_exit_code_is_ours(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "done.json"
    script = "x = bytearray(b'x' * (32 << 20)); import time; time.sleep(2.5); print(7); exit(7)"
    before = balancing()
    result = run(
        "tier", "run", "--budget", "16MiB", "--guard", "0", "--out", str(out), "--",
        sys.executable, "-c", script,
    )  # fmt: skip
    live_or_skip(result, 7)
    assert result.stdout == "7\n" and "ended:" in result.stderr
    document = json.loads(out.read_text())
    assert document["totals"]["went_out"] >= 8 * MIB
    assert balancing() == before


def test_the_summary_tells_costs_and_decisions() -> None:
    class Totals:
        elapsed, program_cpu, tracker_cpu, mover_cpu = 60.0, 30.0, 0.3, 0.6
        went_out, came_in, undone, major_faults = 5 * MIB, 2 * MIB, 1, 77

    class Decision:
        begin, comes_in, bytes, heat, reason = 0x7000, False, 4096, 0.25, "the coldest goes"

    done = watch.Done(source="refaults", why="asked for", ended="as asked", resident=MIB)
    done.totals = Totals()  # type: ignore[assignment]
    done.decisions = [Decision()] * 3  # type: ignore[list-item]
    text = watch.text(done, 2)
    assert "tracker 1.0 %, mover 2.0 %" in text and "undone by the guard: 1" in text
    assert text.count("out 0x7000 4 KiB, heat 0.250: the coldest goes") == 2
    assert watch.text(done, 0).count("heat") == 0


def test_words_of_sources_are_checked() -> None:
    with pytest.raises(headrace.InvalidError, match="hint-faults, refaults"):
        headrace.tier_process(1, 1 << 20, source="magic")  # type: ignore[arg-type]
