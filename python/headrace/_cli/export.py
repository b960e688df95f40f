# SPDX-License-Identifier: Apache-2.0
"""headrace export"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import headrace
from headrace._cli import output, parse, tables
from headrace._cli.options import Convention, OutOnly
from headrace._files import check_writable, write_whole
from headrace._profile import documents, exports


def command(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="Measured profile, or a preset.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help="Output format: table; csv; mlc (latency checkers); nvbandwidth (matrix of "
            "copies); hwloc (XML with memory attributes); weights (kernel interleave); "
            "memkind; audit (measured against firmware).",
        ),
    ],
    convention: Convention = None,
    out: OutOnly = None,
) -> None:
    """Convert a profile to the formats of other tools.

    \b
    headrace export profile.json --as csv --out profile.csv
    headrace export xeon-max --as weights
    """
    formats = exports.FORMATS | {"table": partial(tables.profile_text, convention=convention)}
    if form not in formats:
        raise headrace.InvalidError(f"no format '{form}'; there are {', '.join(formats)}")
    if convention is not None and form != "table":
        raise headrace.InvalidError(f"format {form} has one convention; --convention is for table")
    check_writable(out, profile)
    found = documents.load(profile)
    if out is None:
        show = output.print_text if form == "table" else output.print_as_is
        show(formats[form](parse.in_lines(found)))
    else:
        write_whole(out, formats[form](found))
