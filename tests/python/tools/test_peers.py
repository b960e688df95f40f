# SPDX-License-Identifier: Apache-2.0
"""benchmarks/peers/peers.py on programs that stand in for the peers: what they print is read, the
table is made, and a difference is explained by what closes it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "peers"


@pytest.fixture(scope="module")
def peers() -> Any:
    sys.path.insert(0, str(FOLDER))
    import peers as found

    return found


@pytest.fixture(scope="module")
def sources(peers: Any) -> Any:
    return peers.sources


@pytest.fixture(scope="module")
def explain(peers: Any) -> Any:
    return peers.explain


def quiet(line: str) -> None:
    """Nobody is told."""


#: As McCalpin's STREAM 5.10 prints it.
STREAM = """\
-------------------------------------------------------------
STREAM version $Revision: 5.10 $
-------------------------------------------------------------
This system uses 8 bytes per array element.
-------------------------------------------------------------
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:           29000.5     0.031581     0.014220     0.050416
Scale:          28000.0     0.028011     0.014017     0.045802
Add:            30000.0     0.032065     0.019733     0.040896
Triad:          30100.0     0.030845     0.019522     0.037835
-------------------------------------------------------------
"""
OUTPUTS = {
    "likwid-bench": ("load_avx", "MByte/s:\t\t36421.77\nCycles per update:\t1.1\n", 36421.77e6),
    "mbw": ("mbw", "AVG\tMethod: MEMCPY\tElapsed: 0.05\tMiB: 512.00000\tCopy: 9876.500 MiB/s\n",
            9876.5 * (1 << 20)),
    "perf": ("perf", "# function 'default'\n# Copying 256MB bytes ...\n\n      12.340000 GB/sec\n",
             12.34 * (1 << 30)),
    "nanoda": ("nanoda", "size = 256 MiB, avg = 131.25 ns\n", 131.25),
}  # fmt: skip


@pytest.mark.parametrize("tool", OUTPUTS)
def test_output_of_installed_peers_is_read(peers: Any, tool: str) -> None:
    part, output, expected = OUTPUTS[tool]
    peer = next(each for each in peers.peers(2) if part in " ".join(each.command))
    assert peers.parsed(peer, output) == pytest.approx(expected)
    assert peers.parsed(peer, "nothing of the kind") is None


def program(path: Path, text: str) -> Path:
    """A shell script that stands in for one."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def needs_compiler(sources: Any) -> None:
    if shutil.which(sources.compiler()) is None:
        pytest.skip("no C compiler; apt install gcc")


def test_each_kernel_of_stream_is_a_figure(peers: Any, sources: Any, tmp_path: Path) -> None:
    needs_compiler(sources)
    path = program(tmp_path / "stream", f"cat <<'END'\n{STREAM}END")
    (tmp_path / "built").mkdir()
    found = peers.stream_peers(path, tmp_path / "built", 2, 1 << 20)
    assert [peers.run_peer(each) for each in found] == [29000.5e6, 28000e6, 30000e6, 30100e6]
    assert [each.parameters["kernel"] for each in found] == ["copy", "scale", "add", "triad"]
    assert not any(each.command for each in found[0].variants), "a program is not built anew"


def test_the_last_number_of_multichase_is_its_result(peers: Any, tmp_path: Path) -> None:
    """It prints "%6.*f", three digits below 100 ns and one above (multichase.c)."""
    for said, ns in (("  93.125", 93.125), (" 190.4", 190.4)):
        path = program(tmp_path / "multichase", f'echo "$@" > {tmp_path}/asked; echo "{said}"')
        peer = peers.multichase_peer(path, tmp_path)
        assert peers.run_peer(peer) == pytest.approx(ns)
    assert (tmp_path / "asked").read_text().split() == "-m 256m -T 256m -s 64 -n 5 -H".split()


def test_ours_goes_over_as_much_as_the_peer_and_over_nothing_else(
    peers: Any, tmp_path: Path
) -> None:
    """A row of another size is no comparison, and to measure all sizes takes minutes."""
    program(tmp_path / "multichase", "echo 93.125")
    multichase = peers.multichase_peer(tmp_path / "multichase", tmp_path)
    assert multichase.parameters["bytes"] == 256 << 20 and "-m 256m" in multichase.name
    for machine in (headrace.Machine.discover(storage=[]), headrace.Machine.load("xeon-max")):
        size = peers.cycle_bytes(machine)
        installed = peers.peers(2, frozenset({"avx512f"}), size)
        (nanoda,) = [peer for peer in installed if peer.tool == "nanoda"]
        assert nanoda.parameters["bytes"] == size
        assert nanoda.command[1:3] == ["-n", f"{size / (1 << 20):g}"]
        for peer in (nanoda, multichase, *(p for p in installed if p.experiment == "copy")):
            point = peers.point_of(machine, peer)
            planned = headrace.plan_session(machine, experiments=[peer.experiment], only=point,
                                            budget=None)  # fmt: skip
            (one,) = [each.row for each in planned]
            assert dict(one.parameters) == point, peer.name


