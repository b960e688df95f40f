# SPDX-License-Identifier: Apache-2.0
"""headrace serve: one cache for the processes of a host."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

import headrace
from headrace import kvcache
from headrace._cli.interrupt import Interrupt
from headrace._format import say, size
from headrace._serving import wire
from headrace._serving.server import OneStore, Server

#: Seconds between two checks for a signal.
_LOOK_SECONDS = 0.2
#: Most seconds to write blocks to the folder at the end.
_CLOSE_SECONDS = 600.0
#: Bytes of all clients' stores in progress; further stores are refused.
_IN_FLIGHT = 1 << 30


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the cache, or the path of its socket.")
    ],
    memory: Annotated[
        Optional[str], typer.Option(metavar="SIZE", help="Bytes in memory, such as 8GiB.")
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="PLACEMENT", help="Kind of that memory, or its nodes.")
    ] = "dram",
    folder: Annotated[
        Optional[Path],
        typer.Option(metavar="DIR", help="Folder on SSD for blocks that leave the memory."),
    ] = None,
    budget: Annotated[
        Optional[str], typer.Option(metavar="SIZE", help="Bytes in the folder, such as 500GiB.")
    ] = None,
    other: Annotated[
        Literal["refuse", "discard"],
        typer.Option(help="Treatment of a folder that has other blocks."),
    ] = "refuse",
) -> int:
    """Serve one cache to the processes of this host.

    \b
    headrace serve kv --memory 8GiB
    headrace serve kv --memory 8GiB --folder /ssd/kv --budget 500GiB
    headrace serve kv --memory 64GiB --on cxl

    Engines of this user attach by the name: see docs/howto/serve.md. They read blocks in memory
    without a call to this process. The first one decides which blocks the cache has. Runs until
    Ctrl-C or SIGTERM, then writes blocks that are only in memory to the folder.
    """
    if memory is None and folder is None:
        raise headrace.InvalidError("nowhere to keep blocks; give --memory, --folder or both")
    if (folder is None) != (budget is None):
        raise headrace.InvalidError("--folder and --budget belong together; give both")
    tiers: list[kvcache.Memory | kvcache.Folder] = []
    if memory is not None:
        tiers.append(kvcache.Memory(on, _checked(size(memory))))
    if folder is not None and budget is not None:
        if not (folder.exists() or os.access(folder.absolute().parent, os.W_OK)):
            raise headrace.DeniedError(
                f"cannot make a folder in {folder.absolute().parent}; give another --folder"
            )
        tiers.append(kvcache.Folder(folder.absolute(), size(budget), other=other))
    storage = [] if folder is None else [folder.absolute().parent]
    machine = headrace.Machine.discover(storage=storage)
    headrace.Placement.parse(machine, on)
    store = OneStore(headrace.Mover(machine), tiers, in_flight=_IN_FLIGHT)
    with Interrupt() as interrupt:
        server = Server(name, store, machine)
        try:
            say(f"serving {name} at {wire.socket_of(name)}; Ctrl-C ends it")
            while not interrupt():
                time.sleep(_LOOK_SECONDS)
        finally:
            server.close()
            store.close(_CLOSE_SECONDS)
    return 0


def _checked(memory: int) -> int:
    """Checks the memory now, because it is allocated only for the first client."""
    if memory == 0:
        raise headrace.InvalidError("0 bytes keep no block; give more --memory, or leave it out")
    found = headrace.free_memory()
    free = sum(found.nodes.values())
    free = free if found.cgroup is None else min(free, found.cgroup)
    if memory > free:
        raise headrace.ExhaustedError(
            f"{headrace.format_bytes(memory)} of memory, and {headrace.format_bytes(free)} are "
            "free; give less --memory"
        )
    return memory
