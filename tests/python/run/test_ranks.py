# SPDX-License-Identifier: Apache-2.0
"""Which rank a launcher says this is: the variables of each, as they set them."""

from __future__ import annotations

import pytest

import headrace
from headrace._run.ranks import local_rank, variables

STEP = {"SLURM_STEP_ID": "0", "SLURM_LOCALID": "3", "SLURM_NODEID": "2"}

TABLE: list[tuple[dict[str, str], tuple[int, int | None] | None]] = [
    ({}, None),
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "5", "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
      "OMPI_COMM_WORLD_RANK": "13", "PMIX_RANK": "13"}, (5, 8)),
    ({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_RANK": "4", "PMI_SIZE": "5"}, (1, 2)),
    ({"MV2_COMM_WORLD_LOCAL_RANK": "0", "MV2_COMM_WORLD_LOCAL_SIZE": "1"}, (0, 1)),
    ({"PALS_LOCAL_RANKID": "7", "PALS_LOCAL_SIZE": "8", "PMI_RANK": "31"}, (7, 8)),
    ({"PMI_LOCAL_RANK": "2", "PMI_LOCAL_SIZE": "4"}, (2, 4)),
    ({"PMIX_LOCAL_RANK": "2"}, (2, None)),
    ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "8(x2),4"}, (3, 4)),
    ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "8(x3)", "SLURM_NTASKS_PER_NODE": "9"}, (3, 8)),
    ({**STEP, "SLURM_NTASKS_PER_NODE": "6"}, (3, 6)),
    ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "strange"}, (3, None)),
    ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "8"}, (3, None)),  # says nothing of the third host
    # mpirun in a job of Slurm, whose own variables are those of the script.
    ({**STEP, "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, (1, 2)),
    ({"SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "8"}, None),  # a script of sbatch, no step
    ({"SLURM_LOCALID": "0", "PMI_RANK": "3", "PMI_SIZE": "8"}, (3, 8)),
    ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, (1, 4)),
    ({"PMIX_RANK": "3"}, (3, None)),
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "", "PMI_RANK": "0"}, (0, None)),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "expected"), TABLE)
def test_each_launcher(
    environment: dict[str, str], expected: tuple[int, int | None] | None
) -> None:
    rank = local_rank(environment)
    assert (rank and (rank.local, rank.size)) == expected
    if rank is not None:
        assert rank.source in variables()
        assert rank.whole_job == (rank.source in ("PMI_RANK", "PMIX_RANK"))


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"MPI_LOCALRANKID": "one"}, "MPI_LOCALRANKID='one' is no number"),
        ({"MPI_LOCALRANKID": "-1"}, "is no number"),
        ({"LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, "LOCAL_RANK=4, but"),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "0"}, "0 run here"),
    ],
)
def test_what_no_launcher_sets(environment: dict[str, str], told: str) -> None:
    with pytest.raises(headrace.InvalidError, match=told):
        local_rank(environment)


