# SPDX-License-Identifier: Apache-2.0
"""Answers of doctor on settings that move measurements, on hosts written down as trees of files."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

import headrace
from headrace._doctor import audit, dmi, probes, settings
from headrace._doctor.host import Finding, Host

CPU = "sys/devices/system/cpu"
DSA = "sys/bus/dsa/devices"
PMU = "sys/bus/event_source/devices"


def look(root: Path, files: dict[str, str], machine: str = "one-node") -> dict[str, Finding]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    host = Host(headrace.Machine.load(machine), root, root)
    return {finding.feature: finding for finding in audit.audit(host)}


def test_a_host_that_says_nothing_is_not_called_fine(tmp_path: Path) -> None:
    found = look(tmp_path, {})
    for feature in (
        "nodes per socket", "DIMMs per channel", "frequency governor", "turbo", "idle states",
        "SMT", "transparent huge pages", "swap", "mitigations", "kernel",
    ):  # fmt: skip
        assert found[feature].state == "unknown", feature
    assert not {"address bits", "HBM mode", "DSA devices by node"} & found.keys()
    assert all(f.state in audit.SETTING_STATES and f.why for f in found.values())


#: The files of a host, the setting, its state, words of the reason and of the remedy.
CASES: list[tuple[dict[str, str], str, str, str, str]] = [
    ({f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance" for n in range(2)},
     "frequency governor", "fine", "2 CPUs", ""),
    ({f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
      f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave",
      f"{CPU}/cpu0/cpufreq/scaling_driver": "intel_pstate"},
     "frequency governor", "spoils", "powersave on 1 (intel_pstate)",
     "sudo cpupower frequency-set -g performance"),
    ({f"{PMU}/uncore_imc_0/events/cas_count_read": "event=0x05,umask=0xcf",
      "proc/sys/kernel/perf_event_paranoid": "2"},
     "bus counters", "choice", "root alone", "kernel.perf_event_paranoid=0"),
    ({f"{PMU}/amd_umc_0/type": "21", "proc/sys/kernel/perf_event_paranoid": "-1"},
     "bus counters", "fine", "all users", ""),
    ({"sys/fs/resctrl/info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes"},
     "bus counters", "choice", "resctrl counts", ""),
    ({"sys/fs/resctrl/.made": ""}, "bus counters", "choice", "not mounted",
     "sudo mount -t resctrl resctrl /sys/fs/resctrl"),
    ({}, "bus counters", "unknown", "arithmetic", ""),
    ({"proc/loadavg": "0.21 1.00 2.00 1/100 42"}, "other programs", "fine", "0.21 threads", ""),
    ({"proc/loadavg": "14.20 1.00 2.00 3/100 42"}, "other programs", "spoils",
     "14.20 threads wanted a CPU in the last minute, of ", "when they have ended"),
    ({}, "other programs", "unknown", "does not say", ""),
    ({f"{CPU}/intel_pstate/no_turbo": "0"}, "turbo", "choice", "on:",
     f"echo 1 | sudo tee /{CPU}/intel_pstate/no_turbo"),
    ({f"{CPU}/intel_pstate/no_turbo": "1"}, "turbo", "fine", "off", ""),
    ({f"{CPU}/cpufreq/boost": "1"}, "turbo", "choice", "on:",
     f"echo 0 | sudo tee /{CPU}/cpufreq/boost"),
    ({f"{CPU}/cpufreq/boost": "0"}, "turbo", "fine", "off", ""),
    ({"proc/sys/kernel/numa_balancing": "1"}, "NUMA balancing", "spoils", "mode 1",
     "sudo sysctl kernel.numa_balancing=0"),
    ({"proc/sys/kernel/numa_balancing": "0"}, "NUMA balancing", "fine", "off", ""),
    ({"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
     "transparent huge pages", "spoils", "never", "echo madvise"),
    ({"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"},
     "transparent huge pages", "choice", "always", "echo madvise"),
    ({"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"},
     "transparent huge pages", "fine", "madvise", ""),
    ({f"{CPU}/smt/active": "1"}, "SMT", "choice", "on", f"tee /{CPU}/smt/control"),
    ({f"{CPU}/smt/active": "0"}, "SMT", "fine", "each CPU is a core", ""),
    ({f"{CPU}/smt/active": "0", "proc/cpuinfo": "flags\t: sse2 hypervisor"},
     "SMT", "unknown", "hypervisor", ""),
    ({f"{CPU}/cpuidle/current_driver": "intel_idle",
      f"{CPU}/cpu0/cpuidle/state1/name": "C1", f"{CPU}/cpu0/cpuidle/state1/latency": "2",
      f"{CPU}/cpu0/cpuidle/state2/name": "C6", f"{CPU}/cpu0/cpuidle/state2/latency": "190"},
     "idle states", "choice", "C6 takes 190 us", "cpupower idle-set -D 20"),
    ({f"{CPU}/cpuidle/current_driver": "intel_idle",
      f"{CPU}/cpu0/cpuidle/state2/name": "C6", f"{CPU}/cpu0/cpuidle/state2/latency": "190",
      f"{CPU}/cpu0/cpuidle/state2/disable": "1"},
     "idle states", "fine", "intel_idle", ""),
    ({"proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 100 0 -2"},
     "swap", "choice", "/dev/sda2", "sudo swapoff -a"),
    ({"proc/swaps": "Filename Type Size Used Priority"}, "swap", "fine", "off", ""),
    ({f"{CPU}/vulnerabilities/meltdown": "Mitigation: PTI",
      f"{CPU}/vulnerabilities/retbleed": "Vulnerable", f"{CPU}/vulnerabilities/mds": "Not affected",
      "proc/cmdline": "quiet mitigations=auto,nosmt"},
     "mitigations", "choice", "1 active, 1 left out (mitigations=auto,nosmt)", "compare only"),
    ({f"{CPU}/vulnerabilities/mds": "Not affected"}, "mitigations", "fine", "0 active", ""),
    ({f"{CPU}/cpu{n}/topology/physical_package_id": str(n // 4) for n in range(8)}
     | {f"sys/devices/system/node/node{n}/cpulist": f"{2 * n}-{2 * n + 1}" for n in range(4)}
     | {"sys/devices/system/node/node4/cpulist": ""},
     "nodes per socket", "choice", "2 (SNC-2 or NPS2)", "compare only"),
    ({f"{CPU}/cpu{n}/topology/physical_package_id": "0" for n in range(8)}
     | {f"sys/devices/system/node/node{n}/cpulist": str(n) for n in range(8)},
     "nodes per socket", "choice", "8: these may be caches", "compare only"),
    ({f"{CPU}/cpu{n}/topology/physical_package_id": str(n) for n in range(2)}
     | {f"sys/devices/system/node/node{n}/cpulist": str(n) for n in range(2)},
     "nodes per socket", "fine", "1: SNC is off", ""),
    ({f"{CPU}/cpu{n}/topology/physical_package_id": str(n) for n in range(2)}
     | {"sys/devices/system/node/node0/cpulist": "0-1"},
     "nodes per socket", "spoils", "several sockets", "node interleaving off"),
    ({f"{CPU}/cpu{n}/topology/physical_package_id": str(n) for n in range(2)}
     | {"sys/devices/system/node/node0/cpulist": "0-1", "proc/cpuinfo": "flags\t: hypervisor"},
     "nodes per socket", "unknown", "several sockets; the hypervisor decides", ""),
    ({f"{CPU}/cpu{n}/topology/physical_package_id": "0" for n in range(2)}
     | {f"sys/devices/system/node/node{n}/cpulist": str(n) for n in range(2)}
     | {"proc/cpuinfo": "flags\t: hypervisor"},
     "nodes per socket", "choice", "2, as the hypervisor shows it", "compare only"),
    ({"proc/self/cgroup": "0::/a/b", "proc/self/status": "Cpus_allowed_list:\t0-7",
      "sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "250000 100000"},
     "CPU time", "spoils", "2.5 CPUs' time of 8 CPUs (/sys/fs/cgroup/a/cpu.max is 250000 100000): "
     "measure uses 2 threads", "CPUQuota="),
    ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"},
     "CPU time", "spoils", "measure uses 1 thread", "--cpus"),
    ({"proc/self/cgroup": "4:cpu,cpuacct:/x", "proc/self/status": "Cpus_allowed_list:\t0-1",
      "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "100000",
      "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000"},
     "CPU time", "spoils", "1 CPU's time of 2 CPUs", ""),
    ({"proc/self/cgroup": "0::/", "proc/self/status": "Cpus_allowed_list:\t0-1",
      "sys/fs/cgroup/cpu.max": "200000 100000"}, "CPU time", "fine", "2 CPUs' time", ""),
    ({"proc/self/cgroup": "0::/x", "sys/fs/cgroup/x/memory.max": str(1 << 30)},
     "memory limit", "spoils", "1 GiB of", "MemoryMax="),
    ({"proc/self/cgroup": "0::/x", "sys/fs/cgroup/x/memory.max": "max"},
     "memory limit", "fine", "no control group", ""),
    ({"proc/sys/kernel/osrelease": "5.10.0-28-amd64"}, "kernel", "fine", "5.10.0", ""),
    ({"proc/sys/kernel/osrelease": "5.4.0"}, "kernel", "choice", "came with 5.10", "5.10 or later"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "feature", "state", "why", "remedy"), CASES)
def test_a_setting(
    tmp_path: Path, files: dict[str, str], feature: str, state: str, why: str, remedy: str
) -> None:
    finding = look(tmp_path, files)[feature]
    assert (finding.state, why in finding.why) == (state, True), finding
    assert remedy in (finding.remedy or "")
    assert finding.state != "spoils" or finding.remedy


def device(name: str, node: int) -> dict[str, str]:
    return {f"{DSA}/{name}/numa_node": str(node), f"{DSA}/{name}/pasid_enabled": "0"}


BARE = {
    "proc/sys/kernel/osrelease": "5.4.0",
    "proc/cmdline": "quiet",
    "proc/cpuinfo": "model name\t: Intel(R) Xeon(R) CPU Max 9468\n"
    "address sizes\t: 46 bits physical, 57 bits virtual",
}


def test_the_steps_of_the_thesis_where_none_was_taken(tmp_path: Path) -> None:
    found = look(tmp_path, BARE | device("dsa0", 0) | device("dsa2", 2), "one-node")
    remedies = {
        "kernel": "boot a kernel of 5.10",
        "HBM mode": "Memory Hierarchy: Flat",
        "IOMMU, scalable mode": "add intel_iommu=on,sm_on to GRUB_CMDLINE_LINUX",
        "address bits": "Limit CPU PA to 46 bits: Disabled",
    }
    for feature, remedy in remedies.items():
        assert found[feature].state == "spoils" and remedy in (found[feature].remedy or "")


def test_the_steps_of_the_thesis_where_all_were_taken(tmp_path: Path) -> None:
    files = {
        "proc/sys/kernel/osrelease": "6.1.0",
        "proc/cmdline": "quiet intel_iommu=on,sm_on",
        "proc/cpuinfo": "model name\t: Intel(R) Xeon(R) CPU Max 9468\n"
        "address sizes\t: 52 bits physical, 57 bits virtual",
    }
    for node in range(8):
        files |= device(f"dsa{2 * node}", node)
        files[f"{DSA}/dsa{2 * node}/pasid_enabled"] = "1"
    found = look(tmp_path, files, "xeon-max")
    for feature in (
        "kernel", "HBM mode", "IOMMU, scalable mode", "address bits", "DSA devices by node"
    ):  # fmt: skip
        assert found[feature].state == "fine", found[feature]
    assert found["DSA devices by node"].why == "8 devices for 8 nodes with CPUs"


def test_a_node_without_a_device(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for node in range(7):
        files |= device(f"dsa{node}", node)
    finding = look(tmp_path, files, "xeon-max")["DSA devices by node"]
    assert finding.state == "spoils" and finding.why.endswith("no device on node 7")
    finding = look(tmp_path, device("dsa7", -1), "xeon-max")["DSA devices by node"]
    assert finding.state == "unknown"


def test_devices_without_the_driver(tmp_path: Path) -> None:
    pci = "sys/bus/pci/devices/0000:6a:01.0"
    found = look(tmp_path, {f"{pci}/vendor": "0x8086", f"{pci}/device": "0x0b25"})
    assert found["DSA devices by node"].remedy == "sudo modprobe idxd"


def test_hbm_that_is_a_cache(tmp_path: Path) -> None:
    document = headrace.Machine.load("one-node").asdict()
    document["nodes"][0]["memory_side_cache"] = {"size_bytes": 64 << 30}
    document["provenance"]["cpu"] = "Intel(R) Xeon(R) CPU Max 9468"
    host = Host(headrace.Machine.fromdict(document), tmp_path, tmp_path)
    told = "HBM is in cache mode: 64 GiB before node 0, where nothing can be allocated"
    remedy = "firmware setup: Memory Hierarchy: Flat"
    settings = {finding.feature: finding for finding in audit.audit(host)}
    assert settings["HBM mode"] == Finding("HBM mode", "spoils", told, remedy)
    features = {finding.feature: finding for finding in probes.examine(host)}
    assert features["HBM memory"] == Finding("HBM memory", "off", told, remedy)


def structure(kind: int, body: bytes, *texts: str) -> bytes:
    head = bytes([kind, 4 + len(body), 0, 0])
    return head + body + b"".join(t.encode() + b"\0" for t in texts) + b"\0" * (1 if texts else 2)


def slot(name: str, bank: str, mib: int, rated: int = 4800, running: int = 4800) -> bytes:
    """A structure of type 17 as of SMBIOS 3.3 (length 0x5c)."""
    body = bytearray(0x5C - 4)

    def put(format: str, offset: int, value: int) -> None:
        struct.pack_into(format, body, offset - 4, value)

    put("<H", 0x0C, mib if mib < 0x7FFF else 0x7FFF)
    put("<B", 0x10, 1)
    put("<B", 0x11, 2 if bank else 0)
    put("<B", 0x12, 0x22)
    put("<H", 0x15, rated)
    put("<I", 0x1C, mib)
    put("<H", 0x20, running)
    return structure(17, bytes(body), *filter(None, (name, bank)))


END = structure(127, b"")


def with_table(root: Path, table: bytes) -> dict[str, Finding]:
    path = root / dmi.TABLE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(table)
    return look(root, {})


def test_slots_are_read() -> None:
    other = structure(1, bytes(20), "maker", "model")
    slots = dmi.dimms(other + slot("P1-DIMMA1", "P0_Node0", 65536, 5600) + slot("X", "", 0) + END)
    assert slots[0] == dmi.Dimm("P1-DIMMA1", "P0_Node0", 64 << 30, "DDR5", 5600, 4800)
    assert slots[1].size == 0 and len(slots) == 2


@pytest.mark.parametrize(
    ("name", "bank", "channel"),
    [
        ("P1-DIMMA1", "P0_Node0", "P0_Node0 P1-DIMMA"),
        ("CPU1_DIMM_B2", "NODE 1", "NODE 1 CPU1_DIMM_B"),
        ("DIMM 1", "P0 CHANNEL C", "P0 channel C"),
        ("P0_Node0_Channel3_Dimm1", "x", "P0_Node0_channel 3"),
        ("Controller0-ChannelA-DIMM0", "BANK 0", "Controller0-channel A"),
        ("DIMM 0", "", None),
    ],
)
def test_the_channel_is_in_the_name(name: str, bank: str, channel: str | None) -> None:
    assert dmi.Dimm(name, bank, 1, "DDR5", 0, 0).channel == channel


def test_channels_filled_alike(tmp_path: Path) -> None:
    table = b"".join(
        slot(f"DIMM_{c}{n}", "NODE 0", 32768 if n == 1 else 0) for c in "ABCD" for n in (1, 2)
    )
    found = with_table(tmp_path, table + END)
    why = found["DIMMs per channel"].why
    assert why == "1 on each of 4 channels; 4 of 8 slots filled with DDR5"
    assert found["DIMM speed"].why == "4800 MT/s, as rated"


@pytest.mark.parametrize(
    ("sizes", "why"),
    [((32768, 0), "1 of 2 channels empty"), ((32768, 16384), "channels differ in size")],
)
def test_channels_filled_unlike(tmp_path: Path, sizes: tuple[int, int], why: str) -> None:
    table = slot("DIMM_A1", "", sizes[0], rated=5600) + slot("DIMM_B1", "", sizes[1]) + END
    found = with_table(tmp_path, table)
    assert found["DIMMs per channel"].state == "spoils" and why in found["DIMMs per channel"].why
    assert found["DIMM speed"].why == "4800 MT/s, 1 DIMM could do 5600"


def test_names_that_tell_no_channel(tmp_path: Path) -> None:
    found = with_table(tmp_path, slot("DIMM 0", "", 1024) + END)
    assert found["DIMMs per channel"].state == "unknown"
    # Letters of sockets, numbers of channels: half of these are empty.
    slots = [slot(f"{c}{n}", "", 32768 if n < 5 else 0) for c in "AB" for n in range(1, 9)]
    found = with_table(tmp_path, b"".join(slots) + END)
    assert found["DIMMs per channel"].state == "unknown"


def test_a_table_that_is_cut_off_or_noise(tmp_path: Path) -> None:
    whole = slot("DIMM_A1", "NODE 0", 32768) + END
    for length in range(len(whole)):
        dmi.dimms(whole[:length])
    generator = random.Random(7)
    for _ in range(2000):
        dmi.dimms(generator.randbytes(generator.randrange(200)))
        dmi.dimms(bytes([17]) + generator.randbytes(generator.randrange(200)))


def settings_of(root: Path, machine: str = "xeon-max") -> dict[str, str]:
    return settings.settings(Host(headrace.Machine.load(machine), root, root))


def test_settings_of_firmware_are_those_that_it_says(tmp_path: Path) -> None:
    assert settings_of(tmp_path) == {
        "bios": "unknown", "dimms": "unknown: no SMBIOS table", "hbm_mode": "flat",
        "nodes_per_socket": "4", "prefetchers": "unknown",
    }  # fmt: skip
    assert settings_of(tmp_path, "cxl-a1000")["hbm_mode"] == "no HBM nodes"
    for name, text in (("vendor", "Maker"), ("version", "1.2"), ("date", "03/04/2026")):
        path = tmp_path / f"sys/class/dmi/id/bios_{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    with_table(tmp_path, slot("A1", "", 32768) * 2 + slot("A2", "", 0) + END)
    found = settings_of(tmp_path)
    assert found["bios"] == "Maker 1.2 03/04/2026"
    assert found["dimms"] == "2 of 3 slots: DDR5 32 GiB 4800 MT/s"
    with_table(tmp_path, slot("A1", "", 32768) + slot("B1", "", 16384, running=4400) + END)
    assert settings_of(tmp_path)["dimms"] == (
        "2 of 2 slots: 1 x DDR5 16 GiB 4400 MT/s, 1 x DDR5 32 GiB 4800 MT/s"
    )


@pytest.mark.parametrize(
    ("vendor", "register", "value", "told"),
    [
        ("GenuineIntel", 0x1A4, 0, "on"),
        ("GenuineIntel", 0x1A4, 0b1001, "off: L2 stream, L1 IP"),
        ("AuthenticAMD", 0xC0000108, 1 << 5, "off: L2 up/down"),
        ("ARM", 0x1A4, 15, "unknown"),
    ],
)
def test_prefetchers_are_read_from_the_register_of_the_maker(
    tmp_path: Path, vendor: str, register: int, value: int, told: str
) -> None:
    for path in ("proc/cpuinfo", "dev/cpu/0/msr"):
        (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_text(f"vendor_id\t: {vendor}\nflags\t: fpu\n")
    with (tmp_path / "dev/cpu/0/msr").open("wb") as file:
        file.seek(register)
        file.write(value.to_bytes(8, "little"))
    assert settings_of(tmp_path)["prefetchers"] == told
    (tmp_path / "proc/cpuinfo").write_text(f"vendor_id\t: {vendor}\nflags\t: hypervisor\n")
    assert settings_of(tmp_path)["prefetchers"] == "unknown: the hypervisor decides"
    assert settings_of(tmp_path)["dimms"] == "unknown: the hypervisor decides"
    assert settings_of(tmp_path)["nodes_per_socket"] == "4, as the hypervisor shows it"


def test_prefetchers_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    for path in ("proc/cpuinfo", "dev/cpu/0/msr"):
        (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_text("vendor_id\t: GenuineIntel\nflags\t: fpu\n")
    assert settings_of(tmp_path)["prefetchers"] == (
        "unknown: takes the kernel's module msr; sudo modprobe msr"
    )
    # Reads of memory that is not mapped fail as those of a register that is not there: EIO.
    (tmp_path / "dev/cpu/0/msr").symlink_to("/proc/self/mem")
    assert settings_of(tmp_path)["prefetchers"] == (
        "unknown: this CPU model has no such register"
    )


def test_firmware_says_that_this_is_a_guest_where_cpus_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "cpuinfo", lambda host, name: "fpu sse2")  # of any root
    document = headrace.Machine.load("xeon-max").asdict()
    document["provenance"] = {"hypervisor": "yes"}
    machine = headrace.Machine.fromdict(document)
    assert not Host(machine, tmp_path, tmp_path).is_guest, "the provenance of another root"
    assert Host(machine, tmp_path).is_guest
