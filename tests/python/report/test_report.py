# SPDX-License-Identifier: Apache-2.0
"""The report: complete by itself, honest about what is missing, and true to its numbers."""

from __future__ import annotations

import errno
import html
import json
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report_documents as documents
from hypothesis import given
from hypothesis import strategies as st

import headrace

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from headrace import _format
from headrace._cli import report as command
from headrace._report import charts_query, contents, report


def text_of(page: str) -> str:
    """Text that a person reads: the body without scripts and tags."""
    body = page[page.index("<main>") : page.index("</main>")]
    return html.unescape(re.sub(r"<[^>]*>", " ", body))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.build(documents.whole(), path)
    return path.read_text()


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r"^const figures = (.*);$", page, re.MULTILINE)
    assert found
    figures: dict[str, Any] = json.loads(found[1])
    return figures


def test_the_page_needs_nothing_else(page: str) -> None:
    outside = page[: page.index("<script>")] + page[page.rindex("<script>") :]
    # The schema's name and SVG's are names, not places that are read.
    for name in ("https://vega.github.io/schema/vega-lite/v", "http://www.w3.org/2000/svg"):
        outside = outside.replace(name, "")
    assert "http://" not in outside and "https://" not in outside
    assert not re.search(r"<(script|img|link)[^>]* src=", outside)
    assert "vegaEmbed" in page


def test_scripts_end_where_they_should(page: str) -> None:
    assert len(re.findall(r"<script>", page)) == 2
    assert len(re.findall(r"</script", page, re.IGNORECASE)) == 2


def test_every_figure_has_its_place_and_its_sentence(page: str) -> None:
    figures = figures_of(page)
    assert len(figures) == 8
    for name, figure in figures.items():
        assert f'id="{name}"' in page
        assert figure["width"] == "container"
        assert figure["config"]["background"] == "transparent"
    captions = re.findall(r"<figcaption>(.+?)</figcaption>", page)
    assert len(captions) == page.count("<figure>") == 6
    assert all(len(caption) > 40 for caption in captions)


def test_the_page_says_what_it_rests_on(page: str) -> None:
    text = text_of(page)
    for fact in ("Rests on real hardware", "testbed", "2026-11-21", "Headrace 0.1.0",
                 "Example CPU", "in a virtual machine"):  # fmt: skip
        assert fact in text


def test_sentences_follow_the_numbers(tmp_path: Path) -> None:
    document = documents.query()
    for mode, seconds in (("direct", 0.4), ("mmap", 0.3), ("prefetch", 0.2)):
        documents.replace(document, documents.query_row(mode, [seconds]))
    documents.replace(document, documents.overlap_row([0.925]))
    document["answer_ok"] = False
    report.build(document, tmp_path / "r.html")
    text = text_of((tmp_path / "r.html").read_text())
    assert "1.50 × as fast as mmap" in " ".join(text.split()), "not against the slowest way"
    assert "direct 2.00 × and mmap 1.50 ×" in text or "direct 2.00 ×, mmap 1.50 ×" in text
    assert "92 %" in text
    assert "WRONG" in text and "trust no number here" in text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.87, "87 %"), (1.02, "≈ 100 % (2.0 % faster than the floor as measured)"),
     (1.17, "≈ 100 % (17 % faster than the floor as measured)")],
)  # fmt: skip
def test_nothing_is_faster_than_its_floor(tmp_path: Path, share: float, text: str) -> None:
    document = documents.query()
    documents.replace(document, documents.overlap_row([share]))
    assert _format.efficiency(share) == text
    report.build(document, tmp_path / "r.html")
    shown = text_of((tmp_path / "r.html").read_text())
    assert f"overlap efficiency {text}, the larger of the two" in " ".join(shown.split())
    assert text.partition(" (")[0] + " overlap efficiency" in " ".join(shown.split())
    assert "no overlap can take less" not in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34, "12.3 s"), (0.99951, "1 s"), (0.0994, "99.4 ms"), (0.00123, "1.23 ms"), (2e-6, "2 µs"),
     (84e-9, "84 ns")],
)
def test_times_are_written_as_people_do(seconds: float, text: str) -> None:
    assert _format.elapsed(seconds) == text


