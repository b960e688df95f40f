# SPDX-License-Identifier: Apache-2.0
"""headrace report"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import output
from headrace._files import check_apart, check_writable, read_whole


def command(
    file: Annotated[
        Optional[Path],
        typer.Argument(metavar="FILE", help="Document that demo or an --out option wrote."),
    ] = None,
    machine: Annotated[
        Optional[str],
        typer.Option(
            "--machine",
            metavar="PRESET",
            help="Preset whose published figures are drawn instead of FILE: xeon-max.",
        ),
    ] = None,
    html: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            help="File for the page (default: report.html beside FILE; with --machine here).",
        ),
    ] = None,
    png: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="File for a picture of the page.")
    ] = None,
) -> None:
    """Draw a document or a published machine as a page of charts.

    The page is one file, readable offline.

    \b
    headrace report out/demo.json                    writes out/report.html
    headrace report --machine xeon-max               writes ./report.html
    """
    if (file is None) == (machine is None):
        raise headrace.InvalidError("nothing to draw, or two things; give either FILE or --machine")
    page = html or (file.parent if file else Path()) / "report.html"
    check_apart(page, png)
    for target in (page, png):
        check_writable(target, file)
    document = read(file) if file else headrace.Profile.load(str(machine)).asdict()
    try:
        write(document, page, png)
    except (headrace.Error, OSError, MemoryError):
        raise
    except Exception as error:
        # JSON with our head may still hold anything. Only drawing it shows errors.
        raise headrace.InvalidError(
            f"{file or machine}: not a document this version wrote: {type(error).__name__}: "
            f"{error}; make it again"
        ) from error
    output.print_text(str(page if html or file else page.absolute()))


def read(file: Path) -> dict[str, Any]:
    """The document in `file`. InvalidError: it is not a document of this command, with the place of
    the mistake."""
    try:
        data = read_whole(file)
    except FileNotFoundError:
        raise headrace.AbsentError(
            f"no file {file}; headrace demo or headrace bench query --out {file} makes one"
        ) from None
    try:
        document = json.loads(data)
    except json.JSONDecodeError as error:
        raise headrace.InvalidError(
            f"{file}:{error.lineno}:{error.colno}: {error.msg}; give what headrace wrote"
        ) from None
    except (ValueError, RecursionError):  # not UTF-8, endless numbers, endless brackets
        raise headrace.InvalidError(_not_ours(file)) from None
    if (
        not isinstance(document, dict)
        or "schema_version" not in document
        or not {"kind", "rows", "nodes"} & document.keys()
    ):
        raise headrace.InvalidError(_not_ours(file))
    if document["schema_version"] != headrace.SCHEMA_VERSION:
        raise headrace.InvalidError(
            f"{file} has schema version {document['schema_version']}; this version reads "
            f"{headrace.SCHEMA_VERSION}: make it again"
        )
    return document


def _not_ours(file: Path) -> str:
    return f"{file} is not a JSON document of headrace; give one that --out or demo wrote"


def write(document: dict[str, Any], page: Path, png: Path | None) -> None:
    """The page, and the picture if one is asked for."""
    from headrace._report import report

    if document.get("kind") == "bench copy":
        document = document | {"copy": document}
    report.build(document, page, png)
