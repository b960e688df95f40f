# SPDX-License-Identifier: Apache-2.0
"""headrace bench spark: what is measured and how it ends, with a fake PySpark; the real one where
it is installed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bench_documents import check_commands
from headrace_bench import spark_events, spark_live, spark_session, tpch_parquet, two_memories

import headrace
from headrace._profile.documents import all_fields

pytest.importorskip("duckdb")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Golden = Callable[[str, str], None]

SCALE = "0.001"
SMALL = ["bench", "spark", "--scale", SCALE, "--rounds", "2", "--master", "local[1]"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    tpch_parquet.prepare(float(SCALE), directory)
    return directory


@pytest.fixture
def fake(tables: Path, tmp_path: Path) -> dict[str, str]:
    """An environment with a PySpark and a Java that only look so."""
    package = tmp_path / "modules" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    shutil.copy(Path(__file__).with_name("fake_pyspark.py"), package / "sql.py")
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'a java of the tests' >&2\n")
    java.chmod(0o755)
    (tmp_path / "spill").mkdir()
    return {
        "PYTHONPATH": os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")]),
        "JAVA_HOME": str(java.parents[1]),
        "TMPDIR": str(tmp_path / "spill"), "HEADRACE_DATA": str(tables),
    }  # fmt: skip


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "spill").iterdir())


def test_a_document_and_nothing_left(run: Run, fake: dict[str, str], tmp_path: Path) -> None:
    result = run(*SMALL, "--queries", "q9,Q5", "--json", env=fake)
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["kind"] == "bench spark" and document["basis"] == "measured"
    assert document["versions"]["java"] == "a java of the tests"
    assert document["versions"]["spark"] == "0.0"
    check_commands(document, run, tmp_path)
    rows = {(row["config"], row["query"]): row for row in all_fields(document)}
    assert len(rows) == 2 * len(spark_live.CONFIGS)
    for (config, _), row in rows.items():
        assert (row["experiment"], row["basis"], row["scale"]) == ("spark", "measured", SCALE)
        if row["reason"]:
            assert config not in ("MMEM",) and row["code"] and row["median"] is None
            continue
        assert row["wrong"] == 0 and len(row["samples"]) == 2 and row["median"] > 0
        assert (row["tasks"], row["shuffle_bytes"], row["cpu_seconds"]) == (2, 8192, 3.0)
        assert row["spilled_bytes"] == (2 * 16 if config in spark_live.SPILLS else 0)
        assert row["spilled_memory_bytes"] == 2 * row["spilled_bytes"]
        assert on_nodes(row) > 0 and 0 <= row["slow_share"] <= 1
    assert rows["Hot-Promote", "Q5"]["reason"]
    assert not left(tmp_path)


def on_nodes(row: dict[str, Any]) -> float:
    return sum(each for name, each in row.items() if name.startswith("bytes_on_node_"))


def test_in_words(run: Run, fake: dict[str, str], golden: Golden) -> None:
    result = run(*SMALL, "--queries", "Q5", "--configs", "mmem,hot-promote", env=fake)
    assert (result.returncode, result.stderr) == (0, "")
    seconds = r"\d+\.\d{3} +\d+\.\d{3} to \d+\.\d{3}"
    text = re.sub(seconds, "S.SSS  S.SSS to S.SSS", result.stdout)
    text = re.sub("Spark [0-9.]+", "Spark V", text)
    text = re.sub(r"intervals, .*", "intervals, MEASURED HERE", text)
    golden("bench_spark.txt", re.sub(r"\d\.\d%", "N.N%", text))


@pytest.mark.parametrize(
    ("wrong", "code", "told"),
    [
        ("wrong", 70, "config=MMEM query=Q5 scale=0.001: Spark's answer is wrong"),
        ("fail", 7, "Spark did not start on local[1]: no space for blocks"),
        ("end", 7, "Spark: "),
    ],
)
def test_failure_is_one_line(
    run: Run, fake: dict[str, str], tmp_path: Path, wrong: str, code: int, told: str
) -> None:
    result = run(
        *SMALL, "--queries", "Q5", "--configs", "MMEM", env=fake | {"FAKE_SPARK": wrong}
    )
    assert result.returncode == code, result
    assert told in result.stderr and result.stderr.count("\n") == 1
    assert not left(tmp_path)


def test_directories_may_be_relative(run: Run, fake: dict[str, str], tmp_path: Path) -> None:
    """From where the command runs, which no driver does."""
    (tmp_path / "data").symlink_to(fake["HEADRACE_DATA"])
    small = [*SMALL, "--rounds", "1", "--queries", "Q5", "--configs", "MMEM", "--spill", "spill"]
    for arguments, data in (([], "data"), (["--data", "data"], "/nowhere")):
        result = run(*small, *arguments, env=fake | {"HEADRACE_DATA": data})
        assert (result.returncode, result.stderr) == (0, "")
    assert not left(tmp_path)


class FakeSpark:
    """Answers what it is asked, or fails; `told` has what happens to all of them, in turn."""

    process, version = os.getpid(), "0"

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def begin(self, master: str, settings: dict[str, str], tables: dict[str, str]) -> None:
        self.name = "spilling" if "spark.memory.fraction" in settings else "MMEM"
        self.told.append(f"{self.name} begins")

    def query(self, sql: str, group: str) -> dict[str, Any]:
        self.told.append(f"{self.name} {group}")
        if self.name == "spilling" and group == "Q5 1":
            raise headrace.TimedOutError("no answer")
        return {"seconds": 1.0, "answer": []}

    def end(self) -> None:
        self.told.append(f"{self.name} is asked to end")


def test_failed_configuration_does_not_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[str] = []

    @contextmanager
    def started(*_: object) -> Iterator[FakeSpark]:
        spark = FakeSpark(told)
        yield spark
        told.append(f"{spark.name} has ended")

    monkeypatch.setattr(spark_session, "started", started)
    monkeypatch.setattr(
        spark_live._Runs, "right_answers", lambda runs: runs.right.update({"Q5": []})
    )
    asked = options(configs=["ssd-spill", "MMEM"], rounds=2, spill=tmp_path)
    points = spark_live.points(asked)
    machine = headrace.Machine.discover(storage=[])
    _, runner = spark_live.run(points, tmp_path, machine, asked, lambda: False, lambda *_: None)
    # The order within a round is drawn.
    assert told[:2] == ["spilling begins", "MMEM begins"]
    assert {told[2], told[3]} == {"spilling Q5 0", "MMEM Q5 0"}
    assert told[told.index("spilling Q5 1") + 1] == "spilling has ended"
    of = {name: [each for each in told if each.startswith(name)] for name in ("spilling", "MMEM")}
    assert of["spilling"][1:] == ["spilling Q5 0", "spilling Q5 1", "spilling has ended"]
    assert of["MMEM"][1:] == [
        "MMEM Q5 0", "MMEM Q5 1", "MMEM Q5 2", "MMEM is asked to end", "MMEM has ended"
    ]  # fmt: skip
    rows = {row.parameters["config"]: row for row in spark_live.rows(runner)}
    assert rows["ssd-spill"].reason == "no answer" and rows["MMEM"].samples == [1.0, 1.0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_spark_ends_with_us(
    command: Path, fake: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [str(command), *SMALL, "--queries", "Q5", "--configs", "MMEM"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | fake | {"FAKE_SPARK": "hang"},
    ) as process:  # fmt: skip
        child = wait_for(lambda: next(tmp_path.glob("spill/*/local/child"), None))
        jvm = int(wait_for(child.read_text))
        driver = parent_of(jvm)
        time.sleep(0.2)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    wait_for(lambda: not alive(driver))
    if number == signal.SIGKILL:  # a JVM would end by its stdin; nobody is left to remove files
        os.kill(jvm, signal.SIGKILL)
        return
    assert not alive(jvm) and not left(tmp_path)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def alive(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_for(what: Callable[[], Any]) -> Any:
    for _ in range(600):
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("waited for 30 s in vain")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--queries", "Q1"], 2, "no query 'Q1'; there are Q5, Q7, Q8, Q9"),
        (["--configs", "none"], 2, "no configuration 'none'; there are MMEM, 3:1"),
        (["--master", "yarn"], 2, "no master 'yarn'; give local[2]"),
        (["--memory", "100TiB"], 6, ""),
        (["--scale", "0"], 2, "scale 0; take more than 0"),
        (["--memory", "600MiB", "--spill-memory", "1GiB"], 2, "--spill-memory 1 GiB: give 1 MiB"),
    ],
)
def test_nonsense_is_one_line(
    run: Run, fake: dict[str, str], arguments: list[str], code: int, told: str
) -> None:
    result = run("bench", "spark", "--scale", SCALE, *arguments, env=fake)
    assert result.returncode == code, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1


def options(**changes: Any) -> spark_live.Options:
    made = spark_live.Options(
        queries=["Q5"], configs=["MMEM"], scale=1, rounds=1, master="local", memory=2 << 30,
        spill_memory=1 << 24, partitions=1, spill=Path("/"), data=Path("/"),
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"memory": 100 << 20}, "--memory 100 MiB: Spark takes 512 MiB or more"),
        ({"spill_memory": 4 << 30}, "--spill-memory 4 GiB: give 1 MiB to 1 GiB, what"),
        ({"spill": Path("nowhere")}, "no directory nowhere; give another --spill"),
    ],
)
def test_options_that_make_no_sense(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], told: str
) -> None:
    monkeypatch.setattr(spark_session, "check_installed", lambda: None)
    spark_live.check(options())
    with pytest.raises(headrace.Error, match=told):
        spark_live.check(options(**change))


def test_more_than_the_disk_holds(run: Run, fake: dict[str, str]) -> None:
    result = run("bench", "spark", "--scale", "1000", "--configs", "MMEM,ssd-spill", env=fake)
    assert result.returncode == 6 and "take a smaller --scale" in result.stderr


def test_without_java_it_says_how_to_get_it(run: Run, fake: dict[str, str]) -> None:
    result = run(*SMALL, env=fake | {"JAVA_HOME": "/nowhere"})
    assert result.returncode == 3
    assert result.stderr == "headrace: no java; install: sudo apt install default-jre-headless\n"


def test_without_spark_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None)
    monkeypatch.setattr(spark_session, "java", lambda: None)
    with pytest.raises(Exception, match=r"python\S* -m pip install pyspark && sudo apt"):
        spark_session.check_installed()


def test_no_configuration_of_slow_memory_where_the_other_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = two_memories.Memories(0, None, [0, 1], why="the other memory here is HBM")
    for module in (spark_live, two_memories):
        monkeypatch.setattr(module, "memories_here", lambda _: here)
    asked = options(configs=["MMEM", "3:1", "1:1", "tmpfs-spill"], spill=Path.cwd(), scale=1e-3)
    points = spark_live.points(asked)
    spark_live.leave_out(points, headrace.Machine.discover(storage=[]), asked)
    assert [point.reason for point in points] == ["", here.why, here.why, here.why]
    assert [point.code for point in points] == ["", "absent", "absent", "absent"]


def test_drivers_have_no_foreign_configuration(
    fake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(fake["PYTHONPATH"])
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"):
        monkeypatch.setenv(name, "foreign")
    launch = ["sh", "-c", 'env > seen; mv seen here; exec "$@"', "sh"]
    with spark_session.started(launch, tmp_path, lambda: False):
        wait_for((tmp_path / "here").exists)
    assert "=foreign" not in (tmp_path / "here").read_text()


def test_defaults_grow_with_the_threads() -> None:
    assert [spark_live.threads_of(m, 6) for m in ("local", "local[*]", "local[40]")] == [1, 6, 40]
    assert spark_live.defaults(1) == spark_live.defaults(2) == (2 << 30, 16 << 20, 64)
    assert spark_live.defaults(384) == (96 << 30, 3 << 30, 768)


def test_files_in_memory_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = options(scale=1, rounds=1, spill=tmp_path)  # 2 GiB of files for each Spark
    monkeypatch.setattr(spark_live, "free_bytes", lambda: 8 << 30)
    monkeypatch.setattr(spark_live, "kind_in_memory", lambda _: "")
    spark_live._check_space({"MMEM", "1:1"}, asked)
    with pytest.raises(headrace.ExhaustedError, match=r"give less --memory or fewer --configs"):
        spark_live._check_space({"MMEM", "1:1", "3:1"}, asked)
    with pytest.raises(headrace.ExhaustedError, match=r"in memory 2 GiB, .* smaller --scale, few"):
        spark_live._check_space({"MMEM", "1:1", "tmpfs-spill"}, asked)
    monkeypatch.setattr(spark_live, "kind_in_memory", lambda _: "tmpfs")
    with pytest.raises(headrace.ExhaustedError, match=r"in memory 4 GiB, and 8 GiB are free; give"):
        spark_live._check_space({"MMEM", "1:1"}, asked)


def test_drivers_ask_for_a_secret() -> None:
    settings = spark_live._settings("MMEM", options(), Path("/nowhere"))
    assert settings["spark.authenticate"] == "true"


def test_answers_are_compared_exactly_but_for_quotients() -> None:
    right = [["A", 1995, Decimal("1.5000"), 0.028649123]]
    assert spark_live.same([["A", 1995, "1.5000", "0.028649"]], right)
    for answer in (
        [["B", 1995, "1.5", "0.028649"]], [["A", 1996, "1.5", "0.028649"]],
        [["A", 1995, "1.5001", "0.028649"]], [["A", 1995, "1.5", "0.0287"]],
        [["A", 1995, None, "0.028649"]], [["A", 1995, "x", "0.028649"]], [], [[]],
    ):  # fmt: skip
        assert not spark_live.same(answer, right)


def test_events_that_are_none_are_passed_over() -> None:
    task = {"Event": "SparkListenerTaskEnd", "Stage ID": 1}
    lines = ["", "{", "[]", "7", '{"Event": 3}', json.dumps(task)]
    assert spark_events.parse(lines) == {}
    job = {
        "Event": "SparkListenerJobStart", "Stage IDs": [1],
        "Properties": {"spark.jobGroup.id": "g"},
    }  # fmt: skip
    lines = [json.dumps(job), json.dumps(task), json.dumps(task | {"Task Metrics": {}}), "{"]
    assert spark_events.parse(lines) == {"g": spark_events.Work(tasks=2)}


real = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="no pyspark or no java: Spark itself is NOT tested here",
)


@real
def test_spark_itself(run: Run, tables: Path, tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    result = run(
        *SMALL, "--rounds", "1", "--queries", "Q9", "--configs", "MMEM,tmpfs-spill",
        "--memory", "512MiB", "--spill-memory", "1MiB", "--partitions", "2", "--json",
        env={"TMPDIR": str(tmp_path / "spill"), "HEADRACE_DATA": str(tables)},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    for row in all_fields(json.loads(result.stdout)):
        if not row["reason"]:
            assert row["wrong"] == 0 and row["shuffle_bytes"] > 0 and row["cpu_seconds"] > 0
            assert on_nodes(row) > 1 << 20
    assert not left(tmp_path)
