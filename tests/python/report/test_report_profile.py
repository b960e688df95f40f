# SPDX-License-Identifier: Apache-2.0
"""The report of a profile: every experiment has its pictures, its sentence and its table."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import profile_documents as documents
import pytest
from conftest import Run
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace._report import contents, report, rows
from headrace._report.charts import specification
from headrace._report.profile import profile_figures

TITLES = [
    "The machine",
    "Latency of a load",
    "How many bytes per second",
    "Loaded latency",
    "STREAM's kernels",
    "Copying from memory to memory",
    "Moving pages to another node",
    "Files on storage",
    "Who slows whom",
    "Copies by DSA devices",
    "GPUs",
    "How many loads a core has under way",
    "How long a cache line takes from CPU to CPU",
    "Reads split over two memories",
    "tlb",
    "Ways from memory to memory, side by side",
    "What a GB costs the cores",
    "What was not measured",
    "How it was measured",
]


def drawn(document: dict[str, Any], folder: Path) -> str:
    """The page without its scripts, as text with its tags."""
    report.build(document, folder / "page.html")
    return html.unescape((folder / "page.html").read_text())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return drawn(documents.profile(), tmp_path_factory.mktemp("report"))


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r"const figures = (.*);\n", page)
    assert found
    figures: dict[str, Any] = json.loads(found[1])
    return figures


def section(page: str, title: str) -> str:
    return page.partition(f"<h2>{title}</h2>")[2].partition("<h2>")[0]


def charts_of(page: str, title: str) -> list[dict[str, Any]]:
    figures = figures_of(page)
    return [figures[name] for name in re.findall(r'id="(figure\d+)"', section(page, title))]


def lines_in(chart: dict[str, Any]) -> set[str]:
    return {row["line"] for row in chart["data"]["values"]}


def test_every_experiment_has_its_figure_sentence_and_table(page: str) -> None:
    assert re.findall("<h2>(.*?)</h2>", page.partition("<script>")[0]) == TITLES
    measured = [row for row in documents.profile()["rows"] if row["median"] is not None]
    assert page.count("<tr>") >= len(measured)
    figures = figures_of(page)
    assert all(f'id="{name}"' in page for name in figures)
    for title in TITLES[:-4]:
        assert "<table>" in section(page, title)
    for title in TITLES[:-2]:
        assert re.search("<figcaption>.+</figcaption>", section(page, title))
    for title in [*TITLES[1:-5], *TITLES[-4:-2]]:
        assert charts_of(page, title)
    assert "noisy" in page and "no memory free on node 3" in page


CONDITIONS = {
    "budget_s": "60.0", "rounds": "6", "looks_disturbed": "5 of 61", "governor": "powersave",
    "transparent_hugepage": "always [madvise] never", "hypervisor": "yes", "numa_balancing": "1",
    "load_average": "0.05 0.10 0.08 1/300 4711", "cpu_limit": "2.5 CPUs' time",
    "memory_nodes": "0-7",
}  # fmt: skip


def few_rows() -> dict[str, Any]:
    """A profile whose pictures are soon drawn."""
    document = documents.profile()
    return document | {"rows": document["rows"][:4]}


def test_conditions_are_at_the_top_of_page_and_picture() -> None:
    document = few_rows()
    document["conditions"] |= CONDITIONS
    content = contents.content_of(document)
    assert content.basis[2:] == [
        "Measured with budget 60.0 s, 6 rounds, host busy at 5 of 61 checks.",
        "Host: governor powersave, transparent huge pages madvise, NUMA balancing on (1), under a "
        "hypervisor, load 0.05 at the beginning.",
        "Limited by control groups: 2.5 CPUs' time, memory of nodes 0-7.",
    ]
    (listed,) = [figure for figure in content.figures if figure.title == "How it was measured"]
    assert {f"{name}: {text}" for name, text in CONDITIONS.items()} <= set(listed.items)
    document["conditions"] = {}
    assert len(contents.content_of(document).basis) == 2


@pytest.mark.parametrize(
    ("provenance", "level"),
    [
        ({}, "real hardware: measured on testbed, 2026-11-21T04:00:00+00:00."),
        ({"hypervisor": "yes", "system": "Cloud Large"},
         "real hardware: measured on testbed, 2026-11-21T04:00:00+00:00, in a virtual machine "
         "(Cloud Large)."),
        ({"hypervisor": "yes"}, "real hardware: measured on testbed, 2026-11-21T04:00:00+00:00, in "
         "a virtual machine."),
        ({"hypervisor": "yes", "system": "QEMU Standard PC"},
         "guest: a virtual machine with a chosen topology: placement is real, speeds are not."),
    ],
)  # fmt: skip
def test_a_profile_says_what_it_was_measured_on(provenance: dict[str, str], level: str) -> None:
    document = few_rows()  # of a machine with HBM and CXL memory
    document["provenance"] = document["provenance"] | provenance
    assert contents.content_of(document).basis[0] == f"Rests on {level}"


def test_conditions_of_what_was_published_are_those_of_its_source() -> None:
    document = few_rows()
    document["conditions"] |= CONDITIONS
    for row in document["rows"]:
        row["source"] = "a paper"
    content = contents.content_of(document)
    assert not any("Host:" in line for line in content.basis)
    assert "How it was measured" not in [figure.title for figure in content.figures]


def hollow_points(chart: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        layer for layer in chart["layer"]
        if layer["mark"]["type"] == "point" and layer["mark"]["filled"] is False
    ]  # fmt: skip


def test_noisy_rows_are_drawn_as_noisy(tmp_path: Path) -> None:
    document = documents.profile()
    chosen = [row for row in document["rows"] if row["experiment"] in ("latency", "stream")]
    for row in chosen:
        row["flags"] = ["noisy"] if row["parameters"].get("window") == "all" else []
    next(row for row in chosen if row["experiment"] == "stream")["flags"] = ["noisy"]
    page = drawn(document | {"rows": chosen}, tmp_path)
    heat, sizes, *_ = charts_of(page, "Latency of a load")
    cells = heat["data"]["values"]
    assert all(cell["text"].startswith("~") and "noisy" in cell["words"] for cell in cells)
    (hollow,) = hollow_points(sizes)
    assert hollow["transform"][0]["filter"] == "datum.noisy === true"
    (bars,) = charts_of(page, "STREAM's kernels")
    assert bars["layer"][0]["encoding"]["opacity"]["condition"]["value"] < 1
    stream = section(page, "STREAM's kernels")
    assert "1 of them is noisy, measured while something else ran" in stream


def heats_of(page: str) -> dict[str, list[dict[str, Any]]]:
    """The cells of each heat map, by what is on its rows and columns; those without rows to be
    noisy are left out."""
    found = {}
    for name, figure in figures_of(page).items():
        cells = figure.get("layer", [{}])[0].get("data", figure.get("data", {})).get("values", [])
        if cells and "shade" in cells[0] and "column" in cells[0]:
            found[name] = [cell for cell in cells if cell["shade"] is not None]
    return found


@pytest.mark.parametrize("noisy", [True, False])
def test_every_heat_map_says_what_is_noisy_and_what_is_behind(tmp_path: Path, noisy: bool) -> None:
    document = documents.profile()
    maps = ("latency", "bandwidth", "interference", "core_to_core")
    document["rows"] = [row for row in document["rows"] if row["experiment"] in maps]
    for row in document["rows"]:
        row |= {"flags": ["noisy"] if noisy else [], "cpus": "0-3"}
    heats = heats_of(drawn(document, tmp_path))
    assert len(heats) == 4, "latency, bandwidth, who slows whom, CPU to CPU"
    for name, cells in heats.items():
        assert cells, name
        for cell in cells:
            assert cell["text"].startswith("~") == noisy, (name, cell)
            assert "5 mappings" in cell["words"] and "CPUs 0-3" in cell["words"], (name, cell)
            assert ("noisy" in cell["words"]) == noisy, (name, cell)


def test_rows_not_all_in_huge_pages_say_so(tmp_path: Path) -> None:
    chosen = [row for row in documents.profile()["rows"] if row["experiment"] == "stream"]
    for row in chosen:
        row["flags"] = []
    page = drawn(documents.profile() | {"rows": chosen}, tmp_path)
    assert "huge pages" not in section(page, "STREAM's kernels")
    for row in chosen[:2]:
        row |= {"flags": ["not_huge"], "details": row.get("details", {}) | {"huge_part": 0.375}}
    page = drawn(documents.profile() | {"rows": chosen}, tmp_path)
    assert "2 of them were to be in huge pages, and not all" in section(page, "STREAM's kernels")
    (bars,) = charts_of(page, "STREAM's kernels")
    tips = [row["behind"] for row in bars["data"]["values"] if "huge pages" in row["behind"]]
    assert tips and all(tip.endswith(", 38 % in huge pages") for tip in tips)


def test_unsteady_rows_say_so_and_quiet_ones_nothing(tmp_path: Path) -> None:
    chosen = [row for row in documents.profile()["rows"] if row["experiment"] == "loaded"]
    for row in chosen:
        row["flags"] = []
    title = "Loaded latency"
    page = drawn(documents.profile() | {"rows": chosen}, tmp_path)
    assert "unsteady" not in section(page, title)
    assert not any(hollow_points(chart) for chart in charts_of(page, title))
    assert "noisy, measured" not in section(page, title)
    chosen[0]["flags"] = ["unsteady"]
    page = drawn(documents.profile() | {"rows": chosen}, tmp_path)
    assert "1 of them is unsteady: the bandwidth still moved" in section(page, title)


def curves_of_threads() -> dict[str, Any]:
    """Loaded latencies with all CPUs but one, and with 4 and 16 threads of traffic."""
    document = documents.profile()
    rows = [row for row in document["rows"] if row["experiment"] == "loaded"]
    asked = [
        row | {"parameters": row["parameters"] | {"threads": threads}}
        for threads in (4, 16) for row in rows
    ]
    return document | {"rows": [*rows, *asked]}


@pytest.mark.parametrize("pairs", ["one", "several"])
def test_curves_of_other_numbers_of_threads_are_other_lines(tmp_path: Path, pairs: str) -> None:
    document = curves_of_threads()
    if pairs == "one":
        document["rows"] = [
            row for row in document["rows"]
            if (row["parameters"]["cpu_node"], row["parameters"]["memory_node"]) == (0, 2)
            and row["parameters"]["mix"] in ("read", "1:1")
        ]  # fmt: skip
    page = drawn(document, tmp_path)
    title = "Loaded latency"
    whole = {"one": "read", "several": "CPUs 0, CXL 3"}[pairs]
    first, *others = charts_of(page, title)
    assert {whole, f"{whole}, 4 threads", f"{whole}, 16 threads"} <= lines_in(first)
    for chart in (first, *others):
        points = [(p["line"], p["order"]) for p in chart["data"]["values"]]
        assert len(points) == len(set(points)), "one number for each pause"
        assert len(lines_in(chart)) <= rows.MOST_LINES
    assert ("A chart has at most 8 lines" in section(page, title)) == (pairs == "several")


def test_numbers_say_of_how_many(page: str) -> None:
    stream = section(page, "STREAM's kernels")
    assert "Best and worst are of 8 rows, each the median of 5 mappings." in stream
    profile = headrace.Profile.fromdict(documents.profile())
    listed = rows.table(profile.rows[:2])
    assert listed.rows[0][listed.head.index("n")] == "5" and "CPUs" not in listed.head
    document = documents.profile()
    document["rows"][0]["cpus"] = "0-3,8"
    profile = headrace.Profile.fromdict(document)
    listed = rows.table(profile.rows[:2])
    assert listed.rows[0][listed.head.index("CPUs")] == "0-3,8"
    behind = rows.point(profile.rows[0], 1)["behind"]
    assert re.fullmatch(r"5 mappings, range of 5: \S+ ns to \S+ ns, CPUs 0-3,8", behind)


def test_migration_of_one_size_and_what_of_it_is_copying(tmp_path: Path) -> None:
    rows = [row for row in documents.profile()["rows"] if row["experiment"] == "migrate"]
    for row in rows:
        row["parameters"] = row["parameters"] | {"bytes": 64 << 20}
        row["details"] = row["details"] | {"copy_share": 0.42} if "details" in row else {}
    small = [
        row | {"parameters": row["parameters"] | {"bytes": 1 << 20}, "median": 7e12}
        for row in rows if row["parameters"]["method"] == "copy"
    ]  # fmt: skip
    page = drawn(documents.machine() | {"conditions": {}, "rows": rows + small}, tmp_path)
    text = section(page, "Moving pages to another node")
    assert "pages in a call of 64 MiB in all" in text and "moved 7000 GB/s" not in text
    assert "<td>42 %</td>" in text


def test_overlapping_intervals_are_no_difference(tmp_path: Path) -> None:
    rows = [row for row in documents.profile()["rows"] if row["experiment"] == "migrate"]
    for row in rows:
        row |= {"low": 1e9, "high": 9e10, "interval": "95 %"}
    page = drawn(documents.machine() | {"conditions": {}, "rows": rows}, tmp_path)
    text = section(page, "Moving pages to another node")
    assert "which cannot be told apart from the best way that keeps the address" in text


def test_processes_are_told_beside_threads_and_not_drawn_among_them(tmp_path: Path) -> None:
    make = documents.Maker(1)
    where = {"victim": "copy 0>0", "aggressor": "copy 0>0", "cpu_node": 0,
             "aggressor_cpu_node": 0, "aggressors": 1}  # fmt: skip
    details = {"alone": 1e10, "together": 5e9, "aggressor_alone": 1e10, "aggressor_together": 5e9,
               "total": 1e10, "fairness": 1.0}  # fmt: skip
    rows = [
        make.row("interference", "x", 2.0, **where, details=details | {"ratio_to_threads": 1.0}),
        make.row("interference", "x", 3.0, **where, between="processes",
                 details=details | {"ratio_to_threads": 1.5}),
    ]  # fmt: skip
    text = section(drawn(documents.machine() | {"conditions": {}, "rows": rows}, tmp_path),
                   "Who slows whom")  # fmt: skip
    assert "Worst off was copy 0 to 0 while copy 0 to 0 ran: slowed down 2" in text
    assert "As processes instead of threads: copy 0 to 0 beside 1 x copy 0 to 0 3" in text
    assert "(1.5 of what threads do)" in text


def test_sentences_are_made_from_the_numbers(tmp_path: Path) -> None:
    document = documents.machine() | {
        "conditions": {},
        "rows": [
            {
                "experiment": "bandwidth", "unit": "B/s", "median": 25e9, "samples": [25e9],
                "parameters": {"cpu_node": 0, "memory_node": 2, "mix": "read", "threads": 1},
            }
        ],
    }  # fmt: skip
    report.build(document, tmp_path / "page.html")
    page = html.unescape((tmp_path / "page.html").read_text())
    assert "Peak of one node: 25 GB/s (read, CPUs 0, HBM 2)." in page
    assert "CPUs 0: 25 GB/s" in page


def test_few_rows_are_enough(tmp_path: Path) -> None:
    """One row of each experiment, the first: no chart needs another."""
    document = documents.profile()
    names = list(dict.fromkeys(row["experiment"] for row in document["rows"]))
    rows = [next(r for r in document["rows"] if r["experiment"] == name) for name in names]
    page = drawn(document | {"rows": rows}, tmp_path)
    assert re.findall("<h2>(.*?)</h2>", page.partition("<script>")[0]) == [
        title for title in TITLES if title != "What was not measured"
    ]


@given(data=st.data())
def test_any_rows_can_be_drawn(data: st.DataObject) -> None:
    """Whatever the budget left, and whatever was found to be nothing."""
    document = documents.profile()
    rows = data.draw(st.lists(st.sampled_from(document["rows"]), min_size=1, max_size=12))
    if data.draw(st.booleans()):
        nothing = {"median": 0.0, "low": 0.0, "high": 0.0, "samples": [0.0]}
        zeros = [dict.fromkeys(row["details"], 0.0) for row in rows]
        rows = [row | nothing | {"details": each} for row, each in zip(rows, zeros, strict=True)]
    profile = headrace.Profile.from_json(json.dumps(document | {"rows": rows}))
    for figure in profile_figures(profile):
        for _, chart in figure.charts:
            assert specification(chart)


def test_numbers_that_no_machine_reaches_are_told(tmp_path: Path) -> None:
    document = documents.profile()
    names = list(dict.fromkeys(row["experiment"] for row in document["rows"]))
    rows = [next(r for r in document["rows"] if r["experiment"] == name) for name in names]
    huge = {"median": 1e308, "low": 1e308, "high": 1e308, "samples": [1e308] * 5}
    rows += [row | huge for row in rows]
    report.build(document | {"rows": rows}, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("1 row: has a number that no machine reaches") == len(names)
    assert "1e+308" not in page and "Infinity" not in json.dumps(figures_of(page))


def test_strings_are_only_text(tmp_path: Path) -> None:
    document = documents.profile()
    evil = "</script><b>\x1b[31m\ud800\x00\u202e"
    document["name"] = evil
    document["rows"] = document["rows"][:1]
    document["rows"][0]["reason"] = document["rows"][0]["source"] = evil
    report.build(document, tmp_path / "page.html", tmp_path / "page.png")
    page = (tmp_path / "page.html").read_text()
    told = "&lt;/script&gt;&lt;b&gt;\ufffd[31m\ufffd\ufffd\ufffd"
    assert f"<h1>Headrace on {told}</h1>" in page and f"<li>{told}: 1 row</li>" in page
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_a_large_machine_makes_no_heavy_page(tmp_path: Path) -> None:
    """16 nodes with 24 CPUs each, every pair at many points."""
    document = documents.large_profile()
    for node in document["nodes"]:
        node["cpus"] = list(range(node["id"] * 24, node["id"] * 24 + 24))
    make = documents.Maker(1)
    document["rows"] = [
        make.row("latency", "ns", 88.0 + abs(cpu - memory), cpu_node=cpu, memory_node=memory,
                 bytes=1 << exponent, window="all", pages="huge")
        for cpu in range(16) for memory in range(16) for exponent in range(12, 36, 3)
    ]  # fmt: skip
    page = drawn(document, tmp_path)
    assert len(page) < 2_500_000
    assert len(charts_of(page, "Latency of a load")[0]["data"]["values"]) == 256
    table = section(page, "Latency of a load").partition("<details>")[2]
    assert "2048 rows, the first 2000 of them; the document has all" in table
    assert table.count("<tr>") == 2001


def test_the_command_draws_a_profile(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(few_rows()))
    result = run("report", "p.json", "--html", "page.html")
    assert (result.returncode, result.stdout, result.stderr) == (0, "page.html\n", "")
    broken = few_rows()
    broken["rows"][0]["samples"] = "many"
    (tmp_path / "p.json").write_text(json.dumps(broken))
    refused = run("report", "p.json", "--html", "page.html")
    assert refused.returncode == 2 and "rows[0].samples" in refused.stderr


def test_every_experiment_can_be_drawn(measured: headrace.Profile, tmp_path: Path) -> None:
    report.build(json.loads(measured.to_json()), tmp_path / "page.html")
    assert "STREAM" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("preset", [*headrace.presets(), "profile"])
def test_each_bar_has_a_place_of_its_own(preset: str) -> None:
    """Two numbers at one place would be drawn upon each other, past the end of the axis."""
    made = documents.profile() if preset == "profile" else headrace.Profile.load(preset).asdict()
    for figure in profile_figures(headrace.Profile.fromdict(made)):
        for heading, chart in figure.charts:
            drawn = specification(chart)
            layers = drawn.get("layer", [drawn])
            bars = [each for each in layers if each.get("mark", {}).get("type") == "bar"]
            for layer in bars:
                assert layer["encoding"]["x"]["stack"] is None
                data = layer.get("data") or drawn["data"]
                places = [(row["bar"], row["line"]) for row in data["values"]]
                assert len(places) == len(set(places)), (figure.title, heading)


def test_a_page_of_published_figures_says_nothing_was_measured(tmp_path: Path) -> None:
    page = drawn(headrace.Profile.load("gh200").asdict(), tmp_path)
    text = re.sub(r"<[^>]*>", " ", page[page.index("<main>") : page.index("</main>")])
    told = {"not measured", "nothing on this page was measured", "not been measured"}
    for words in told:
        text = text.replace(words, "")
    assert "measured" not in text
    (axis,) = {
        layer["encoding"]["x"]["axis"]["labelExpr"]
        for chart in charts_of(page, "GPUs") for layer in chart["layer"]
        if "labelExpr" in layer["encoding"]["x"].get("axis", {})
    }  # fmt: skip
    assert axis.count("'.4~r'") == 4, "a size of 4 GB has no twelve digits"
