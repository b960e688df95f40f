# SPDX-License-Identifier: Apache-2.0
"""Spark's event log: what each query shuffled, spilled and computed, by the group of its jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass
class Work:
    """The sum over the tasks of a query, failed ones included."""

    tasks: int = 0
    shuffle_bytes: int = 0  #: written for other tasks, compressed
    spilled_bytes: int = 0  #: written for want of memory, compressed
    spilled_memory_bytes: int = 0  #: what they took in memory
    cpu_seconds: float = 0.0
    gc_seconds: float = 0.0


def parse(lines: Iterable[str]) -> dict[str, Work]:
    """Work of each group. A log that was cut short has part of it; other lines are ignored."""
    groups: dict[int, str] = {}
    found: dict[str, Work] = {}
    for line in lines:
        try:
            event = json.loads(line)
            kind = event["Event"]
            if kind == "SparkListenerJobStart":
                group = (event.get("Properties") or {}).get("spark.jobGroup.id")
                if group is not None:
                    # A stage that several jobs share was run for the first.
                    for stage in event["Stage IDs"]:
                        groups.setdefault(stage, group)
            elif kind == "SparkListenerTaskEnd" and event["Stage ID"] in groups:
                work = found.setdefault(groups[event["Stage ID"]], Work())
                _add(work, event.get("Task Metrics") or {})
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
    return found


def _add(work: Work, metrics: dict[str, Any]) -> None:
    shuffle = metrics.get("Shuffle Write Metrics") or {}
    work.tasks += 1
    work.shuffle_bytes += int(shuffle.get("Shuffle Bytes Written", 0))
    work.spilled_bytes += int(metrics.get("Disk Bytes Spilled", 0))
    work.spilled_memory_bytes += int(metrics.get("Memory Bytes Spilled", 0))
    work.cpu_seconds += int(metrics.get("Executor CPU Time", 0)) * 1e-9
    work.gc_seconds += int(metrics.get("JVM GC Time", 0)) * 1e-3
