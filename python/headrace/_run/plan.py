# SPDX-License-Identifier: Apache-2.0
"""The plan of `headrace run`: what to set before the program starts.

Pure functions of a machine, a request and the host's limits. _cli/run.py reads the host and sets
the policy.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from headrace import (
    DeniedError,
    ExhaustedError,
    InvalidError,
    Machine,
    Placement,
    UnsupportedError,
    format_bytes,
)
from headrace._run.ranks import Rank, variables

#: The kernel's weights: one file per node, for all programs.
TABLE = "/sys/kernel/mm/mempolicy/weighted_interleave"
#: Distance of a node whose distance is unknown.
_FARTHEST = 255
#: numactl's option for each policy of the kernel.
_NUMACTL = {
    "bind": "--membind",
    "preferred": "--preferred",
    "preferred_many": "--preferred-many",
    "interleave": "--interleave",
    "weighted_interleave": "--weighted-interleave",
}


@dataclass(frozen=True)
class Request:
    """The command's flags, with placements as text."""

    on: str | None = None
    prefer: str | None = None
    weights: str | None = None
    interleave: str | None = None
    cpus: str | None = None
    per_rank: bool = False
    needs: int | None = None
    set_system_weights: bool = False

    def places(self) -> dict[str, str]:
        """The placements given, by flag; more than one is an error."""
        flags = {
            "--on": self.on, "--prefer": self.prefer,
            "--weights": self.weights, "--interleave": self.interleave,
        }  # fmt: skip
        return {flag: text for flag, text in flags.items() if text is not None}


