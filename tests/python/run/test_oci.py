# SPDX-License-Identifier: Apache-2.0
"""Placements in the configuration of a container. Its schema is that of the OCI runtime
specification; `HEADRACE_OCI_SCHEMA=FOLDER` names it (github.com/opencontainers/runtime-spec).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
from conftest import Run

import headrace
from headrace._run import oci
from headrace._run.plan import Plan

#: The file that `runc spec` writes, shortened.
CONFIG = {
    "ociVersion": "1.0.2",
    "process": {"args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
    "root": {"path": "rootfs"},
    "linux": {"resources": {"devices": [{"allow": False, "access": "rwm"}]}, "namespaces": []},
}


def valid(config: dict[str, Any]) -> None:
    """Compares with the schema, where it is."""
    if (folder := os.environ.get("HEADRACE_OCI_SCHEMA")) is None:
        return
    read = {path.name: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}
    draft = referencing.jsonschema.DRAFT4
    registry: Any = referencing.Registry(
        retrieve=lambda name: draft.create_resource(read[name.rpartition("/")[2]])
    )
    validator = jsonschema.Draft4Validator(read["config-schema.json"], registry=registry)
    validator.validate(config)


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        (["--on", "hbm"], {"mode": "MPOL_BIND", "nodes": "8-15"}),
        (["--prefer", "hbm"], {"mode": "MPOL_PREFERRED_MANY", "nodes": "8-15"}),
        (["--prefer", "8"], {"mode": "MPOL_PREFERRED", "nodes": "8"}),
        (["--interleave", "0-7"], {"mode": "MPOL_INTERLEAVE", "nodes": "0-7"}),
    ],
)
def test_a_placement_is_the_policy_of_a_container(
    run: Run, tmp_path: Path, flags: list[str], policy: dict[str, str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    dry = run("run", *flags, "--from", "xeon-max", "--oci", str(path), "--dry-run")
    assert f"config.json would get: linux.memoryPolicy {policy['mode']}" in dry.stderr
    assert json.loads(path.read_text()) == CONFIG
    for _ in range(2):  # a second time it changes nothing
        result = run("run", *flags, "--from", "xeon-max", "--oci", str(path))
        assert result.returncode == 0, result.stderr
        assert f"linux.memoryPolicy {policy['mode']} {policy['nodes']}" in result.stderr
        written = json.loads(path.read_text())
        linux = {**CONFIG["linux"], "memoryPolicy": policy}  # type: ignore[dict-item]
        assert written == {**CONFIG, "ociVersion": "1.3.0", "linux": linux}
        valid(written)


def test_cpus_are_its_cpuset_and_a_new_file_is_one(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    flags = ["--on", "8", "--cpus", "near:8", "--from", "xeon-max"]
    assert run("run", *flags, "--oci", str(path)).returncode == 0
    written = json.loads(path.read_text())
    assert written == {
        "ociVersion": "1.3.0",
        "linux": {
            "resources": {"cpu": {"cpus": "0-11"}},
            "memoryPolicy": {"mode": "MPOL_BIND", "nodes": "8"},
        },
    }
    valid(written)


def test_every_policy_has_a_mode_and_a_newer_version_stays() -> None:
    for policy in ("bind", "preferred", "preferred_many", "interleave", "weighted_interleave"):
        config = {"ociVersion": "1.4.0-rc.1"}
        made = oci.placed(config, Plan(policy=policy, nodes=[1]))
        assert made["ociVersion"] == "1.4.0-rc.1"
        assert made["linux"]["memoryPolicy"]["mode"] == f"MPOL_{policy.upper()}"
        valid(made)


def test_bad_configurations_are_one_line_and_stay(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    narrow = {**CONFIG, "linux": {"resources": {"cpu": {"mems": "0-9"}}}}
    for text, message in (
        ("[1]", "is no config.json of a container"),
        ('{"linux": 3}', "is no config.json of a container"),
        ('{"ociVersion": 3}', "is no config.json of a container"),
        ("{", "config.json: "),
        ("", "is empty"),
        (json.dumps(narrow), "allows nodes 0-9, and the placement needs 10-15 too"),
    ):
        path.write_text(text)
        result = run("run", "--on", "hbm", "--from", "xeon-max", "--oci", str(path))
        assert result.returncode != 0
        assert message in result.stderr and result.stderr.count("\n") == 1, result.stderr
        assert path.read_text() == text
    for flags, message in (
        (["--oci", str(path), "--", "./a"], "takes no PROGRAM"),
        (["--oci", str(path), "--tile", "per-rank"], "takes no PROGRAM, --tile"),
        ([], "no PROGRAM; give one after --"),
    ):
        result = run("run", "--on", "dram", *flags)
        assert result.returncode == 2 and message in result.stderr, result.stderr


def test_a_plan_without_memory_leaves_the_policy() -> None:
    config = {"ociVersion": "1.3.0", "linux": {"memoryPolicy": {"mode": "MPOL_LOCAL"}}}
    assert oci.placed(config, Plan(cpus=[0, 1]))["linux"]["memoryPolicy"] == {"mode": "MPOL_LOCAL"}
    with pytest.raises(headrace.InvalidError, match="needs 3 too"):
        oci.placed({"linux": {"resources": {"cpu": {"mems": "0"}}}}, Plan("bind", [0, 3]))
