# SPDX-License-Identifier: Apache-2.0
"""headrace bench kv: how a server is asked and ends, what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_documents import check_commands
from headrace_bench import kv_live, kv_pages, kv_place, kv_promote, kv_servers, two_memories
from headrace_bench.commands import kv as bench_kv
from headrace_bench.runner import row_of

import headrace
from headrace._profile.documents import all_fields
from headrace._run.plan import Host
from headrace._tiering import switch

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SMALL = ["bench", "kv", "--records", "2000", "--seconds", "0.05", "--rounds", "1"]
redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here")


@redis
def test_a_server_is_measured_and_ended(run: Run, tmp_path: Path) -> None:
    result = run(*SMALL, "--workloads", "A,D", "--json", env={"TMPDIR": str(tmp_path)})
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["servers"]["redis"].startswith("redis-server ")
    assert document["basis"] == "measured"
    assert len(document["rows"]) == 2 * len(kv_live.CONFIGS)
    check_commands(document, run, tmp_path)
    for row in all_fields(document):
        assert row["basis"] == "measured" and row["experiment"] == "keyvalue"
        assert row["transport"] == "unix socket" and row["note"] is None
        if row["config"] == "MMEM":
            assert row["median"] > 0 and row["wrong"] == 0 and row["reason"] == ""
            assert 0 < row["p50_us"] <= row["p99_us"] <= row["p999_us"]
        elif row["median"] is None:
            assert row["reason"] and row["code"]
    first = document["pages"][0]
    assert (first["server"], first["config"], first["workload"]) == ("redis", "MMEM", "A")
    assert [sample["round"] for sample in first["pages"]] == [0]
    assert sum(first["pages"][0]["memory"].values()) > 1 << 20
    assert not list(tmp_path.glob("headrace-kv-*"))


def test_our_own_store_is_measured(run: Run, tmp_path: Path) -> None:
    result = run(
        *SMALL, "--server", "own", "--configs", "MMEM,MMEM-SSD-0.4", "--workloads", "A",
        "--settle", "0.05", "--directory", str(tmp_path), "--json",
        env={"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    for row in all_fields(document):
        if row["code"] == "absent" and "is in memory" in row["reason"]:
            continue
        assert row["median"] > 0 and row["wrong"] == 0 and row["server"] == "own"
    for each in document["pages"]:
        assert all(bool(s["file"]) == (each["config"] != "MMEM") for s in each["pages"])
        # The discarded round is that in which pages settle.
        settled = None in [sample["round"] for sample in each["pages"]]
        assert settled == (each["config"] != "MMEM")
    assert not list(tmp_path.glob("headrace-kv-*"))


@pytest.mark.skipif(shutil.which("memcached") is None, reason="no memcached here")
def test_memcached_is_measured(run: Run) -> None:
    result = run(*SMALL, "--server", "memcached", "--configs", "MMEM", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    (row,) = all_fields(json.loads(result.stdout))
    assert row["median"] > 0 and row["wrong"] == 0


@pytest.mark.skipif(shutil.which("memcached") is None, reason="no memcached here")
def test_what_memcached_has_in_memory_anyway_is_no_row_of_ssd(run: Run, tmp_path: Path) -> None:
    result = run(
        *SMALL, "--server", "memcached", "--configs", "MMEM-SSD-0.2", "--directory", str(tmp_path)
    )
    if "is in memory (" in result.stderr:
        pytest.skip("no SSD below the directory of the tests")
    assert result.returncode == 2
    assert result.stderr == (
        "headrace: memcached keeps 64 MiB in memory, more than its part of so little; give 60905 "
        "--records or more\n"
    )


def test_a_server_that_is_not_here_is_a_row_beside_others(run: Run) -> None:
    result = run(
        *SMALL, "--server", "valkey,own", "--configs", "MMEM", "--json",
        env={"PATH": "/nowhere"},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    valkey, own = all_fields(json.loads(result.stdout))
    assert valkey["reason"].startswith("no valkey-server; install it: sudo apt install ")
    assert own["median"] > 0


def test_values_for_ssd_are_not_kept_in_memory(tmp_path: Path) -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm")
    with pytest.raises(headrace.AbsentError, match="is in memory .*--directory DIR"):
        kv_servers.check_directory(Path("/dev/shm"))


def test_where_memory_is_is_looked_at_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_pages, "EVERY_SECONDS", 0.001)
    once = kv_pages.look(os.getpid(), 0, 1, Path(__file__))
    assert once["memory"]["0"] > 1 << 20 and once["file"] > 0
    with kv_pages.sampled(lambda: {"swap": 0}) as samples:
        wait_for(lambda: len(samples) > 3)
    seconds = [sample["seconds"] for sample in samples]
    assert seconds == sorted(seconds) and seconds[0] < 1
    with kv_pages.sampled(lambda: kv_pages.look(1 << 29, 0, 1, None)) as samples:
        wait_for(lambda: "headrace-kv-pages" not in {t.name for t in threading.enumerate()})
    assert samples == []


@redis
def test_at_a_rate_in_words(run: Run) -> None:
    result = run(*SMALL, "--configs", "mmem", "--rate", "2000", "--clients", "2")
    assert (result.returncode, result.stderr) == (0, "")
    for told in ("redis-server ", "2 clients, 2000 operations per second", "workload C",
                 "entire working set in main memory",
                 "medians of 1 round and their intervals,"):  # fmt: skip
        assert told in result.stdout


@redis
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_us(command: Path, tmp_path: Path, number: signal.Signals) -> None:
    arguments = [*SMALL[:4], "--seconds", "60", "--configs", "MMEM"]
    with subprocess.Popen(
        [str(command), *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:  # fmt: skip
        server = wait_for(lambda: server_in(tmp_path))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: not Path(f"/proc/{server}").exists() or zombie(server))
    if number != signal.SIGKILL:  # nobody is left to remove it
        assert not list(tmp_path.glob("headrace-kv-*"))


def server_in(directory: Path) -> int | None:
    """The process of the server whose directory is below this one, once it serves."""
    if not list(directory.glob("headrace-kv-*/socket")):
        return None
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                str(directory) in os.readlink(entry / "cwd")
                and b"redis" in (entry / "cmdline").read_bytes().split(b"\0")[0]
            ):
                return int(entry.name)
        except OSError:
            continue
    return None


def zombie(process: int) -> bool:
    return ") Z " in Path(f"/proc/{process}/stat").read_text()


def wait_for(what: Callable[[], Any]) -> Any:
    for _ in range(600):
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("waited for 30 s in vain")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--configs", "none"], 2, "no configuration 'none'; there are MMEM, MMEM-SSD-0.2"),
        (["--rate", "0"], 2, ""),
        (["--rate", "nan"], 2, "--rate nan: give a number"),
        (["--seconds", "nan"], 2, "--seconds nan: give a number"),
        (["--settle", "nan"], 2, "--settle nan: give a number"),
        (["--server", "keydb"], 2, "no server 'keydb'; there are redis, valkey, memcached, own"),
        (["--directory", "nowhere"], 3, "no directory nowhere"),
    ],
)
def test_nonsense_of_a_measurement(run: Run, arguments: list[str], code: int, told: str) -> None:
    result = run("bench", "kv", *arguments)
    assert result.returncode == code, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1


def test_without_a_server_it_says_how_to_get_one(run: Run) -> None:
    result = run(*SMALL, env={"PATH": "/nowhere"})
    assert result.returncode == 3
    assert result.stderr == (
        "headrace: no redis-server; install it: sudo apt install redis-server\n"
    )


@redis
def test_more_than_there_is_memory_for(run: Run) -> None:
    result = run("bench", "kv", "--records", str(10**11))
    assert result.returncode == 6 and "give fewer --records" in result.stderr


def machine_of(preset: str, nodes: list[int]) -> headrace.Machine:
    """Some of its nodes; those with CPUs are further from each other than from themselves."""
    made = headrace.Machine.load(preset).asdict()
    made["nodes"] = [node for node in made["nodes"] if node["id"] in nodes]
    for rest in ("caches", "engines", "copy_rates", "links"):
        made[rest] = []
    for node in made["nodes"]:
        node["distances"] = {str(other): 10 + abs(node["id"] - other) for other in nodes}
        node["access"] = []
    return headrace.Machine.fromdict(made)


@pytest.mark.parametrize(
    ("preset", "nodes", "may", "fast", "slow"),
    [
        ("cxl-a1000", [0, 4, 8], None, 0, 8),
        ("cxl-a1000", [0, 4, 8], range(48, 60), 4, 8),
        ("cxl-a1000", [0, 1, 4], None, 0, 4),
        ("cxl-a1000", [0], None, 0, None),
        ("xeon-max", [0, 8], None, 0, None),
        ("xeon-max", [0, 1, 8], None, 0, 1),
    ],
)
def test_which_memory_is_slow(
    preset: str, nodes: list[int], may: range | None, fast: int, slow: int | None
) -> None:
    found = two_memories.memories(machine_of(preset, nodes), may)
    assert (found.fast, found.slow, found.alone) == (fast, slow, len(nodes) == 1)
    assert (found.why == "") == (slow is not None) and len(found.cpus) == 12
    assert ("HBM" in found.why) == (nodes == [0, 8])


@pytest.mark.parametrize(
    ("table", "reasons"),
    [
        ({0: 1, 8: 1}, {"3:1": "says 0=1,8=1; as root", "1:1": "", "1:3": "--weights 0=1,8=3"}),
        ({0: 6, 8: 2}, {"3:1": "", "1:1": "", "1:3": "says 0=6,8=2; as root"}),
        (None, {"3:1": "Linux 6.9", "1:1": "", "1:3": "Linux 6.9"}),
    ],
)
def test_only_the_ratio_of_the_kernels_table_is_measured(
    monkeypatch: pytest.MonkeyPatch, table: dict[int, int] | None, reasons: dict[str, str]
) -> None:
    machine = machine_of("cxl-a1000", [0, 8])
    cpus = frozenset(range(12))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    host = Host(free={0: 1 << 30, 8: 1 << 30}, cpus=cpus, cpuset=cpus, table=table)
    monkeypatch.setattr(two_memories, "this_host", lambda *_: host)
    points = [kv_live.point("redis", config, "C") for config in reasons]
    chosen = dataclasses.replace(options(), configs=list(reasons))
    kv_place.leave_out(points, machine, chosen, kv_place.places(machine, chosen.configs))
    for point in points:
        assert bool(point.code) == bool(point.reason) == bool(reasons[kv_live.config_of(point)])
        assert reasons[kv_live.config_of(point)] in point.reason
    # Root sets the table meanwhile, unless tiering is on; and promotes from the slow node.
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for on in (False, True):
        state = object() if on else None
        monkeypatch.setattr(switch, "shown", lambda *_, state=state: (state, None))
        configs = [*reasons, kv_place.PROMOTED]
        points = [kv_live.point("redis", config, "C") for config in configs]
        places = kv_place.places(machine, configs)
        kv_place.leave_out(points, machine, chosen, places)
        for point in points:
            told = reasons.get(kv_live.config_of(point), "")
            by_table = "as root" in told or "--weights" in told
            assert places[kv_live.config_of(point)].table == by_table
            why = ("tier kernel is on" if on else "") if by_table else told
            assert why in point.reason and bool(why) == bool(point.reason)
    assert places[kv_place.PROMOTED].text(two_memories.memories_here(machine)) == "0=1,8=1"
    run = [sys.executable, "-P", "-m", "headrace", "run", "--cpus", "near:0"]
    assert two_memories.placed(machine, (1, 3)) == [*run, "--weights", "0=1,8=3", "--"]
    assert two_memories.placed(machine, None) == [*run, "--prefer", "0", "--"]


def options() -> kv_live.Options:
    return kv_live.Options(
        servers=["redis"], workloads=["C"], configs=[], records=1, value=1, clients=1, seconds=1.0,
        rounds=1, rate=None, settle=1.0, seed=1, directory=Path(),
    )  # fmt: skip


def test_pages_are_slow_that_are_not_on_the_fast_node() -> None:
    assert two_memories.slow_share({0: 1, 4: 3}, 4) == 0.25
    assert two_memories.slow_share({0: 4}, 4) == 1 and two_memories.slow_share({}, 4) == 0


def test_a_cgroup_may_leave_less_than_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    free = types.SimpleNamespace(cgroup=5 << 20)
    monkeypatch.setattr(headrace, "free_memory", lambda: free)
    assert two_memories.free_bytes() == 5 << 20
    monkeypatch.setattr(headrace, "free_memory", lambda: types.SimpleNamespace(cgroup=None))
    assert two_memories.free_bytes() == two_memories.kilobytes("/proc/meminfo", "MemAvailable")


class FakeTier:
    """A tier whose third step fails; `error` may be none."""

    def __init__(self, error: headrace.Error | None) -> None:
        self.error, self.steps, self.closed = error, 0, False

    def step(self) -> None:
        self.steps += 1
        if self.steps == 3 and self.error is not None:
            raise self.error

    def totals(self) -> int:
        return self.steps

    def close(self) -> None:
        self.closed = True


def test_a_tier_steps_until_the_measurement_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_promote, "_STEP_SECONDS", 0.001)
    tier = FakeTier(None)
    monkeypatch.setattr(headrace, "tier_process", lambda *_, **__: tier)
    with kv_promote.keeping(1, 2) as keeper:
        wait_for(lambda: tier.steps > 3)
        assert keeper.totals()
    assert tier.closed and not [t for t in threading.enumerate() if t.name == "headrace-kv-tier"]


def test_a_tier_that_fails_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_promote, "_STEP_SECONDS", 0.001)
    tier = FakeTier(headrace.AbsentError("process 1 has ended"))
    monkeypatch.setattr(headrace, "tier_process", lambda *_, **__: tier)
    with pytest.raises(headrace.AbsentError), kv_promote.keeping(1, 2) as keeper:
        wait_for(lambda: tier.steps == 3)
        for _ in range(1000):
            keeper.totals()
            time.sleep(0.01)
    assert tier.closed


def test_RoundsWithoutATier_CountAsNone() -> None:
    found = {"operations": 1, "wrong": 0, "seconds": 1.0}
    point = kv_live.point("redis", "Hot-Promote", "C")
    point.results += [({**found, "tier_cpu_us_per_op": 2.0}, []), (found, [{"round": 1}])]
    [row] = kv_live.rows([point], dataclasses.replace(options(), rounds=2))
    assert row.details["tier_cpu_us_per_op"] == 1.0 and "p50_us" not in row.details
    assert row.samples == [1.0, 1.0] and row.unit == "op/s"
    [of_point] = kv_live.pages([point])
    assert of_point == {**point.parameters, "pages": [{"round": 1}]}


@pytest.mark.parametrize(
    ("swap", "server", "told"),
    [(["zram"], "redis", True), (["partition"], "redis", False), (["zram"], "own", False)],
)
def test_zram_is_not_called_an_ssd(
    swap: list[str], server: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    point = {"server": server, "config": "MMEM-SSD-0.2", "workload": "C"}
    row = row_of("keyvalue", point, "op/s", [], reason="none").asdict()
    bench_kv.print_measured({
        "servers": {}, "records": 1, "value_bytes": 1024, "clients": 1, "rate": None, "rounds": 1,
        "rests_on": {"detail": "here"}, "swap": swap, "rows": [row],
    })  # fmt: skip
    assert ("not an SSD" in capsys.readouterr().out) == told
