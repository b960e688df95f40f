# SPDX-License-Identifier: Apache-2.0
"""headrace advise capacity"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.options import Json, Out
from headrace._files import check_writable
from headrace._format import prose

#: Shares of accesses shown besides the one asked for.
_SHOWN = (0.5, 0.75, 0.9, 0.95, 0.99)
#: Limit of pages and of accesses to a page: more are a mistake, and sums would overflow.
_MOST = 1e15
#: Bytes of all pages: as sizes are limited.
_MOST_BYTES = 1 << 62
#: Lines of a histogram: more are no histogram.
_MOST_LINES = 50_000_000


def command(
    histogram: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            help="File with the accesses of one page per line, or of a group: PAGES ACCESSES "
            "(of each).",
        ),
    ] = None,
    zipf: Annotated[
        Optional[float],
        typer.Option(
            metavar="EXPONENT",
            help="Exponent of a Zipf distribution, instead of a histogram: 0.99.",
        ),
    ] = None,
    pages: Annotated[
        Optional[int],
        typer.Option(metavar="NUMBER", min=1, help="Number of pages, with --zipf."),
    ] = None,
    accesses: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of accesses that fast memory must serve.")
    ] = "90%",
    fast: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE", help="Size of fast memory, to compute the share of accesses it serves."
        ),
    ] = None,
    page_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of a page.")] = "4KiB",
    json: Json = False,
    out: Out = None,
) -> int:
    """Advise how much fast memory serves a share of accesses.

    The hottest pages are assumed to be in fast memory, as promotion aims for. In a histogram, #
    begins a comment.

    \b
    headrace advise capacity --zipf 0.99 --pages 1000000 --accesses 90%
    headrace advise capacity --zipf 0.99 --pages 1000000 --fast 1GiB
    headrace advise capacity --histogram counts.txt
    """
    check_writable(out, histogram)
    share, page = parse.share(accesses), parse.size(page_size)
    if page == 0:
        raise headrace.InvalidError("a page of 0 bytes holds nothing; give --page-size 4KiB")
    size = None if fast is None else parse.size(fast)
    pages_for, accesses_of, total, what = _source(histogram, zipf, pages)
    if total * page > _MOST_BYTES:
        raise headrace.InvalidError(
            f"{total:.3g} pages of {headrace.format_bytes(page)} are more than any machine has; "
            "give fewer, or a smaller --page-size"
        )
    made = {
        **output.head("advise_capacity"),
        "of": what,
        "basis": "modelled",
        "page_bytes": page,
        "pages": total,
        "accesses": _needed(share, pages_for, total, page),
        "table": [_needed(each, pages_for, total, page) for each in _SHOWN],
        "fast": None if size is None else {
            "bytes": size, "accesses": accesses_of(math.floor(size / page)),
        },
    }  # fmt: skip
    output.deliver(made, out=out, json=json, show=lambda: output.print_text(text(made)))
    return exit_codes.SUCCESS


_Pages = Callable[[float], float]


def _source(
    histogram: Path | None, zipf: float | None, pages: int | None
) -> tuple[_Pages, _Pages, float, str]:
    """The function from a share of accesses to pages, its inverse, the number of pages, and words
    for the source."""
    if (histogram is None) == (zipf is None):
        raise headrace.InvalidError("which accesses? give one: --histogram FILE or --zipf 0.99")
    if zipf is not None:
        if pages is None:
            raise headrace.InvalidError("--zipf needs to know how many pages; add --pages")
        return (
            lambda share: headrace.zipf_pages_for(zipf, pages, share),
            lambda hottest: headrace.zipf_accesses_of(zipf, pages, hottest),
            pages,
            f"accesses as 1 / rank^{zipf:g}",
        )
    if pages is not None:
        raise headrace.InvalidError("a histogram has its own pages; --pages goes with --zipf")
    assert histogram is not None
    found = read_histogram(histogram)
    return (
        lambda share: headrace.pages_for(found, share),
        lambda hottest: headrace.accesses_of(found, hottest),
        math.fsum(count for count, _ in found),
        str(histogram),
    )


def read_histogram(path: Path) -> list[tuple[float, float]]:
    """Reads (pages, accesses of each) from each line."""
    found = []
    try:
        with path.open() as file:
            for number, line in enumerate(file, 1):
                if words := line.partition("#")[0].split():
                    found.append(_line(path, number, words))
                if number >= _MOST_LINES:
                    told = f"{path}: more than {_MOST_LINES} lines; group pages alike"
                    raise headrace.InvalidError(told)
    except UnicodeDecodeError:
        raise headrace.InvalidError(f"{path} is no text; write a number per line") from None
    except FileNotFoundError:
        raise headrace.AbsentError(f"no file {path}; give a histogram") from None
    except OSError as error:
        raise headrace.IoError(f"cannot read {path}: {error.strerror}; give another file") from None
    if not found:
        raise headrace.InvalidError(f"{path} holds no counts; write a number per line")
    return found


def _line(path: Path, number: int, words: list[str]) -> tuple[float, float]:
    try:
        values = [float(word) for word in words]
        if len(values) in (1, 2) and all(0 <= value <= _MOST for value in values):
            return (1.0, values[0]) if len(values) == 1 else (values[0], values[1])
    except ValueError:
        pass
    raise headrace.InvalidError(
        f"{path}:{number}: '{' '.join(words)[:40]}' is no count; write ACCESSES or PAGES ACCESSES, "
        f"of 0 to {_MOST:.0e} each"
    )


def _needed(share: float, pages_for: _Pages, total: float, page: int) -> dict[str, float]:
    needed = pages_for(share)
    return {
        "share": share,
        "pages": needed,
        "bytes": needed * page,
        "share_of_pages": needed / total if total else 0.0,
    }


def text(made: Mapping[str, Any]) -> str:
    page, asked = made["page_bytes"], made["accesses"]
    total = headrace.format_bytes(int(made["pages"] * page))
    lines = [
        f"{made['of']}, {made['pages']:.0f} pages, {total}",
        f"{asked['share'] * 100:g} % of accesses go to the hottest "
        f"{headrace.format_bytes(int(asked['bytes']))}, {asked['share_of_pages'] * 100:.3g} % of "
        "the pages, which fast memory must hold.",
    ]
    if made["fast"] is not None:
        fast = made["fast"]
        lines.append(
            f"{headrace.format_bytes(fast['bytes'])} of fast memory serve "
            f"{fast['accesses'] * 100:.1f} % of accesses."
        )
    rows = [
        (
            f"{each['share'] * 100:g} %",
            headrace.format_bytes(int(each["bytes"])),
            f"{each['share_of_pages'] * 100:.3g} %",
        )
        for each in made["table"]
    ]
    table = output.table_text(("of accesses", "fast memory", "of pages"), rows)
    note = (
        "Computed, not measured: the hottest pages lie in fast memory and stay there; what moving "
        "them costs is not counted."
    )
    return "\n\n".join(["\n".join(map(prose, lines)), table, prose(note)])
