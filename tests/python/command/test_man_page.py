# SPDX-License-Identifier: Apache-2.0
"""The manual page and the completion of shells: made of the command, and all of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import Golden

import headrace
from headrace._cli import app, completion, exit_codes

ROOT = Path(__file__).resolve().parents[3]
SHARE = ROOT / "python" / "share"
sys.path.insert(0, str(ROOT / "tools"))

import man_page  # noqa: E402

#: Set by headrace for its own processes.
INTERNAL = {
    "HEADRACE_LAUNCHED_BY",
    "HEADRACE_PAGES",  # of a peer in benchmarks/peers
    "HEADRACE_BENCH_MIB", "HEADRACE_BENCH_REPETITIONS",  # shorter runs of headrace-bench-gpu
    "HEADRACE_PAGES",  # of the library that benchmarks/peers preloads
}


def test_man_page_is_that_of_the_command(golden: Golden) -> None:
    golden(str(SHARE / "man/man1/headrace.1"), man_page.page())


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", "bash-completion/completions/headrace"),
        ("zsh", "zsh/site-functions/_headrace"),
        ("fish", "fish/vendor_completions.d/headrace.fish"),
    ],
)
def test_script_is_that_of_the_command(
    golden: Golden, shell: str, file: str
) -> None:
    golden(str(SHARE / file), completion.script(shell))


def test_man_page_fits_a_terminal() -> None:
    examples = re.findall(r"(?s)\.EX\n(.*?)\n\.EE", man_page.page())
    lines = [line for block in examples for line in block.splitlines()]
    assert "headrace where 4711             once" in lines
    assert max(len(line.replace("\\-", "-").replace("\\e", "\\")) for line in lines) <= 80 - 7


def test_man_page_escapes_what_roff_reads() -> None:
    assert man_page.escaped(r".so 'x\y' ~ -1 ±") == r"\&.so \(aqx\ey\(aq \(ti \-1 \[u00B1]"


def test_man_page_has_every_exit_code() -> None:
    codes = {code for code in vars(exit_codes).values() if isinstance(code, int)}
    codes |= {kind.exit_code for kind in headrace.Error.__subclasses__()}
    assert [code for code, _ in man_page.codes()] == sorted(codes)


def test_man_page_has_every_variable() -> None:
    found: set[str] = set()
    for folder in ("src", "dsa_sim", "benchmarks", "python/headrace"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".cpp", ".h", ".py"} and not re.search("_(test|bench)$", path.stem):
                found |= set(re.findall(r'"(HEADRACE_[A-Z_]+)"', path.read_text()))
    listed = {name for name in man_page.ENVIRONMENT if name.startswith("HEADRACE_")}
    assert listed == found - INTERNAL


@pytest.mark.parametrize(
    ("words", "following"),
    [
        ("headrace be", ["bench"]),
        ("headrace bench kv", ["kv", "kvcache"]),
        ("headrace measure --bu", ["--budget"]),
        ("headrace topo --from xeon-max-c", ["xeon-max-cache"]),
        ("headrace run --from xeon-max-9", ["xeon-max-9462"]),
        ("headrace run --tile p", ["per-rank"]),
        ("headrace run --on hbm -- ./s", []),  # the shell's own: files
        ("headrace report --nonsense x", []),
    ],
)
def test_bash_completes(
    words: str, following: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(completion.VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert app.run([]) == 0
    printed = capsys.readouterr()
    assert (printed.out.split(), printed.err) == (following, "")


@pytest.mark.parametrize(("words", "code"), [("headrace ", 0), ("headrace report ", 1)])
def test_fish_learns_whether_there_are_words(
    words: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(completion.VARIABLE, "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "is-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", words)
    assert app.run([]) == code
    assert capsys.readouterr() == ("", "")
