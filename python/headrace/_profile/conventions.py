# SPDX-License-Identifier: Apache-2.0
"""Converts numbers to the conventions of other tools, so that people can compare them.

Pure arithmetic on rows. Headrace counts payload: bytes that a program reads, writes or copies, each
once. Other tools count both sides of a copy, or traffic on the bus, in their own units. Nothing is
measured here; a tool may also move the bytes faster or slower than Headrace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import headrace
from headrace._profile.rows import is_mix
from headrace._selection import MLC_TRAFFIC

MB, MIB = 1e6, float(1 << 20)
#: Bytes on the bus for each byte that STREAM counts: its stores fetch their line first.
_STREAM_BUS = {
    "copy": 3 / 2, "scale": 3 / 2, "add": 4 / 3, "triad": 4 / 3,
    "nt_copy": 1, "nt_scale": 1, "nt_add": 1, "nt_triad": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """Lines read and written per group of a mix of the experiments bandwidth and loaded."""

    reads: int
    writes: int
    non_temporal: bool
    copies: bool

    @staticmethod
    def of(mix: str) -> Traffic:
        """ "nt_2:1", "write", "copy"; as in src/measure/instruments/traffic/traffic.h."""
        words = mix.removeprefix("nt_")
        named = {"read": (1, 0), "write": (0, 1), "copy": (1, 1)}
        reads, writes = named[words] if words in named else map(int, words.split(":"))
        return Traffic(reads, writes, words != mix, words == "copy")

    @property
    def read_share(self) -> float:
        """Share of reads among the lines that the program reads and writes."""
        return self.reads / (self.reads + self.writes)

    @property
    def both_sides(self) -> float:
        """Bytes read and written per byte of payload."""
        return 2 if self.copies else 1

    @property
    def bus(self) -> float:
        """Bytes on the bus per byte of payload. A plain store counts twice, since it fetches the
        line first; a non-temporal store counts once."""
        lines = self.reads + self.writes * (1 if self.non_temporal else 2)
        return self.both_sides * lines / (self.reads + self.writes)


#: Mixes with the reads and writes of a STREAM kernel. Our 1:1 has those of STREAM's copy too, but
#: stores other bytes than it reads; so only the mix that copies has the name.
_STREAM_KERNELS = {
    "copy": "copy", "2:1": "triad", "nt_copy": "nt_copy", "nt_2:1": "nt_triad",
}  # fmt: skip


def elsewhere(mix: int | str | None) -> str:
    """Names of a mix in other tools ("W3, STREAM triad"). Empty: no name, or the same name."""
    own = str(mix)
    traffic, kernel = MLC_TRAFFIC.get(own, ""), _STREAM_KERNELS.get(own)
    return ", ".join(filter(None, [traffic.strip("R"), kernel and f"STREAM {kernel}"]))


def called(mix: int | str | None) -> str:
    """ "2:1 (W3, STREAM triad)", "7:3"."""
    others = elsewhere(mix)
    return f"{mix} ({others})" if others else str(mix)


def _headrace(row: headrace.Row) -> float | None:
    return 1


def _stream(row: headrace.Row) -> float | None:
    if row.experiment == "bandwidth":
        return Traffic.of(str(row.parameters["mix"])).both_sides
    return {"stream": 1.0, "copy": 2.0}.get(row.experiment)


def _mlc(row: headrace.Row) -> float | None:
    if row.experiment == "bandwidth":
        return Traffic.of(str(row.parameters["mix"])).bus
    if row.experiment == "stream":
        return _STREAM_BUS.get(str(row.parameters.get("kernel")))
    return None  # whether the stores of a copy fetch their lines depends on its engine and size


def _mbw(row: headrace.Row) -> float | None:
    if row.experiment == "bandwidth":
        return 1 if Traffic.of(str(row.parameters["mix"])).copies else None
    if row.experiment == "stream":
        return 1 / 2 if row.parameters.get("kernel") in {"copy", "nt_copy"} else None
    return 1 if row.experiment == "copy" else None


@dataclass(frozen=True)
class Convention:
    """The convention of a tool. `factor`: its number relative to a row's value; None if the tool
    does not measure this."""

    counts: str
    unit: str
    unit_bytes: float
    factor: Callable[[headrace.Row], float | None]

    def number(self, row: headrace.Row) -> float | None:
        """The row's median as the tool would print it; None if the row is no rate, or the tool does
        not measure it."""
        if row.unit != "B/s" or row.median is None:
            return None
        if row.experiment == "bandwidth" and not is_mix(row.parameters.get("mix")):
            return None
        factor = self.factor(row)
        return None if factor is None else row.median * factor / self.unit_bytes


CONVENTIONS: dict[str, Convention] = {
    "headrace": Convention(
        "payload: bytes read or written once, copied bytes once; STREAM's kernels as STREAM",
        "MB/s", MB, _headrace,
    ),
    "stream": Convention(
        "bytes read plus bytes written, so copied bytes twice; no write-allocate",
        "MB/s", MB, _stream,
    ),
    "likwid": Convention(
        "as likwid-bench: bytes loaded plus bytes stored, so copied bytes twice; no write-allocate",
        "MB/s", MB, _stream,
    ),
    "mlc": Convention(
        "what goes over the bus: reads, writes, and the reads that stores cause (write-allocate)",
        "MB/s", MB, _mlc,
    ),
    "mbw": Convention("copied bytes once, of copies alone", "MiB/s", MIB, _mbw),
}  # fmt: skip


def find(name: str) -> Convention:
    if name not in CONVENTIONS:
        raise headrace.InvalidError(f"no convention '{name}'; there are {', '.join(CONVENTIONS)}")
    return CONVENTIONS[name]
