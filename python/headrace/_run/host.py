# SPDX-License-Identifier: Apache-2.0
"""Resources of this host for a process: free memory, CPUs, the kernel's weights and policies."""

from __future__ import annotations

import os
import resource

import headrace
from headrace._core import HostFiles
from headrace._run.plan import Host, Request
from headrace._run.ranks import Rank


def this_host(machine: headrace.Machine, request: Request, rank: Rank | None = None) -> Host:
    """The resources that this process may use."""
    cpus = frozenset(os.sched_getaffinity(0))
    free = headrace.free_memory()
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return Host(
        free=free.nodes,
        cpus=cpus,
        cpuset=_cpuset(machine, cpus) if request.per_rank else cpus,
        cgroup=free.cgroup,
        address_space=None if limit == resource.RLIM_INFINITY else limit,
        table=HostFiles().weights() or None,
        preferred_many=_prefers_many(list(free.nodes)),
        rank=rank,
    )


def _cpuset(machine: headrace.Machine, mask: frozenset[int]) -> frozenset[int]:
    """All CPUs of the cpuset: the kernel reduces a mask of all CPUs to these. The thread's mask is
    restored."""
    try:
        os.sched_setaffinity(0, {cpu for node in machine.nodes for cpu in node.cpus})
        widest = frozenset(os.sched_getaffinity(0))
        os.sched_setaffinity(0, mask)
    except OSError:
        return mask
    return widest


def _prefers_many(nodes: list[int]) -> bool:
    """Whether the kernel can prefer several nodes. This is tried, since distributions add it to
    older kernels. The memory policy is kept."""
    import threading

    known = True

    def attempt() -> None:
        nonlocal known
        try:
            headrace.set_process_policy("preferred_many", nodes)
        except headrace.UnsupportedError:
            known = False
        except headrace.Error:
            pass  # said when it is set

    thread = threading.Thread(target=attempt)  # policies belong to threads
    try:
        thread.start()
    except RuntimeError:  # no more threads; said when it is set, too
        return True
    thread.join()
    return known
