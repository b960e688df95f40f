# SPDX-License-Identifier: Apache-2.0
"""No command replaces what it reads, nor values by none."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import profile_documents as documents
import pytest
import report_documents
from conftest import Run
from programs import ran
from staged import POINT

from headrace._cli import output
from headrace._cli.measuring import _save

Names = Callable[[Path], str]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile with values."""
    path = tmp_path / "k.json"
    path.write_text(json.dumps(documents.profile(1)))
    return path


def test_a_profile_with_values_is_not_replaced_by_one_without(
    run: Run, profile: Path, tmp_path: Path
) -> None:
    old = profile.read_text()
    arguments = ["measure", "storage", "--directory", "/proc", "--budget", "5s", "--out"]
    kept = run(*arguments, "k.json")
    assert kept.returncode == 4 and profile.read_text() == old
    assert kept.stderr.startswith("headrace: k.json stays as it was: it has values, and this ")
    assert kept.stderr.count("\n") == 2 and "profile: k.json" not in kept.stdout
    for other, text in (("new.json", None), ("text.json", "no profile"), ("rows.json", "[1]")):
        if text is not None:
            (tmp_path / other).write_text(text)
        written = run(*arguments, other)
        assert written.returncode == 4 and written.stderr.count("\n") == 1
        assert json.loads((tmp_path / other).read_text())["rows"], "as before"
    assert run(*arguments, "new.json").stderr.count("\n") == 1, "that has no values either"


#: The command, with Ctrl-C before the first point.
EARLY = """
import os, signal, sys
import headrace
from headrace._cli import main
measure = headrace.measure
def early(*given, **named):
    os.kill(os.getpid(), signal.SIGINT)
    return measure(*given, **named)
headrace.measure = early
sys.argv = ["headrace", *{arguments}]
main()
"""


@pytest.mark.parametrize("more", [[], ["--launches", "2"], ["--json"]], ids=str)
def test_ctrl_c_before_the_first_value_keeps_the_old_profile(
    profile: Path, tmp_path: Path, more: list[str]
) -> None:
    old = profile.read_text()
    arguments = ["measure", "latency", "--budget", "9s", *more, "--out", "k.json"]
    result = ran(EARLY.format(arguments=arguments), cwd=tmp_path)
    assert result.returncode == 130 and profile.read_text() == old
    assert "k.json stays as it was" in result.stderr
    assert result.stderr.endswith("headrace: interrupted; results cover the time until then\n")


def test_hosts_without_values_replace_no_profile(tmp_path: Path) -> None:
    """Hosts of an MPI job that measured no value leave older profiles as they are."""
    import headrace

    full = headrace.Profile.fromdict(documents.profile(1))
    none = headrace.Profile.load("one-node")
    for name in ("p.json", "p.a.json"):
        (tmp_path / name).write_text(full.to_json())
    assert _save({"kind": "fleet"}, {"a": none.to_json()}, tmp_path / "p.json") is None
    for name in ("p.json", "p.a.json"):
        assert (tmp_path / name).read_text() == full.to_json()
    texts = {"a": none.to_json(), "b": full.to_json()}
    assert _save({"kind": "fleet"}, texts, tmp_path / "p.json") is None
    assert json.loads((tmp_path / "p.json").read_text()) == {"kind": "fleet"}
    assert (tmp_path / "p.a.json").read_text() == full.to_json()
    assert (tmp_path / "p.b.json").read_text() == full.to_json()


#: Benchmarks that take half a second.
QUICK = {
    "copy": ["copy", "--sizes", "4KiB", "--engines", "memcpy", "--rounds", "1"],
    "histogram": ["histogram", "--size", "80KB", "--threads", "1", "--rounds", "1"],
    "stream": ["stream", "--size", "80KB", "--threads", "1", "--repetitions", "1"],
}
#: The command, interrupted as soon as it would measure.
AT_ONCE = """
import sys
from headrace._cli import interrupt, main
enter = interrupt.Interrupt.__enter__
def pressed(self):
    enter(self)
    self.requested = True
    return self
interrupt.Interrupt.__enter__ = pressed
sys.argv = ["headrace", *{arguments}]
main()
"""


