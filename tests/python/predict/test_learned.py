# SPDX-License-Identifier: Apache-2.0
"""A known machine is measured with noise by the solver; the model that is learned from these rows
must predict points that were not among them, and name the shared ceilings that are there.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

import headrace
from headrace._report import findings
from headrace_bench.predict import copy as copies
from headrace_bench.predict import learned
from headrace_bench.predict.target import LINE, Access, Place, Share, Target

Document = dict[str, Any]
#: Parts of the bytes of a mix: loads, ordinary stores, stores around the caches.
PARTS: Mapping[str, Mapping[str, float]] = {
    "read": {"read": 1.0},
    "3:1": {"read": 0.75, "store": 0.25},
    "1:1": {"read": 0.5, "store": 0.5},
    "write": {"store": 1.0},
    "nt_write": {"write": 1.0},
}
PURE = ("read", "nt_write")
#: Threads: CPU node, their number, bytes by memory node, their CPUs (empty: all).
Threads = tuple[int, float, Mapping[int, float], str]


class Truth:
    """Measures a machine that is known. `noise`: standard deviation of a sample, relative."""

    def __init__(self, document: Document, noise: float, seed: int = 1) -> None:
        self.document, self.target = document, Target(document)
        self.random, self.noise = random.Random(seed), noise
        self.cpus = {n["id"]: n["cpus"] for n in document["nodes"] if n["cpus"]}
        self.memory = [n["id"] for n in document["nodes"] if self.target.addressable(n["id"])]

    def rate(self, threads: Sequence[Threads], mix: str = "read") -> float:
        return rate_of(self.target, threads, mix)

    def row(
        self, experiment: str, unit: str, value: float, /, cpus: str = "", **at: Any
    ) -> Document:
        samples = sorted(value * math.exp(self.random.gauss(0, self.noise)) for _ in range(6))
        return {
            "experiment": experiment,
            "parameters": at,
            "unit": unit,
            "median": (samples[2] + samples[3]) / 2,
            "low": samples[0],
            "high": samples[-1],
            "interval": "95 %",
            "samples": samples,
            **({"cpus": cpus} if cpus else {}),
        }

    def profile(self, *more: Document) -> headrace.Profile:
        rows = [*self.latencies(), *self.bandwidths(), *more]
        plain = {key: value for key, value in self.document.items() if key != "model"}
        return headrace.Profile.fromdict(plain | {"rows": rows})

    def latencies(self) -> Iterator[Document]:
        for cpu in self.cpus:
            for memory in self.memory:
                ns = self.target.latency(cpu, memory)
                yield self.row("latency", "ns", ns, cpu_node=cpu, memory_node=memory, bytes=1 << 30)

    def bandwidths(self) -> Iterator[Document]:
        for cpu, cpus in self.cpus.items():
            for memory in self.memory:
                counts = sorted({1, len(cpus) // 4 or 1, len(cpus) // 2 or 1, len(cpus)})
                near = self.target.latency(cpu, memory) < 1.5 * self.target.latency(cpu, cpu)
                for mix in PARTS if near else PURE:
                    for threads in counts if near and mix in PURE else counts[-1:]:
                        rate = self.rate([(cpu, threads, {memory: 1.0}, "")], mix)
                        yield self.row(
                            "bandwidth",
                            "B/s",
                            rate,
                            cpu_node=cpu,
                            memory_node=memory,
                            mix=mix,
                            threads=threads,
                        )

    def split(self, cpu: int, one: int, other: int, *ratios: str) -> Iterator[Document]:
        for ratio in ratios:
            a, b = map(int, ratio.split(":"))
            parts = {one: a / (a + b), other: b / (a + b)}
            threads = len(self.cpus[cpu])
            rate = self.rate([(cpu, threads, parts, "")])
            yield self.row(
                "split",
                "B/s",
                rate,
                cpu_node=cpu,
                memory_node=one,
                other_memory_node=other,
                ratio=ratio,
                threads=threads,
            )

    def team(
        self, on: str, placed: str, threads: Sequence[Threads], mixes: Sequence[str] = PURE
    ) -> Iterator[Document]:
        nodes = [each[0] for each in threads]
        memory = sorted({node for each in threads for node in each[2]})
        cpus = ",".join(each[3] or ",".join(map(str, self.cpus[each[0]])) for each in threads)
        for mix in mixes:
            yield self.row(
                "bandwidth",
                "B/s",
                self.rate(threads, mix),
                cpus=cpus,
                cpu_node=",".join(map(str, nodes)),
                memory_node=",".join(map(str, memory)),
                mix=mix,
                threads=int(sum(each[1] for each in threads)),
                on=on,
                placed=placed,
            )


def rate_of(target: Target, threads: Sequence[Threads], mix: str = "read") -> float:
    flows = []
    for node, number, parts, cpus in threads:
        lines, doubt = target.lines(node, "nt store" if mix == "nt_write" else "sequential load")
        flows.append(
            {
                "name": f"{node}",
                "threads": number,
                "initiator": node,
                "in_flight_bytes": lines * LINE,
                "in_flight_uncertainty": doubt,
                **({"cpus": cpus} if cpus else {}),
                "accesses": [
                    {"node": memory, "kind": kind, "bytes": part * of}
                    for memory, part in parts.items()
                    if part
                    for kind, of in PARTS[mix].items()
                ],
            }
        )
    return sum(speed.rate.value for speed in target.solve(flows))


def preset(name: str) -> Document:
    return dict(headrace.Machine.load(name).asdict()) | {"source": "discovered", "rows": []}


def two_cpus() -> Document:
    machine = preset("one-node")
    machine["nodes"][0]["cpus"] = [0, 1]
    machine["caches"] = []
    return machine


def shared_by_hbm_and_ddr() -> Document:
    """With both threads of each core at work, as on the machine of the published figures."""
    machine = copy.deepcopy(preset("xeon-max-9462"))
    for node in (0, 1):
        machine["nodes"][node]["cpus"] = list(range(64 * node, 64 * node + 64))
    machine["caches"] = []
    machine["model"]["cores"][0]["lines_in_flight"]["sequential load"] = 24.0
    return machine


def rows_of(truth: Truth) -> list[Document]:
    """Teams and splits that the machine has, as `measure` lists them, but few ratios."""
    name, cpus = truth.document["name"], truth.cpus
    every = {cpu: len(each) for cpu, each in cpus.items()}
    if name == "xeon-max-9462":
        return [
            *truth.split(0, 0, 2, "1:0", "1:1", "1:3", "0:1"),
            *truth.split(1, 1, 3, "1:0", "1:1", "1:3", "0:1"),
        ]
    if name == "xeon-max":
        far = [(cpu, every[cpu], {cpu + 4: 1.0}, "") for cpu in range(4)]
        return [
            *truth.split(0, 0, 8, "1:0", "1:1", "1:3", "0:1"),
            *truth.team("socket", "far", far),
            *truth.team("socket", "far", [(cpu, n, {m + 8: 1.0}, "") for cpu, n, (m,), _ in far]),
        ]
    if name == "epyc-9354p":
        return [*truth.team("cluster", "near", [(0, 4, {0: 1.0}, "0-3")], tuple(PARTS))]
    if name == "cxl-a1000":
        return [*truth.split(0, 0, 8, "1:0", "3:1", "1:1", "0:1")]
    return []


MACHINES: Mapping[str, Callable[[], Document]] = {
    "one-node": two_cpus,
    "xeon-max": lambda: preset("xeon-max"),
    "epyc-9354p": lambda: preset("epyc-9354p"),
    "cxl-a1000": lambda: preset("cxl-a1000"),
    "xeon-max-9462": shared_by_hbm_and_ddr,
}
#: Points that are not measured: part of the threads, other ratios, several parts at once.
HELD: Mapping[str, Sequence[tuple[str, Sequence[Threads], str]]] = {
    "one-node": [
        ("one thread", [(0, 1, {0: 1.0}, "")], "1:1"),
        ("both", [(0, 2, {0: 1.0}, "")], "read"),
    ],
    "xeon-max": [
        ("half", [(0, 6, {8: 1.0}, "")], "read"),
        ("2:1", [(0, 12, {0: 2 / 3, 8: 1 / 3}, "")], "read"),
        ("two tiles", [(0, 12, {8: 1.0}, ""), (1, 12, {9: 1.0}, "")], "read"),
        ("to far HBM", [(n, 12, {n + 12: 1.0}, "") for n in range(4)], "read"),
        ("two tiles to far DDR", [(0, 12, {4: 1.0}, ""), (1, 12, {5: 1.0}, "")], "read"),
        ("halves", [(0, 6, {8: 1.0}, ""), (0, 6, {0: 1.0}, "")], "nt_write"),
    ],
    "epyc-9354p": [
        ("one die far", [(1, 4, {1: 1.0}, "12-15")], "read"),
        ("half", [(0, 4, {0: 1.0}, "0-1,4-5")], "read"),
        ("die writes", [(0, 4, {0: 1.0}, "4-7")], "nt_write"),
        ("die, all nodes", [(0, 4, {n: 0.25 for n in range(4)}, "0-3")], "read"),
    ],
    "cxl-a1000": [
        ("8:1", [(0, 14, {0: 8 / 9, 8: 1 / 9}, "")], "read"),
        ("half", [(0, 7, {8: 1.0}, "")], "read"),
        ("halves", [(0, 7, {8: 1.0}, ""), (0, 7, {0: 1.0}, "")], "read"),
    ],
    "xeon-max-9462": [
        ("2:1", [(0, 64, {0: 2 / 3, 2: 1 / 3}, "")], "read"),
        ("halves", [(0, 32, {2: 1.0}, ""), (0, 32, {0: 1.0}, "")], "read"),
        ("1:2", [(0, 64, {0: 1 / 3, 2: 2 / 3}, "")], "read"),
        ("both", [(0, 64, {2: 1.0}, ""), (1, 64, {3: 1.0}, "")], "read"),
    ],
}

#: Shared ceilings by name, with the rate in GB/s of the machine that was measured.
SHARED: Mapping[str, Mapping[str, float]] = {
    "one-node": {},
    "cxl-a1000": {},
    "epyc-9354p": {"CPUs 0-3": 50},
    "xeon-max": {
        "CPUs of nodes 0-3 with far memory of nodes 4-7": 81,
        "CPUs of nodes 0-3 with far memory of nodes 12-15": 81,
    },
    "xeon-max-9462": {
        "DDR of node 0 and HBM of node 2": 430,
        "DDR of node 1 and HBM of node 3": 430,
    },
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_learned_machine_predicts_points_that_were_not_measured(name: str) -> None:
    truth = Truth(MACHINES[name](), 0.01)
    made, shared = learned.learn(truth.profile(*rows_of(truth)))
    assert {each.name: each.bandwidth / 1e9 for each in shared} == {
        key: pytest.approx(rate, rel=0.05) for key, rate in SHARED[name].items()
    }
    target = Target(made)
    errors = {
        words: rate_of(target, threads, mix) / truth.rate(threads, mix) - 1
        for words, threads, mix in HELD[name]
    }
    assert max(map(abs, errors.values())) < 0.08, errors
    assert not target.bound


def loaded(target: Target, load: float) -> tuple[float, float]:
    """Bytes per second that all but one CPU of node 0 read of its memory at a share of the most,
    and the latency that the last one sees.
    """
    read = Access(Place("", (Share(1.0, node=0),)), "read", 1.0)
    threads = len(target.nodes[0]["cpus"]) - 1
    traffic = target.flow("traffic", 0, threads, [read], in_flight="sequential load")
    most = target.solve([traffic])[0].rate.value
    traffic["cap_bytes_per_second"] = load * most / threads
    found = target.solve([traffic, target.flow("chase", 0, 1, [read], in_flight=1.0)])
    return found[0].rate.value, found[1].latency_ns


def test_latencies_beside_traffic_make_the_queue() -> None:
    document = preset("xeon-max-9462")
    for ceiling in document["model"]["ceilings"]:
        if ceiling["kind"] == "controller":
            ceiling["queue"] = [[0.3, 4], [0.5, 80], [0.7, 250], [1, 500]]
    truth = Truth(document, 0.01)
    node = {"cpu_node": 0, "memory_node": 0, "traffic_cpu_node": 0, "traffic_memory_node": 0}
    rows = []
    for load in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9):
        rate, latency = loaded(truth.target, load)
        row = truth.row("loaded", "ns", latency, **node, mix="read", load_percent=int(100 * load))
        details = {"bandwidth": rate, "idle": truth.target.latency(0, 0)}
        rows.append(row | {"details": details})
    errors = []
    for more in ([], rows):
        target = Target(learned.learn(truth.profile(*more))[0])
        errors.append(abs(loaded(target, 0.6)[1] / loaded(truth.target, 0.6)[1] - 1))
    assert errors[1] < 0.1 and errors[0] > 0.15, errors


@pytest.mark.parametrize("name", ["one-node", "xeon-max-9462"])
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_noise_is_no_shared_ceiling(name: str, noise: float) -> None:
    machine = MACHINES[name]()
    model = machine["model"]
    model["ceilings"] = [each for each in model["ceilings"] if each["kind"] != "fabric"]
    for seed in range(10):
        truth = Truth(machine, noise, seed)
        assert learned.learn(truth.profile(*rows_of(truth)))[1] == []


def test_dies_that_were_not_measured_have_the_ceiling_of_the_one_that_was() -> None:
    truth = Truth(preset("epyc-9354p"), 0.01)
    made, _ = learned.learn(truth.profile(*rows_of(truth)))
    clusters = [each for each in made["model"]["ceilings"] if each["kind"] == "cluster"]
    assert [each["name"] for each in clusters] == [f"CPUs {4 * i}-{4 * i + 3}" for i in range(8)]
    assert len({json.dumps(each["bandwidth"]) for each in clusters}) == 1


def test_a_socket_like_the_measured_one_has_a_ceiling_of_its_own() -> None:
    truth = Truth(preset("xeon-max"), 0.01)
    far = [(cpu, 12, {cpu + 4: 1.0}, "") for cpu in range(4)]
    rows = [row | {"stands_for": ["cpu_node=4-7"]} for row in truth.team("socket", "far", far)]
    made, _ = learned.learn(truth.profile(*rows))
    paths = [each["paths"][0] for each in made["model"]["ceilings"] if each["kind"] == "fabric"]
    assert [(path["from"], path["to"]) for path in paths] == [
        ([0, 1, 2, 3], [4, 5, 6, 7]),
        ([4, 5, 6, 7], [0, 1, 2, 3]),
    ]


def test_the_report_names_what_memories_share() -> None:
    truth = Truth(MACHINES["xeon-max-9462"](), 0.01)
    text = findings.sentences(truth.profile(*rows_of(truth)), "split")
    assert "DDR of node 0 and HBM of node 2 share a ceiling of 43" in text
    assert "% below the 5" in text
    assert findings.sentences(truth.profile(), "split") == ""
    few = headrace.Profile.fromdict(MACHINES["one-node"]() | {"rows": []})
    assert findings.sentences(few, "bandwidth") == ""


def test_a_report_needs_no_benchmarks_of_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    class OfAnotherBuild:
        def load(self) -> None:
            raise headrace.UnsupportedError("headrace and headrace-bench are of different builds")

    monkeypatch.setattr(findings, "entry_points", lambda group: [OfAnotherBuild()])
    truth = Truth(MACHINES["xeon-max-9462"](), 0.01)
    assert findings.sentences(truth.profile(*rows_of(truth)), "split") == ""


@pytest.mark.parametrize(
    "left_out",
    [
        lambda at: at.get("threads") == 1,
        lambda at: "bytes" in at and at["cpu_node"] == at["memory_node"],
    ],
)
def test_a_profile_without_what_cores_are_learned_from_is_reported_all_the_same(
    left_out: Callable[[Document], bool],
) -> None:
    truth = Truth(MACHINES["xeon-max-9462"](), 0.01)
    found = truth.profile(*rows_of(truth)).asdict()
    rows = [row for row in found["rows"] if not left_out(row["parameters"])]
    profile = headrace.Profile.fromdict(found | {"rows": rows})
    assert findings.sentences(profile, "split") == ""
    with pytest.raises(headrace.InvalidError, match="no rate of one thread in local memory"):
        learned.learn(profile)


@pytest.mark.parametrize(
    "change",
    [
        {"ratio": "0:0"},
        {"ratio": "x"},
        {"memory_node": 77},
        {"other_memory_node": None},
        {"threads": None},
    ],
)
def test_rows_that_say_too_little_are_left_out(change: Document) -> None:
    truth = Truth(MACHINES["xeon-max-9462"](), 0.01)
    split = dict(truth.profile(*rows_of(truth)).asdict()["rows"][-1])
    assert split["experiment"] == "split"
    at = split["parameters"] | change
    split["parameters"] = {name: value for name, value in at.items() if value is not None}
    assert learned.learn(truth.profile(split))[1] == []


def test_memory_whose_own_rate_is_unknown_shows_no_shared_ceiling() -> None:
    truth = Truth(MACHINES["xeon-max-9462"](), 0.01)
    found = truth.profile(*rows_of(truth)).asdict()
    rows = [
        row for row in found["rows"]
        if row["experiment"] != "bandwidth" or row["parameters"]["memory_node"] in (0, 1)
    ]  # fmt: skip
    assert learned.learn(headrace.Profile.fromdict(found | {"rows": rows}))[1] == []


def test_an_ssd_and_a_link_are_learned_from_their_rows() -> None:
    """Reads of 4 KiB are bound by requests per second, those of 1 MiB by bytes per second."""
    machine = preset("one-node") | {"caches": []}
    machine["nodes"].append(
        {"id": 2000, "kind": "gpu", "reason": "made up", "name": "GPU", "cpus": []}
    )
    machine["engines"].append({"id": 2, "kind": "gpu", "name": "gpu0", "home": 2000})
    truth = Truth(machine, 0.0)
    iops, bandwidth, first = 500e3, 3e9, 80e3

    def rate(size: int, depth: int) -> float:
        return size * min(depth / (first + size / bandwidth * 1e9) * 1e9, iops, bandwidth / size)

    rows = [
        truth.row(
            "storage",
            "B/s",
            (0.6 if write else 1) * rate(size, depth),
            node=1000,
            by="io_uring",
            operation="write" if write else "read",
            io="direct",
            bytes=size,
            depth=depth,
        )
        for size in (4096, 65536, 1 << 20)
        for depth in (1, 4, 16, 64)
        for write in (False, True)
    ] + [
        truth.row(
            "gpu",
            "B/s",
            value,
            part="copy",
            direction=direction,
            gpu=2000,
            node=0,
            by="engine",
            memory="pinned",
        )
        for direction, value in (("to_gpu", 20e9), ("from_gpu", 15e9), ("both", 25e9))
    ]
    plain = {key: value for key, value in machine.items() if key != "model"}
    measured = [*truth.latencies(), *truth.bandwidths(), *rows]
    made, _ = learned.learn(headrace.Profile.fromdict(plain | {"rows": measured}))
    target = Target(made)
    settings = {"size": 1 << 30, "source": "1000", "to": "0", "by": "all", "threads": None}
    for size in (4096, 1 << 20):
        found = copies.predict(target, settings | {"block": size})
        for row, depth in zip(found, copies.DEPTHS, strict=True):
            assert row.values["rate"].value == pytest.approx(rate(size, depth), rel=0.25)
        written = copies.predict(target, settings | {"source": "0", "to": "1000", "block": size})
        for row, depth in zip(written, copies.DEPTHS, strict=True):
            assert row.values["rate"].value == pytest.approx(0.6 * rate(size, depth), rel=0.25)
    (link,) = copies.predict(target, settings | {"source": "0", "to": "2000", "block": 1 << 20})
    assert link.values["rate"].value == pytest.approx(20e9, rel=0.05)
    both = [
        {
            "name": f"{i}",
            "engine": "gpu0",
            "cap_bytes_per_second": 1e12,
            "accesses": [{"node": 0, "kind": kind, "bytes": 1.0}],
        }
        for i, kind in enumerate(("read", "write"))
    ]
    assert sum(s.rate.value for s in target.solve(both)) == pytest.approx(25e9, rel=0.05)
