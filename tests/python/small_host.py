# SPDX-License-Identifier: Apache-2.0
"""This host as if it had little memory and small caches: measured points then use buffers of a few
MiB. The host's own caches would need hundreds, whose allocation takes most of a test's time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace

MEMORY, CACHE = 128 << 20, 1 << 20

#: For commands that are started: they, and what they launch, measure such a host.
ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parent / "on_small_host")}


def small(machine: headrace.Machine) -> headrace.Machine:
    document = json.loads(machine.to_json())
    for node in document["nodes"]:
        if node["cpus"]:
            node["capacity_bytes"] = min(node["capacity_bytes"], MEMORY)
    for cache in document["caches"]:
        cache["size_bytes"] = min(cache["size_bytes"], CACHE)
    return headrace.Machine.from_json(json.dumps(document))


def shrink() -> None:
    """From here on this process finds such a host."""
    found: Any = headrace.Machine
    discover = found.discover
    found.discover = staticmethod(
        lambda **options: discover(**options) if options.get("hwloc_xml")
        else small(discover(**options))
    )  # fmt: skip