@pytest.mark.parametrize("name", QUICK)
def test_an_early_ctrl_c_keeps_the_old_document(run: Run, tmp_path: Path, name: str) -> None:
    arguments = ["bench", *QUICK[name], "--out", "b.json"]
    assert run(*arguments).returncode == 0
    old = (tmp_path / "b.json").read_text()

    def interrupted(out: str) -> subprocess.CompletedProcess[str]:
        return ran(AT_ONCE.format(arguments=[*arguments[:-1], out]), cwd=tmp_path)

    result = interrupted("b.json")
    assert result.returncode == 130, result.stderr
    assert (tmp_path / "b.json").read_text() == old
    assert "b.json stays as it was: it has values" in result.stderr
    assert interrupted("new.json").returncode == 130
    new = json.loads((tmp_path / "new.json").read_text())
    assert new["interrupted"] is True and "stays as it was" not in interrupted("new.json").stderr


@pytest.mark.parametrize(("arguments", "code"), [
    (["advise", "capacity", "--zipf", "0.99", "--pages", "1000"], 0),
    (["fleet", "a.json", "b.json"], 10),
])  # fmt: skip
def test_other_documents_are_always_written(
    run: Run, tmp_path: Path, arguments: list[str], code: int
) -> None:
    """Advice, and hosts that are alike, have no rows; the old document has."""
    for seed, name in enumerate("ab"):
        (tmp_path / f"{name}.json").write_text(json.dumps(documents.profile(seed)))
    (tmp_path / "out.json").write_text(json.dumps(documents.profile(1)))
    result = run(*arguments, "--out", "out.json")
    assert result.returncode == code and "stays as it was" not in result.stderr, result
    assert json.loads((tmp_path / "out.json").read_text())["kind"].startswith(arguments[0])


def test_the_demo_looks_at_its_files_before_it_works(run: Run, tmp_path: Path) -> None:
    (tmp_path / "page" / "report.html").mkdir(parents=True)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "demo.json").symlink_to("report.html")
    (tmp_path / "file").write_text("")
    for out, told in (
        ("page", "is a directory"), ("one", "are the same file"), ("file", "is no directory"),
    ):  # fmt: skip
        result = run("demo", "--no-png", "--out", out)
        assert result.returncode in (2, 5, 6, 7) and told in result.stderr, result
        assert result.stdout == "" and result.stderr.count("\n") == 1, result


