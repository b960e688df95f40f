# SPDX-License-Identifier: Apache-2.0
"""headrace tier attach, headrace tier run: live where there is swap, and what they refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import swap
from conftest import Run

import headrace
from headrace._cli.tier import run as run_command
from headrace._cli.tier import watch
from headrace._tiering.tiers import Tier, Tiers

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
    """A refusal is believed only where this machine cannot do it."""
    if result.returncode in (4, 5):
        assert result.stderr.count("\n") == 1, result.stderr
        why = swap.lacking_for_processes()
        assert why is not None, f"this machine can: {result.stderr}"
        assert why != swap.NONE or why in result.stderr
        pytest.skip(result.stderr.strip())
    assert result.returncode == code, result.stderr


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


#: Waits until its cgroup has a limit, 30 s at most, and takes 64 MiB at once.
TAKES_WHEN_HELD = """
import time
lines = open("/proc/self/cgroup").read()
groups = {l.split(":", 2)[1]: l.split(":", 2)[2] for l in lines.splitlines()}
if "memory" in groups:
    limit = f"/sys/fs/cgroup/memory{groups['memory']}/memory.limit_in_bytes"
else:
    limit = f"/sys/fs/cgroup{groups['']}/memory.high"
for _ in range(300):
    said = open(limit).read().strip()
    if said != "max" and int(said) < 1 << 30:
        break
    time.sleep(0.1)
