# SPDX-License-Identifier: Apache-2.0
"""headrace doctor"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace._cli import output
from headrace._cli.options import Json
from headrace._doctor.audit import SETTING_STATES, audit
from headrace._doctor.host import Finding, Host
from headrace._doctor.probes import STATES, examine

_MARKS = {"ready": "ready", "limited": "limited", "off": "OFF", "absent": "-"}
_SETTING_MARKS = {"fine": "fine", "choice": "choice", "spoils": "SPOILS", "unknown": "-"}


def command(
    json: Json = False,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIRECTORY", help="Directory on the disk to examine.")
    ] = Path(),
) -> None:
    """Show missing features, harmful settings and the remedies.

    Examined are the features that Headrace can use, and the settings that make measurements slow
    or unsteady. A remedy stands beside each.
    """
    machine = headrace.Machine.discover()
    host = Host(machine, data)
    features, settings = examine(host), audit(host)
    if json:
        parts = {
            name: [finding.asdict() for finding in findings]
            for name, findings in (("features", features), ("settings", settings))
        }
        output.print_json(output.document("doctor", machine, **parts))
        return
    _print("feature", features, _MARKS)
    output.print_text(_summary(features, STATES))
    output.print_text("")
    _print("setting for measuring", settings, _SETTING_MARKS)
    output.print_text(_summary(settings, SETTING_STATES))


def _print(heading: str, findings: Sequence[Finding], marks: Mapping[str, str]) -> None:
    rows = [(finding.feature, marks[finding.state], finding.why) for finding in findings]
    output.print_table((heading, "state", "why"), rows, left=3)
    output.print_text("")
    for finding in findings:
        if finding.remedy is not None:
            output.print_text(f"{finding.feature}:\n    {finding.remedy}")


def _summary(findings: Sequence[Finding], states: Sequence[str]) -> str:
    counts = {state: sum(f.state == state for f in findings) for state in states}
    return ", ".join(f"{count} {state}" for state, count in counts.items())
