# SPDX-License-Identifier: Apache-2.0
"""tools/test.sh: which steps run when, and what is printed about them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import built

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import scheduler  # noqa: E402
import steps  # noqa: E402
from scheduler import Outcome, Step  # noqa: E402


def run(some: list[Step], folder: Path) -> dict[str, Outcome]:
    outcomes = scheduler.run(some, folder, lambda outcome: None)
    return {outcome.step.name: outcome for outcome in outcomes}


def wait_for(file: str) -> str:
    return f"timeout 20 bash -c 'until [ -e {file} ]; do sleep 0.01; done'"


def wait_until_written(file: Path) -> None:
    end = time.monotonic() + 30
    while not (file.exists() and file.read_text().strip()) and time.monotonic() < end:
        time.sleep(0.02)


def has_ended(file: Path) -> bool:
    """Whether the process with the number in this file has."""
    state = Path("/proc", file.read_text().strip(), "stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] in "ZX"


def test_a_build_and_two_other_steps_run_beside_each_other(tmp_path: Path) -> None:
    meet = [f"{tmp_path}/{name}" for name in "abc"]
    each = [f"touch {own}\n" + "\n".join(wait_for(other) for other in meet) for own in meet]
    some = [Step("build", each[0], is_build=True), Step("one", each[1]), Step("two", each[2])]
    assert all(outcome.passed for outcome in run(some, tmp_path / "logs").values())


def test_builds_run_one_after_the_other_and_at_most_two_others(tmp_path: Path) -> None:
    alone = f"mkdir {tmp_path}/alone; sleep 0.1; rmdir {tmp_path}/alone"
    some = [Step(f"build-{i}", alone, is_build=True) for i in range(3)]
    assert all(outcome.passed for outcome in run(some, tmp_path / "logs").values())
    running = [Step("a", ""), Step("b", "")]
    assert scheduler.choose([Step("c", "")], set(), running) is None
    assert scheduler.choose([Step("c", "")], set(), running[:1]) is not None


def test_a_build_gives_way_to_what_runs_beside_it(tmp_path: Path) -> None:
    niceness = "python3 -c 'import os; print(os.nice(0))'"
    run([Step("build", niceness, is_build=True), Step("other", niceness)], tmp_path)
    told = {name: int((tmp_path / f"{name}.log").read_text()) for name in ("build", "other")}
    assert told["build"] > told["other"]


def test_failed_step_fails_its_dependents_and_the_rest_runs(tmp_path: Path) -> None:
    outcomes = run(
        [Step("first", "false; true"), Step("second", "true", after=("first",)),
         Step("third", "true", after=("second",)), Step("other", "true")],
        tmp_path,
    )  # fmt: skip
    assert [name for name, outcome in outcomes.items() if outcome.passed] == ["other"]
    assert outcomes["second"].reason == "not run: it needs first"


def test_a_step_that_hangs_is_stopped_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "LIMIT_SECONDS", 0.5)
    command = f"sleep 60 & echo $! >{tmp_path}/child; wait"
    outcome = run([Step("hangs", command)], tmp_path)["hangs"]
    assert not outcome.passed and outcome.reason.startswith("stopped after")
    assert has_ended(tmp_path / "child")


def test_failed_step_shows_no_tests_that_passed() -> None:
    log = [
        "    Start 1: a_test.1", "1/2 Test #1: a_test.1 ....   Passed    0.10 sec",
        "    Start 2: b_test.1", "[ RUN      ] P/B.Passes/1",
        "[       OK ] P/B.Passes/1 (3 ms)", "[ RUN      ] B.Passes", "[       OK ] B.Passes (0 ms)",
        "[ RUN      ] B.Fails", "b_test.cpp:3: Failure", "[  FAILED  ] B.Fails (1 ms)",
        "[ RUN      ] B.Crashes", "2/2 Test #2: b_test.1 ....***Failed    0.20 sec",
    ]  # fmt: skip
    assert steps.eventful(log) == log[7:]


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_that_ninja_started_stays_behind(tmp_path: Path, by: signal.Signals) -> None:
    """Its jobs have process groups of their own."""
    rule = f"rule wait\n  command = echo $$$$ >{tmp_path}/job; exec sleep 60\nbuild done: wait\n"
    (tmp_path / "build.ninja").write_text(rule)
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r})\n"
        "import scheduler, signal, steps\n"
        "from pathlib import Path\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "    signal.signal(number, steps.interrupt)\n"
        "try:\n"
        f"    step = scheduler.Step('build', 'ninja -C {tmp_path} | cat')\n"
        f"    scheduler.run([step], Path({str(tmp_path)!r}), print)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, program], start_new_session=True)
    wait_until_written(tmp_path / "job")
    os.killpg(process.pid, by)
    assert process.wait(30) == 130 and has_ended(tmp_path / "job")


def test_the_time_of_a_step_is_that_of_its_children(tmp_path: Path) -> None:
    burn = "python3 -c 'import time\nwhile time.process_time() < 0.3: pass'"
    assert run([Step("burn", burn)], tmp_path)["burn"].cpu_seconds >= 0.3


def outcome_of(name: str, cpu_seconds: float, passed: bool = True) -> Outcome:
    return Outcome(Step(name, "", is_build=name.startswith("build")), passed, 1, cpu_seconds)


def test_kept_times_only_shrink_and_a_much_longer_one_is_told(tmp_path: Path) -> None:
    times = steps.Times(tmp_path / "times.json")
    assert times.complaint(outcome_of("asan", 1000)) is None
    times.tighten([outcome_of("asan", 100), outcome_of("tsan", 9, passed=False)])
    times.tighten([outcome_of("asan", 130)])
    assert json.loads((tmp_path / "times.json").read_text()) == {"asan": 100}
    assert times.complaint(outcome_of("asan", 200)) is None
    note = "note: asan took 300 s of CPU; 100 are kept"
    assert times.complaint(outcome_of("asan", 300)) == note
    times.tighten([outcome_of("asan", 80)])
    assert times.kept == {"asan": 80}


@pytest.mark.parametrize(
    ("log", "key"),
    [
        ("", "build-asan, cached"),
        ("# x.cpp\ndirect_cache_hit\n", "build-asan, cached"),
        ("# x.cpp\ncache_miss\n", "build-asan"),
        ("cache_miss\ndirect_cache_hit\npreprocessed_cache_hit\n", None),
    ],
)
def test_a_build_has_a_time_from_nothing_and_one_with_a_cache(
    log: str, key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LOGS", tmp_path)
    (tmp_path / "build-asan.ccache").write_text(log)
    assert steps.Times(tmp_path / "none").key(outcome_of("build-asan", 1)) == key


def test_every_step_can_run() -> None:
    everything = [*steps.all_steps(whole=True), *steps.NAMED_ONLY]
    left, passed = list(everything), set[str]()
    while (step := scheduler.choose(left, passed, [])) is not None:
        left.remove(step)
        passed.add(step.name)
    assert not left
    assert [s.name for s in steps.with_conditions(["tsan"], everything)] == [
        "packages", "build-tsan", "tsan",
    ]  # fmt: skip


def test_a_line_for_each_step_and_the_last_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [Step("good", "echo note: seen; echo unseen"), Step("bad", "echo why; false")]
    monkeypatch.setattr(steps, "all_steps", lambda whole: some)
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    monkeypatch.setattr(steps, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(steps, "TIMES", tmp_path / "times.json")
    monkeypatch.setattr(sys, "argv", ["test.sh"])
    assert steps.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert {"note: seen", "why", "(whole log: logs/bad.log)"} <= set(lines)
    assert not any("unseen" in line for line in lines)
    assert sorted(line.split()[0] for line in lines if " s of CPU" in line) == [
        "FAILED", "ok", "whole",
    ]  # fmt: skip
    assert lines[-1] == "1 passed, 1 failed"


def test_an_unknown_step_is_refused() -> None:
    command = [str(ROOT / "tools" / "test.sh")]
    refused = subprocess.run([*command, "nosuch"], capture_output=True, text=True)
    assert refused.returncode == 1 and "no step nosuch; there are: packages" in refused.stderr
    parts = subprocess.run([*command, "--all", "house"], capture_output=True, text=True)
    assert parts.returncode == 2 and "--all runs every step" in parts.stderr


def test_what_was_not_built_is_a_failure_only_where_all_was_built(tmp_path: Path) -> None:
    nowhere, every = tmp_path / "x.so", {"HEADRACE_EVERY_TEST": "1"}
    with pytest.raises(pytest.skip.Exception, match="cmake --build --preset release makes it"):
        built(nowhere, {})
    with pytest.raises(pytest.fail.Exception, match="cmake --build --preset release makes it"):
        built(nowhere, every)
    assert built(tmp_path, every) == tmp_path
    (python,) = (step for step in steps.all_steps() if step.name == "python")
    assert every.items() <= python.environment.items()


def test_a_second_ctrl_c_leaves_no_step_running(tmp_path: Path) -> None:
    slow = "trap 'sleep 1; exit' TERM; while :; do sleep 0.05; done"
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r})\n"
        "from pathlib import Path\nimport scheduler\n"
        f"slow = scheduler.Step('slow', {slow!r})\n"
        f"last = scheduler.Step('last', 'echo $$ >{tmp_path}/last; exec sleep 60')\n"
        f"scheduler.run([slow, last], Path({str(tmp_path)!r}), print)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    wait_until_written(tmp_path / "last")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    process.wait(30)
    assert has_ended(tmp_path / "last")


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    stub = (
        "import runpy, signal, os, sys; sys.path.insert(0, 'tools'); import scheduler;"
        "scheduler.run = lambda *_: os.kill(os.getpid(), signal.SIGINT);"
        "sys.argv = ['steps.py', 'house'];"
        "runpy.run_path('tools/steps.py', run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", stub], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, "test.sh: interrupted\n")