def test_headrace_measures_one_row(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measure(machine: Any, **given: Any) -> Any:
        asked.append(given)
        return headrace.Profile.fromdict(document)

    monkeypatch.setattr(headrace, "measure", measure)
    machine = headrace.Machine.load("xeon-max")
    document = json.loads(machine.to_json()) | {"conditions": {}, "rows": [
        {"experiment": "latency", "parameters": {}, "unit": "ns", "median": 91.5, "samples": [91.5]}
    ]}  # fmt: skip
    (nanoda,) = [peer for peer in peers.peers(2) if peer.tool == "nanoda"]
    assert peers.measure_ours(machine, nanoda, 7, quiet) == 91.5
    assert asked[0]["only"] == {
        "cpu_node": 0, "memory_node": 0, "bytes": 256 << 20, "window": "all", "pages": "base"
    }  # fmt: skip
    document["rows"][0] |= {"median": None, "samples": [], "reason": "no memory is free"}
    told: list[str] = []
    assert peers.measure_ours(machine, nanoda, 7, told.append) is None
    assert told == ["no number of Headrace: nanoda -n 256 -i 3: no memory is free"]


def mbw_of(peers: Any, path: Path, text: str) -> Any:
    """The peer mbw with a script in its place."""
    (mbw,) = [peer for peer in peers.peers(2) if peer.tool == "mbw"]
    return dataclasses.replace(mbw, command=[str(program(path / "mbw", text))], title="mbw")


SAID = "printf 'AVG\\tMethod: MEMCPY\\tElapsed: 0.05\\tMiB: 512\\tCopy: 9876.500 MiB/s\\n'"


@pytest.mark.parametrize(
    ("end", "why"),
    [("echo 'out of memory' >&2; exit 3", "it ended with status 3: out of memory"),
     ("kill -SEGV $$", "it was killed by SIGSEGV: AVG\tMethod: MEMCPY"),
     ("exit 0", "")],
)  # fmt: skip
def test_output_of_a_failed_program_is_no_number(
    peers: Any, tmp_path: Path, end: str, why: str
) -> None:
    told: list[str] = []
    mbw = mbw_of(peers, tmp_path, f"{SAID}\n{end}")
    number = peers.run_peer(mbw, tell=told.append)
    if not why:
        assert number == pytest.approx(9876.5 * (1 << 20)) and told == []
        return
    (line,) = told
    assert number is None and line.startswith(f"no number: mbw: {why}") and "\n" not in line
    (found,) = peers.compare([mbw], lambda peer, seed: 1e9, 2, 1, quiet)
    assert found.ours == found.theirs == [], "a pair of which one has no number is none"


def test_a_program_that_says_nothing_known_or_is_not_there_is_told(
    peers: Any, tmp_path: Path
) -> None:
    told: list[str] = []
    mbw = mbw_of(peers, tmp_path, "echo hello")
    assert peers.run_peer(mbw, peers.Variant("no huge pages"), told.append) is None
    (tmp_path / "mbw").unlink()
    assert peers.run_peer(mbw, tell=told.append) is None
    assert told[0] == "no number: mbw with no huge pages: it printed no number that is known"
    assert told[1].startswith("no number: mbw: ") and "No such file" in told[1]


def test_order_within_a_pair_is_drawn(peers: Any, tmp_path: Path) -> None:
    """Else the caches and pages that one leaves to the other favour always the same."""
    order = tmp_path / "order"
    mbw = mbw_of(peers, tmp_path, f"echo theirs >> {order}\n{SAID}")

    def ours(peer: Any, seed: int) -> float:
        with order.open("a") as file:
            file.write("ours\n")
        return 1e10

    (found,) = peers.compare([mbw], ours, 16, 1, quiet)
    assert len(found.ours) == len(found.theirs) == 16
    words = order.read_text().split()
    firsts = words[::2]
    assert all(set(words[i : i + 2]) == {"ours", "theirs"} for i in range(0, 32, 2))
    assert 4 <= firsts.count("ours") <= 12


def test_wide_loads_are_compared_where_the_cpu_has_them(peers: Any, tmp_path: Path) -> None:
    def kernels(cpuinfo: str) -> list[str]:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        flags = peers.cpu_flags(tmp_path / "cpuinfo")
        return [p.command[2] for p in peers.peers(2, flags) if p.tool == "likwid-bench"]

    usual = ["load_avx", "store_avx", "store_mem_avx", "copy_avx", "copy_mem_avx"]
    assert kernels("processor\t: 0\nflags\t\t: fpu avx2\n") == usual
    assert kernels("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n\nprocessor\t: 1\n") == [
        "load_avx", "load_avx512", *usual[1:]
    ]  # fmt: skip
    assert peers.cpu_flags(tmp_path / "none") == frozenset()
    wide = next(p for p in peers.peers(2, frozenset({"avx512f"})) if "load_avx512" in p.command)
    assert wide.experiment == "bandwidth" and wide.parameters == {"mix": "read", "threads": 2}


def test_multichase_is_built_from_its_tree(peers: Any, sources: Any, tmp_path: Path) -> None:
    needs_compiler(sources)
    if shutil.which("make") is None:
        pytest.skip("no make")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "multichase.c").write_text(
        '#include <stdio.h>\nint main(void) { printf("%6.*f\\n", 1, 111.7); return 0; }\n'
    )
    # A Makefile as its own: a warning is an error, which newer compilers find.
    (tree / "Makefile").write_text("CFLAGS=-Wall -Werror -include no_such_header.h\nmultichase:\n")
    before = sorted(tree.iterdir())
    (tmp_path / "built").mkdir()
    peer = peers.multichase_peer(tree, tmp_path / "built")
    assert peers.run_peer(peer) == 111.7 and sorted(tree.iterdir()) == before
    assert sources.MULTICHASE_FLAGS in peer.convention


