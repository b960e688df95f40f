# SPDX-License-Identifier: Apache-2.0
"""A placement in the configuration of a container (config.json of the OCI runtime specification):
its linux.memoryPolicy, from version 1.3.0 on, and linux.resources.cpu. Pure.
"""

from __future__ import annotations

import re
from typing import Any

from headrace import InvalidError
from headrace._run.plan import Plan, numbers, ranges

#: The first version with linux.memoryPolicy.
VERSION = "1.3.0"
_MODES = {
    "bind": "MPOL_BIND",
    "preferred": "MPOL_PREFERRED",
    "preferred_many": "MPOL_PREFERRED_MANY",
    "interleave": "MPOL_INTERLEAVE",
    "weighted_interleave": "MPOL_WEIGHTED_INTERLEAVE",
}


def placed(config: Any, made: Plan) -> dict[str, Any]:
    """Returns the configuration with the placement added. Everything else stays, also CPUs or a
    policy that the plan does not set. InvalidError: no configuration of a container, or its cpuset
    does not allow the placement.
    """
    config = config if isinstance(config, dict) else {"ociVersion": None}
    version = config.get("ociVersion", VERSION)
    linux = config.get("linux", {})
    resources: Any = linux.get("resources", {}) if isinstance(linux, dict) else None
    cpu = resources.get("cpu", {}) if isinstance(resources, dict) else None
    if not isinstance(version, str) or not isinstance(cpu, dict):
        raise InvalidError("it is no config.json of a container (OCI runtime specification)")
    if made.cpus is not None:
        cpu = {**cpu, "cpus": ranges(made.cpus)}
        linux = {**linux, "resources": {**resources, "cpu": cpu}}
    if made.policy is not None:
        _check_memories(cpu.get("mems"), made)
        policy = {"mode": _MODES[made.policy], "nodes": ranges(made.nodes)}
        linux = {**linux, "memoryPolicy": policy}
    return {**config, "ociVersion": _at_least(version), "linux": linux}


def described(config: dict[str, Any]) -> str:
    """The placement in a configuration, and the runtimes that apply it."""
    linux = config["linux"]
    parts = []
    if (policy := linux.get("memoryPolicy")) is not None:
        parts.append(
            f"linux.memoryPolicy {policy['mode']} {policy.get('nodes', '')}; needs runc 1.4 or "
            "crun 1.24"
        )
    if (cpus := linux.get("resources", {}).get("cpu", {}).get("cpus")) is not None:
        parts.append(f"linux.resources.cpu.cpus {cpus}")
    return "; ".join(parts)


def _check_memories(allowed: Any, made: Plan) -> None:
    if not allowed:
        return
    missing = set(made.nodes) - set(numbers(str(allowed)))
    if missing:
        raise InvalidError(
            f"its linux.resources.cpu.mems allows nodes {allowed}, and the placement needs "
            f"{ranges(missing)} too; change it, or the placement"
        )


def _at_least(version: str) -> str:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < (1, 3):
        return VERSION
    return version