def test_missing_fields_are_unknown(tmp_path: Path) -> None:
    document = documents.whole()
    document["machine"]["source"] = "discovered"
    del document["rests_on"], document["query"]
    report.build(document, tmp_path / "r.html")
    text = text_of((tmp_path / "r.html").read_text())
    assert "Rests on unknown" in text and "real hardware" not in text


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("query", "headrace bench query"),
        ("copy", "headrace bench copy"),
        ("rates", "headrace demo"),
    ],
)
def test_missing_parts_are_told(tmp_path: Path, missing: str, told: str) -> None:
    document = documents.whole()
    del document[missing]
    report.build(document, tmp_path / "r.html")
    assert told in text_of((tmp_path / "r.html").read_text())


def test_a_query_alone_is_enough(tmp_path: Path) -> None:
    report.build(documents.query(), tmp_path / "r.html")
    assert "The query in every mode" in (tmp_path / "r.html").read_text()


def test_output_of_topo_is_enough(tmp_path: Path) -> None:
    (tmp_path / "topo.json").write_text(headrace.Machine.load("xeon-max").to_json())
    page = tmp_path / "r.html"
    command.command(file=tmp_path / "topo.json", machine=None, html=page, png=None)
    assert "Headrace on xeon-max" in page.read_text()


@pytest.mark.parametrize("kind", ["advise_interleave", "advise_cost", "fleet"])
def test_documents_without_figures_are_refused_by_their_kind(tmp_path: Path, kind: str) -> None:
    document = {"schema_version": 1, "kind": kind, "nodes": [{"node": 0}], "rows": []}
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(headrace.InvalidError, match=f"report draws nothing of '{kind}'"):
        command.command(file=tmp_path / "a.json", machine=None, html=None, png=None)


def test_an_interrupted_query_is_enough(tmp_path: Path) -> None:
    document = documents.query()
    document["rows"] = [
        documents.query_row(row["parameters"]["mode"], [], "interrupted")
        for row in document["rows"] if row["experiment"] == "query"
    ]  # fmt: skip
    document |= {"timeline": {}, "cache": None, "answer_ok": None}
    report.build(document, tmp_path / "r.html")
    assert "No query was run" in (tmp_path / "r.html").read_text()


def test_a_mode_without_a_number_has_its_reason(tmp_path: Path) -> None:
    document = documents.query()
    documents.replace(document, documents.query_row("mmap", [], "mmap maps files"))
    report.build(document, tmp_path / "r.html")
    assert "not measured: mmap maps files" in text_of((tmp_path / "r.html").read_text())


