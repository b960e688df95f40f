# SPDX-License-Identifier: Apache-2.0
"""The made-up rows of the tests hold nothing that rows of an experiment have not."""

from __future__ import annotations

import re
from pathlib import Path

import profile_documents as documents
import pytest

MEASURE = Path(__file__).resolve().parents[3] / "src" / "measure"


def sources(*folders: Path) -> str:
    """The code of these without comments and tests."""
    files = [
        file for folder in folders for file in sorted(folder.rglob("*"))
        if file.suffix in (".cpp", ".h") and not file.stem.endswith(("_test", "_bench", "_fuzz"))
    ]  # fmt: skip
    return "\n".join(re.sub("//.*", "", file.read_text()) for file in files)


def of_experiment(name: str) -> str:
    """Its own files and the instruments, which name details of their own."""
    experiments = MEASURE / "experiments"
    own = [experiments / f"{name}.cpp", experiments / f"{name}.h"]
    text = "\n".join(re.sub("//.*", "", file.read_text()) for file in own if file.is_file())
    return text + sources(experiments / name, MEASURE / "instruments")


@pytest.mark.parametrize("experiment", [each.__name__ for each in documents.EXPERIMENTS])
def test_every_detail_of_the_documents_is_one_of_the_experiment(experiment: str) -> None:
    """A detail that no measured row has would be drawn only in these tests."""
    rows = [*documents.profile()["rows"], *documents.family(documents.Maker(1))]
    found = {name for row in rows if row["experiment"] == experiment for name in row["details"]}
    text = of_experiment(experiment)
    assert text, "it has sources"
    assert [name for name in sorted(found) if f'"{name}"' not in text] == []
