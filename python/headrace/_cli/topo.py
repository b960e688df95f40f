"""headrace topo"""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace._cli import output


def run(*, json: bool, source: str | None, xml: bool) -> None:
    if json and xml:
        raise headrace.InvalidError("--json and --xml exclude each other")
    if source is None:
        machine = headrace.Machine.discover()
    else:
        machine = load(source)
    if json:
        output.print_text(machine.to_json())
    elif xml:
        output.print_text(machine.to_hwloc_xml())
    else:
        output.print_text(machine.to_text())


def load(source: str) -> headrace.Machine:
    """What `--json` or `--xml` wrote, told apart by the first character, or a preset."""
    path = Path(source)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(64).lstrip().startswith(b"<"):
                return headrace.Machine.discover(hwloc_xml=path, storage=[])
    return headrace.Machine.load(source)