def test_an_early_ctrl_c_keeps_an_old_demo(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    old = {
        "demo.json": json.dumps(report_documents.whole() | {"kind": "demo"}),
        "report.html": "an old page",
    }
    for file, text in old.items():
        (out / file).write_text(text)
    result = ran(AT_ONCE.format(arguments=["demo", "--no-png", "--data", "data"]), cwd=tmp_path)
    assert result.returncode == 130, result.stderr
    assert {file: (out / file).read_text() for file in old} == old
    assert "out/demo.json stays as it was" in result.stderr and "report:" not in result.stdout


@pytest.mark.parametrize(("made", "measured"), [
    ({"rows": [{"median": 1.0}]}, True), ({"rows": [{"median": None, "reason": "x"}]}, False),
    ({"rows": []}, False), ({"rows": [{"bytes_per_second": None}]}, False), ([], False),
    ({"rows": [{"median": 1.0, "reason": "interrupted"}, {"median": 2.0, "reason": ""}]}, True),
    ({"rates": [{"bytes_per_second": None}], "copy": {"rows": [{"bytes_per_second": 1}]}}, True),
    ({"rows": [], "published": [{"published": 2.0}]}, False),  # bench um
    ({"rows": [], "rates": {"dram": 2e10}}, False),  # bench kvcache
])  # fmt: skip
def test_which_documents_have_values(made: object, measured: bool) -> None:
    assert output.has_values(made) is measured


@pytest.mark.parametrize("arguments", [
    ["report", "k.json", "--html", "ONE", "--png", "OTHER"],
    ["bench", "dsa", "submission", "--sizes", "4k", "--out", "ONE", "--html", "OTHER"],
], ids=lambda each: each[0])  # fmt: skip
def test_two_outputs_are_two_files(
    run: Run, profile: Path, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "soft").symlink_to("there")
    os.link(tmp_path / "there", tmp_path / "hard")
    for one, other in (("x", "x"), ("x", "./x"), ("there", "soft"), ("hard", "there")):
        names = {"ONE": one, "OTHER": other}
        result = run(*(names.get(word, word) for word in arguments))
        assert (result.returncode, result.stdout) == (2, ""), result
        assert "are the same file for two outputs" in result.stderr
        assert result.stderr.count("\n") == 1
    assert (tmp_path / "there").read_text() == "old" and not (tmp_path / "x").exists()


def plain(path: Path) -> str:
    return path.name


def through_a_link(path: Path) -> str:
    (path.parent / "soft").symlink_to(path.name)
    return "soft"


def through_a_hard_link(path: Path) -> str:
    os.link(path, path.parent / "hard")
    return "hard"


#: IN is read, OUT another name of it.
SAME = [
    ["report", "IN", "--html", "OUT"],
    ["report", "IN", "--png", "OUT"],
    ["export", "IN", "--as", "csv", "--out", "OUT"],
    ["fleet", "xeon-max", "IN", "--out", "OUT"],
    ["advise", "interleave", "--profile", "IN", "--out", "OUT"],
    ["advise", "interleave", "--machine", "IN", "--out", "OUT"],
    ["advise", "capacity", "--histogram", "IN", "--out", "OUT"],
    ["advise", "arenas", "IN", "--tier", "dram", "--out", "OUT"],
    ["bench", "layer", "--profile", "IN", "--out", "OUT"],
    ["predict", "kv", "--machine", "IN", "--out", "OUT"],
    ["predict", "kv", "--from", "IN", "--out", "OUT"],
]


@pytest.mark.parametrize("name", [plain, through_a_link, through_a_hard_link])
def test_the_output_is_not_the_input(
    run: Run, profile: Path, name: Names
) -> None:
    old, out = profile.read_text(), name(profile)
    names = {"IN": profile.name, "OUT": out}
    for arguments in ([names.get(word, word) for word in command] for command in SAME):
        result = run(*arguments)
        told = f"headrace: {out} and {profile.name} are the same file, which would be lost; "
        assert result.returncode == 2 and result.stderr.startswith(told), (arguments, result)
        assert result.stderr.count("\n") == 1
        assert profile.read_text() == old, arguments


def test_a_page_beside_its_document_is_no_document(run: Run, tmp_path: Path) -> None:
    """The usual name of the page, given as the document."""
    text = json.dumps(report_documents.whole() | {"kind": "demo"})
    (tmp_path / "report.html").write_text(text)
    assert run("report", "report.html").returncode == 2
    assert (tmp_path / "report.html").read_text() == text
    (tmp_path / "demo.json").write_text(text)
    assert run("report", "demo.json").returncode == 0, "an old page is replaced"


def test_to_resume_reads_and_writes_one_file(run: Run, tmp_path: Path) -> None:
    arguments = ["measure", *POINT, "--out", "p.json", "--resume"]
    for _ in range(2):
        result = run(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
    assert json.loads((tmp_path / "p.json").read_text())["rows"]


@pytest.mark.parametrize("arguments", [
    ["export", "xeon-max", "--as", "csv", "--out", "-"],
    ["measure", "latency", "--out", "-"],
    ["report", "--machine", "xeon-max", "--html", "-"],
    ["tier", "run", "--budget", "1GiB", "--out", "-", "--", "true"],
], ids=lambda each: each[0])  # fmt: skip
def test_no_file_is_called_minus(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "headrace: - names no file; give one, or /dev/stdout\n"
    assert list(tmp_path.iterdir()) == []
