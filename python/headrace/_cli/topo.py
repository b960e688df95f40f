"""headrace topo"""

from __future__ import annotations

import headrace
from headrace._cli import output


def run(*, json: bool, source: str | None, xml: bool) -> None:
    if json and xml:
        raise headrace.InvalidError("--json and --xml exclude each other")
    if source is None:
        machine = headrace.Machine.discover()
    else:
        machine = headrace.Machine.load(source)
    if json:
        output.print_text(machine.to_json())
    elif xml:
        output.print_text(machine.to_hwloc_xml())
    else:
        output.print_text(machine.to_text())
