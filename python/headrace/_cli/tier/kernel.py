# SPDX-License-Identifier: Apache-2.0
"""headrace tier kernel: switches the kernel's own tiering on, and back to the settings before."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.options import Json
from headrace._core import HostFiles as Files
from headrace._errors import error_of
from headrace._files import read_whole
from headrace._tiering import switch
from headrace._tiering.plan import Plan, Wish
from headrace._tiering.state import ON, State


def command(
    show: Annotated[
        bool,
        typer.Option("--show", help="Print the settings that --on would change; change nothing."),
    ] = False,
    on: Annotated[bool, typer.Option("--on", help="Change the settings (root).")] = False,
    off: Annotated[
        bool, typer.Option("--off", help="Restore the settings from before --on.")
    ] = False,
    promotion: Annotated[
        bool,
        typer.Option(
            "--promotion/--no-promotion", help="Set numa_balancing to 2: hot pages move up."
        ),
    ] = True,
    demotion: Annotated[
        bool,
        typer.Option("--demotion/--no-demotion", help="Move pages to slower memory before swap."),
    ] = True,
    rate: Annotated[
        Optional[str],
        typer.Option(
            metavar="RATE",
            help="Limit of promotion into a node (default: a tenth of the slow nodes' write "
            "rate, if firmware reports it).",
        ),
    ] = None,
    weights: Annotated[
        Optional[str],
        typer.Option(
            metavar="WEIGHTS|FILE",
            help="Weights of weighted interleave: 0=3,1=1, or a file of advise interleave --out.",
        ),
    ] = None,
    damon_schemes: Annotated[
        Optional[str],
        typer.Option(
            "--damon",
            metavar="SCHEMES",
            help="DAMON schemes too: hot, cold or hot,cold; one kernel thread per node that "
            "gives pages away.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Restore settings that another program has changed since, too (with --off).",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Switch the kernel's tiering on, and back.

    \b
    headrace tier kernel --show     prints the plan, without root
    sudo headrace tier kernel --on  saves the settings, then changes them
    sudo headrace tier kernel --off restores them, also after a killed --on
    """  # fmt: skip
    if on + off + show != 1:
        raise headrace.InvalidError(
            "nothing to do, or two things; "
            "give one of --show, --on and --off"
        )
    if force and not off:
        raise headrace.InvalidError("--force is for --off only; leave it out")
    if off and not (promotion and demotion and rate is weights is damon_schemes is None):
        raise headrace.InvalidError(
            "--off restores all settings; "
            "leave other options out, except --force"
        )
    files = Files()
    wish = Wish(
        promotion, demotion, None if rate is None else parse.rate(rate), _weights(weights),
        tuple(parse.words(damon_schemes)),
    )  # fmt: skip
    if show:
        told = _shown(files, *switch.shown(files, wish))
    elif on:
        told = _switched("on", switch.on(files, wish))
    else:
        told = _switched("off", switch.off(files, force=force))
    if json:
        machine = headrace.Machine.discover(storage=[])
        output.print_json(output.document("tier_kernel", machine, **told))
    else:
        output.print_text(text(told))


def _weights(given: str | None) -> dict[int, int]:
    """Weights by node, from the option or a file of advise interleave."""
    if given is None:
        return {}
    found: dict[str, Any] = dict(parse.settings(given)) if "=" in given else _advised(Path(given))
    for node, weight in found.items():
        if not (node.isascii() and node.isdecimal() and len(node) <= 5 and type(weight) is int):
            raise headrace.InvalidError(f"'{node}={weight}' is no weight; write 0=3,1=1")
    return {int(node): int(weight) for node, weight in found.items()}


def _advised(path: Path) -> dict[str, Any]:
    try:
        made = json_module.loads(read_whole(path))
    except OSError as error:
        raise error_of(error, f"cannot read {path}", "another file") from None
    except (ValueError, RecursionError):  # not UTF-8, endless numbers, endless brackets
        made = None
    if not isinstance(made, dict) or made.get("kind") != "advise_interleave":
        raise headrace.InvalidError(
            f"{path} is no advice; write it with headrace advise interleave --out FILE"
        )
    found = made.get("weights")
    if not isinstance(found, dict):
        raise headrace.InvalidError(f"{path} has no weights; advise again")
    return found


def _shown(files: Files, state: State | None, plan: Plan) -> dict[str, Any]:
    word = "off" if state is None else "on" if state.phase == ON else "interrupted"
    settings = [asdict(each) for each in plan.settings]
    if state is not None:
        settings = [each | _said_now(files, each["file"]) for each in settings]
    return {"action": "show", "state": word, "settings": settings, "notes": list(plan.notes)}


def _said_now(files: Files, name: str) -> dict[str, str | None]:
    """The value now. With `unread`: why it is unknown, if it is."""
    try:
        return {"now": files.setting(name)}
    except headrace.Error as error:
        return {"now": None, "unread": str(error)}


def _switched(action: str, done: switch.Switched) -> dict[str, Any]:
    undone = [
        asdict(each.setting) | {"outcome": each.outcome, "now": each.now} for each in done.undone
    ]
    settings = [asdict(each) for each in done.settings]
    return {"action": action, "settings": settings or undone, "notes": list(done.notes)}


def text(told: dict[str, Any]) -> str:
    """The plan or the changes as text, with DAMON's files grouped by kdamond."""
    settings = [each for each in told["settings"] if each["before"] is not None]
    inner = len(told["settings"]) - len(settings)
    lines = []
    if settings and told.get("state", "off") != "off":
        lines.append(f"It is {told['state']}; headrace tier kernel --off puts back what was.")
    lines += [_line(each) for each in settings]
    if inner and told["action"] != "off":
        lines.append(f"and {inner} settings of these kdamonds (--json shows them)")
    lines += [f"Note: {note}." for note in told["notes"]]
    if told["action"] == "on" and settings:
        lines.append("headrace tier kernel --off puts back what was there.")
    return "\n".join(lines)


def _line(each: dict[str, Any]) -> str:
    """The line of a setting that is planned, set, on (with its value now) or undone."""
    file, before, wanted = f"/{each['file']}", each["before"], each["wanted"]
    if "outcome" in each:
        return f"{file}: {_undone(each)}"
    if "unread" in each:
        return f"{file}: headrace set {wanted}, before {before}; {each['unread']}"
    if "now" not in each:
        what = f"{before} -> {wanted}" if before != wanted else f"{wanted} already"
        return f"{file}: {what}; {each['why']}"
    if each["now"] == wanted:
        return f"{file}: {wanted}, before {before}; {each['why']}"
    now = "not there" if each["now"] is None else each["now"]
    return f"{file}: {now} now, where headrace set {wanted}; before {before}"


def _undone(each: dict[str, Any]) -> str:
    before, now = each["before"], each["now"]
    return {
        "put back": f"{before} again, was {now}",
        "unchanged": f"{before}, as before",
        "left": f"left at {now}, which somebody else has set; headrace had set {each['wanted']}, "
        f"before {before}, which only --off --force puts back",
        "gone": "is not there any more",
    }[each["outcome"]]
