# SPDX-License-Identifier: Apache-2.0
"""The host that doctor looks at, and one line of what it finds.

Everything is read below `root`, so that tests can show another host; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace._core import HostFiles


@dataclass(frozen=True)
class Finding:
    feature: str
    state: str
    why: str
    remedy: str | None = None

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Host:
    """The parts of the host that the probes read."""

    machine: headrace.Machine
    data: Path
    root: Path = Path("/")

    @property
    def is_this(self) -> bool:
        """Whether this is the running host. Only then does the environment say where something is.
        """
        return self.root == Path("/")

    @property
    def files(self) -> HostFiles:
        return HostFiles(self.root)

    def read(self, path: str) -> str | None:
        """The text of a file of /proc or /sys; None if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def read_bytes(self, path: str) -> bytes:
        """The file's bytes. OSError: it cannot be read."""
        return (self.root / path).read_bytes()

    def find(self, pattern: str) -> list[Path]:
        return sorted(self.root.glob(pattern))

    def texts(self, pattern: str) -> dict[str, str]:
        """The files that can be read, by their path below the root."""
        paths = [str(path.relative_to(self.root)) for path in self.find(pattern)]
        found = {path: self.read(path) for path in paths}
        return {path: text for path, text in found.items() if text is not None}

    def allowed(self, what: str) -> list[int]:
        """The "Cpus" or "Mems" of this process; none if the kernel does not say."""
        for line in (self.read("proc/self/status") or "").splitlines():
            name, _, ranges = line.partition(":")
            if name == f"{what}_allowed_list" and ranges.strip():
                return list(ids(ranges))
        return []

    def cpuinfo(self, name: str) -> str:
        """A line of the first CPU; "" where there is none."""
        for line in (self.read("proc/cpuinfo") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
        return ""

    @property
    def is_guest(self) -> bool:
        """Whether the host is a guest: then a hypervisor decides on clocks, firmware and DIMMs."""
        # Firmware tells it if CPUs have no flag for it.
        told = self.is_this and "hypervisor" in self.machine.provenance
        return told or "hypervisor" in self.cpuinfo("flags").split()


def ids(ranges: str) -> Iterator[int]:
    """The numbers in a list of the kernel, such as 0-3,8."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


Question = Callable[[Host], Iterable[Finding]]


def ask(questions: Sequence[Question], host: Host, failed: str) -> list[Finding]:
    """The findings of all questions. A question that fails is a finding too, with the state
    `failed`."""
    findings: list[Finding] = []
    for question in questions:
        try:
            findings.extend(question(host))
        except (OSError, ValueError, headrace.Error) as error:
            name = question.__name__.removeprefix("_").replace("_", " ")
            findings.append(Finding(name, failed, f"could not be examined: {error}"))
    return findings