@dataclass(frozen=True)
class Host:
    """The resources that this process may use, and their free part."""

    free: Mapping[int, int]  # bytes, on the nodes that the cpuset allows
    cpus: frozenset[int]  # the affinity mask
    cpuset: frozenset[int]  # what the mask may be widened to
    cgroup: int | None = None  # bytes that memory cgroups leave; None without a limit
    address_space: int | None = None  # RLIMIT_AS; None without a limit
    table: Mapping[int, int] | None = None  # the kernel's weights; None where it has none
    preferred_many: bool = True  # the kernel can prefer several nodes
    rank: Rank | None = None
    elsewhere: bool = False  # not this one, so what root would do first is taken as done

    @classmethod
    def of(cls, machine: Machine, rank: Rank | None = None) -> Host:
        """Limits for a machine that is not this host: nothing else runs, and the kernel is new."""
        memories = [n for n in machine.nodes if n.byte_addressable and n.capacity != 0]
        cpus = frozenset(cpu for node in machine.nodes for cpu in node.cpus)
        return cls(
            free={node.id: node.capacity or 0 for node in memories}, cpus=cpus, cpuset=cpus,
            table={node.id: 1 for node in memories}, rank=rank, elsewhere=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    policy: str | None = None  # a word of set_process_policy; None: as inherited
    nodes: list[int] = field(default_factory=list)  # for `preferred` the one that is meant
    cpus: list[int] | None = None  # None: as inherited
    table: dict[int, int] = field(default_factory=dict)  # weights to write first, as root
    notes: list[str] = field(default_factory=list)  # for -v
    warnings: list[str] = field(default_factory=list)  # to be seen without -v

    def numactl(self, program: Sequence[str]) -> str:
        """The equivalent numactl command line."""
        words = ["numactl"]
        if self.policy is not None:
            words += [_NUMACTL[self.policy], ranges(self.nodes)]
        if self.cpus is not None:
            words += ["--physcpubind", ranges(self.cpus)]
        return shlex.join([*words, "--", *program])


def plan(machine: Machine, request: Request, host: Host) -> Plan:
    """Makes the plan. InvalidError: flags contradict each other. DeniedError: this process may not
    use the nodes or CPUs. ExhaustedError: the needed memory does not fit, and memory is strict or
    limited. Also the errors of Placement.parse.
    """
    _check_flags(request)
    if request.per_rank:
        made, ranks = _per_rank(machine, request, host)
    else:
        cpus = _cpus(machine, request.cpus, host) if request.cpus is not None else None
        made = _everywhere(machine, request, host, cpus)
        ranks = [set(made.nodes)]
    return _fitting(made, request, host, ranks)


def nodes_of(machine: Machine, wish: Placement, near: int | None = None) -> dict[int, int]:
    """The nodes of a placement with their weights. A kind gives all its nodes, nearest first: for a
    whole process the kernel uses the one nearest to the thread that touches a page.
    """
    made = wish.resolve(machine, near)
    nodes = dict(made.nodes)
    if wish.kind is not None:
        kinds = {node.id: node.kind for node in machine.nodes}
        # The stub's attribute `property` hides the decorator of those behind it from type checkers.
        spill = cast("Any", made).spill
        nodes |= {node: 1 for node in spill if kinds.get(node) == wish.kind}
    return nodes


def _of_process(machine: Machine, wish: Placement) -> dict[int, int]:
    """The nodes of a placement for a whole process. A property gives the best node for each node
    with CPUs of the process, since the best one for one of them is too little memory for threads on
    all.
    """
    # The stub's attribute `property` hides the decorator of those behind it from type checkers.
    found: Any = wish
    if found.property is None:
        return nodes_of(machine, wish)
    best = Placement.parse(machine, found.property)
    homes = [node for node in machine.nodes if node.cpus]
    used = [home for home in homes if not found.near or set(home.cpus) & set(found.near)]
    made: dict[int, int] = {}
    for home in used:
        made |= dict(best.resolve(machine, home.id).nodes)
    return made


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 8] as the kernel writes it: "0-2,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _check_flags(request: Request) -> None:
    given = list(request.places())
    if len(given) > 1:
        raise InvalidError(f"{' and '.join(given)} exclude each other; give one of them")
    if request.per_rank and request.cpus is not None:
        raise InvalidError("--tile chooses the CPUs itself; leave out --cpus")
    if request.per_rank and given and given[0] in ("--weights", "--interleave"):
        raise InvalidError(f"--tile per-rank goes with --on or --prefer; leave {given[0]} out")
    if request.set_system_weights and request.weights is None:
        raise InvalidError("--set-system-weights is about --weights; give them too")
    if not given and not request.per_rank:
        if request.needs is not None:
            raise InvalidError("--needs asks whether it fits; say where: --on hbm or --prefer hbm")
        if request.cpus is None:
            raise InvalidError(
                "nothing to set; say where memory should be (--on, --prefer, --weights, "
                "--interleave) or which CPUs to use (--cpus, --tile)"
            )
    for flag, text in request.places().items():
        if "storage" in text:
            raise InvalidError(f"{flag} {text}: a program's memory is not on storage; name memory")
        if ":" in text and flag != "--prefer":
            raise InvalidError(f"{flag} {text}: an order to spill in; give it with --prefer")
        if "=" in text and flag != "--weights":
            raise InvalidError(f"{flag} {text}: weights; give them with --weights")
        if "=" not in text and flag == "--weights":
            raise InvalidError(f"{flag} {text}: no weight in it; write dram=3,cxl=1 or 0=3,8=1")


def _everywhere(machine: Machine, request: Request, host: Host, cpus: list[int] | None) -> Plan:
    made = Plan(cpus=cpus)
    text = next(iter(request.places().values()), None)
    if text is None:
        return made
    near = cpus if cpus is not None else sorted(host.cpus)
    wish = Placement.parse(machine, text, near=_known(machine, near))
    weights = _of_process(machine, wish)
    nodes, notes = _allowed(text, weights, host)
    made = replace(made, nodes=nodes, notes=notes)
    if request.on is not None:
        return replace(made, policy="bind")
    if request.prefer is not None:
        return _preferring(made, request.prefer, host)
    made = replace(
        made, policy="interleave",
        notes=[*made.notes, "the kernel passes over a full node in silence: look with where PID"],
    )  # fmt: skip
    if len({weights[node] for node in nodes}) == 1:
        return made
    return _weighted(made, {node: weights[node] for node in nodes}, request, host)


def _known(machine: Machine, cpus: Iterable[int]) -> list[int]:
    """The CPUs that belong to a node of the machine."""
    known = {cpu for node in machine.nodes for cpu in node.cpus}
    return [cpu for cpu in cpus if cpu in known]


def _allowed(text: str, nodes: Iterable[int], host: Host) -> tuple[list[int], list[str]]:
    """The nodes that this process may use. For a kind: those allowed, with a note on others. For a
    list of nodes: all of them, or an error."""
    chosen = list(nodes)
    kept = [node for node in chosen if node in host.free]
    if len(kept) == len(chosen):
        return kept, []
    out = ranges(set(chosen) - set(kept))
    may = f"this process may have memory of node {ranges(host.free)} only"
    if not kept or text[:1].isdigit():
        raise DeniedError(
            f"{text}: no memory of node {out}; {may} (Mems_allowed_list): choose among them, or "
            "widen cpuset.mems (docker run --cpuset-mems=...)"
        )
    return kept, [f"node {out} left out: {may}"]


def _preferring(made: Plan, text: str, host: Host) -> Plan:
    notes = list(made.notes)
    _, _, order = text.partition(":")
    if order:
        notes.append(f"for a whole process the kernel knows no order: after node "
                     f"{ranges(made.nodes)} it takes the nearest, not {order}")  # fmt: skip
    if len(made.nodes) == 1:
        return replace(made, policy="preferred", notes=notes)
    if host.preferred_many:
        return replace(made, policy="preferred_many", notes=notes)
    first = made.nodes[:1]
    notes.append(f"this kernel prefers one node (several: Linux 5.15), so only node {first[0]} of "
                 f"{ranges(made.nodes)}")  # fmt: skip
    return replace(made, policy="preferred", nodes=first, notes=notes)


def _weighted(made: Plan, weights: dict[int, int], request: Request, host: Host) -> Plan:
    made = replace(made, policy="weighted_interleave")
    if host.table is None:
        raise UnsupportedError(
            "this kernel cannot weigh the nodes of a whole process (Linux 6.9 can); use "
            "--interleave, or weigh allocations (headrace.allocate), which needs neither"
        )
    now = {node: host.table.get(node, 1) for node in weights}
    first = next(iter(weights))
    if all(now[node] * weights[first] == now[first] * weights[node] for node in weights):
        return made
    if request.set_system_weights:
        notes = [*made.notes, f"weights for the whole system: {_commands(weights)}"]
        return replace(made, table=weights, notes=notes)
    if host.elsewhere:
        told = f"once its kernel's weights are set, as root: {_commands(weights)}"
        return replace(made, notes=[*made.notes, f"{told} (or --set-system-weights)"])
    raise DeniedError(
        f"the kernel's weights are one table for all programs, and it says "
        f"{_by_value(now, '{}={}')}; as root: "
        f"{_commands(weights)} (or --set-system-weights); allocations can be weighed without root "
        "(headrace.allocate)"
    )


def _commands(weights: Mapping[int, int]) -> str:
    """The shell commands that set the table."""
    commands = []
    for weight in sorted(set(weights.values()), reverse=True):
        parts = ranges(node for node, each in weights.items() if each == weight).split(",")
        names = [f"{{{part.replace('-', '..')}}}" if "-" in part else part for part in parts]
        files = names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
        commands.append(f"echo {weight} | tee {TABLE}/node{files}")
    return "; ".join(commands)


def _cpus(machine: Machine, text: str, host: Host) -> list[int]:
    near, colon, place = text.partition(":")
    if colon and near == "near":
        nodes = _of_process(machine, Placement.parse(machine, place))
        hosts = {machine.host_of(node) for node in nodes}
        wanted = [cpu for node in machine.nodes if node.id in hosts for cpu in node.cpus]
        cpus = sorted(host.cpus.intersection(wanted))
        if not cpus:
            raise DeniedError(
                f"--cpus {text}: this process may run on CPU {ranges(host.cpus)} only; near are "
                f"{ranges(wanted) or 'none'}"
            )
        return cpus
    cpus = numbers(text)
    outside = set(cpus) - host.cpus
    if outside:
        raise DeniedError(
            f"--cpus {text}: this process may run on CPU {ranges(host.cpus)} only, not on "
            f"{ranges(outside)}; choose among them, or widen its affinity (taskset, cpuset.cpus)"
        )
    return cpus


def numbers(text: str) -> list[int]:
    """ "0-3,8" as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last if dash else first]
        if not all(end.isascii() and end.isdecimal() and len(end) <= 5 for end in ends):
            raise InvalidError(f"'{text[:80]}' is no list of CPUs; write 0-3,8 or near:hbm")
        if int(ends[1]) < int(ends[0]):
            raise InvalidError(f"'{part.strip()}' ends before it begins; write {last}-{first}")
        found.update(range(int(ends[0]), int(ends[1]) + 1))
    return sorted(found)


def _per_rank(machine: Machine, request: Request, host: Host) -> tuple[Plan, list[set[int]]]:
    """The tiles of this rank and the memory near them. Then the memory nodes of each rank on this
    host, if they matter.
    """
    rank = host.rank
    if rank is None:
        raise InvalidError(
            "--tile per-rank: no launcher says which rank this is; start it by mpirun or srun, or "
            f"set LOCAL_RANK and LOCAL_WORLD_SIZE (looked for {', '.join(variables())})"
        )
    tiles = _tiles(machine, host)
    ranks = range(rank.size) if rank.size is not None else range(rank.local, rank.local + 1)
    shares = [_dealt(each, rank.size, tiles) for each in ranks]
    own = _dealt(rank.local, rank.size, tiles)
    made = _near(machine, request, host, own)
    cores = [core for tile in own for core in _cores(machine, host, tile)]
    at = rank.local - ranks.start
    cpus = _cut(cores, shares[:at].count(own), shares.count(own))
    notes = [*made.notes, _rank_note(rank, own)]
    if host.cpus != host.cpuset and not host.cpus.issuperset(cpus):
        notes.append(f"in place of the CPUs {ranges(host.cpus)} that it was bound to")
    if request.needs is not None and rank.size is None:
        notes.append("--needs is of this rank alone: its launcher does not say how many run here")
    made = replace(made, cpus=sorted(cpus), notes=notes)
    if request.needs is None:
        return made, []
    nodes = {share: set(_near(machine, request, host, share).nodes) for share in set(shares)}
    return made, [nodes[share] for share in shares]


def _near(machine: Machine, request: Request, host: Host, tiles: Iterable[int]) -> Plan:
    """The requested memory that belongs to each tile, otherwise all nodes at the least distance.

    All of them: if one of several equal nodes were chosen, it would be full while the others are
    empty.
    """
    text = next(iter(request.places().values()), "dram")
    nodes: list[int] = []
    notes: list[str] = []
    for tile in tiles:
        wish = nodes_of(machine, Placement.parse(machine, text), tile)
        allowed, left_out = _allowed(text, wish, host)
        notes += [note for note in left_out if note not in notes]
        far = machine.node(tile).distances
        least = min(far.get(node, _FARTHEST) for node in allowed)
        nearest = [node for node in allowed if machine.host_of(node) == tile] or [
            node for node in allowed if far.get(node, _FARTHEST) == least
        ]
        nodes += [node for node in nearest if node not in nodes]
    made = Plan(nodes=nodes, notes=notes)
    if request.on is not None:
        return replace(made, policy="bind")
    return _preferring(made, text, host)


def _rank_note(rank: Rank, tiles: Sequence[int]) -> str:
    of = f" of {rank.size}" if rank.size is not None else ""
    note = f"rank {rank.local}{of} ({rank.source}) is on the tile of node {ranges(tiles)}"
    if rank.whole_job:
        note += "; right if the whole job runs on this host, of which its launcher says nothing"
    return note


def _tiles(machine: Machine, host: Host) -> list[int]:
    """The nodes with a CPU on which this process may run."""
    tiles = [n for n in machine.nodes if n.byte_addressable and host.cpuset.intersection(n.cpus)]
    if not tiles:
        raise DeniedError(
            f"--tile per-rank: no node of this machine has one of the CPUs {ranges(host.cpuset)} "
            "that this process may run on"
        )
    return [tile.id for tile in tiles]


def _dealt(local: int, size: int | None, tiles: Sequence[int]) -> tuple[int, ...]:
    """The tiles of a rank, in order. If there are fewer ranks than tiles, a rank gets several; if
    there are more, ranks share a tile."""
    if size is None:
        return (tiles[local % len(tiles)],)
    begin = local * len(tiles) // size
    return tuple(tiles[begin : max((local + 1) * len(tiles) // size, begin + 1)])


def _cores(machine: Machine, host: Host, tile: int) -> list[list[int]]:
    """The hardware threads of each core of a tile that this process may run on."""
    core = {cpu: min(c.cpus) for c in machine.caches if c.level == 1 for cpu in c.cpus}
    found: dict[int, list[int]] = {}
    for cpu in sorted(host.cpuset.intersection(machine.node(tile).cpus)):
        found.setdefault(core.get(cpu, cpu), []).append(cpu)
    return list(found.values())


def _cut(cores: Sequence[list[int]], place: int, parts: int) -> list[int]:
    """The CPUs of one of equal parts. If there are enough cores, no core is in two parts."""
    pieces = cores if parts <= len(cores) else [[cpu] for core in cores for cpu in core]
    begin = place * len(pieces) // parts
    end = max((place + 1) * len(pieces) // parts, begin + 1)
    return [cpu for piece in pieces[begin:end] for cpu in piece]


def _fitting(made: Plan, request: Request, host: Host, ranks: Sequence[set[int]]) -> Plan:
    """Returns the plan if the needed memory fits, with a warning if it will spill. `ranks`: the
    nodes of each process that needs the same amount.
    """
    if made.policy is None:
        return made
    limits = {"its memory cgroup leaves": host.cgroup, "ulimit -v allows": host.address_space}
    if request.needs is None:
        free = sum(host.free.get(node, 0) for node in made.nodes)
        where = f"less than is free on node {ranges(made.nodes)}"
        notes = [
            f"{who} {format_bytes(limit)}, {where}"
            for who, limit in limits.items()
            if limit is not None and limit < free
        ]
        return replace(made, notes=[*made.notes, *notes])
    for who, limit in limits.items():
        if limit is not None and limit < request.needs:
            raise ExhaustedError(
                f"{who} {format_bytes(limit)}, less than the {format_bytes(request.needs)} needed; "
                "raise that limit, or need less"
            )
    warnings = []
    together = request.needs * len(ranks)
    if host.cgroup is not None and host.cgroup < together:
        warnings.append(
            f"its memory cgroup leaves {format_bytes(host.cgroup)}, less than the "
            f"{format_bytes(together)} needed by {len(ranks)} ranks if they share it"
        )
    told = _not_fitting(made, request.needs, host, ranks)
    if told and made.policy == "bind":
        raise ExhaustedError(f"{told}; free some, or let it spill with --prefer")
    if told:
        warnings.append(f"{told}; the rest goes to other nodes")
    return replace(made, warnings=warnings)


def _not_fitting(made: Plan, needs: int, host: Host, ranks: Sequence[set[int]]) -> str:
    """Why this process, with other ranks on the same memory, does not fit; empty if it does."""
    nodes = set(made.nodes)
    while True:
        count = sum(each <= nodes for each in ranks)
        free = {node: host.free.get(node, 0) for node in sorted(nodes)}
        if needs * count > sum(free.values()):
            by = f" by {count} ranks" if count > 1 else ""
            return (
                f"{format_bytes(needs * count)} needed{by} do not fit: {_free_text(free)}"
            )
        wider = nodes.union(*(each for each in ranks if each & nodes))
        if wider == nodes:
            return ""
        nodes = wider


def _free_text(free: Mapping[int, int]) -> str:
    """ "nodes 8-15 have 128 GiB free (16 GiB each)"."""
    whole = format_bytes(sum(free.values()))
    if len(free) == 1:
        return f"node {ranges(free)} has {whole} free"
    if len(set(free.values())) == 1:
        size = format_bytes(next(iter(free.values())))
        return f"nodes {ranges(free)} have {whole} free ({size} each)"
    each = _by_value({node: format_bytes(size) for node, size in free.items()}, "{}: {}")
    return f"nodes {ranges(free)} have {whole} free ({each})"


def _by_value(values: Mapping[int, object], form: str) -> str:
    """Values by node as text, with equal ones together: "0-7=3, 8=1"."""
    nodes: dict[object, list[int]] = {}
    for node, value in values.items():
        nodes.setdefault(value, []).append(node)
    return ", ".join(form.format(ranges(each), value) for value, each in nodes.items())
