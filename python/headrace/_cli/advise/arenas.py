# SPDX-License-Identifier: Apache-2.0
"""headrace advise arenas"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.options import OutOnly
from headrace._errors import error_of
from headrace._files import check_writable, read_whole, write_whole
from headrace._format import in_one_line, say


def command(
    seen: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="File that HEADRACE_ARENAS_SEEN named, or a plan."),
    ],
    tier: Annotated[
        list[str],
        typer.Option(
            metavar="PLACE[=SIZE]",
            help="Memory to use, fastest first: hbm:dram=16GiB, dram. The last one takes the rest.",
        ),
    ],
    out: OutOnly = None,
) -> None:
    """Plan which arenas (named heaps) belong on which memory.

    An arena is a named heap (headrace.arena). The hottest arenas come first; each goes as a whole
    to the first memory with room for its peak size. Arenas that were not seen are not in the plan
    and get the default placement. The plan is a text file that you may edit.

    \b
    HEADRACE_ARENAS_SEEN=seen.txt python program.py
    headrace advise arenas seen.txt --tier hbm:dram=16GiB --tier dram \\
      --out plan.txt
    HEADRACE_ARENAS=plan.txt python program.py
    """
    check_writable(out, seen)
    tiers = [_tier(text) for text in tier]
    for place, room in tiers[:-1]:
        if room is None:
            raise headrace.InvalidError(
                f"--tier {place}: how much of it? only the last takes all that is left; give "
                f"--tier {place}=16GiB"
            )
    uses = headrace.arenas_in_plan(_read(seen))
    plan = headrace.plan_arenas(uses, tiers)
    if out is None:
        output.print_as_is("\n".join(map(in_one_line, plan.rstrip("\n").split("\n"))))
    else:
        write_whole(out, plan)
    if unseen := [use.name for use in uses if use.looks == 0]:
        say(
            f"not placed, for nothing was seen of them: {', '.join(unseen)}; the plan says why, "
            "and may be edited"
        )


def _tier(text: str) -> tuple[str, int | None]:
    """Parses a place and a size. The size needs a unit, since plain numbers are weights, as in
    dram=3,cxl=1."""
    place, _, size = text.rpartition("=")
    if place and any(letter.isalpha() for letter in size):
        return place, parse.size(size)
    return text, None


def _read(path: Path) -> str:
    try:
        return read_whole(path).decode(errors="replace")
    except OSError as error:
        raise error_of(error, f"cannot read {path}", "what HEADRACE_ARENAS_SEEN wrote") from None
