# SPDX-License-Identifier: Apache-2.0
"""The ranks of an MPI job. A process without a job is a single rank, and needs no mpi4py."""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import headrace
from headrace._errors import SaidElsewhere, kind_of
from headrace._format import say
from headrace._run.ranks import launched

T = TypeVar("T")

#: The family of MPI for the wheel of mpi4py, which supports two. The launcher's variables show it.
_FAMILIES = {"OMPI_COMM_WORLD_SIZE": "openmpi", "MPI_LOCALNRANKS": "mpich"}
_LOOK_EVERY_SECONDS = 0.05


class World:
    """All ranks of the job. All ranks call the same methods in the same order."""

    def __init__(self, comm: Any = None) -> None:
        self._comm = comm
        self.rank: int = comm.Get_rank() if comm else 0
        self.size: int = comm.Get_size() if comm else 1
        self.failed: headrace.Error | None = None  # known to all ranks

    def barrier(self) -> None:
        if self._comm:
            self._comm.Barrier()

    def meet(self) -> None:
        """A barrier for minutes of waiting: MPI's own barrier spins, and would disturb ranks that
        measure."""
        if self._comm:
            request = self._comm.Ibarrier()
            while not request.Test():
                time.sleep(_LOOK_EVERY_SECONDS)

    def all(self, work: Callable[[], T]) -> list[T]:
        """Runs `work` on each rank, and returns all results in order of ranks, on all ranks. If it
        raises an Error on any, all ranks raise the error of the first such rank.
        """
        if self._comm is None:
            return [work()]
        try:
            mine: tuple[str, Any] = "", work()
        except headrace.Error as error:
            mine = error.code, str(error)
        found = self._comm.allgather(mine)
        for rank, (code, told) in enumerate(found):
            if code:
                self.failed = kind_of(code)(f"rank {rank}: {told}")
                raise self.failed
        return [value for _, value in found]

    def gather(self, value: T) -> list[T]:
        """Returns the values of all ranks on rank 0, and an empty list on the others."""
        if self._comm is None:
            return [value]
        found: list[T] | None = self._comm.gather(value)
        return found or []

    def abort(self, code: int) -> None:
        if self._comm:
            self._comm.Abort(code)


@contextmanager
def job() -> Iterator[World]:
    """The job of this process. Rank 0 alone prints an error that all ranks know. Any other error
    ends all ranks, since they would wait for this one.
    """
    world = _join(os.environ)
    try:
        yield world
    except BaseException as error:
        if world.size == 1:
            raise
        if error is world.failed:
            if world.rank > 0:
                raise SaidElsewhere(world.failed.exit_code) from None
            raise
        told = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        say(f"rank {world.rank} on {socket.gethostname()}: {told}")
        interrupted = isinstance(error, KeyboardInterrupt)
        world.abort((headrace.CancelledError if interrupted else headrace.Error).exit_code)
        raise


def _join(environment: Mapping[str, str]) -> World:
    """AbsentError: there are several ranks, but no mpi4py to join them."""
    size, rank = launched(environment)
    if size == 1:
        return World()
    for variable, family in _FAMILIES.items():
        if variable in environment:
            os.environ.setdefault("MPI4PY_MPIABI", family)
            break
    try:
        mpi = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        if rank > 0:
            raise SaidElsewhere(headrace.AbsentError.exit_code) from None
        raise headrace.AbsentError(_missing(size, error)) from None
    world = World(mpi.COMM_WORLD)
    if world.size == size:
        return world
    if rank > 0:
        raise SaidElsewhere(headrace.UnsupportedError.exit_code)
    library = mpi.Get_library_version().split(",")[0].split("\n")[0]
    raise headrace.UnsupportedError(
        f"the launcher started {size} ranks, but mpi4py uses {library}, which knows of "
        f"{world.size}; use its launcher, or install mpi4py for yours "
        "(pip install --no-binary mpi4py mpi4py)"
    )


def _missing(size: int, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{size} ranks were started, but mpi4py is missing; pip install mpi4py"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return (
        f"mpi4py finds no MPI library ({reason}); load the module of the MPI whose mpirun this is, "
        "or set MPI4PY_MPIABI (openmpi, mpich) and LD_LIBRARY_PATH"
    )
