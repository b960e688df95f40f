# SPDX-License-Identifier: Apache-2.0
"""A machine with its HBM as a cache before main memory, made from the same in flat mode."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]


def in_cache_mode(machine: Mapping[str, Any]) -> Document | None:
    """Each HBM node becomes the memory-side cache of one DRAM node of its socket. None: the machine
    has no HBM, or no DRAM for each.
    """
    pairs = _pairs(machine)
    if not pairs:
        return None
    made = copy.deepcopy(dict(machine))
    caches = {node["id"]: node for node in made["nodes"] if node["id"] in pairs}
    made["nodes"] = [node for node in made["nodes"] if node["id"] not in pairs]
    for node in made["nodes"]:
        for cache, memory in pairs.items():
            if memory == node["id"]:
                node["memory_side_cache"] = {
                    "size_bytes": caches[cache]["capacity_bytes"], "line_bytes": 64,
                    "indexing": "direct-mapped", "write_policy": "write-back",
                }  # fmt: skip
    for link in made["links"]:
        for side in "ab":
            link[side] = [node for node in link[side] if node not in pairs]
    made["copy_rates"] = [
        rate for rate in made["copy_rates"] if rate["from"] not in pairs and rate["to"] not in pairs
    ]
    made.pop("rows", None)
    model = made.get("model") or {}
    for ceiling in model.get("ceilings", ()):
        _ceiling(ceiling, pairs)
    for latency in model.get("latencies", ()):
        if any(node in pairs for node in latency["to"]):
            latency["to"] = [pairs[node] for node in latency["to"]]
            latency["side_cache"] = True
    return made


def _pairs(machine: Mapping[str, Any]) -> dict[int, int]:
    """DRAM by HBM, in the order of their numbers within each socket."""
    pairs: dict[int, int] = {}
    for socket in {node.get("socket") for node in machine["nodes"]}:
        fast, slow = (
            sorted(
                node["id"]
                for node in machine["nodes"]
                if node["kind"] == kind and node.get("socket") == socket
            )
            for kind in ("hbm", "dram")
        )
        if len(fast) != len(slow):
            return {}
        pairs |= dict(zip(fast, slow, strict=True))
    return pairs


def _ceiling(ceiling: Document, pairs: Mapping[int, int]) -> None:
    """A ceiling of HBM alone counts the cache's traffic; of any other HBM leaves the list."""
    for path in [ceiling, *ceiling.get("paths", ())]:
        for key in ("from", "to", "each"):
            if key not in path:
                continue
            lists = path[key] if key == "each" else [path[key]]
            if all(node in pairs for nodes in lists for node in nodes):
                lists = [[pairs[node] for node in nodes] for nodes in lists]
                ceiling["side_cache"] = True
            else:
                lists = [[node for node in nodes if node not in pairs] for nodes in lists]
            path[key] = lists if key == "each" else lists[0]
