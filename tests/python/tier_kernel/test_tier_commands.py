# SPDX-License-Identifier: Apache-2.0
"""headrace tier status and headrace tier kernel: what they print, and of which kernels."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from conftest import Golden, Run
from fake_kernel import FakeKernel, slow, xeon_max

import headrace
from headrace._cli.tier import kernel as kernel_command
from headrace._cli.tier import status as status_command
from headrace._tiering import status, switch
from headrace._tiering.damon import COUNT, KDAMONDS
from headrace._tiering.plan import BALANCING, DEMOTION, WEIGHTS, Wish

VMSTAT = """\
nr_free_pages 5
workingset_refault_anon 12
workingset_refault_file 3400
pgpromote_success 4096
pgpromote_candidate 4200
pgdemote_kswapd 77
pgdemote_direct 0
pswpin 9
pswpout 10
pgmajfault 11
numa_hint_faults 5000
numa_pages_migrated 4096
thp_fault_alloc 3
"""


def _rich(root: Path) -> FakeKernel:
    """A kernel that has everything, with two kinds of swap and DAMON of somebody else."""
    kernel = slow(root).with_damon()
    files = {
        "sys/kernel/mm/lru_gen/enabled": "0x0007",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/kernel/mm/transparent_hugepage/hpage_pmd_size": str(512 << 20),  # Arm, 64 KiB
        "sys/kernel/mm/page_idle/bitmap": "",
        "sys/module/zswap/parameters/enabled": "N",
        "sys/module/zswap/parameters/compressor": "lzo",
        "sys/module/zswap/parameters/max_pool_percent": "20",
        "proc/swaps": "Filename Type Size Used Priority\n"
        "/dev/zram0 partition 3145728 1048576 100\n/swapfile file 2097152 0 -2",
        "sys/block/zram0/comp_algorithm": "lzo [lz4] zstd",
        "sys/block/zram0/mm_stat": "1073741824 300000000 357913941 0 0 0 0 0 0",
        "proc/self/cgroup": "0::/service/one",
        "sys/fs/cgroup/service/one/memory.max": "max",
        "sys/fs/cgroup/service/one/memory.current": str(200 << 20),
        "sys/fs/cgroup/service/memory.max": str(1 << 30),
        "proc/vmstat": VMSTAT,
    }
    for name, text in files.items():
        kernel.put(name, text)
    kernel.write(COUNT, "1")
    kernel.write(f"{KDAMONDS}/0/contexts/nr_contexts", "1")
    kernel.write(f"{KDAMONDS}/0/contexts/0/schemes/nr_schemes", "1")
    kernel.write(f"{KDAMONDS}/0/contexts/0/schemes/0/action", "pageout")
    kernel.write(f"{KDAMONDS}/0/state", "on")
    return kernel


def test_status_of_a_kernel_with_everything(tmp_path: Path, golden: Golden) -> None:
    kernel = _rich(tmp_path)
    before = kernel.everything()
    found = status.status(kernel)
    found["watched"] = {
        "seconds": 10.0, "counted": status.since({"pgmajfault": 4}, found["since_boot"]),
    }  # fmt: skip
    golden("tier_status.txt", status_command.text(found) + "\n")
    json.dumps(found, allow_nan=False)
    assert kernel.everything() == before
    assert found["watched"]["counted"]["pgmajfault"] == 7
    assert "nr_free_pages" not in found["since_boot"]
    assert found["cgroup"]["limit_bytes"] == 1 << 30  # its parent's


def test_status_of_a_kernel_with_nothing_says_what_it_takes(
    tmp_path: Path, golden: Golden
) -> None:
    found = status.status(status.Files(tmp_path))
    assert {each["state"] for each in found["features"]} == {"absent"}
    golden("tier_status_nothing.txt", status_command.text(found) + "\n")


def test_status_of_sixteen_nodes(tmp_path: Path) -> None:
    found = status.status(xeon_max(tmp_path))
    text = status_command.text(found)
    assert "memory tier 1: node 8-15 (without CPUs)" in text
    assert "also out of node 8-15 (tier 1), which is faster" in text


def test_status_says_whose_kdamonds_run(tmp_path: Path) -> None:
    kernel = slow(tmp_path).with_damon()
    switch.on(kernel, Wish(schemes=("hot",)))
    (ours,) = status.kdamonds(kernel)
    assert ours["owner"] == "headrace" and ours["actions"] == ["migrate_hot"]
    assert status.switch(kernel)[0] == "on"
    kernel.put(f"{KDAMONDS}/0/contexts/0/schemes/0/action", "pageout")
    (theirs,) = status.kdamonds(kernel)
    assert theirs["owner"] == "somebody else"
    kernel.put(f"{KDAMONDS}/0/contexts/0/schemes/0/action", "migrate_hot")
    kernel.put("proc/sys/kernel/random/boot_id", "boot-2")
    (theirs,) = status.kdamonds(kernel)
    assert theirs["owner"] == "somebody else" and status.switch(kernel)[0] == "off"


def test_status_what_only_root_may_read_is_unknown(tmp_path: Path) -> None:
    class Guarded(status.Files):
        def _read(self, name: str) -> str:
            if name.startswith("sys"):
                raise PermissionError(errno.EACCES, "Permission denied")
            return super()._read(name)

    by_name = {each.feature: each for each in status.features(Guarded(tmp_path))}
    assert by_name["DAMON"].state == "unknown" and "only root" in by_name["DAMON"].why
    assert status.kdamonds(Guarded(tmp_path)) == []


def test_status_of_version_1_cgroups(tmp_path: Path) -> None:
    kernel = slow(tmp_path)
    kernel.put("proc/self/cgroup", "4:memory:/a/b\n3:cpuset:/\n0::/")
    kernel.put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712")
    kernel.put("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "4096")
    assert status.cgroup(kernel) == {"path": "/a/b", "limit_bytes": None, "used_bytes": 4096}
    kernel.put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "65536")
    assert status.cgroup(kernel)["limit_bytes"] == 65536


def test_status_of_this_host(run: Run) -> None:
    result = run("tier", "status", "--json", "--watch", "0.1")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert list(document)[:2] == ["schema_version", "kind"] and document["kind"] == "tier_status"
    assert document["watched"]["seconds"] == 0.1
    assert set(document["watched"]["counted"]) == set(document["since_boot"])
    assert run("tier", "status").returncode == 0


def _told(kernel: status.Files, wish: Wish) -> str:
    return kernel_command.text(kernel_command._shown(kernel, *switch.shown(kernel, wish))) + "\n"


def test_show_before_and_after(tmp_path: Path, golden: Golden) -> None:
    kernel = slow(tmp_path).with_damon()
    wish = Wish(weights={0: 3, 1: 1}, schemes=("hot", "cold"))
    before = _told(kernel, wish)
    on = kernel_command.text(kernel_command._switched("on", switch.on(kernel, wish))) + "\n"
    kernel.put(DEMOTION, "false")
    kernel.put(BALANCING, "0")
    shown = _told(kernel, wish)
    off = kernel_command.text(kernel_command._switched("off", switch.off(kernel))) + "\n"
    golden("tier_kernel.txt", "\n".join([before, on, shown, off]))


def test_show_on_sixteen_nodes(tmp_path: Path, golden: Golden) -> None:
    kernel = xeon_max(tmp_path).with_damon()
    wish = Wish(promotion=False, weights={node: 1 + node // 8 for node in range(16)},
                schemes=("hot",), rate=5e9)  # fmt: skip
    golden("tier_kernel_xeon_max.txt", _told(kernel, wish))


def test_weights_of_an_advice(tmp_path: Path) -> None:
    advice = tmp_path / "advice.json"
    advice.write_text('{"kind": "advise_interleave", "weights": {"0": 3, "1": 1}}')
    assert kernel_command._weights(str(advice)) == {0: 3, 1: 1}
    assert kernel_command._weights("0=3,1=1") == {0: 3, 1: 1}


def test_weights_that_advise_wrote(run: Run, tmp_path: Path) -> None:
    advised = run("advise", "interleave", "--machine", "cxl-a1000", "--threads", "16", "--out",
                  "a.json")  # fmt: skip
    assert advised.returncode == 0
    made = json.loads((tmp_path / "a.json").read_text())
    assert kernel_command._weights(str(tmp_path / "a.json")) == {
        int(node): weight for node, weight in made["weights"].items()
    }


class Guarded(status.Files):
    """As somebody else than root sees it."""

    def _read(self, name: str) -> str:
        if name.startswith(KDAMONDS):
            raise PermissionError(errno.EACCES, "Permission denied")
        return super()._read(name)


def test_show_says_what_only_root_may_see(tmp_path: Path, golden: Golden) -> None:
    kernel = slow(tmp_path).with_damon()
    wish = Wish(schemes=("hot",))
    before = _told(Guarded(tmp_path), wish)
    switch.on(kernel, wish)
    golden("tier_kernel_unread.txt", "\n".join([before, _told(Guarded(tmp_path), wish)]))
    switch.off(kernel)
    with pytest.raises(headrace.DeniedError, match="only root may read"):
        _told(Guarded(tmp_path), Wish(promotion=False, demotion=False, schemes=("hot",)))


def test_status_of_files_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(files: status.Files, name: str) -> str:
        raise OSError(errno.EIO, "Input/output error")

    kernel = _rich(tmp_path)
    monkeypatch.setattr(status.Files, "_read", broken)
    found = status.status(kernel)
    told = {each["state"] for each in found["features"] if each["feature"] != "idle page tracking"}
    assert told == {"unknown"} and found["tiers"] == [] and found["since_boot"] == {}
    assert "cannot read /proc/sys/kernel/numa_balancing" in status_command.text(found)


def test_a_weight_of_nothing_is_left_out(tmp_path: Path) -> None:
    kernel = slow(tmp_path)
    wish = Wish(promotion=False, demotion=False, weights={0: 2, 1: 0})
    made = switch.shown(kernel, wish)[1]
    assert [each.file for each in made.settings] == [f"{WEIGHTS}/node0"]
    (note,) = made.notes
    assert "without node 1 (headrace run --on PLACE); its weight stays 1" in note
    with pytest.raises(headrace.AbsentError, match="no weight of node 7"):
        switch.shown(kernel, Wish(weights={7: 0}))
