# SPDX-License-Identifier: Apache-2.0
"""Which host is slow or configured differently: by tables, on fleets that are made up."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import profile_documents as documents
import pytest
from conftest import Golden, Run
from profile_documents import Change, Document, host, scaled

import headrace
from headrace._cli import fleet as command
from headrace._profile.fleet import Fleet, Outlier, examine


def fleet_of(count: int, changes: dict[int, Change] | None = None, noise: float = 0.01) -> Fleet:
    found = {}
    for number in range(count):
        document = host(f"n{number}", number, noise)
        if changes and number in changes:
            changes[number](document)
        found[document["name"]] = headrace.Profile.from_json(json.dumps(document))
    return examine(found)


def outcomes(fleet: Fleet) -> str:
    return " ".join(each.outcome for each in fleet.hosts)


def condition(name: str, value: str) -> Change:
    return lambda document: document["conditions"].update({name: value})


def node(number: int, **fields: Any) -> Change:
    return lambda document: document["nodes"][number].update(fields)


def noisy(document: Document) -> None:
    for row in document["rows"]:
        row["flags"] = ["noisy"]


#: Hosts, what is different on some of them, and the outcomes.
SPEEDS: list[tuple[int, dict[int, Change], str]] = [
    (3, {}, "same same same"),
    (16, {}, " ".join(["same"] * 16)),
    (3, {1: scaled(1.3)}, "same slow same"),
    (4, {3: scaled(1.3, "stream")}, "same same same slow"),
    (5, {0: scaled(1.5, "latency", every=20)}, "slow same same same same"),
    (3, {2: scaled(0.7)}, "same same fast"),
    (8, {1: scaled(1.4), 5: scaled(1.3)}, "same slow same same same slow same same"),
    (3, {1: scaled(1.05)}, "same same same"),  # less than the least that counts
    (3, {1: noisy}, "unknown unknown unknown"),  # two are too few
    (4, {1: noisy}, "same unknown same same"),
    (2, {1: scaled(3)}, "unknown unknown"),
]


@pytest.mark.parametrize(("count", "changes", "expected"), SPEEDS)
def test_slow_hosts(count: int, changes: dict[int, Change], expected: str) -> None:
    fleet = fleet_of(count, changes)
    assert outcomes(fleet) == expected
    assert fleet.differs == ("slow" in expected or "fast" in expected)
    assert all(math.log(max(o.ratio, 1 / o.ratio)) > o.threshold for o in fleet.rows)


def test_an_experiment_as_a_whole() -> None:
    """Less than single rows can show among noisy ones."""
    fleet = fleet_of(8, {6: scaled(1.15, "latency")}, noise=0.05)
    assert [(o.host, o.what, o.outcome) for o in fleet.experiments] == [("n6", "latency", "slow")]
    assert fleet.experiments[0].ratio == pytest.approx(1.15, rel=0.05)


def test_rates_and_times_point_the_same_way() -> None:
    fleet = fleet_of(4, {2: scaled(1.5)})
    ratios = {row.unit: row.ratio for row in fleet.rows}
    assert ratios["B/s"] < 0.8 and ratios["ns"] > 1.3 and ratios["x"] > 1.3
    assert {row.host for row in fleet.rows} == {"n2"}


def test_noise_alone_is_seldom_an_outlier() -> None:
    """1 % of fleets is promised where the noise is normal; more hosts than 3 know theirs better."""
    wrong = 0
    for trial in range(20):
        hosts = {f"n{n}": host(f"n{n}", 9000 + trial * 10 + n, noise=0.1) for n in range(3)}
        profiles = {n: headrace.Profile.from_json(json.dumps(d)) for n, d in hosts.items()}
        wrong += examine(profiles).differs
    assert wrong <= 2


#: A difference of host 1 of four, and its report.
SETTINGS: list[tuple[Change, str, str | None, str]] = [
    (condition("numa_balancing", "1"), "numa_balancing", "0", "1"),
    (condition("governor", "powersave"), "governor", "performance", "powersave"),
    (condition("kernel", "5.14.0"), "kernel", "6.8.0", "5.14.0"),
    (condition("transparent_hugepage", "never"), "transparent_hugepage",
     "always [madvise] never", "never"),
    (lambda d: d["conditions"].pop("microcode"), "microcode", "0x2b", "none"),
    (node(2, capacity_bytes=8 << 30), "capacity of node 2", "16 GiB", "8 GiB"),
    (node(2, kind="dram"), "kind of node 2", "hbm", "dram"),
    (node(0, cpus=[0, 1]), "CPUs of node 0", "8", "2"),
    (lambda d: d["provenance"].update(cpu="Other"), "CPU", "Example CPU", "Other"),
]  # fmt: skip


def test_the_fixtures_have_the_names_that_the_product_writes() -> None:
    real = documents.written_here()
    assert documents.CONDITIONS.keys() <= real["conditions"].keys()
    assert documents.machine()["provenance"].keys() <= real["provenance"].keys()


@pytest.mark.parametrize(("change", "name", "usual", "here"), SETTINGS)
def test_misconfigured_hosts(change: Change, name: str, usual: str, here: str) -> None:
    fleet = fleet_of(4, {1: change})
    assert [(s.name, s.usual, s.hosts) for s in fleet.settings] == [(name, usual, {"n1": here})]
    assert [h.settings for h in fleet.hosts] == [0, 1, 0, 0]
    assert outcomes(fleet) == "same same same same" and fleet.differs


def test_a_missing_node_and_what_may_differ() -> None:
    fleet = fleet_of(3, {2: lambda d: d["nodes"].pop(3)})
    assert {(s.name, s.usual, s.hosts["n2"]) for s in fleet.settings} == {
        ("kind of node 3", "cxl", "none"), ("CPUs of node 3", "0", "none"),
        ("capacity of node 3", "128 GiB", "none"),
    }  # fmt: skip
    nearly = node(2, capacity_bytes=(16 << 30) - (100 << 20))  # firmware keeps more
    assert not fleet_of(3, {1: nearly}).differs
    assert not fleet_of(3, {1: condition("load_average", "9"), 2: condition("date", "x")}).differs


def test_a_condition_that_one_host_could_not_read_differs_in_nothing() -> None:
    assert not fleet_of(4, {1: condition("governor", "unknown: only root may read it")}).settings


def test_two_hosts_that_disagree_have_no_usual_setting() -> None:
    [found] = fleet_of(2, {1: condition("governor", "powersave")}).settings
    assert (found.usual, found.hosts) == (None, {"n0": "performance", "n1": "powersave"})


def test_random_fleets_are_named_whatever_their_order() -> None:
    for seed in range(5):
        odd = random.Random(seed).randrange(6)
        fleet = fleet_of(6, {odd: scaled(1.4)})
        assert [h.host for h in fleet.hosts if h.outcome == "slow"] == [f"n{odd}"]


def test_the_farthest_are_shown_whichever_way() -> None:
    """A twentieth of a rate is farther than twice a time."""
    ratios = [2.1, 2.2, 2.3, 0.05, 2.4, 2.5]
    rows = [Outlier("n0", f"row {r}", "slow", "ns", r, 1.0, r, 0.1) for r in ratios]
    told = command.text(Fleet([], rows, [], []))
    shown = [line.split()[2] for line in told.splitlines() if line.startswith("n0 ")]
    assert shown == ["0.05", "2.5", "2.4", "2.3", "2.2"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for number in range(4):
        document = host(f"n{number}", number)
        if number == 2:
            scaled(1.3)(document)
        if number == 3:
            condition("governor", "powersave")(document)
        (tmp_path / f"p.n{number}.json").write_text(json.dumps(document))
    return tmp_path


FILES = [f"p.n{number}.json" for number in range(4)]


def test_the_command(run: Run, golden: Golden, files: Path) -> None:
    result = run("fleet", *FILES)
    assert (result.returncode, result.stderr) == (9, "")
    golden("fleet.txt", result.stdout)
    two = run("fleet", *FILES[:2])
    assert two.returncode == 10
    assert "Inconclusive: the speeds of 2 hosts cannot be judged" in two.stdout
    assert run("fleet", *FILES[:3], "--least", "50%").returncode == 0


def test_the_document(run: Run, files: Path) -> None:
    result = run("fleet", *FILES, "--json", "--out", "fleet.json")
    document = json.loads(result.stdout)
    assert document == json.loads((files / "fleet.json").read_text())
    assert list(document)[:2] == ["schema_version", "kind"] and document["kind"] == "fleet"
    assert document["differs"] is True and document["least"] == 0.1
    assert [h["verdict"] for h in document["hosts"]] == ["same", "same", "slow", "same"]
    assert document["settings"] == [
        {"name": "governor", "usual": "performance", "hosts": {"n3": "powersave"}}
    ]


def test_two_profiles_of_one_host_are_named_by_their_files(run: Run, files: Path) -> None:
    (files / "again.json").write_text(json.dumps(host("n0", 7)))
    document = json.loads(run("fleet", "p.n0.json", "again.json", "p.n1.json", "--json").stdout)
    assert [h["host"] for h in document["hosts"]] == ["p.n0.json", "again.json", "n1"]


def test_a_host_is_given_once(run: Run, tmp_path: Path) -> None:
    """Twice one profile would make two hosts of it, which are alike."""
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps(host(f"n{number}", number)))
    (tmp_path / "copy.json").write_bytes((tmp_path / "0.json").read_bytes())
    for other in ("0.json", "copy.json"):
        result = run("fleet", "0.json", "1.json", other)
        assert (result.returncode, result.stdout) == (2, "")
        told = f"headrace: 0.json and {other} are the same measurement; give each host once\n"
        assert result.stderr == told
    result = run("fleet", "xeon-max", "0.json", "xeon-max")
    assert result.returncode == 2 and "give each host once" in result.stderr, result


def test_two_profiles_of_one_host_are_said_to_be(run: Run, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps(host("n0", number)))
    result = run("fleet", "0.json", "1.json", "2.json")
    assert result.returncode in (0, 9)
    told = "0.json, 1.json and 2.json are all of n0; each counts as a host of its own\n"
    assert result.stderr == f"headrace: {told}"
