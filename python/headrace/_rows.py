"""Rows that hold what those of their experiment hold: a profile that another program wrote may lack
any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace import _core

_NODES = {name: "node" for name in ("cpu_node", "memory_node")}
_ENDS = {"from": "node", "to": "node"}
#: By experiment: its parameters and what kind of value each has; "?": or none, in older profiles.
_PARAMETERS: dict[str, dict[str, str]] = {
    "latency": _NODES | {"bytes": "count", "window": "window", "pages": "word"},
    "bandwidth": _NODES | {"mix": "mix"},
    "loaded": _NODES | {"traffic_cpu_node": "node", "traffic_memory_node": "node", "mix": "mix",
                        "delay_ns": "count"},
    "stream": {"kernel": "word", "a": "node", "b": "node", "c": "node"},
    "copy": _ENDS | {"engine": "word", "bytes": "count", "threads": "any", "state": "word"},
    "migrate": _ENDS | {"method": "word", "pages": "word", "batch": "any", "threads": "count?"},
    "storage": {"node": "node", "operation": "operation", "by": "word", "io": "word",
                "bytes": "count", "depth": "count"},
    "interference": {"victim": "word", "aggressor": "word", "cpu_node": "node",
                     "aggressor_cpu_node": "node", "aggressors": "count"},
    "dsa": _ENDS | {"part": "word", "method": "word", "bytes": "count", "threads": "count",
                    "at_once": "count", "window": "count", "route": "word", "engines": "word",
                    "queue": "word", "group_engines": "any", "beside": "word"},
}  # fmt: skip
#: Details that are always there.
_DETAILS: dict[str, tuple[str, ...]] = {
    "loaded": ("bandwidth",),
    "storage": ("iops", "p50_ns", "p99_ns"),
    "interference": ("alone", "together", "total"),
}
_MIX = re.compile("(nt_)?(read|write|copy|[1-9][0-9]?:[1-9][0-9]?)")


def complete(rows: Iterable[_core.Row]) -> list[_core.Row]:
    """Those that hold it; all of an experiment that is not known here."""
    return [row for row in rows if is_complete(row)]


def is_complete(row: _core.Row) -> bool:
    parameters = _PARAMETERS.get(row.experiment, {})
    if not all(_is(row.parameters.get(name), kind) for name, kind in parameters.items()):
        return False
    return row.median is None or row.details.keys() >= set(_DETAILS.get(row.experiment, ()))


def is_mix(value: int | str | None) -> bool:
    """ "read", "2:1", "nt_copy"."""
    return isinstance(value, str) and _MIX.fullmatch(value) is not None


def _is(value: int | str | None, kind: str) -> bool:
    if kind.endswith("?"):
        return value is None or _is(value, kind.removesuffix("?"))
    if kind == "count":
        return isinstance(value, int) and value >= 0
    if kind == "window":
        return value == "all" or _is(value, "count")
    if kind == "operation":
        return value in ("read", "write")
    if kind == "word":
        return isinstance(value, str)
    if kind == "mix":
        return is_mix(value)
    return value is not None
