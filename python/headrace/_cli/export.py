# SPDX-License-Identifier: Apache-2.0
"""headrace export"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import headrace
from headrace._cli import exit_codes, output, parse, tables
from headrace._cli.options import Convention, OutOnly
from headrace._files import check_writable, write_whole
from headrace._profile import exports


def command(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A measured profile, or a preset.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help="table; csv; mlc, as latency checkers print; nvbandwidth, copies as a matrix; "
            "hwloc, XML with memory attributes; weights, for the kernel's interleave; memkind; "
            "audit, of what firmware rates.",
        ),
    ],
    convention: Convention = None,
    out: OutOnly = None,
) -> int:
    """Turn a profile into what other tools read."""
    formats = exports.FORMATS | {"table": partial(tables.profile_text, convention=convention)}
    if form not in formats:
        raise headrace.InvalidError(f"no format '{form}'; there are {', '.join(formats)}")
    if convention is not None and form != "table":
        raise headrace.InvalidError(f"format {form} has one convention; --convention is for table")
    if out is not None:
        check_writable(out, profile)
    found = headrace.Profile.load(profile)
    if out is None:
        output.print_text(formats[form](parse.in_lines(found)))
    else:
        write_whole(out, formats[form](found))
    return exit_codes.SUCCESS
