# SPDX-License-Identifier: Apache-2.0
"""Options that describe a case of Unified Memory: of `bench um` and `advise um`."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

import headrace
from headrace._cli import parse
from headrace._model.um_cases import KERNELS, MIB, OPS, Case

_MOST_BYTES = 1 << 42

Memory = Annotated[
    str, typer.Option(metavar="WHICH", help="Memory of the array: managed, system, or node:N.")
]
AccessedBy = Annotated[
    bool,
    typer.Option("--accessed-by", help="Advise the driver that the GPU will access the array."),
]
ReadMostly = Annotated[
    bool, typer.Option("--read-mostly", help="Advise the driver that the array is mostly read.")
]
PreferredLocationCpu = Annotated[
    bool,
    typer.Option(
        "--preferred-location-cpu", help="Advise the driver to keep the array in host memory."
    ),
]
TouchOnHost = Annotated[
    bool, typer.Option("--touch-on-host", help="Write the array on the host before each run.")
]
Op = Annotated[str, typer.Option(metavar="WHAT", help="Access of the kernel: read or write.")]
Runs = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Number of kernel runs.")
]
PrefetchBlock = Annotated[
    Optional[str],
    typer.Option(
        metavar="SIZE", help="Size of the blocks to prefetch ahead of the kernel: 16MiB."
    ),
]
Streams = Annotated[
    int,
    typer.Option(metavar="NUMBER", min=1, max=64, help="Number of streams that prefetch in turn."),
]
Kernel = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Kernel: reprex (the original) or wide (far more loads in flight)."
    ),
]


def checked(case: Case) -> Case:
    """InvalidError: words that no case has, or advice for memory that takes none."""
    node = case.memory.removeprefix("node:")
    numbered = node != case.memory and node.isascii() and node.isdecimal()
    if case.memory not in ("managed", "system") and not numbered:
        raise headrace.InvalidError(f"--memory {case.memory}: give managed, system, or node:0")
    for option, word, there in (("--op", case.op, OPS), ("--kernel", case.kernel, KERNELS)):
        if word not in there:
            raise headrace.InvalidError(f"{option} {word}: give {' or '.join(there)}")
    advised = case.accessed_by or case.read_mostly or case.preferred_location_cpu
    if not case.managed and (advised or case.prefetch_block is not None):
        raise headrace.InvalidError(
            "advice and prefetching are for managed memory; leave them out, or leave out "
            f"--memory {case.memory}"
        )
    return case


def size(word: str, option: str = "--size") -> int:
    found = parse.size(word)
    if not MIB <= found <= _MOST_BYTES:
        raise headrace.InvalidError(f"{option} {word}: give 1MiB to 4TiB")
    return found


def block(word: str | None) -> int | None:
    return None if word is None else size(word, "--prefetch-block")
