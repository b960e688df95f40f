"""headrace export"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import headrace
from headrace import _export
from headrace._cli import exit_codes, output, tables


def export(*, profile: str, form: str, convention: str | None, out: Path | None) -> int:
    formats = _export.FORMATS | {"table": partial(tables.profile_text, convention=convention)}
    if form not in formats:
        raise headrace.InvalidError(f"no format '{form}'; there are {', '.join(formats)}")
    if convention is not None and form != "table":
        raise headrace.InvalidError(f"format {form} has one convention; --convention is for table")
    text = formats[form](headrace.Profile.load(profile))
    if out is None:
        output.print_text(text)
    else:
        output.check_writable(out)
        output.write_file(out, text)
    return exit_codes.SUCCESS