taken = [bytearray(b"x" * (4 << 20)) for _ in range(16)]
print([l for l in open("/proc/self/status") if l.startswith("RssAnon")][0].split()[1])
print(lines)
exit(7)
"""


def test_a_cgroup_holds_a_program_that_takes_all_at_once(run: Run, tmp_path: Path) -> None:
    """Where there is swap: within a MiB of its budget from the first step on."""
    out = tmp_path / "done.json"
    script = tmp_path / "takes.py"
    script.write_text(TAKES_WHEN_HELD)
    result = run(
        "tier", "run", "--budget", "24MiB", "--guard", "0", "--hold", "cgroup", "--out", str(out),
        "--", sys.executable, str(script),
    )  # fmt: skip
    live_or_skip(result, 7)
    if "of swap are free" in result.stderr:
        pytest.skip("too little swap is free for a cgroup to hold")
    assert int(result.stdout.split()[0]) <= 26 << 10, result.stdout
    document = json.loads(out.read_text())
    assert "held by memory." in document["why"]
    group = Path(document["why"].rpartition(" of ")[2])
    assert f"/{group.name}\n" in result.stdout and group.name.startswith("headrace-tier-")
    assert group.parent.is_dir() and not group.exists()
    for note in Path("/run/headrace").glob("group-*"):
        assert group.name not in note.read_text()


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
    assert "by the kernel" not in watch.text(done, 0)
    done.kernel = {"resident": 3 * MIB, "out": 4 * MIB, "zram": MIB, "huge_pages_split": 5}
    text = watch.text(done, 2)
    assert (
        "by the kernel: 3 MiB in memory (RssAnon), 4 MiB out (VmSwap); zram takes 1 MiB of DRAM "
        "for all programs; huge pages split on this host meanwhile: 5\n"
    ) in text
    assert "tracker 1.0 %, mover 2.0 %" in text and "undone by the guard: 1" in text
    assert text.count("out 0x7000 4 KiB, heat 0.250: the coldest goes") == 2
    assert watch.text(done, 0).count("heat") == 0


def test_slow_memory_is_the_kernels_slower_tiers_or_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    def nodes(*found: Tier, **given: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        monkeypatch.setattr(watch, "tiers", lambda files: Tiers(found, frozenset({0, 1})))
        options = {"source": None, "fast": None, "slow": None, **given}
        request = watch.request("1GiB", guard="0", rate="1MiB", **options)  # type: ignore[arg-type]
        return request.fast, request.slow

    hbm, dram, cxl = Tier(1, (2, 3)), Tier(4, (0, 1)), Tier(22, (4,))
    assert nodes() == nodes(dram) == ((), ())
    assert nodes(dram, cxl) == ((0, 1), (4,))
    assert nodes(hbm, dram, cxl) == ((2, 3), (0, 1, 4))
    assert nodes(dram, cxl, slow="swap") == nodes(dram, cxl, source="refaults") == ((), ())
    assert nodes(dram, cxl, hold="cgroup") == ((), ())
    assert nodes(dram, cxl, source="damon") == ((0, 1), (4,))
    assert nodes(dram, fast="0", slow="1,4-5") == ((0,), (1, 4, 5))


def test_a_program_outlives_its_tier(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing:
        source, why, steps, closed = "referenced", "", 0, False

        def step(self) -> headrace.ProcessTierStep:
            self.steps += 1
            raise headrace.ExhaustedError("out of memory")

        def totals(self) -> str:
            assert not self.closed
            return "kept"

        def decisions(self) -> list[headrace.TierDecision]:
            assert not self.closed
            return []

        def close(self) -> None:
            self.closed = True

    request = watch.Request(MIB, None, 0, MIB)
    answers = iter([False, True])
    tier = Failing()
    done = watch.until_end(tier, request, ended=lambda: next(answers))  # type: ignore[arg-type]
    assert tier.steps == 1 and done.ended == "as asked"
    assert tier.closed and done.totals == "kept", "what it held is given back at once"
    assert done.notes == ["out of memory; the program goes on, and nothing moves any more"]
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(headrace.ExhaustedError):
        watch.until_end(Failing(), request, seconds=1)  # type: ignore[arg-type]


def test_counters_of_the_kernel_are_read(tmp_path: Path) -> None:
    def put(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert watch.counted(7, tmp_path) == {}
    put("proc/7/status", "Name:\tx\nRssAnon:\t  12 kB\nRssFile:\t 5 kB\nVmSwap:\t  8 kB\n")
    assert watch.counted(7, tmp_path) == {"resident": 12 << 10, "out": 8 << 10}
    put("sys/block/zram0/mm_stat", "1 2 4096 0 5 6 7 8 9\n")
    put("sys/block/zram1/mm_stat", "1 2 8192 0 5 6 7 8 9\n")
    put("proc/vmstat", "thp_split_page 4\nthp_split_pmd 17\n")
    assert watch.counted(7, tmp_path) == {
        "resident": 12 << 10, "out": 8 << 10, "zram": 12288, "huge_pages_split": 17,
    }  # fmt: skip
    put("proc/7/status", "State:\tZ (zombie)\n")
    assert watch.counted(7, tmp_path) == {}, "it has ended"


class Scripted:
    """A tier of which each step is what is next in a list."""

    source, why = "refaults", ""

    def __init__(self, *steps: Callable[[], None]) -> None:
        self.steps = list(steps)

    def step(self) -> object:
        if self.steps:
            self.steps.pop(0)()
        return Step()

    def totals(self) -> None:
        return None

    def decisions(self) -> list[headrace.TierDecision]:
        return []


class Step:
    resident, out, undone, note = 0, 0, "", ""


def test_a_program_is_followed_through_exec(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tiering begins anew with each program; where it cannot, that is said at once."""

    def execs() -> None:
        raise headrace.AbsentError("the process has become another program (exec)")

    def fails() -> None:
        raise headrace.ExhaustedError("swap is full")

    begun: list[int] = []
    tiers = iter([Scripted(execs), execs, Scripted(execs), fails])

    @contextmanager
    def attached(pid: int, request: watch.Request) -> Iterator[Scripted]:
        begun.append(pid)
        tier = next(tiers)
        if not isinstance(tier, Scripted):
            tier()
        assert isinstance(tier, Scripted)
        yield tier

    monkeypatch.setattr(watch, "attached", attached)
    with subprocess.Popen(["sleep", "1.5"]) as child:
        done = run_command._tiered(child, watch.Request(MIB, None, 0, MIB))
    assert len(begun) == 4 and set(begun) == {child.pid}, "the third try found it"
    again = "the program has become another (exec); tiering begins anew"
    stopped = "swap is full; the program goes on, and nothing moves any more"
    assert done is not None and done.notes == [again, again, stopped]
    assert capsys.readouterr().err.splitlines() == [f"headrace: {note}" for note in done.notes]


