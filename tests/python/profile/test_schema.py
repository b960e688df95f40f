# SPDX-License-Identifier: Apache-2.0
"""docs/profile.schema.json says what profiles are: those we write and those we come with."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import profile_documents as documents
import pytest
from conftest import ROOT

import headrace


@pytest.fixture(scope="module")
def schema() -> Any:
    found = json.loads((ROOT / "docs" / "profile.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


@pytest.mark.parametrize("preset", headrace.presets())
def test_presets_are_profiles(schema: Any, preset: str) -> None:
    schema.validate(json.loads((ROOT / "machines" / f"{preset}.json").read_text()))
    schema.validate(json.loads(headrace.Machine.load(preset).to_json()))
    schema.validate(json.loads(headrace.Profile.load(preset).to_json()))


def test_written_documents_follow_the_schema(
    schema: Any, machine: headrace.Machine, measured: headrace.Profile
) -> None:
    schema.validate(json.loads(machine.to_json()))
    profile = headrace.Profile.from_json(json.dumps(documents.profile()))
    schema.validate(json.loads(profile.to_json()))
    schema.validate(json.loads(measured.to_json()))


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"nodes": [{"id": 0, "kind": "tape"}]},
        {"rows": [{"experiment": "latency", "median": None, "reason": ""}]},
        {"rows": [{"experiment": "latency", "median": -1}]},
        {"rows": [{"median": 1}]},
        {"rows": [{"experiment": "dsa", "median": 1, "basis": "modelled"}]},
    ],
)
def test_documents_against_the_schema_are_refused(schema: Any, change: dict[str, Any]) -> None:
    assert not schema.is_valid(documents.machine() | change)