def options(**given: Path) -> argparse.Namespace:
    return argparse.Namespace(**({"stream": None, "multichase": None, "nvbandwidth": None} | given))


def test_what_cannot_be_had_is_a_line(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PATH", str(tmp_path))
    told: list[str] = []
    given = options(stream=tmp_path / "no", multichase=tmp_path, nvbandwidth=tmp_path)
    assert peers.chosen_peers(peers.peers(2), 2, 1 << 20, tmp_path, given, told.append) == []
    assert any("mbw is not installed" in line for line in told)
    assert any("no has no stream.c and is no program" in line for line in told)
    assert any("has no Makefile and is no program" in line for line in told)
    assert any("nor a folder that has one" in line for line in told)
    (tmp_path / "stream.c").write_text("int main(void) { return unknown; }\n")
    told.clear()
    peers.chosen_peers([], 2, 1 << 20, tmp_path, options(stream=tmp_path), told.append)
    (line,) = [line for line in told if "STREAM" in line]
    assert "left out" in line and "\n" not in line


#: As nvbandwidth -j prints it (json_output.cpp of its repository): numbers as words, rows of the
#: host and columns of GPUs.
NVBANDWIDTH = """\
#!/usr/bin/env python3
import json, sys
assert sys.argv[1:3] == ["-j", "-t"]
name = sys.argv[3]
case = {"name": name, "status": "Waived"}
if name.endswith("memcpy_ce"):
    case |= {
        "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix": [["55.6362", "54.01"]], "status": "Passed", "sum": 109.65,
    }
if "bidirectional" in name:
    case |= {"bandwidth_matrix": [["N/A", "1.0"]]}
print(json.dumps({"nvbandwidth": {
    "CUDA Runtime Version": 12080, "Driver Version": "570.124.06", "GPU Device list": ["0: X"],
    "git_version": "v0.8", "testcases": [case], "version": "v0.8",
}}, indent=1))
"""


def test_nvbandwidths_own_figures_stand_beside(peers: Any, tmp_path: Path) -> None:
    program = tmp_path / "nvbandwidth"
    program.write_text(NVBANDWIDTH)
    program.chmod(0o755)
    told: list[str] = []
    given = options(nvbandwidth=tmp_path)
    chosen = peers.chosen_peers([], 2, 1 << 20, tmp_path, given, told.append)
    mine = [each for each in chosen if each.tool == "nvbandwidth"]
    figures = {each.command[-1]: peers.run_peer(each) for each in mine}
    one_way = pytest.approx(55.6362e9)
    assert {name: figure for name, figure in figures.items() if figure is not None} == {
        "host_to_device_memcpy_ce": one_way, "device_to_host_memcpy_ce": one_way,
    }  # fmt: skip
    assert len(figures) == 6, "waived ones and N/A have no number"
    for output in ("Killed", '{"nvbandwidth": 1}', '{"nvbandwidth": {"testcases": []}}'):
        assert peers.of_first_gpu(output, "x") is None
    by_engine = mine[:1]
    rounds = peers.compare(by_engine, lambda peer, seed: 50e9, 1, 1, quiet)
    assert "55.64 GB/s | 50 GB/s | 0.90" in peers.table(rounds)


def test_of_a_gpu_the_same_point_is_measured(
    peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    found = SimpleNamespace(rows=[SimpleNamespace(median=9.0, details={"to_gpu": 4.0})])
    monkeypatch.setattr(headrace, "measure", lambda *_, **how: asked.append(how["only"]) or found)
    host = SimpleNamespace(id=3, byte_addressable=True, cpus=[0], gpu=None)
    gpu = SimpleNamespace(id=2001, byte_addressable=False, cpus=[], gpu=SimpleNamespace(host=7))
    (tmp_path / "nvbandwidth").write_text("#!/bin/sh")
    (tmp_path / "nvbandwidth").chmod(0o755)
    to_gpu, _, both, *_ = peers.nvbandwidth_peers(tmp_path)
    machine = SimpleNamespace(nodes=[host, gpu])
    assert peers.measure_ours(machine, to_gpu, 1) == 9 and peers.measure_ours(machine, both, 1) == 4
    assert asked[0] == {"part": "copy", "direction": "to_gpu", "by": "engine", "memory": "pinned",
                        "bytes": 512 << 20, "gpu": 2001, "node": 7}  # fmt: skip
    assert peers.measure_ours(SimpleNamespace(nodes=[host]), to_gpu, 1) is None


#: A STREAM whose rate depends on how it was built and where its arrays lie, as asked by the
#: environment: what pages.c and the flags would change.
FAKE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static double array[STREAM_ARRAY_SIZE];
#ifndef OFFSET
#define OFFSET 0
#endif
int main(void) {
  const char* how = getenv("HEADRACE_PAGES");
  double rate = OFFSET != 0 ? 30000.0 : 29000.0;
  if (how != NULL && strcmp(how, "huge") == 0) rate = 44500.0;
  array[0] = rate;
  printf("Copy: %.1f 0.1 0.1 0.1\nScale: %.1f 0.1 0.1 0.1\nAdd: 1.0 0 0 0\nTriad: 45000.0 0 0 0\n",
         array[0], rate);
  return 0;
}
"""


def test_a_difference_is_explained_by_what_closes_it(
    peers: Any, sources: Any, tmp_path: Path
) -> None:
    needs_compiler(sources)
    (tmp_path / "stream.c").write_text(FAKE)
    (tmp_path / "built").mkdir()
    found = peers.stream_peers(tmp_path / "stream.c", tmp_path / "built", 2, 1 << 20)
    chosen = [found[0], found[3]]
    rounds = peers.compare(chosen, lambda peer, seed: 45e9, 2, 1, quiet)
    assert "| STREAM Copy" in peers.table(rounds).replace("`", "") and "1.55" in peers.table(rounds)
    (line,) = peers.explained(rounds, lambda peer, seed: 45e9, 2, 1, quiet)
    assert line.startswith("STREAM Copy: explained by its arrays on huge pages: 2.9e+04 MB/s")
    assert "4.5e+04 MB/s of Headrace; with it 4.45e+04 MB/s, 97% of the difference" in line
    assert "arrays 4 KiB and a line further apart 3e+04 MB/s" in line, "each change has its figure"


def test_a_build_that_this_compiler_has_not_is_left_out(
    peers: Any, sources: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_compiler(sources)
    (tmp_path / "stream.c").write_text(FAKE)
    (tmp_path / "built").mkdir()
    builds = (("for no processor", ["-march=of_nobody"]), ("further apart", ["-DOFFSET=8"]))
    monkeypatch.setattr(peers, "_BUILDS", builds)
    (first, *_) = peers.stream_peers(tmp_path / "stream.c", tmp_path / "built", 2, 1 << 20)
    words = [each.words for each in first.variants]
    assert "further apart" in words and "for no processor" not in words


def test_what_nothing_closes_is_said(explain: Any) -> None:
    changes = [explain.Change("this", lambda: 30.0), explain.Change("that", lambda: None)]
    found = explain.run(lambda: 29.0, lambda: 45.0, changes, 3, 1)
    assert explain.verdict(found, str) == (
        "not explained: 29.0 against 45.0 of Headrace; tried: this 30.0"
    )
    found = explain.run(lambda: 44.0, lambda: 45.0, changes, 3, 1)
    assert explain.verdict(found, str).startswith("gone when measured again")
    found = explain.run(lambda: None, lambda: 45.0, changes, 3, 1)
    assert explain.verdict(found, str) == "not explained: no round gave both numbers"


def test_a_part_of_a_difference_is_mostly_explained(explain: Any) -> None:
    found = explain.run(lambda: 29.0, lambda: 45.0, [explain.Change("this", lambda: 40.0)], 1, 1)
    assert explain.verdict(found, str).startswith("mostly explained by this: ")


def test_rounds_are_interleaved(explain: Any) -> None:
    order: list[str] = []

    def saying(word: str) -> Any:
        return lambda: order.append(word) or 1.0  # type: ignore[func-returns-value]

    explain.run(saying("theirs"), saying("ours"), [explain.Change("c", saying("c"))], 5, 3)
    rounds = [order[i : i + 3] for i in range(0, 15, 3)]
    assert all(set(each) == {"theirs", "ours", "c"} for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


#: Tells of its own array whether it is a mapping, and whether huge pages are asked for or forbidden
#: (proc(5), VmFlags: hg, nh).
ARRAY = r"""
#include <stdio.h>
#include <string.h>
static char array[16 << 20];
int main(void) {
  char line[512], flags[512] = "";
  unsigned long begin, end, mine = 0;
  const unsigned long middle = (unsigned long)(array + (8 << 20));
  memset(array, 1, sizeof array);
  FILE* file = fopen("/proc/self/smaps", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "%lx-%lx", &begin, &end) == 2) mine = begin <= middle && middle < end;
    if (mine && strncmp(line, "VmFlags:", 8) == 0) strcpy(flags, line);
  }
  int sum = 0;
  for (unsigned long i = 0; i < sizeof array; i += 4096) sum += array[i];
  printf("%d %s", sum, flags);
  return 0;
}
"""


def test_arrays_of_a_program_are_put_on_other_pages(sources: Any, tmp_path: Path) -> None:
    needs_compiler(sources)
    (tmp_path / "array.c").write_text(ARRAY)
    built = [sources.compiler(), str(tmp_path / "array.c"), "-o", str(tmp_path / "array")]
    subprocess.run(built, check=True)
    library = sources.build_pages(tmp_path)
    for how, flag in (("huge", "hg"), ("small", "nh"), ("mapped", "nh"), ("mapped-huge", "hg")):
        asked = {"LD_PRELOAD": str(library), "HEADRACE_PAGES": how}
        done = subprocess.run([tmp_path / "array"], capture_output=True, text=True, check=True,
                              env=os.environ | asked)  # fmt: skip
        total, *flags = done.stdout.split()
        assert total == "4096", "what it wrote is what it reads"
        if "hg" in flags or "nh" in flags:  # a kernel without huge pages has neither
            assert flag in flags, how


def test_arrays_fit_the_machine(peers: Any) -> None:
    class Thing:
        def __init__(self, **fields: Any) -> None:
            vars(self).update(fields)

    def machine(caches: list[int], memory: int) -> Any:
        return Thing(
            caches=[Thing(level=3, size=size) for size in caches] + [Thing(level=1, size=1 << 15)],
            nodes=[Thing(byte_addressable=True, capacity=memory),
                   Thing(byte_addressable=False, capacity=1 << 50)],
        )  # fmt: skip

    mib = 1 << 20
    assert peers.array_elements(machine([32 * mib], 64 << 30)) * 8 == 128 * mib
    assert peers.array_elements(machine([32 * mib] * 2, 64 << 30)) * 8 == 256 * mib, "two sockets"
    assert peers.array_elements(machine([480 * mib], 64 << 30)) * 8 == 512 * mib, "not believed"
    assert peers.array_elements(machine([32 * mib], 512 * mib)) * 8 == 32 * mib, "a small container"
    assert peers.array_elements(machine([], 0)) * 8 == mib


@pytest.fixture(scope="module")
def promises(peers: Any) -> Any:
    import promises as found

    return found


def test_the_loop_by_hand_reads_and_writes(peers: Any, sources: Any, promises: Any,
                                           tmp_path: Path) -> None:  # fmt: skip
    needs_compiler(sources)
    program = sources.build_streams(tmp_path)
    cpu = min(os.sched_getaffinity(0))
    for mix in ("read", "nt_write"):
        for streams in (1, 8):
            peer = promises._by_hand(program, mix, [cpu], streams)
            assert peer.name == f"a loop of {streams} stream{'s' if streams > 1 else ''}"
            small = dataclasses.replace(peer, command=[*peer.command[:3], "8", str(streams)])
            assert peers.run_peer(small) > 0
    on = str(cpu)
    for wrong in (["read", on, "8", "17"], ["read", "", "8", "1"], ["read", on, "0", "1"]):
        done = subprocess.run([program, *wrong], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and done.stderr.startswith("streams: give CPUs, ")


def scripted(*rounds: dict[str, float | None]) -> Any:
    """Gives these, by the seed."""
    return lambda seed: rounds[seed]


def test_what_never_gives_a_number_is_left_out_and_so_is_a_round_that_lacks_one(
    promises: Any,
) -> None:
    once = scripted(
        {"Headrace": 9.0, "likwid": None, "loop": 10.0},
        {"Headrace": None, "likwid": None, "loop": 10.0},
        {"Headrace": 8.0, "likwid": None, "loop": 8.0},
    )
    found = promises.in_rounds(once, 3, 0, quiet)
    assert found.results == {"Headrace": [9.0, 8.0], "loop": [10.0, 8.0]}
    assert found.ratios("Headrace", "loop") == [0.9, 1.0]


@pytest.mark.parametrize(("loaded", "code", "told"), [
    (104.0, 0, "loaded / idle 1.040 (1.030 to 1.050 in 3 rounds), promised within 5 %: holds"),
    (94.0, 1, "does not hold"), (106.0, 1, "does not hold"),
])  # fmt: skip
def test_latency_without_a_load_is_the_idle_one(
    promises: Any, loaded: float, code: int, told: str
) -> None:
    got = {"idle": [100.0] * 3, "loaded": [loaded - 1, loaded, loaded + 1]}
    found, said = promises.verdict_of_latency(promises.Rounds(got))
    assert found == code and told in said
    assert promises.verdict_of_latency(promises.Rounds({}))[0] == promises.NOTHING


def test_bandwidth_is_held_against_the_best_of_the_others_by_its_median(promises: Any) -> None:
    """One round of luck is no best: of the loop 12 was seen, and its median is 8."""
    got = {
        "Headrace": [9.6e9, 9.5e9, 9.7e9], "likwid-bench": [10e9, 10e9, 10e9],
        "a loop of 2 streams": [8e9, 12e9, 8e9],
    }  # fmt: skip
    code, said = promises.verdict_of_bandwidth("read", promises.Rounds(got))
    assert code == promises.HELD and "best of the others likwid-bench 10 GB/s" in said
    assert "Headrace / best 0.960 (0.950 to 0.970 in 3 rounds), promised at least 0.95" in said
    lines = promises.table(promises.Rounds(got)).splitlines()
    assert [line.split("  ")[-1] for line in lines] == [
        "likwid-bench", "Headrace", "a loop of 2 streams"
    ]  # fmt: skip
    got["Headrace"] = [9.4e9] * 3
    assert promises.verdict_of_bandwidth("read", promises.Rounds(got))[0] == promises.NOT_HELD
    alone = promises.Rounds({"Headrace": [1.0]})
    assert promises.verdict_of_bandwidth("read", alone)[0] == promises.NOTHING


def test_the_promises_are_measured_on_this_machine(
    peers: Any, promises: Any, machine: headrace.Machine, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every row that they are of is there, whatever it says; of others there is nothing here."""
    monkeypatch.setattr(peers, "PATH", str(tmp_path))
    told: list[str] = []
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU cannot observe and load at once")
    found = promises.latencies(machine, told.append)(1)
    assert found.keys() == {"idle", "loaded"} and all(found.values()), told
    once = promises.bandwidths(machine, "nt_write", None, told.append)
    assert promises.in_rounds(once, 1, 1, quiet).results.keys() == {"Headrace"}
    assert any("likwid-bench is not installed" in line for line in told)
