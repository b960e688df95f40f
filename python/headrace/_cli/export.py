"""headrace export"""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace import _export
from headrace._cli import exit_codes, output


def export(*, profile: str, form: str, out: Path | None) -> int:
    if form not in _export.FORMATS:
        raise headrace.InvalidError(f"no format '{form}'; there are {', '.join(_export.FORMATS)}")
    text = _export.FORMATS[form](headrace.Profile.load(profile))
    if out is None:
        output.print_text(text)
    else:
        output.check_writable(out)
        output.write_file(out, text)
    return exit_codes.SUCCESS
