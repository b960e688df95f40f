# SPDX-License-Identifier: Apache-2.0
"""Machine: discovered, loaded, and round through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace


def test_discovered_nodes_have_kind_and_reason(machine: headrace.Machine) -> None:
    assert [n.id for n in machine.nodes] == sorted(n.id for n in machine.nodes)
    assert all(n.kind in ("dram", "hbm", "cxl", "gpu", "storage") for n in machine.nodes)
    assert all(n.reason for n in machine.nodes)
    assert any(n.byte_addressable and n.cpus for n in machine.nodes)
    assert [e.id for e in machine.engines] == list(range(len(machine.engines)))


def test_links_name_what_they_join_and_who_says_so() -> None:
    (link,) = headrace.Machine.load("spr-hbm").links
    assert (link.kind, link.a, link.b) == ("upi", [0, 2], [1, 3])
    assert (link.each_way, link.both_ways, link.latency) == (64e9, None, None)
    assert link.each_way_source and not link.both_ways_source
    slower = headrace.Machine.load("cxl-a1000").links[0]
    assert slower.latency == pytest.approx(33e-9) and slower.each_way is None
    assert slower.asdict()["kind"] == "upi"


@pytest.mark.parametrize("name", headrace.presets())
def test_presets_survive_json(name: str) -> None:
    machine = headrace.Machine.load(name)
    again = headrace.Machine.from_json(machine.to_json())
    assert json.loads(again.to_json())["nodes"] == json.loads(machine.to_json())["nodes"]
    assert list(json.loads(machine.to_json()))[0] == "schema_version"
    assert machine.asdict() == json.loads(machine.to_json())
    assert headrace.Machine.fromdict(machine.asdict()).asdict() == machine.asdict()
    assert again.to_text().splitlines()[1:] == machine.to_text().splitlines()[1:]


def test_nodes_are_found_by_cpu(machine: headrace.Machine, memory_node: int) -> None:
    cpu = machine.node(memory_node).cpus[0]
    found = machine.node_of_cpu(cpu)
    assert found is not None and found.id == memory_node
    assert machine.node_of_cpu(1 << 20) is None


def test_records_print_their_fields(machine: headrace.Machine) -> None:
    node = machine.nodes[0]
    assert repr(node).startswith(f"Node(id={node.id}, kind='{node.kind}'")
    assert node.asdict()["id"] == node.id


def test_xml_of_the_discovered_machine_and_of_another(machine: headrace.Machine) -> None:
    assert machine.to_hwloc_xml().startswith("<?xml")
    assert 'subtype="HBM"' in headrace.Machine.load("xeon-max").to_hwloc_xml()


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "\ud800"}, {"nodes": 3}, {"nodes": [{"id": 1 << 80}]}, {"description": {1: 2}},
        {"source": object()}, {"name": None, "nodes": [{"id": 0, "kind": "tape"}]},
    ],
)  # fmt: skip
def test_invalid_document_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(headrace.InvalidError):
        headrace.Machine.fromdict({"schema_version": 1} | odd)


def test_a_document_without_end_is_invalid() -> None:
    document: dict[str, Any] = {"schema_version": 1}
    document["nodes"] = document
    with pytest.raises(headrace.InvalidError, match="too deeply"):
        headrace.Machine.fromdict(document)