@pytest.mark.parametrize("when", ["at the exec", "after it", "while nothing moves"])
def test_ctrl_c_between_two_programs_keeps_what_was_done(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def execs() -> None:
        if when == "at the exec":
            signal.raise_signal(signal.SIGINT)
        raise headrace.AbsentError("the process has become another program (exec)")

    tries = 0

    @contextmanager
    def attached(pid: int, request: watch.Request) -> Iterator[Scripted]:
        nonlocal tries
        tries += 1
        if tries == 2:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        if tries > 1 and when == "while nothing moves":
            raise headrace.ExhaustedError("swap is full")
        if tries > 1:
            raise headrace.AbsentError("the process has ended")
        yield Scripted(execs)

    monkeypatch.setattr(watch, "attached", attached)
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with subprocess.Popen(["sleep", "60"]) as child:
            try:
                done = run_command._tiered(child, watch.Request(MIB, None, 0, MIB))
            finally:
                child.kill()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert done is not None and done.interrupted


def test_a_program_that_cannot_be_tiered_at_first_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def attached(pid: int, request: watch.Request) -> Iterator[Scripted]:
        raise headrace.DeniedError("it takes root")
        yield Scripted()

    monkeypatch.setattr(watch, "attached", attached)
    with subprocess.Popen(["sleep", "60"]) as child:
        with pytest.raises(headrace.DeniedError):
            run_command._tiered(child, watch.Request(MIB, None, 0, MIB))
        child.kill()


def test_exec_is_followed_on_this_machine(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "done.json"
    script = "x = bytearray(b'x' * (32 << 20)); import time; time.sleep(2.5); exit(7)"
    result = run(
        "tier", "run", "--budget", "16MiB", "--guard", "0", "--out", str(out), "--",
        "sh", "-c", f'sleep 0.7; exec {sys.executable} -c "{script}"',
    )  # fmt: skip
    live_or_skip(result, 7)
    assert "has become another (exec); tiering begins anew" in result.stderr
    assert json.loads(out.read_text())["totals"]["went_out"] >= 8 * MIB


def test_a_stopped_headrace_holds_no_program(command: Path, tmp_path: Path) -> None:
    """The limit of the program's cgroup is lifted while it is stopped, and set again then."""
    script = "x = bytearray(b'x' * (32 << 20)); import time; time.sleep(60)"
    with subprocess.Popen(
        [command, "tier", "run", "--budget", "16MiB", "--guard", "0", "--hold", "cgroup", "--",
         sys.executable, "-c", script],
        stderr=subprocess.PIPE, text=True,
    ) as tiered:  # fmt: skip
        assert tiered.stderr is not None
        said = tiered.stderr.readline()
        if "held by memory." not in said:
            code = tiered.wait(60)
            live_or_skip(subprocess.CompletedProcess([], code, "", said + tiered.stderr.read()), 0)
        _, _, rest = said.partition("held by ")
        limit = Path(rest.split(" of ")[1].strip(), rest.split(" of ")[0])
        try:
            if not becomes_so(lambda: held(limit)):
                pytest.skip("too little swap is free for a cgroup to hold")
            os.kill(tiered.pid, signal.SIGSTOP)
            assert becomes_so(lambda: not held(limit)), "the program would wait for ever"
            os.kill(tiered.pid, signal.SIGCONT)
            assert becomes_so(lambda: held(limit))
        finally:
            os.kill(tiered.pid, signal.SIGCONT)
            tiered.terminate()
            tiered.stderr.read()
            tiered.wait(60)
        assert not limit.exists()


def held(limit: Path) -> bool:
    said = limit.read_text().strip()
    return said != "max" and int(said) < 1 << 30


def becomes_so(condition: Callable[[], bool]) -> bool:
    """Waits at most 20 s."""
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_a_program_may_run_as_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(headrace.AbsentError, match="no user 'nobodyofthisname'"):
        run_command._account("nobodyofthisname")
    if os.geteuid() != 0:
        with pytest.raises(headrace.DeniedError, match="only root"):
            run_command._account("root")
        return
    account = run_command._account("nobody")
    with (tmp_path / "told").open("w") as told:
        monkeypatch.setattr(subprocess, "Popen", partial(subprocess.Popen, stdout=told))
        script = 'id -u; id -G; echo "$USER $LOGNAME $HOME"'
        assert run_command._started(["sh", "-c", script], None, account).wait(30) == 0
    user, groups, names = (tmp_path / "told").read_text().splitlines()
    assert int(user) == account.pw_uid and set(groups.split()) == {str(account.pw_gid)}
    assert names == f"nobody nobody {account.pw_dir}"


def test_a_program_too_short_to_be_looked_at_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attached(pid: int, request: watch.Request) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        raise headrace.AbsentError("the process has ended")

    monkeypatch.setattr(watch, "attached", attached)
    monkeypatch.setattr(run_command, "_rehearse", lambda *_: None)
    program = ["sh", "-c", "exit 7"]
    assert run_command.command(program, "1MiB", slow="swap") == 7
    assert "before it could be looked at" in capsys.readouterr().err


def test_a_group_that_may_not_be_entered_is_said(tmp_path: Path) -> None:
    with pytest.raises(headrace.DeniedError, match="no process may enter"):
        run_command._started(["true"], tmp_path / "none")


def test_words_of_sources_are_checked() -> None:
    with pytest.raises(headrace.InvalidError, match="hint-faults, refaults"):
        headrace.tier_process(1, 1 << 20, source="magic")  # type: ignore[arg-type]
