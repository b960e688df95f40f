# SPDX-License-Identifier: Apache-2.0
"""Builds the report: measurements as one page that opens anywhere and names the basis of its
numbers.

`build` takes one document, as the commands' ``--json`` write them: that of ``headrace measure``,
of a benchmark or of a model alone, or one that holds several::

    {"machine": Machine.asdict(), "rates": [...], "copy": <headrace bench copy>,
     "query": <headrace bench query>, "version": ..., "date": ..., "rests_on": {...},
     "warnings": [...]}

Every part may be missing; its section then says which command measures it. Each figure has a
sentence under it that is made from the numbers it shows.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._files import write_whole
from headrace._format import installing


def build(document: dict[str, Any], html: Path, png: Path | None = None) -> None:
    """Writes the page to `html`, and its figures to `png` if given.

    AbsentError: Altair, Jinja2 or vl-convert is missing. InvalidError: the document has nothing to
    show. IoError, DeniedError: a file cannot be written. ExhaustedError: the process's limits are
    too low.
    """
    _require_libraries()
    from headrace._report import contents, page

    content = contents.content_of(page.printable(document))
    text = page.rendered(content).encode("utf-8", "replace")
    picture = page.picture(content) if png is not None else b""
    write_whole(html, text)
    if png is not None:
        write_whole(png, picture)


def _require_libraries() -> None:
    try:
        import altair  # noqa: F401
        import jinja2  # noqa: F401
    except ImportError as error:
        missing = error.name
    else:
        # Only a process of its own loads it.
        missing = None if find_spec("vl_convert") else "vl_convert"
    if missing:
        raise _core.AbsentError(f"no {missing}; run: {installing([missing])}")
