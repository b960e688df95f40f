# SPDX-License-Identifier: Apache-2.0
"""The command as users run it: output, errors, exit codes, Ctrl-C, broken pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import report_documents as documents
from bench_documents import check_commands
from conftest import Golden, Run
from programs import ran
from staged import SHORT, press_ctrl_c

import headrace
from headrace._cli import app
from headrace._profile.documents import all_fields, find

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("words", [[], ["bench"], ["dsa"], ["tier"]])
def test_without_a_command_there_is_help(run: Run, words: list[str]) -> None:
    result = run(*words)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == run(*words, "--help").stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"headrace {headrace.__version__}\n"


def test_python_m_headrace_runs_the_command() -> None:
    """Where the script's first line names an interpreter that has moved."""
    for arguments, code in ((["--version"], 0), (["run", "--prefer"], 2)):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "headrace", *arguments], capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == code, done
        assert (done.stdout if code == 0 else done.stderr).startswith("headrace"), done


def test_an_unknown_mode_is_refused_before_data_are_made(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    result = run("bench", "query", "--mode", "magic", env={"HEADRACE_DATA": str(data)})
    assert result.returncode == 2 and not data.exists()


def test_an_engine_this_cpu_has_not(run: Run) -> None:
    result = run("bench", "copy", "--engines", "memcpy,warp")
    assert result.returncode == 2
    assert result.stderr.startswith("headrace: no engine 'warp'; there are memcpy, cpu, ")


@pytest.mark.parametrize("preset", ["cxl-a1000", "gh200", "one-node", "xeon-max"])
def test_topo_of_presets(run: Run, golden: Golden, preset: str) -> None:
    golden(f"topo/{preset}.json", run("topo", "--from", preset, "--json").stdout)
    every = run("topo", "--from", preset, "--all")
    assert every.stdout == headrace.Machine.load(preset).to_text()


def test_topo_of_this_machine(run: Run, memory_node: int, tmp_path: Path) -> None:
    document = json.loads(run("topo", "--json").stdout)
    assert list(document)[0] == "schema_version"
    for node in document["nodes"]:
        assert {"id", "kind", "reason", "capacity_bytes", "cpus"} <= node.keys()
    assert {"id", "kind"} <= document["engines"][0].keys()
    assert run("topo", "--xml").stdout.startswith("<?xml")
    changed = run("topo", "--json", env={"HEADRACE_NODES": f"{memory_node}=hbm"})
    nodes = {node["id"]: node for node in json.loads(changed.stdout)["nodes"]}
    assert nodes[memory_node]["kind"] == "hbm"
    (tmp_path / "m.xml").write_text(run("topo", "--xml").stdout)
    again = run("topo", "--from", "m.xml", "--json")
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["source"] == "discovered elsewhere"
    wrong = run("topo", env={"HEADRACE_NODES": "zero=hbm"})
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1


def test_doctor(run: Run) -> None:
    document = json.loads(run("doctor", "--json").stdout)
    assert list(document)[0] == "schema_version" and document["kind"] == "doctor"
    features = {feature["feature"]: feature for feature in document["features"]}
    assert {"NUMA binding", "io_uring", "O_DIRECT", "HMAT", "Intel DSA"} <= features.keys()
    for feature in features.values():
        assert feature["state"] in ("ready", "limited", "off", "absent")
        assert feature["why"] and (feature["state"] != "off" or feature["remedy"])
    settings = {setting["feature"]: setting for setting in document["settings"]}
    assert {"frequency governor", "turbo", "CPU time", "DIMMs per channel"} <= settings.keys()
    for setting in settings.values():
        assert setting["state"] in ("fine", "choice", "spoils", "unknown")
        assert setting["why"] and (setting["state"] != "spoils" or setting["remedy"])
    text = run("doctor")
    assert text.returncode == 0
    assert all(name in text.stdout for name in features | settings)
    assert "\x1b" not in text.stdout and "─" not in text.stdout


COPY = ["bench", "copy", "--sizes", "4KiB,1MiB", "--engines", "memcpy,cpu", "--rounds", "2"]


def test_bench_copy(run: Run, tmp_path: Path) -> None:
    result = run(*COPY, "--json", "--out", "rows.json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert list(document)[:2] == ["schema_version", "kind"]
    assert json.loads((tmp_path / "rows.json").read_text()) == document
    assert document["interrupted"] is False
    rows = all_fields(document)
    points = {(row["engine"], row["bytes"], row["state"]) for row in rows}
    assert points == {(e, b, s) for e in ("memcpy", "cpu") for b in (4096, 1 << 20)
                      for s in ("cold", "hot")}  # fmt: skip
    for row in rows:
        assert row["threads"] == 1 and (row["median"] or row["reason"])
    table = run(*COPY)
    assert table.stdout.splitlines()[0].split() == ["state", "bytes", "threads", "memcpy", "cpu"]
    assert "\x1b" not in table.stdout


@pytest.mark.parametrize(
    ("signal", "code", "told"),
    [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "ended by SIGTERM"),
     ("SIGHUP", 129, "ended by SIGHUP")],
)  # fmt: skip
def test_a_signal_keeps_what_was_measured(
    tmp_path: Path, signal: str, code: int, told: str
) -> None:
    result = press_ctrl_c([*COPY, "--json", "--out", "rows.json"], tmp_path, 3, signal=signal)
    told += "; results cover the time until then"
    assert (result.returncode, result.stderr) == (code, f"headrace: {told}\n")
    document = json.loads(result.stdout)
    assert document["interrupted"] is True and 3 <= len(document["rows"]) < 8
    assert json.loads((tmp_path / "rows.json").read_text()) == document
    assert document["rests_on"]["level"] in ("real hardware", "guest")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


QUERY = ["bench", "query", "--scale", "0.01", "--runs", "2", "--data", "data"]


@pytest.mark.usefixtures("data")
def test_bench_query(run: Run, tmp_path: Path) -> None:
    result = run(*QUERY, "--json", "--out", "query.json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert json.loads((tmp_path / "query.json").read_text()) == document
    assert document["answer_ok"] is True and document["interrupted"] is False
    modes = [row["parameters"]["mode"] for row in document["rows"][:-1]]
    assert modes == ["resident", "direct", "mmap", "prefetch", "duckdb", "floor"]
    assert document["rows"][-1]["experiment"] == "overlap"
    check_commands(document, run, tmp_path)
    table = run(*QUERY, "--mode", "direct", "--mode", "prefetch", "--query", "sum")
    lines = table.stdout.splitlines()
    assert lines[1].split() == ["mode", "seconds", "interval", "waited", "cached", "runs"]
    assert [line.split()[0] for line in lines[2:4]] == ["direct", "prefetch"]
    assert lines[2].split()[-2:] == ["%", "2"]
    assert "answer: not checked" in lines
    page = run("report", "query.json", "--html", "page.html")
    assert (page.returncode, page.stdout) == (0, "page.html\n")
    assert (tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")


@pytest.mark.usefixtures("data")
def test_bench_query_measures_the_axes_of_predict(run: Run, tmp_path: Path) -> None:
    few = [*QUERY[:-4], "--runs", "1", "--data", "data", "--mode", "prefetch", "--budget", "64MiB"]
    result = run(*few, "--sweep", "threads=1,1+1", "--sweep", "window=1MiB,8MiB", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert [(each["threads"], each["aggregators"]) for each in document["points"]] == [
        (1, 0), (1, 0), (1, 1), (1, 1)
    ]  # fmt: skip
    assert all(each["cache"] and each["timeline"] for each in document["points"])
    assert document["points"][2]["settings"] == {"threads": "1+1", "window": "1MiB"}
    seen = [row["parameters"] for row in document["rows"] if row["parameters"]["mode"] != "floor"]
    assert [(each["threads"], each["window"]) for each in seen] == [
        ("1", "1MiB"), ("1", "8MiB"), ("1+1", "1MiB"), ("1+1", "8MiB")
    ]  # fmt: skip
    later = run(*few, "--sweep", "groups=1,999", "--out", "kept.json")
    assert later.returncode != 0 and "999 groups" in later.stderr
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert [point["settings"]["groups"] for point in kept["points"]] == ["1"]
    unknown = run(*few, "--sweep", "colour=1,2")
    assert unknown.returncode == 2 and "axis of query" in unknown.stderr
    bad = run(*few, "--engine", "fpga")
    assert bad.returncode == 2 and len(bad.stderr.splitlines()) == 1


#: A round has six runs: the floor, four modes and the peer. The first round is not counted.
SECOND_ROUND = 12
KEPT = "headrace: interrupted; results cover the time until then\n"


@pytest.mark.usefixtures("data")
def test_ctrl_c_keeps_the_runs_of_a_query(tmp_path: Path) -> None:
    result = press_ctrl_c([*QUERY, "--json"], tmp_path, SECOND_ROUND, "q6 at")
    assert (result.returncode, result.stderr) == (130, KEPT)
    document = json.loads(result.stdout)
    assert document["interrupted"] is True
    runs = {row["parameters"]["mode"]: len(row["samples"]) for row in document["rows"]}
    assert runs["floor"] == runs["prefetch"] == 1


def test_ctrl_c_while_data_are_made_leaves_nothing(tmp_path: Path) -> None:
    result = press_ctrl_c([*QUERY, "--json"], tmp_path, 1, "TPC-H")
    assert result.returncode == 130
    assert result.stderr == "headrace: interrupted; unsaved results are lost\n"
    assert result.stdout == ""
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.usefixtures("data")
def test_ctrl_c_keeps_the_runs_of_a_demo(tmp_path: Path) -> None:
    options = ["--scale", "0.01", "--runs", "2", "--data", "data", "--no-png"]
    result = press_ctrl_c(["demo", *options], tmp_path, SECOND_ROUND, "q6 at")
    assert (result.returncode, result.stderr) == (130, KEPT)
    document = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert document["interrupted"] is document["query"]["interrupted"] is True
    assert len(find(document["query"], mode="floor")["samples"]) == 1
    assert document["rates"] and document["copy"]["rows"]
    assert (tmp_path / "out" / "report.html").exists()


#: The command, with answers that are not the peer's.
WRONG = """
{short}
import sys
from headrace_bench import query as query_bench
from headrace._cli import main
query_bench.answers_equal = lambda ours, oracle: False
sys.argv = ["headrace", *{arguments}]
main()
"""


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ([*QUERY, "--out", "query.json"], "query.json"),
        (["demo", "--scale", "0.01", "--runs", "1", "--data", "data", "--no-png"], "out/demo.json"),
    ],
    ids=["query", "demo"],
)
def test_a_wrong_answer_is_a_failure(tmp_path: Path, arguments: list[str], written: str) -> None:
    result = ran(WRONG.format(short=SHORT, arguments=arguments), cwd=tmp_path)
    told = "headrace: the answers differ from DuckDB's; trust no number of this run\n"
    assert (result.returncode, result.stderr) == (70, told)
    assert "answer: WRONG" in result.stdout
    document = json.loads((tmp_path / written).read_text())
    query = document["query"] if document["kind"] == "demo" else document
    assert query["answer_ok"] is False


@pytest.mark.usefixtures("data")
def test_no_number_at_all_is_a_failure(run: Run, tmp_path: Path) -> None:
    options = ["--mode", "prefetch", "--budget", "1000", "--out", "query.json"]
    result = run(*QUERY, *options)
    assert result.returncode == 6
    assert result.stderr.startswith("headrace: a budget of 1000 B")
    document = json.loads((tmp_path / "query.json").read_text())
    assert find(document, mode="prefetch")["code"] == "exhausted"


@pytest.mark.parametrize("scale", ["-1", "0", "1e9"])
def test_a_demo_of_a_senseless_scale_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str
) -> None:
    monkeypatch.setattr(headrace, "measure_quickly", lambda *_, **__: pytest.fail("too late"))
    with pytest.raises(headrace.InvalidError, match="^scale"):
        app.run(["demo", "--scale", scale, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("data")
def test_demo(run: Run, tmp_path: Path) -> None:
    options = ["--scale", "0.01", "--runs", "1", "--data", "data", "--no-png"]
    result = run("demo", *options, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "report: out/report.html"
    document = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert {"rates", "copy", "query", "machine", "schema_version"} <= document.keys()
    assert document["query"]["answer_ok"] is True
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "demo.json",
        "report.html",
    ]


def test_a_reader_that_goes_away(command: Path) -> None:
    for arguments in (["topo", "--from", "xeon-max"], ["--help"], ["doctor"]):
        process = subprocess.Popen(
            [command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(30) in (0, 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk(run: Run, command: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [command, "topo", "--from", "xeon-max"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 6
    assert result.stderr == (
        "headrace: cannot write: No space left on device; free space or choose another place\n"
    )
    closed = subprocess.run(
        ["sh", "-c", f"{command} topo --from xeon-max >&-"], capture_output=True, text=True
    )
    assert (closed.returncode, closed.stdout) == (7, "")
    assert closed.stderr == "headrace: cannot write: Bad file descriptor\n"
    result = run(*COPY, "--out", "/dev/full")
    assert result.returncode == 6 and result.stderr.count("\n") == 1


def test_a_directory_without_permission(run: Run, command: Path) -> None:
    # Below /tmp, because pytest's own directories are closed to other users; and as another user,
    # because root may write everywhere.
    if os.geteuid() == 0 and not all(p.stat().st_mode & 0o001 for p in command.parents):
        pytest.skip("the command lies where other users cannot reach it")
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o555)
        for arguments in (["bench", "copy", "--out", "rows.json"], [*QUERY, "--runs", "1"]):
            result = run(*arguments, cwd=folder, **other)
            assert result.returncode == 5, result
            assert result.stderr.count("\n") == 1 and "choose another" in result.stderr


def test_names_that_are_not_utf8_pass_unspoiled(command: Path, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    result = subprocess.run([command, "topo", "--from", odd], capture_output=True)
    assert result.returncode == 3 and result.stderr.count(b"\n") == 1
    (tmp_path / "q.json").write_text(json.dumps(documents.query()))
    arguments = [command, "report", tmp_path / "q.json", "--html", odd]
    result = subprocess.run(arguments, capture_output=True)
    assert (result.returncode, result.stdout) == (0, odd + b"\n")
    assert os.path.exists(odd)


def test_help_is_quick_to_load(command: Path) -> None:
    """Modules that load slowly are loaded only by the commands that need them."""
    script = (
        "import sys; sys.argv = ['headrace', '--help']\n"
        "from headrace._cli import main\n"
        "try: main()\n"
        "finally: print([m for m in ('numpy', 'altair', 'duckdb', 'asyncio', 'vl_convert')"
        " if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stderr.strip() == "[]"


LOADED: list[list[str]] = [
    ["topo", "--from", "xeon-max"],
    ["run", "--from", "xeon-max", "--on", "hbm", "--dry-run", "--", "true"],
    ["export", "xeon-max", "--as", "csv"],
    ["dsa", "setup", "--show"],
    ["compare", "nothing.json", "nothing.json"],
]


@pytest.mark.parametrize("arguments", LOADED, ids=" ".join)
def test_a_command_loads_nothing_of_others(arguments: list[str]) -> None:
    own = "dsa_setup" if arguments[0] == "dsa" else arguments[0]
    commands = (
        "topo run where doctor measure fleet export compare report demo bench_copy bench_query "
        "bench_histogram bench_stream bench_dsa dsa_setup"
    ).split()
    others = {f"headrace._cli.{name}" for name in commands if name != own}
    heavy = {"numpy", "altair", "duckdb", "asyncio", "vl_convert", "rich", "headrace_bench.query"}
    script = (
        f"import sys; sys.argv = ['headrace', *{arguments}]\n"
        "from headrace._cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write('loaded: ' + ' '.join(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded = set(result.stderr.partition("loaded: ")[2].split())
    assert f"headrace._cli.{own}" in loaded
    assert not loaded & (others | heavy)
