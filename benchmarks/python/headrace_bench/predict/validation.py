# SPDX-License-Identifier: Apache-2.0
"""headrace predict --validate"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from headrace._cli import exit_codes, output
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out
from headrace._files import check_writable, write_whole
from headrace._format import percent
from headrace_bench.predict import curves, validate
from headrace_bench.predict.validate import Figure, Group


def command(
    curves_in: Annotated[
        Optional[Path],
        typer.Option(
            "--curves", metavar="DIR",
            help="Directory of bandwidth-latency curves (Mess-Results), to predict their mixes.",
        ),
    ] = None,
    page: Annotated[
        Optional[Path], typer.Option("--page", metavar="FILE", help="File for a page in Markdown.")
    ] = None,
    json: Json = False,
    out: Out = None,
) -> int:  # fmt: skip
    """Compare every published figure with its prediction.

    input: a constant of the machine. fitted: a constant was chosen with the
    figure or its group in view. Only predicted figures count in medians.

    \b
    headrace predict --validate
    headrace predict --validate --page predict-validation.md --curves mess
    """
    for file in (page, out):
        if file is not None:
            check_writable(file)
    groups: list[Group] = []
    with Interrupt() as interrupt, output.ProgressBar("validate"):
        for group in validate.groups():
            groups.append(group)
            if interrupt():
                break
        if curves_in is not None and not interrupt():
            groups += curves.groups(curves_in)
        interrupted = interrupt()
    document = _document(groups, interrupted)
    if page is not None:
        write_whole(page, _page(groups))
    output.deliver(document, out=out, json=json, show=lambda: output.print_text(_text(groups)))
    return exit_codes.INTERRUPTED if interrupted else exit_codes.SUCCESS


def _document(groups: Sequence[Group], interrupted: bool) -> dict[str, Any]:
    found = validate.score(_predicted([group for group in groups if not group.parts]))
    return {
        **output.head("predict validate"),
        **({"interrupted": True} if interrupted else {}),
        "basis": "modelled",
        "rests_on": {"level": "model", "detail": "published figures beside predictions"},
        "score": None if found is None else asdict(found),
        "groups": [
            {
                "group": group.name, "source": group.source, "note": group.note,
                "score": _score_of(group), "tau": _tau(group),
                "figures": [asdict(figure) | {"error": figure.error} for figure in group.figures],
            }
            for group in groups
        ],
    }  # fmt: skip


def _score_of(group: Group) -> dict[str, Any] | None:
    found = validate.score(_predicted([group]))
    return None if found is None else asdict(found)


def _tau(group: Group) -> float | None:
    """Agreement of orders, where a group has at least six figures with one unit."""
    figures = [each for each in group.figures if each.role in ("predicted", "input")]
    few = len(figures) < 6 or len({each.unit for each in figures}) > 1
    return None if few else validate.tau(figures)


def _predicted(groups: Sequence[Group]) -> list[Figure]:
    return [f for group in groups for f in group.figures if f.role == "predicted"]


def _lines(group: Group) -> list[tuple[str, str, str, str, str]]:
    """Figure, role, published, predicted, error; of groups with parts the scores of each."""
    if group.parts:
        return [
            (f"{part}: {len(figures)} figures", "predicted", "", "", _told(figures))
            for part, figures in group.by_part().items()
        ]
    return [(f.name, f.role, _published(f), _value(f), _error(f)) for f in group.figures]


def _text(groups: Sequence[Group]) -> str:
    rows = [(group.name, *line) for group in groups for line in _lines(group)]
    heads = ("group", "figure", "role", "published", "predicted", "error")
    lines = [output.table_text(heads, rows, left=3), ""]
    lines += [f"{group.name}: {told}" for group in groups if (told := _summary(group))]
    return "\n".join([*lines, "", *_whole(groups), "", *_aims(groups)])


def _whole(groups: Sequence[Group]) -> list[str]:
    groups = [group for group in groups if not group.parts]
    roles = [f.role for group in groups for f in group.figures]
    told = ", ".join(f"{roles.count(role)} {role}" for role in validate.ROLES)
    found = validate.score(_predicted(groups))
    if found is None:
        return [f"{told}."]
    return [
        f"{told}.",
        f"Predicted figures: median error {found.median:.1%}, 90 % below {found.p90:.1%}, "
        f"{percent(found.within_10)} within 10 %, {percent(found.inside)} inside their intervals.",
    ]


def _summary(group: Group) -> str:
    predicted = _predicted([group])
    if not predicted:
        return ""
    order = _tau(group)
    told = f"{len(predicted)} predicted, {_told(predicted)}"
    return told + (f", tau {order:.2f}" if order is not None else "")


def _told(figures: Sequence[Figure]) -> str:
    found = validate.score(figures)
    return "" if found is None else f"median {found.median:.1%}, 90 % below {found.p90:.1%}"


def _published(figure: Figure) -> str:
    if figure.role == "words":
        return figure.words
    return validate.text(figure, figure.published)


def _aims(groups: Sequence[Group]) -> list[str]:
    lines = []
    for aim in validate.aims(groups):
        reached = "no figure is predicted"
        if aim.reached is not None:
            text = f"{aim.reached:.2f}" if "tau" in aim.words else f"{aim.reached:.1%}"
            reached = f"{text}, {'met' if aim.met else 'NOT met'}"
        lines.append(f"- {aim.words}: {reached}.")
    return lines


def _value(figure: Figure) -> str:
    if figure.predicted is None:
        return "-"
    return validate.text(figure, figure.predicted.value)


def _error(figure: Figure) -> str:
    if figure.role == "words":
        return "as told" if figure.as_told else "not as told"
    if figure.role == "not predicted":
        return figure.words
    mark = " (!)" if figure.role == "predicted" and figure.inside is False else ""
    return "" if figure.error is None else f"{figure.error:+.1%}{mark}"


def _page(groups: Sequence[Group]) -> str:
    """A result: question, command, answer, and the table."""
    lines = [
        "# Predictions beside published figures", "",
        "**Question.** How far are predictions from what others measured? **Command.** "
        "`headrace predict --validate --curves DIR --page FILE` (DIR: curves of",
        "bsc-mem/Mess-Results, which are not in this repository). Nothing here was measured by us "
        "except the rows of one H200.", "",
        "**Answer.** " + " ".join(_whole(groups)), "",
        "*input*: a constant of the machine is this figure, which is therefore left out of scores. "
        "*fitted*: some constant was chosen with the figure, or",
        "its group, in view; it proves nothing. *words*: published in words. Errors of predicted "
        "figures alone are in medians; (!): outside the interval.",
        "",
    ]  # fmt: skip
    for group in groups:
        lines += [f"## {group.name}", "", f"{group.source}."]
        if group.note:
            lines[-1] += f" {group.note[0].upper()}{group.note[1:]}."
        told = _summary(group)
        if told:
            lines[-1] += f" **{told[0].upper()}{told[1:]}.**"
        lines += ["", "| figure | role | published | predicted | error |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(line) + " |" for line in _lines(group)]
        lines.append("")
    lines += ["## Aims", "", *_aims(groups), ""]
    missed = reasons(groups)
    return "\n".join([*lines, "## Misses and their reasons", "", *missed, ""])


def reasons(groups: Sequence[Group]) -> list[str]:
    """A line for each predicted figure that is off by more than 10 %."""
    lines = []
    for group in groups:
        far = (
            []
            if group.parts
            else [f for f in _predicted([group]) if f.error is not None and abs(f.error) > 0.1]
        )
        if far:
            names = ", ".join(f"{f.name} ({f.error:+.0%})" for f in far)
            lines.append(f"- {group.name}: {names}. {group.miss}".rstrip())
    return lines
