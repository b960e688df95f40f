# SPDX-License-Identifier: Apache-2.0
"""Plans of `headrace run`, in tables, for machines that are not this one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace._run.plan import Host, Plan, Request, numbers, plan, ranges
from headrace._run.ranks import Rank

GIB = 1 << 30
MAX = headrace.Machine.load("xeon-max")
CXL = headrace.Machine.load("cxl-a1000")


def line(made: Plan) -> str:
    return made.numactl(["./a"]).removeprefix("numactl ").removesuffix(" -- ./a")


TABLE = [
    (Request(on="hbm"), "--membind 8-15"),
    (Request(on="0-3,8"), "--membind 0-3,8"),
    (Request(prefer="hbm"), "--preferred-many 8-15"),
    (Request(prefer="hbm:dram"), "--preferred-many 8-15"),
    (Request(prefer="8"), "--preferred 8"),
    (Request(interleave="0-7"), "--interleave 0-7"),
    (Request(interleave="hbm"), "--interleave 8-15"),
    (Request(weights="dram=2,hbm=2"), "--interleave 0-15"),
    (Request(on="hbm", cpus="near:8"), "--membind 8-15 --physcpubind 0-11"),
    (Request(on="hbm", cpus="0-11,24"), "--membind 8-15 --physcpubind 0-11,24"),
    (Request(cpus="near:hbm"), "--physcpubind 0-95"),
    (Request(on="fastest", cpus="48-59"), "--membind 12 --physcpubind 48-59"),
    (Request(on="fastest", cpus="36-59"), "--membind 11-12 --physcpubind 36-59"),
    (Request(on="highest_bandwidth"), "--membind 8-15"),
    (Request(prefer="highest_bandwidth"), "--preferred-many 8-15"),
    (Request(on="lowest_latency"), "--membind 0-7"),
    (Request(cpus="near:highest_bandwidth"), "--physcpubind 0-95"),
]


@pytest.mark.parametrize(("request_", "expected"), TABLE)
def test_flags_on_xeon_max(request_: Request, expected: str) -> None:
    assert line(plan(MAX, request_, Host.of(MAX))) == expected


PER_RANK = [
    # Rank, ranks on this host, nodes, CPUs.
    (0, 8, "8", "0-11"),
    (7, 8, "15", "84-95"),
    (1, 2, "12-15", "48-95"),
    (0, 1, "8-15", "0-95"),
    (1, 3, "10-12", "24-59"),
    (0, 16, "8", "0-5"),
    (1, 16, "8", "6-11"),
    (15, 16, "15", "90-95"),
    (95, 96, "15", "95"),
    (199, 200, "15", "95"),  # more than CPUs: one each, shared
    (3, None, "11", "36-47"),
    (9, None, "9", "12-23"),
]


@pytest.mark.parametrize(("local", "size", "nodes", "cpus"), PER_RANK)
def test_ranks_on_xeon_max(local: int, size: int | None, nodes: str, cpus: str) -> None:
    host = Host.of(MAX, Rank(local, size, "LOCAL_RANK"))
    made = plan(MAX, Request(on="hbm", per_rank=True), host)
    assert line(made) == f"--membind {nodes} --physcpubind {cpus}"
    made = plan(MAX, Request(per_rank=True), host)
    assert set(made.nodes) == {node - 8 for node in numbers(nodes)}, "DRAM where no kind is named"
    assert made.policy in ("preferred", "preferred_many")


@given(st.integers(1, 300), st.sampled_from([MAX, CXL]))
def test_all_cpus_are_dealt_once(size: int, machine: headrace.Machine) -> None:
    cpus = []
    for local in range(size):
        host = Host.of(machine, Rank(local, size, "LOCAL_RANK"))
        cpus.append(plan(machine, Request(per_rank=True), host).cpus or [])
    dealt = [cpu for each in cpus for cpu in each]
    assert all(cpus)
    if size <= 96:
        assert sorted(dealt) == list(range(96))
        assert size < 8 or max(map(len, cpus)) - min(map(len, cpus)) <= 12 // (size // 8)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 16])
def test_a_tile_without_memory_of_that_kind_takes_all_that_is_nearest(size: int) -> None:
    """If two CXL nodes are equally far, each rank gets both: one alone could be full."""
    for rank in range(size):
        host = Host.of(CXL, Rank(rank, size, "LOCAL_RANK"))
        assert plan(CXL, Request(on="cxl", per_rank=True), host).nodes == [8, 9]


def expanders(*distances: dict[int, int]) -> headrace.Machine:
    """For each a node with two CPUs, so far from CXL nodes of 4 GiB."""
    near = {n: {str(n): 10} | {str(to): far for to, far in found.items()}
            for n, found in enumerate(distances)}  # fmt: skip
    nodes: list[dict[str, object]] = [
        {"id": n, "kind": "dram", "name": f"node {n}", "cpus": [2 * n, 2 * n + 1],
         "capacity_bytes": GIB, "distances": found}
        for n, found in near.items()
    ]  # fmt: skip
    nodes += [
        {"id": to, "kind": "cxl", "name": f"node {to}", "cpus": [], "capacity_bytes": 4 * GIB,
         "distances": {str(n): found[to] for n, found in enumerate(distances)}}
        for to in distances[0]
    ]  # fmt: skip
    return headrace.Machine.from_json(json.dumps({
        "schema_version": 1, "name": "expanders", "nodes": nodes, "engines": [],
        "caches": [{"level": 1, "size_bytes": 32768, "cpus": [cpu]}
                   for cpu in range(2 * len(distances))],
    }))  # fmt: skip


#: Two sockets of two tiles, each with an expander; and two tiles equally far from both.
SOCKETS = expanders({8: 14, 9: 24}, {8: 14, 9: 24}, {8: 24, 9: 14}, {8: 24, 9: 14})
EQUAL = expanders({8: 20, 9: 20}, {8: 20, 9: 20})


def test_the_nearest_of_each_tile() -> None:
    def nodes(rank: int, size: int) -> list[int]:
        host = Host.of(SOCKETS, Rank(rank, size, "LOCAL_RANK"))
        return plan(SOCKETS, Request(on="cxl", per_rank=True), host).nodes

    assert [nodes(rank, 4) for rank in range(4)] == [[8], [8], [9], [9]]
    assert [nodes(rank, 3) for rank in range(3)] == [[8], [8], [9]]
    assert nodes(0, 1) == [8, 9]


#: Machine, ranks, what each needs in GiB, and what is said to each of them; empty: it fits.
SHARED: list[tuple[headrace.Machine, int, int, list[str]]] = [
    (SOCKETS, 4, 2, ["", "", "", ""]),
    (SOCKETS, 4, 3, ["6 GiB needed by 2 ranks do not fit: node 8 has 4 GiB free"] * 2
     + ["6 GiB needed by 2 ranks do not fit: node 9 has 4 GiB free"] * 2),
    (EQUAL, 2, 4, ["", ""]),
    (EQUAL, 2, 5, ["10 GiB needed by 2 ranks do not fit: nodes 8-9 have 8 GiB free "
                   "(4 GiB each)"] * 2),
    (EQUAL, 6, 1, [""] * 6),
    (EQUAL, 6, 2, ["12 GiB needed by 6 ranks do not fit: nodes 8-9"] * 6),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "size", "needs", "told"), SHARED)
def test_ranks_whose_memory_overlaps_count_together(
    machine: headrace.Machine, size: int, needs: int, told: list[str]
) -> None:
    for rank, expected in enumerate(told):
        host = Host.of(machine, Rank(rank, size, "LOCAL_RANK"))
        request = Request(on="cxl", per_rank=True, needs=needs * GIB)
        if not expected:
            assert plan(machine, request, host).warnings == []
            continue
        with pytest.raises(headrace.ExhaustedError, match=f"^{re.escape(expected)}"):
            plan(machine, request, host)
        request = replace(request, on=None, prefer="cxl")
        [warning] = plan(machine, request, host).warnings
        assert warning.startswith(expected)


def test_ranks_whose_memory_overlaps_in_part() -> None:
    """One has 8 alone, one both, one 9 alone: of them all, what one needs is too much."""
    machine = expanders({8: 10, 9: 30}, {8: 20, 9: 20}, {8: 30, 9: 10})
    for needs, fits in ((2, True), (3, False)):
        for rank in range(3):
            host = Host.of(machine, Rank(rank, 3, "LOCAL_RANK"))
            request = Request(on="cxl", per_rank=True, needs=needs * GIB)
            if fits:
                plan(machine, request, host)
                continue
            with pytest.raises(headrace.ExhaustedError, match="by 3 ranks do not fit: nodes 8-9"):
                plan(machine, request, host)


def test_needs_of_ranks_that_nobody_counts() -> None:
    host = Host.of(SOCKETS, Rank(1, None, "PMIX_RANK"))
    made = plan(SOCKETS, Request(on="cxl", per_rank=True, needs=4 * GIB), host)
    told = "--needs is of this rank alone: its launcher does not say how many run here"
    assert told in made.notes and made.warnings == []


def two_threads(cores: int) -> headrace.Machine:
    """One node, the second thread of core n being CPU n + `cores`."""
    return headrace.Machine.from_json(json.dumps({
        "schema_version": 1,
        "name": "threads",
        "nodes": [{"id": 0, "kind": "dram", "name": "node 0", "cpus": list(range(2 * cores)),
                   "capacity_bytes": GIB}],
        "caches": [{"level": 1, "size_bytes": 32768, "cpus": [c, c + cores]}
                   for c in range(cores)],
        "engines": [],
    }))  # fmt: skip


def shares(cores: int, size: int) -> list[list[int]]:
    machine = two_threads(cores)
    hosts = [Host.of(machine, Rank(rank, size, "LOCAL_RANK")) for rank in range(size)]
    return [plan(machine, Request(per_rank=True), host).cpus or [] for host in hosts]


def test_cores_are_not_cut_in_two() -> None:
    assert shares(4, 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    for size in range(1, 13):
        dealt = shares(12, size)
        assert sorted(cpu for each in dealt for cpu in each) == list(range(24))
        cores = [{cpu % 12 for cpu in each} for each in dealt]
        assert sum(map(len, cores)) == 12, "no core has two ranks"
        assert max(map(len, cores)) - min(map(len, cores)) <= 1
    more = shares(12, 24)
    assert sorted(more) == [[cpu] for cpu in range(24)], "a hardware thread each"


def test_a_job_on_a_part_of_the_machine() -> None:
    """A cpuset of the second socket, and ranks that the launcher has bound to one core each."""
    host = replace(
        Host.of(MAX, Rank(1, 4, "LOCAL_RANK")),
        cpuset=frozenset(range(48, 96)), cpus=frozenset({49}),
        free={node: GIB for node in (4, 5, 6, 7, 12, 13, 14, 15)},
    )  # fmt: skip
    made = plan(MAX, Request(prefer="hbm", per_rank=True), host)
    assert line(made) == "--preferred 13 --physcpubind 60-71"
    assert "in place of the CPUs 49 that it was bound to" in made.notes
    assert any(note.startswith("node 8-11 left out: ") for note in made.notes)
    made = plan(MAX, Request(on="hbm"), host)
    assert made.nodes == [12, 13, 14, 15] and made.notes[0].startswith("node 8-11 left out")
    with pytest.raises(headrace.DeniedError, match="node 12-15 only"):
        plan(MAX, Request(on="8,12"), replace(host, free={n: GIB for n in range(12, 16)}))


def test_what_an_older_kernel_can() -> None:
    host = replace(Host.of(MAX), preferred_many=False, table=None)
    made = plan(MAX, Request(prefer="hbm"), host)
    assert line(made) == "--preferred 8" and "Linux 5.15" in made.notes[0]
    with pytest.raises(headrace.UnsupportedError, match="6.9"):
        plan(MAX, Request(weights="dram=3,hbm=1"), host)
    assert line(plan(MAX, Request(weights="dram=1,hbm=1"), host)) == "--interleave 0-15"


def test_an_order_is_said_to_be_the_kernels_own() -> None:
    notes = plan(MAX, Request(prefer="hbm:dram"), Host.of(MAX)).notes
    assert notes == [
        "for a whole process the kernel knows no order: after node 8-15 it takes the nearest, not "
        "dram"
    ]


def test_weights_are_those_of_the_system() -> None:
    request = Request(weights="dram=3,hbm=1")
    host = replace(Host.of(MAX), table={n: 6 if n < 8 else 2 for n in range(16)})
    assert line(plan(MAX, request, host)) == "--weighted-interleave 0-15"
    assert plan(MAX, request, host).table == {}
    other = replace(host, table=dict.fromkeys(range(16), 1), elsewhere=False)
    with pytest.raises(headrace.DeniedError) as error:
        plan(MAX, request, other)
    folder = "/sys/kernel/mm/mempolicy/weighted_interleave"
    commands = f"echo 3 | tee {folder}/node{{0..7}}; echo 1 | tee {folder}/node{{8..15}}"
    assert f"as root: {commands} (or --set-system-weights)" in str(error.value)
    assert "without root (headrace.allocate)" in str(error.value)
    made = plan(MAX, replace(request, set_system_weights=True), other)
    assert made.table == {n: 3 if n < 8 else 1 for n in range(16)}
    assert f"weights for the whole system: {commands}" in made.notes
    made = plan(MAX, request, Host.of(MAX))  # not here: nobody knows what its kernel says
    assert line(made) == "--weighted-interleave 0-15" and made.table == {}
    told = f"once its kernel's weights are set, as root: {commands} (or --set-system-weights)"
    assert told in made.notes


FITS = [
    (Request(on="hbm", needs=128 * GIB), None),
    (Request(prefer="8", needs=16 * GIB), None),
    (Request(prefer="8", needs=17 * GIB), "17 GiB needed do not fit: node 8 has 16 GiB free; "
     "the rest goes to other nodes"),
    (Request(weights="8=1,9=1", needs=33 * GIB), "33 GiB needed do not fit: nodes 8-9 have "
     "32 GiB free (16 GiB each); the rest goes to other nodes"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "warning"), FITS)
def test_what_is_needed_and_spills(request_: Request, warning: str | None) -> None:
    assert plan(MAX, request_, Host.of(MAX)).warnings == ([] if warning is None else [warning])


def test_what_is_needed_and_must_fit() -> None:
    with pytest.raises(headrace.ExhaustedError, match="20 GiB needed do not fit: node 8 has"):
        plan(MAX, Request(on="8", needs=20 * GIB), Host.of(MAX))
    sharing = Host.of(MAX, Rank(0, 16, "LOCAL_RANK"))
    with pytest.raises(headrace.ExhaustedError, match="18 GiB needed by 2 ranks do not fit"):
        plan(MAX, Request(on="hbm", needs=9 * GIB, per_rank=True), sharing)


LIMITS = [
    (replace(Host.of(MAX), cgroup=GIB), "its memory cgroup leaves 1 GiB"),
    (replace(Host.of(MAX), address_space=GIB), "ulimit -v allows 1 GiB"),
]


@pytest.mark.parametrize(("host", "told"), LIMITS)
def test_a_limit_below_what_is_needed_is_certain(host: Host, told: str) -> None:
    """Under any policy: other nodes do not help."""
    for request in (
        Request(on="hbm"), Request(prefer="hbm"), Request(interleave="0-7"),
        Request(weights="8=1,9=1"),
    ):  # fmt: skip
        with pytest.raises(headrace.ExhaustedError) as error:
            plan(MAX, replace(request, needs=2 * GIB), host)
        assert str(error.value) == (
            f"{told}, less than the 2 GiB needed; raise that limit, or need less"
        )
        assert plan(MAX, replace(request, needs=GIB), host).warnings == []
        made = plan(MAX, request, host)
        assert made.warnings == [] and any(note.startswith(told) for note in made.notes)


def test_a_limit_below_what_all_ranks_need_is_likely() -> None:
    """Whether they share the group nobody says; the address space they do not."""
    host = replace(Host.of(MAX, Rank(0, 4, "LOCAL_RANK")), cgroup=3 * GIB, address_space=GIB)
    made = plan(MAX, Request(on="hbm", per_rank=True, needs=GIB), host)
    assert made.warnings == [
        "its memory cgroup leaves 3 GiB, less than the 4 GiB needed by 4 ranks if they share it"
    ]


BAD = [
    (Request(), "nothing to set"),
    (Request(needs=1), "say where"),
    (Request(on="hbm", prefer="hbm"), "--on and --prefer exclude each other"),
    (Request(weights="0=1", interleave="0"), "--weights and --interleave exclude"),
    (Request(per_rank=True, cpus="0"), "leave out --cpus"),
    (Request(per_rank=True, interleave="hbm"), "leave --interleave out"),
    (Request(per_rank=True, on="hbm"), "no launcher says which rank"),
    (Request(on="hbm", set_system_weights=True), "about --weights"),
    (Request(on="hbm:dram"), "with --prefer"),
    (Request(on="0=1"), "give them with --weights"),
    (Request(weights="hbm"), "no weight in it"),
    (Request(on="hmb"), "'hmb' is no kind"),
    (Request(on=""), "is no kind"),
    (Request(weights="dram=0,hbm=1"), "from 1 to 255"),
    (Request(weights="dram=1000000,hbm=1"), "from 1 to 255"),
    (Request(cpus="far:hbm"), "no list of CPUs"),
    (Request(cpus="near:hmb"), "is no kind"),
    (Request(cpus="3-1"), "write 1-3"),
    (Request(cpus="0-99999999999"), "no list of CPUs"),
    (Request(cpus="²"), "no list of CPUs"),
    (Request(cpus="0,,2"), "no list of CPUs"),
]


@pytest.mark.parametrize(("request_", "told"), BAD)
def test_bad_input(request_: Request, told: str) -> None:
    with pytest.raises(headrace.InvalidError, match=told):
        plan(MAX, request_, Host.of(MAX))


def test_missing_memory_kind() -> None:
    with pytest.raises(headrace.AbsentError, match="777"):
        plan(MAX, Request(on="0,777"), Host.of(MAX))
    with pytest.raises(headrace.AbsentError, match="cxl"):
        plan(MAX, Request(prefer="cxl"), Host.of(MAX))
    host = replace(Host.of(MAX), cpus=frozenset({0, 1}))
    with pytest.raises(headrace.DeniedError, match="may run on CPU 0-1 only, not on 2-3"):
        plan(MAX, Request(cpus="0-3"), host)
    with pytest.raises(headrace.DeniedError, match="near are 48-59"):
        plan(MAX, Request(cpus="near:12"), host)
    assert plan(MAX, Request(cpus="near:hbm"), host).cpus == [0, 1]


@given(st.sets(st.integers(0, 200), min_size=1))
def test_ranges_are_read_back(some: set[int]) -> None:
    assert numbers(ranges(some)) == sorted(some)


@given(st.text(alphabet="0123456789,-=:nearhbmdcxl. ", max_size=20))
def test_any_text_is_planned_or_refused(text: str) -> None:
    for request in (
        Request(on=text), Request(prefer=text), Request(weights=text),
        Request(interleave=text), Request(cpus=text),
    ):  # fmt: skip
        try:
            made = plan(MAX, request, Host.of(MAX))
        except headrace.Error as error:
            assert "\n" not in str(error) and len(str(error)) < 600
        else:
            assert made.nodes or made.cpus


def test_a_program_is_quoted_as_a_shell_wants_it() -> None:
    made = plan(MAX, Request(on="hbm"), Host.of(MAX))
    assert made.numactl(["./a b", "-v"]) == "numactl --membind 8-15 -- './a b' -v"
