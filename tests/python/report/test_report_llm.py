# SPDX-License-Identifier: Apache-2.0
"""The report of documents of `bench layer`, `bench um` and `advise um`."""

from __future__ import annotations

from pathlib import Path

from conftest import Run

from headrace._report import contents

#: Documents of commands that need no hardware; their pages name what is drawn.
DOCUMENTS = {
    "layer": (["bench", "layer", "--bandwidth", "306GB/s,550GB/s"],
              "Milliseconds of a layer while it decodes"),
    "advice": (["advise", "um", "--size", "8GiB", "--machine", "gh200"],
               "Recipes for an array that a GPU reads"),
}  # fmt: skip


def test_documents_of_the_commands_are_drawn(run: Run, tmp_path: Path) -> None:
    made = [[*arguments, "--out", f"{name}.json"] for name, (arguments, _) in DOCUMENTS.items()]
    drawn = [["report", f"{name}.json", "--html", f"{name}.html"] for name in DOCUMENTS]
    for arguments in [*made, *drawn]:
        result = run(*arguments)
        assert (result.returncode, result.stderr) == (0, ""), result
    for name, (_, title) in DOCUMENTS.items():
        page = (tmp_path / f"{name}.html").read_text()
        assert title in page and "const figures = {}" not in page, name
        assert "Not measured" not in page and "Rests on model" in page, name


def test_emulated_gpus_are_marked_in_the_picture() -> None:
    figure = {"published": None, "measured": 2.0}
    document = {
        "schema_version": 1, "kind": "bench um", "basis": "emulated", "emulated": True, "rows": [],
        "published": [],
        "machines": [{"name": "here", "words": "a GPU"}],
        "cases": [{"machine": "here", "case": "managed", "size": 1 << 20, "reason": None,
                   "source": None, "first": figure, "steady": figure}],
    }  # fmt: skip
    chart = contents.content_of(document).figures[0].charts[0][1].to_dict(validate=False)
    assert [each["line"] for each in chart["data"]["values"]] == ["emulated"]
    color = chart["encoding"]["color"]
    assert color["legend"]["values"] == ["emulated"]
    # Not the hue of what was published in the next chart.
    hues = dict(zip(color["scale"]["domain"], color["scale"]["range"], strict=True))
    assert hues["emulated"] != hues["published"]
    assert "logarithmic" in chart["encoding"]["x"]["title"]
