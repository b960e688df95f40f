# SPDX-License-Identifier: Apache-2.0
"""Finds the hosts of a fleet that are slow or configured differently. Pure functions of one profile
per host. docs/design/workloads/histogram-and-mpi.md has the rules and their reasons.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace import Profile, Row, format_bytes

#: Fewest hosts to judge speeds: with two, either could be the odd one.
LEAST_HOSTS = 3
#: Smaller differences do not count, even if all other hosts are equal.
LEAST_SHARE = 0.1
#: Fewest rows by which an experiment as a whole is judged.
_LEAST_ROWS = 5
#: Chance of one false alarm in all judgements of a fleet, if noise is normal.
_FALSE_ALARM = 0.01
#: Capacities that differ by less are the same DIMMs: firmware reserves more or less for itself.
_SAME_CAPACITY = 0.02
#: Factor from MAD to standard deviation of a normal distribution. Then the factors by which the MAD
#: of 0, 1, ... values is too small (Croux and Rousseeuw 1992), as in src/profile/compare.cpp.
_SIGMA_OF_MAD = 1.4826
_FEW = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.2, 1.14, 1.129, 1.107)
#: Conditions that should be the same on all hosts.
_CONDITIONS = (
    "kernel", "governor", "transparent_hugepage", "numa_balancing", "microcode", "hypervisor",
    "clock", "cpu_limit", "memory_nodes", "headrace", "bios", "dimms", "hbm_mode",
    "nodes_per_socket", "prefetchers",
)  # fmt: skip


@dataclass(frozen=True)
class Outlier:
    """A row, or a whole experiment, in which a host differs from the others."""

    host: str
    what: str  # key of the row, or the experiment
    outcome: str  # slow, fast
    unit: str  # empty for an experiment
    value: float | None  # None for an experiment
    usual: float | None
    ratio: float  # of the value to the usual one; of an experiment > 1 is slower
    threshold: float  # the logarithm of the ratio counts from here


@dataclass(frozen=True)
class Setting:
    """A setting that should be the same on all hosts and is not."""

    name: str
    usual: str | None  # what more than half of the hosts have; None: nothing is
    hosts: dict[str, str]  # those that have something else


@dataclass(frozen=True)
class HostOutcome:
    host: str
    outcome: str  # same, slow, fast; unknown: nothing of it could be judged
    judged: int  # rows
    noisy: int  # rows not judged since something else ran
    slow: int  # rows and experiments
    fast: int
    settings: int  # in which it differs from most


@dataclass(frozen=True)
class Fleet:
    hosts: list[HostOutcome]
    rows: list[Outlier]
    experiments: list[Outlier]
    settings: list[Setting]

    @property
    def differs(self) -> bool:
        return bool(self.rows or self.experiments or self.settings)

    @property
    def inconclusive(self) -> bool:
        """No difference was found, but the speed of some host could not be judged."""
        return not self.differs and any(host.outcome == "unknown" for host in self.hosts)

    def asdict(self) -> dict[str, Any]:
        return {"differs": self.differs, **asdict(self, dict_factory=_document)}


def _document(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """A record of the JSON document, whose schema calls an outcome a verdict."""
    return {"verdict" if name == "outcome" else name: value for name, value in fields}


def examine(profiles: Mapping[str, Profile], least: float = LEAST_SHARE) -> Fleet:
    """Examines the profiles of hosts. It takes LEAST_HOSTS hosts to judge speeds, and two for
    settings."""
    rows = {host: _quiet(profile) for host, profile in profiles.items()}
    common = _common(rows)
    outliers = _outliers_of_rows(common, least)
    shifts = _outliers_of_experiments(common, least)
    settings = _settings({host: _facts(profile) for host, profile in profiles.items()})
    outcomes = [
        _outcome(host, profile, common, [*outliers, *shifts], settings)
        for host, profile in profiles.items()
    ]
    return Fleet(outcomes, outliers, shifts, settings)


def _quiet(profile: Profile) -> dict[str, Row]:
    return {
        row.key: row for row in profile.rows if _measured(row) and "noisy" not in row.flags
    }


def _measured(row: Row) -> bool:
    return row.median is not None and row.median > 0


#: Rows by key, then by host.
_Common = dict[str, dict[str, Row]]


def _common(rows: Mapping[str, Mapping[str, Row]]) -> _Common:
    """Rows that have a quiet value on enough hosts."""
    keys = dict.fromkeys(key for found in rows.values() for key in found)
    common = {key: {h: found[key] for h, found in rows.items() if key in found} for key in keys}
    return {key: found for key, found in common.items() if len(found) >= LEAST_HOSTS}


def _slowness(rows: Mapping[str, Row]) -> dict[str, float]:
    """For each host, the logarithm of its slowness relative to the median: positive is slower. A
    lower rate is slower; so is a higher time or slow-down.
    """
    logs = {host: math.log(row.median or 1) for host, row in rows.items()}
    middle = statistics.median(logs.values())
    sign = -1 if next(iter(rows.values())).unit == "B/s" else 1
    return {host: sign * (log - middle) for host, log in logs.items()}


def _sigma(values: Sequence[float]) -> float:
    """The standard deviation, estimated by the median absolute deviation, which one odd host does
    not change."""
    middle = statistics.median(values)
    count = len(values)
    few = _FEW[count] if count < len(_FEW) else count / (count - 0.8)
    return _SIGMA_OF_MAD * few * statistics.median(abs(value - middle) for value in values)


def _z(judgements: int) -> float:
    """The limit for one judgement, with Bonferroni's correction."""
    return statistics.NormalDist().inv_cdf(1 - _FALSE_ALARM / 2 / max(judgements, 1))


def _threshold(sigma: float, z: float, hosts: int, least: float) -> float:
    """The threshold for a logarithm. It allows for the uncertainty of the median that it is
    compared with."""
    return max(math.log1p(least), z * sigma * math.sqrt(1 + math.pi / 2 / hosts))


def _outliers_of_rows(common: _Common, least: float) -> list[Outlier]:
    slowness = {key: _slowness(rows) for key, rows in common.items()}
    z = _z(sum(map(len, slowness.values())))
    sigmas = {key: _sigma(list(found.values())) for key, found in slowness.items()}
    by_experiment: dict[str, list[float]] = {}
    for key, rows in common.items():
        by_experiment.setdefault(_experiment(rows), []).append(sigmas[key])
    found = []
    for key, rows in common.items():
        # Hosts that agree in one row by chance are not more certain there than in similar rows. The
        # mean of the estimates is used: with three hosts, their median is far too small.
        sigma = max(sigmas[key], statistics.fmean(by_experiment[_experiment(rows)]))
        threshold = _threshold(sigma, z, len(rows), least)
        usual = math.exp(statistics.median(math.log(row.median or 1) for row in rows.values()))
        for host, slower in slowness[key].items():
            if abs(slower) > threshold:
                value = rows[host].median or usual
                found.append(Outlier(host, key, _word(slower), rows[host].unit, value, usual,
                                     value / usual, threshold))  # fmt: skip
    return found


def _experiment(rows: Mapping[str, Row]) -> str:
    return next(iter(rows.values())).experiment


def _exp(logarithm: float) -> float:
    try:
        return math.exp(logarithm)
    except OverflowError:  # of numbers as far apart as there are
        return math.inf


def _word(slower: float) -> str:
    return "slow" if slower > 0 else "fast"


def _outliers_of_experiments(common: _Common, least: float) -> list[Outlier]:
    shifts: dict[str, dict[str, list[float]]] = {}
    for rows in common.values():
        for host, slower in _slowness(rows).items():
            shifts.setdefault(_experiment(rows), {}).setdefault(host, []).append(slower)
    middles = {
        name: {h: statistics.median(all_) for h, all_ in found.items() if len(all_) >= _LEAST_ROWS}
        for name, found in shifts.items()
    }
    judged = {name: found for name, found in middles.items() if len(found) >= LEAST_HOSTS}
    z = _z(sum(map(len, judged.values())))
    return [
        Outlier(host, name, _word(slower), "", None, None, _exp(slower), threshold)
        for name, found in judged.items()
        for threshold in [_threshold(_sigma(list(found.values())), z, len(found), least)]
        for host, slower in found.items()
        if abs(slower) > threshold
    ]


def _facts(profile: Profile) -> dict[str, str | int]:
    """Facts that should be equal on all hosts; numbers are capacities."""
    facts: dict[str, str | int] = {
        name: profile.conditions[name] for name in _CONDITIONS if name in profile.conditions
    }
    provenance = profile.machine.provenance
    if "cpu" in provenance:
        facts["CPU"] = str(provenance["cpu"])
    for node in profile.machine.nodes:
        if not node.byte_addressable:
            continue
        facts[f"kind of node {node.id}"] = node.kind
        facts[f"CPUs of node {node.id}"] = str(len(node.cpus))
        if node.capacity is not None:
            facts[f"capacity of node {node.id}"] = node.capacity
    return facts


def _settings(facts: Mapping[str, Mapping[str, str | int]]) -> list[Setting]:
    names = dict.fromkeys(name for found in facts.values() for name in found)
    return list(_differing({name: {h: f.get(name) for h, f in facts.items()} for name in names}))


def _differing(facts: Mapping[str, Mapping[str, str | int | None]]) -> Iterator[Setting]:
    for name, values in facts.items():
        # A host whose value could not be read, for lack of permission, does not count as different.
        texts = {h: text for h, text in _texts(values).items() if not text.startswith("unknown")}
        if not texts:
            continue
        value, count = Counter(texts.values()).most_common(1)[0]
        if count == len(texts):
            continue
        usual = value if 2 * count > len(texts) else None
        yield Setting(name, usual, {h: text for h, text in texts.items() if text != usual})


def _texts(values: Mapping[str, str | int | None]) -> dict[str, str]:
    """The values as texts. Numbers near their median are replaced by it."""
    numbers = [value for value in values.values() if isinstance(value, int)]
    middle = statistics.median_low(numbers) if numbers else 0

    def text(value: str | int | None) -> str:
        if value is None:
            return "none"
        if isinstance(value, str):
            return value
        same = abs(value - middle) <= _SAME_CAPACITY * middle
        return str(format_bytes(middle if same else value))

    return {host: text(value) for host, value in values.items()}


def _outcome(
    host: str,
    profile: Profile,
    common: _Common,
    outliers: Sequence[Outlier],
    settings: Sequence[Setting],
) -> HostOutcome:
    counts = Counter(each.outcome for each in outliers if each.host == host)
    judged = sum(host in rows for rows in common.values())
    noisy = sum(_measured(row) and "noisy" in row.flags for row in profile.rows)
    outcome = next((word for word in ("slow", "fast") if counts[word]), "same")
    return HostOutcome(
        host, outcome if judged else "unknown", judged, noisy, counts["slow"], counts["fast"],
        sum(host in each.hosts for each in settings if each.usual is not None),
    )  # fmt: skip
