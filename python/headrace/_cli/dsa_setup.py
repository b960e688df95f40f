# SPDX-License-Identifier: Apache-2.0
"""headrace dsa setup: prints commands or a configuration file for accel-config.

Nothing is changed: that takes root, and ends other programs' transfers in flight.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace._cli import output
from headrace._doctor.setup_steps import DEVICES, Device, devices_in

#: Limits of a device of the first generation: descriptors in all queues together, engines, and
#: queues (accel-config list of a Sapphire Rapids device).
_QUEUE_ENTRIES, _MOST_ENGINES, _MOST_QUEUES = 128, 4, 8
_MAX_TRANSFER, _MAX_BATCH = 1 << 31, 1024
#: Layout of the thesis: a device on each node of a Xeon Max in SNC-4.
_THESIS = "8n1d1e1w"
_LAYOUT = re.compile(r"([1-9]\d?)n([1-9]\d?)d([1-9]\d?)e([1-9]\d?)w")


@dataclass(frozen=True)
class Layout:
    """Number of devices, engines and queues. `numbers`: the devices' numbers. On this host they may
    have gaps; elsewhere they are 0, 1, 2 ...
    """

    nodes: int
    devices: int  # of a node
    engines: int  # of a device
    queues: int  # of a device
    mode: str  # shared or dedicated
    numbers: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str, mode: str, present: Sequence[Device] = ()) -> Layout:
        """ Parses "8n1d1e1w". InvalidError: another form, or more than a device has."""
        match = _LAYOUT.fullmatch(text)
        if match is None:
            raise headrace.InvalidError(
                f"'{text}' is no layout; write nodes, devices per node, engines and queues per "
                "device: 8n1d1e1w"
            )
        if mode not in ("shared", "dedicated"):
            raise headrace.InvalidError(f"no mode '{mode}'; there are shared and dedicated")
        nodes, devices, engines, queues = (int(number) for number in match.groups())
        layout = cls(nodes, devices, engines, queues, mode)
        if layout.engines > _MOST_ENGINES or layout.queues > _MOST_QUEUES:
            raise headrace.InvalidError(
                f"a device has {_MOST_ENGINES} engines and {_MOST_QUEUES} work queues; ask for "
                "fewer"
            )
        return replace(layout, numbers=_chosen(layout, present)) if present else layout

    @property
    def text(self) -> str:
        return f"{self.nodes}n{self.devices}d{self.engines}e{self.queues}w"

    @property
    def device_numbers(self) -> Sequence[int]:
        return self.numbers or range(self.nodes * self.devices)

    def queue(self, device: int, index: int) -> dict[str, Any]:
        """A work queue in the format of accel-config's file. All queues share one group."""
        size = _QUEUE_ENTRIES // self.queues
        return {
            "dev": f"wq{device}.{index}", "mode": self.mode, "size": size, "group_id": 0,
            "priority": 10, "block_on_fault": 1, "max_batch_size": _MAX_BATCH,
            "max_transfer_size": _MAX_TRANSFER, "type": "user", "driver_name": "user",
            "name": f"headrace{index}", "threshold": size if self.mode == "shared" else 0,
        }  # fmt: skip


def _chosen(layout: Layout, present: Sequence[Device]) -> tuple[int, ...]:
    """The first devices of the first nodes that have enough of them."""
    by_node: dict[int, list[int]] = {}
    for device in present:
        by_node.setdefault(device.node, []).append(device.number)
    fitting = [numbers for numbers in by_node.values() if len(numbers) >= layout.devices]
    if len(fitting) < layout.nodes:
        there = ", ".join(f"{device.name} on node {device.node}" for device in present)
        raise headrace.InvalidError(
            f"{layout.text} wants {layout.devices} per node on {layout.nodes} nodes; this host has "
            f"{there}"
        )
    return tuple(n for numbers in fitting[: layout.nodes] for n in numbers[: layout.devices])


def _of_all(present: Sequence[Device]) -> str:
    """The layout with the same number of devices on each node, and an engine and a queue each."""
    counts = Counter(device.node for device in present)
    return f"{len(counts)}n{min(counts.values())}d1e1w"


def _sysfs() -> Path:
    return Path(os.environ.get("HEADRACE_DSA_SYSFS") or DEVICES)


def command(
    show: Annotated[
        bool,
        typer.Option(
            "--show",
            help="Print the devices and the accel-config commands of the layout; change nothing.",
        ),
    ] = False,
    config: Annotated[
        bool,
        typer.Option("--config", help="Print the layout as a file for accel-config load-config."),
    ] = False,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="NnDdEeWw",
            help="Nodes, devices per node, engines and work queues per device (default: all "
            "devices of this host; 8n1d1e1w if there are none).",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="Mode of the work queues: shared, or dedicated (one process each).",
        ),
    ] = "shared",
) -> None:
    """Print commands that set up a machine's DSA devices."""
    here = devices_in(_sysfs())
    wanted = Layout.parse(layout or (_of_all(here) if here else _THESIS), mode, here)
    if show == config:
        raise headrace.InvalidError(
            "nothing to print; "
            "give --show for the commands or --config for the file"
        )
    if config:
        output.print_as_is(json.dumps(document(wanted), indent=2))
    else:
        whose = "" if here else "; the names are those of another host, this one has no device"
        wish = f"# for {wanted.text}, {mode}{whose}:"
        output.print_text("\n".join([*present(), wish, *commands(wanted)]))


def present() -> Iterator[str]:
    """The devices of this host as they are now, as comments of a shell script."""
    for found in headrace.examine_dsa():
        yield f"# {found.name or 'this host'} now: {found.state}, {found.why}"


def commands(layout: Layout) -> Iterator[str]:
    for device in layout.device_numbers:
        dsa = f"dsa{device}"
        for engine in range(layout.engines):
            yield f"accel-config config-engine {dsa}/engine{device}.{engine} --group-id=0"
        for index in range(layout.queues):
            queue = layout.queue(device, index)
            options = {
                "group-id": queue["group_id"], "mode": queue["mode"], "wq-size": queue["size"],
                "priority": queue["priority"], "block-on-fault": queue["block_on_fault"],
                "max-batch-size": queue["max_batch_size"],
                "max-transfer-size": queue["max_transfer_size"], "type": queue["type"],
                "driver-name": queue["driver_name"], "name": queue["name"],
            }  # fmt: skip
            if layout.mode == "shared":
                options["threshold"] = queue["threshold"]
            told = " ".join(f"--{name}={value}" for name, value in options.items())
            yield f"accel-config config-wq {dsa}/{queue['dev']} {told}"
        yield f"accel-config enable-device {dsa}"
        for index in range(layout.queues):
            yield f"accel-config enable-wq {dsa}/wq{device}.{index}"
    yield "chmod a+rw /dev/dsa/wq*   # or a udev rule for a group"


def document(layout: Layout) -> list[dict[str, Any]]:
    """The file for `accel-config load-config -c FILE -e`."""
    return [
        {
            "dev": f"dsa{device}",
            "groups": [
                {
                    "dev": f"group{device}.0",
                    "grouped_workqueues": [layout.queue(device, i) for i in range(layout.queues)],
                    "grouped_engines": [
                        {"dev": f"engine{device}.{i}", "group_id": 0} for i in range(layout.engines)
                    ],
                }
            ],
        }
        for device in layout.device_numbers
    ]
