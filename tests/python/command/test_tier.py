# SPDX-License-Identifier: Apache-2.0
"""headrace tier: sources of hotness on this host, and on hosts made of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Run
from headrace._core import HostFiles

import headrace
from headrace._cli.tier import explain


def test_each_source_is_measured_or_says_why_not(run: Run) -> None:
    result = run("tier", "--explain", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert list(document)[:2] == ["schema_version", "kind"] and document["kind"] == "tier"
    assert [each["source"] for each in document["sources"]] == ["referenced", "memfd", "written"]
    for each in document["sources"]:
        assert each["there"] == (each["cost"] is not None) == (each["reason"] is None)
        assert each["granularity"] in ("page", "chunk") and each["needs_root"] is False
        if each["cost"] is not None:
            assert each["cost"]["pages"] > 0 and each["cost"]["look_ns_per_page"] > 0
    states = {each["state"] for each in document["kernel"]}
    assert states <= {"there", "off", "absent", "in use", "unknown"}


def test_text_has_a_row_for_each(run: Run) -> None:
    result = run("tier", "--explain")
    assert (result.returncode, result.stderr) == (0, "")
    for word in ("referenced", "memfd", "written", "DAMON", "measured now"):
        assert word in result.stdout
    assert "\x1b" not in result.stdout


def test_explain_is_a_word_as_well(run: Run) -> None:
    assert run("tier", "explain", "--help").stdout == run("tier", "--explain", "--help").stdout


def test_a_source_that_is_not_there_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: str) -> headrace.HotnessCost:
        raise headrace.UnsupportedError(f"no {kind} here; it takes Linux 6.7")

    monkeypatch.setattr(headrace, "measure_hotness_cost", refuse)
    sources = [explain._examine(traits) for traits in headrace.hotness_sources()]
    assert [source.reason for source in sources][1] == "no memfd here; it takes Linux 6.7"
    assert sources[1].as_json()["cost"] is None
    text = explain._text(sources, [])
    assert "memfd: no memfd here; it takes Linux 6.7" in text


def _host(root: Path, files: dict[str, str]) -> dict[str, explain.Mechanism]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {each.mechanism.split(" ", 1)[0]: each for each in explain.of_kernel(HostFiles(root))}


def test_a_kernel_without_anything(tmp_path: Path) -> None:
    assert {each.state for each in _host(tmp_path, {}).values()} == {"absent"}


def test_a_kernel_with_everything(tmp_path: Path) -> None:
    damon = "sys/kernel/mm/damon/admin/kdamonds"
    host = _host(
        tmp_path,
        {
            "proc/sys/kernel/numa_balancing": "2\n",
            "proc/sys/kernel/perf_event_paranoid": "3\n",
            f"{damon}/nr_kdamonds": "0\n",
            "proc/swaps": "Filename Type Size\n/dev/zram0 partition 3\n",
            "sys/bus/event_source/devices/cpu/caps/max_precise": "3\n",
        },
    )
    assert {each.state for each in host.values()} == {"there"}
    assert host["addresses"].needs_root
    assert "zram0" in host["refaults"].why


def test_a_kdamond_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "sys/kernel/mm/damon/admin/kdamonds/0/state"
    names = {str(state.relative_to(tmp_path)): "on\n"}
    names[str(state.parents[1].relative_to(tmp_path) / "nr_kdamonds")] = "1\n"
    host = _host(tmp_path, names)
    assert host["DAMON"].state == "in use" and "somebody else" in host["DAMON"].why
    assert state.read_text() == "on\n"


class Guarded(HostFiles):
    def _read(self, name: str) -> str:
        raise PermissionError(13, "Permission denied", name)


def test_unreadable_setting_is_unknown(tmp_path: Path) -> None:
    files = Guarded(tmp_path)
    (mechanism,) = [m for m in explain.of_kernel(files) if m.mechanism.startswith("hint")]
    assert mechanism.state == "unknown" and "only root may read" in mechanism.why


def test_cost_is_of_a_source_there_is() -> None:
    with pytest.raises(headrace.InvalidError, match="no source of hotness 'dirty'"):
        headrace.measure_hotness_cost("dirty")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidError, match="whole pages"):
        headrace.measure_hotness_cost("written", 5000)