def test_nothing_to_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(headrace.InvalidError, match="nothing to report"):
        report.build({"schema_version": 1}, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    document = documents.whole()
    evil = "</script><script>alert(1)</script><b>&"
    document["machine"]["name"] = evil
    document["machine"]["nodes"][0]["name"] = evil
    document["rates"][0]["what"] = evil
    document["warnings"] = [evil]
    document["query"]["timeline"]["direct"]["blocks"][0]["column"] = evil
    path = tmp_path / "r.html"
    report.build(document, path)
    assert "<script>alert" not in path.read_text()
    assert len(re.findall(r"</script", path.read_text(), re.IGNORECASE)) == 2
    assert evil in text_of(path.read_text())


def test_the_picture_is_a_png_with_all_figures(tmp_path: Path) -> None:
    report.build(documents.whole(), tmp_path / "r.html", tmp_path / "r.png")
    data = (tmp_path / "r.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert 2 * 900 < width < 2 * 1350
    assert height > width


def test_a_report_that_cannot_be_written_leaves_the_old(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(headrace.AbsentError, match="cannot write"):
        report.build(documents.whole(), tmp_path / "file" / "r.html")
    assert (tmp_path / "file").read_text() == "old"


def test_spans_are_merged() -> None:
    spans = [(3.0, 4.0), (0.0, 1.0), (0.5, 2.0), (2.05, 2.5)]
    assert charts_query.merged(spans, 0.1) == [(0.0, 2.5), (3.0, 4.0)]
    assert charts_query.merged([], 0.1) == []


def test_long_runs_make_no_heavy_page(tmp_path: Path) -> None:
    document = documents.query(chunks=3000)
    report.build(document, tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 2_000_000


def machine_of(document: dict[str, Any]) -> Any:
    return next(f for f in contents.content_of(document).figures if f.title == "The machine")


def drawn(figure: Any) -> str:
    """The words in a figure's only chart, a line each."""
    (_, chart), = figure.charts
    layers = chart.to_dict()["layer"]
    texts = [layer["data"]["values"] for layer in layers if layer["mark"]["type"] == "text"]
    return "\n".join(text["text"] for layer in texts for text in layer)


def test_machines_of_every_kind_can_be_drawn() -> None:
    machine = documents.machine()
    for number in range(1, 16):
        kind = ("dram", "hbm", "cxl", "gpu")[number % 4]
        machine["nodes"].append(
            {"id": number, "kind": kind, "reason": "r", "capacity_bytes": None, "name": "",
             "cpus": []}
        )  # fmt: skip
    found = drawn(machine_of({"machine": machine}))
    assert "DRAM 0" in found and "24 GiB" in found and "vda" in found
    assert "HBM 1, 5, 9, 13" in found, "alike nodes are one box"


@pytest.mark.parametrize("measured", [False, True])
def test_arrows_say_whether_they_were_measured(measured: bool) -> None:
    machine = documents.machine()
    rated = {"initiator": 0, "read_latency_ns": 100, "read_bandwidth_bytes_per_second": 2e10}
    machine["nodes"][0]["access"] = [rated | {"measured": False}]
    if measured:
        machine["nodes"][0]["access"].append(
            rated | {"read_bandwidth_bytes_per_second": 1.7e10, "measured": True}
        )
    figure = machine_of({"machine": machine})
    assert ("is rated at" in figure.caption) == (not measured)
    assert ("reached" in figure.caption) == measured
    found = drawn(figure).splitlines()
    assert f"CPUs 0: {17 if measured else 20} GB/s, 100 ns" in found
    assert "to node 0: 760 MB/s, back 410 MB/s" in found, "the disk was measured, too"


def test_an_unmeasured_machine_has_no_rates() -> None:
    figure = machine_of({"machine": documents.machine() | {"copy_rates": []}})
    assert "B/s" not in drawn(figure)
    assert "Its links have not been measured." in figure.caption


#: Wrong values, each put in place of any value of a document.
ODD = (None, True, -1, 0, 0.5, 1e308, -1e308, float("nan"), 10**30, "", "dram", "\ud800", [], [[]],
       {}, {"rows": 1})  # fmt: skip


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) within a JSON value; of a list, its first two places."""
    keys = list(value) if isinstance(value, dict) else range(min(2, len(value)))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places_in(value[key])


@given(data=st.data())
def test_odd_documents_are_drawn_or_refused(data: st.DataObject) -> None:
    document = documents.whole() | {"kind": "demo", "query": documents.query(chunks=2)}
    holder, key = data.draw(st.sampled_from(list(places_in(document))))
    if data.draw(st.booleans()):
        holder[key] = data.draw(st.sampled_from(ODD))
    else:
        del holder[key]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "odd.json")
        file.write_text(json.dumps(document))
        page = Path(folder, "page.html")
        try:
            command.command(file=file, machine=None, html=page, png=None)
        except headrace.Error as error:
            assert str(error)
            assert not page.exists()
        else:
            assert page.exists()


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 5000, '{"a": "\xff'])
def test_unparsable_document_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(headrace.InvalidError, match=r"odd\.json"):
        command.read(file)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: str, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(headrace.ExhaustedError, match="free space or choose another file"):
        report.build(documents.whole(), tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []
