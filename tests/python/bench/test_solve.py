# SPDX-License-Identifier: Apache-2.0
"""The solver of machine models, as Python calls it."""

from __future__ import annotations

import json

import pytest

import headrace
from headrace_bench import _core

FLOW = {
    "name": "reads", "threads": 12, "initiator": 0, "in_flight_bytes": 3000,
    "accesses": [{"node": 0, "kind": "read", "bytes": 1}],
}  # fmt: skip


def test_machine_with_a_model_answers_the_same_bytes_again() -> None:
    machine = json.loads(headrace.Machine.load("one-node").to_json())
    machine["model"] = {
        "ceilings": [{
            "name": "memory", "kind": "controller", "bandwidth": 1e10, "uncertainty": 0.1,
            "basis": "measured", "source": "here",
        }],
    }  # fmt: skip
    text = headrace.Machine.from_json(json.dumps(machine)).to_json()
    assert json.loads(text)["model"] == machine["model"]
    solver = _core.Solver.create(text)
    answer = solver.solve(json.dumps([FLOW]))
    assert solver.solve(json.dumps([FLOW])) == answer
    assert _core.Solver.create(text).solve(json.dumps([FLOW])) == answer
    document = json.loads(answer)
    (flow,) = document["flows"]
    assert flow["limit"] == "memory"
    assert flow["rate_low"] < flow["rate"] < flow["rate_high"]
    assert flow["rate"] == pytest.approx(1e10, rel=0.03)
    assert document["ceilings"][0]["basis"] == "measured"
    assert not document["bound"]


def test_machine_without_a_model_answers_with_bounds() -> None:
    machine = json.loads(headrace.Machine.load("one-node").to_json())
    del machine["model"]
    answer = _core.Solver.create(json.dumps(machine)).solve(json.dumps({"flows": [FLOW]}))
    assert json.loads(answer)["bound"]


def test_mistake_is_one_line() -> None:
    text = headrace.Machine.load("one-node").to_json()
    with pytest.raises(headrace.InvalidError, match=r"^flow 'reads': no node 99$"):
        bad = {**FLOW, "accesses": [{"node": 99, "kind": "read", "bytes": 1}]}
        _core.Solver.create(text).solve(json.dumps([bad]))
