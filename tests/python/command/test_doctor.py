# SPDX-License-Identifier: Apache-2.0
"""Answers of doctor on hosts that are not this one: trees of /proc and /sys written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace
from headrace._doctor import probes as doctor
from headrace._doctor.host import Finding, Host


def examine(machine: headrace.Machine, root: Path) -> dict[str, Finding]:
    return {f.feature: f for f in doctor.examine(Host(machine, root, root))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_host_with_everything(machine: headrace.Machine, root: Path) -> None:
    write(
        root,
        {
            "proc/cpuinfo": "flags\t\t: sse2 avx2 avx512f\n",
            "proc/driver/nvidia/version": "NVRM version: 570\nGCC\n",
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
            "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "3\n",
            "sys/devices/system/node/node0/access0/initiators/read_bandwidth": "1000\n",
            "sys/bus/dsa/devices/dsa0/state": "disabled\n",
            "sys/bus/dsa/devices/dsa0/version": "0x100\n",
            "sys/bus/dsa/devices/dsa0/gen_cap": "0x40915f0107\n",
            "sys/bus/dsa/devices/dsa0/op_cap": "00000001,003f027d\n",
            "sys/bus/dsa/devices/dsa0/pasid_enabled": "1\n",
            "sys/bus/event_source/devices/cpu/type": "4\n",
            "proc/sys/kernel/perf_event_paranoid": "1\n",
        },
    )
    found = examine(machine, root)
    assert found["huge pages 2 MiB"].why == "3 of 8 are free"
    assert found["huge pages 1 GiB"].state == "absent"
    assert found["HMAT"].state == found["hardware counters"].state == "ready"
    assert found["vector copies"].why.startswith("AVX-512")
    assert found["Intel DSA dsa0"].remedy == "accel-config enable-device dsa0"
    assert "NVRM version: 570" in found["NVIDIA GPU"].why


def test_a_host_where_things_are_switched_off(machine: headrace.Machine, root: Path) -> None:
    write(
        root,
        {
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
            "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0\n",
            "sys/bus/pci/devices/0000:6a:01.0/vendor": "0x8086\n",
            "sys/bus/pci/devices/0000:6a:01.0/device": "0x0b25\n",
            "sys/bus/pci/devices/0000:17:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:17:00.0/class": "0x030200\n",
        },
    )
    (root / "sys/bus/dax/drivers/device_dax").mkdir(parents=True)
    (root / "sys/bus/dax/devices/dax0.0").mkdir(parents=True)
    (root / "sys/bus/dax/devices/dax0.0/driver").symlink_to(root / "sys/bus/dax/drivers/device_dax")
    found = examine(machine, root)
    remedies = {
        "huge pages 2 MiB": "echo 520 | sudo tee "
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "Intel DSA": "sudo modprobe idxd   (with tc_override=1 if dmesg reports traffic classes)",
        "CXL memory": "sudo daxctl reconfigure-device --mode=system-ram dax0.0",
    }
    for feature, remedy in remedies.items():
        assert found[feature].remedy == remedy
    assert found["NVIDIA GPU"].state == "off"
    assert found["huge pages 2 MiB"].why.startswith("all 8 are in use")
    assert found["vector copies"].state == "limited"


def test_an_empty_host_is_examined_to_the_end(machine: headrace.Machine, root: Path) -> None:
    found = examine(machine, root)
    assert len(found) >= 14
    assert all(f.state in doctor.STATES and f.why for f in found.values())


def test_data_that_cannot_be_written(machine: headrace.Machine, root: Path) -> None:
    findings = doctor.examine(Host(machine, root / "nowhere", root))
    direct = next(f for f in findings if f.feature == "O_DIRECT")
    assert direct.state == "off" and "headrace doctor --data" in (direct.remedy or "")


def test_kinds_of_memory(root: Path) -> None:
    found = examine(headrace.Machine.load("xeon-max"), root)
    assert found["HBM memory"].state == "ready"
    assert found["HBM memory"].why.startswith("node 8, 9, 10")


MEMORY = {
    "schema_version": 1,
    "name": "three nodes",
    "nodes": [
        {"id": 0, "kind": "dram", "name": "node 0", "capacity_bytes": 1 << 30},
        {"id": 1, "kind": "dram", "name": "node 1", "capacity_bytes": 0, "cpus": [1]},
        {"id": 2, "kind": "dram", "name": "node 2", "capacity_bytes": 1 << 30},
    ],
    "engines": [],
}


@pytest.mark.parametrize(
    ("nodes", "state", "text"), [("0", "limited", "leaves out node 2"), ("0,2-3", "ready", "2 mem")]
)
def test_binding_is_tried_where_there_is_memory_and_leave(
    root: Path, monkeypatch: pytest.MonkeyPatch, nodes: str, state: str, text: str
) -> None:
    write(root, {"proc/self/status": f"Name:\tx\nMems_allowed_list:\t{nodes}\n"})
    tried: list[object] = []
    monkeypatch.setattr(headrace, "allocate", lambda machine, size, where: tried.append(where))
    monkeypatch.setattr(headrace, "where", lambda buffer: None)
    found = examine(headrace.Machine.from_json(json.dumps(MEMORY)), root)["NUMA binding"]
    assert found.state == state and text in found.why
    assert len(tried) == (1 if state == "limited" else 2)
    if state == "limited":
        assert "--cpuset-mems=0,2 " in (found.remedy or "")


def test_binding_that_is_denied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(machine: object, size: int, where: object) -> None:
        raise headrace.DeniedError("mbind: not permitted")

    monkeypatch.setattr(headrace, "allocate", deny)
    found = examine(headrace.Machine.from_json(json.dumps(MEMORY)), root)["NUMA binding"]
    assert found.state == "off" and "--cap-add SYS_NICE" in (found.remedy or "")
