# SPDX-License-Identifier: Apache-2.0
"""The rank of this process in a parallel job, from its launcher's environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace import InvalidError


@dataclass(frozen=True)
class Rank:
    """One process among those of its job on this host."""

    local: int
    size: int | None  # how many they are; None where the launcher does not say
    source: str  # the variable
    whole_job: bool = False  # the launcher counts over all hosts


#: Variables by launcher. Launchers that run inside a batch job come before the batch system, whose
#: variables are inherited by all processes.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),  # Open MPI
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH and Intel MPI: Hydra
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),  # MVAPICH2
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),  # HPE Cray
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),  # Cray PMI
    ("PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"),
)
#: Read last: variables of torchrun and programs that imitate it, then ranks of the whole job.
_OTHERS = (("LOCAL_RANK", "LOCAL_WORLD_SIZE"),)
_WHOLE_JOB = (("PMI_RANK", "PMI_SIZE"), ("PMIX_RANK", "PMIX_SIZE"))
#: Variables of launchers for the whole job: number of ranks, and this rank.
_JOBS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),  # MVAPICH2
    ("PMI_SIZE", "PMI_RANK"),  # MPICH, Intel MPI, Cray
    ("PMIX_SIZE", "PMIX_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),  # srun with PMIx; in a script of sbatch not set
)
_TASKS = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


def launched(environment: Mapping[str, str]) -> tuple[int, int]:
    """The number of ranks, and the number of this one; (1, 0) without a launcher."""
    for size, rank in _JOBS:
        if environment.get(size, "").isdecimal() and environment.get(rank, "").isdecimal():
            return int(environment[size]), int(environment[rank])
    return 1, 0


def local_rank(environment: Mapping[str, str]) -> Rank | None:
    """The rank of this process on its host; None: no launcher sets one."""
    return (
        _first(environment, _LAUNCHERS)
        or _slurm(environment)
        or _first(environment, _OTHERS)
        or _first(environment, _WHOLE_JOB, whole_job=True)
    )


def variables() -> list[str]:
    """All variables in the order in which they are read."""
    return [
        *(rank for rank, _ in _LAUNCHERS), "SLURM_LOCALID",
        *(rank for rank, _ in (*_OTHERS, *_WHOLE_JOB)),
    ]  # fmt: skip


def _first(
    environment: Mapping[str, str], names: tuple[tuple[str, str], ...], whole_job: bool = False
) -> Rank | None:
    for name, size_name in names:
        if environment.get(name):
            size = _number(environment, size_name) if environment.get(size_name) else None
            return _checked(Rank(_number(environment, name), size, name, whole_job))
    return None


def _slurm(environment: Mapping[str, str]) -> Rank | None:
    """The rank in a step of Slurm. Elsewhere None: scripts of sbatch have a SLURM_LOCALID of 0 too,
    and pass it on."""
    if not environment.get("SLURM_LOCALID"):
        return None
    if not (environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")):
        return None
    size = None
    if environment.get("SLURM_STEP_TASKS_PER_NODE"):
        size = _tasks_here(environment)
    elif environment.get("SLURM_NTASKS_PER_NODE"):
        size = _number(environment, "SLURM_NTASKS_PER_NODE")
    return _checked(Rank(_number(environment, "SLURM_LOCALID"), size, "SLURM_LOCALID"))


def _tasks_here(environment: Mapping[str, str]) -> int | None:
    """This host's number of ranks, from a list of all hosts such as "4(x2),1"."""
    left = _number(environment, "SLURM_NODEID") if environment.get("SLURM_NODEID") else 0
    for part in environment["SLURM_STEP_TASKS_PER_NODE"].split(","):
        match = _TASKS.fullmatch(part.strip())
        if match is None:
            return None
        hosts = int(match[2] or 1)
        if left < hosts:
            return int(match[1])
        left -= hosts
    return None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name].strip()
    if not re.fullmatch("[0-9]{1,9}", text):
        raise InvalidError(f"{name}='{text[:40]}' is no number; it is set by the launcher")
    return int(text)


def _checked(rank: Rank) -> Rank:
    if rank.size is not None and rank.local >= rank.size:
        raise InvalidError(
            f"{rank.source}={rank.local}, but its launcher says that {rank.size} run here; "
            "is one of the two variables left over from another job?"
        )
    return rank
