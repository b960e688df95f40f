# SPDX-License-Identifier: Apache-2.0
"""The commands of `headrace predict`: an option for each axis of a workload, and those that all
have: the machine, what is changed about it, and sweeps.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, Seed, presets
from headrace._errors import unknown
from headrace._files import check_writable
from headrace_bench.predict import answer, learned, whatif
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.target import KINDS, Target

#: Points of a sweep; more take hours to read.
MOST_POINTS = 1000


@dataclass(frozen=True)
class Axis:
    """A setting of a workload, as an option and as an axis of a sweep."""

    name: str
    metavar: str
    #: Reads the text; or the words that there are.
    parse: Callable[[str], Any] | tuple[str, ...]
    default: str | None  #: None: the workload chooses
    help: str

    def value(self, text: str | None) -> Any:
        if text is None:
            return None
        if isinstance(self.parse, tuple):
            return parse.chosen(text, self.parse, self.name, [])[0]
        return self.parse(text)

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Workload:
    name: str
    words: str  #: first line of the help
    details: str  #: the help below it, with examples
    axes: tuple[Axis, ...]
    columns: tuple[Column, ...]
    #: Rows of one point. UnsupportedError: the machine lacks an engine that it needs.
    predict: Callable[[Target, Mapping[str, Any]], Sequence[Row]]
    machine: str = "xeon-max"


#: Axes of workloads with data in two kinds of memory (places.two_kinds).
TWO_KINDS = (
    Axis("fast", "KIND", tuple(KINDS), "dram", "Main memory."),
    Axis("slow", "KIND", tuple(KINDS), None, "Other memory (default: the slowest kind)."),
)


def size_of(text: str) -> int:
    found = parse.size(text)
    if found == 0:
        raise headrace.InvalidError("nothing happens to 0 bytes; give a size above 0")
    return found


def count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text.strip()):
        raise headrace.InvalidError(
            f"'{text}' is no number from 1 to 9999999; write 4 (--sweep takes several: 1,2,4)"
        )
    return int(text)


def number(what: str, example: float) -> Callable[[str], float]:
    """Returns a reader of numbers above 0; `what` and `example` are words of its error."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = 0.0
        if not 0 < found < 1e6:
            raise headrace.InvalidError(f"'{text}' is no {what}; write {example:g}")
        return found

    return read


Machine = Annotated[
    Optional[str],
    typer.Option(
        "--machine", metavar="NAME|FILE", autocompletion=presets,
        help="Machine: a preset, or a file of topo --json.",
    ),
]  # fmt: skip
From = Annotated[
    Optional[Path],
    typer.Option("--from", metavar="FILE", help="Measured profile of the own host."),
]
Set = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change of the machine: node:8.capacity=32GiB."
    ),
]
Add = Annotated[
    Optional[list[str]],
    typer.Option("--add", metavar="KIND:NUMBER", help="Engines to add: dsa:2, ssd:1."),
]
Sweep = Annotated[
    Optional[list[str]],
    typer.Option("--sweep", metavar="AXIS=V1,V2", help="Values of a setting, predicted in turn."),
]
_COMMON: Mapping[str, tuple[Any, Any]] = {
    "machine": (Machine, None), "from_": (From, None), "set_": (Set, None), "add": (Add, None),
    "sweep": (Sweep, None), "seed": (Seed, 0), "json": (Json, False), "out": (Out, None),
}  # fmt: skip


def command_of(workload: Workload) -> Callable[..., int]:
    """The command with the workload's options."""

    def command(**given: Any) -> int:
        common = {name: given.pop(name) for name in _COMMON}
        return _run(workload, given, common)

    parameters = [
        inspect.Parameter(
            axis.name, inspect.Parameter.KEYWORD_ONLY, default=axis.default,
            annotation=Annotated[
                Optional[str], typer.Option(axis.option, metavar=axis.metavar, help=axis.help)
            ],
        )
        for axis in workload.axes
    ] + [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in _COMMON.items()
    ]  # fmt: skip
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = f"{workload.words}\n\n    {workload.details}\n"
    return command


def _run(workload: Workload, given: Mapping[str, Any], common: Mapping[str, Any]) -> int:
    check_writable(common["out"], common["machine"], common["from_"], given.get("objects"))
    target = machine_of(workload, common["machine"], common["from_"], common["set_"] or (),
                        common["add"] or ())  # fmt: skip
    rows: list[Row] = []
    failure: headrace.Error | None = None
    points = points_of(workload.name, [axis.name for axis in workload.axes], common["sweep"] or ())
    read = [{axis.name: axis.value({**given, **point}[axis.name]) for axis in workload.axes}
            for point in points]  # fmt: skip
    with Interrupt() as interrupt, output.ProgressBar("predict") as progress:
        for number, settings in enumerate(read):
            if interrupt():
                break
            # Simulations take minutes: they report their own progress, and end when asked to.
            settings |= {"seed": common["seed"], "stop": interrupt, "progress": progress}
            try:
                found = workload.predict(target, settings)
            except headrace.Error as error:
                if not rows:
                    raise
                failure = error  # raised when the points before it are written
                break
            rows += [replace(row, point=points[number]) for row in found]
            progress(number + 1, len(points))
        interrupted = failure is None and number + 1 < len(points) or interrupt()
    detail = words(workload, target)
    written = {axis.name: given[axis.name] for axis in workload.axes}
    made = answer.document(workload.name, target, {**written, "seed": common["seed"]}, rows,
                           workload.columns, detail)  # fmt: skip
    if interrupted:
        made["interrupted"] = True
    output.deliver(
        made, out=common["out"], json=common["json"],
        show=lambda: answer.show(target, rows, workload.columns, detail),
    )  # fmt: skip
    if failure is not None:
        raise failure
    return exit_codes.INTERRUPTED if interrupted else exit_codes.SUCCESS


def machine_of(
    workload: Workload, machine: str | None, profile: Path | None, changes: Sequence[str],
    added: Sequence[str],
) -> Target:  # fmt: skip
    """InvalidError: both or a change that fits nothing."""
    if machine is not None and profile is not None:
        raise headrace.InvalidError("--machine and --from both name a machine; give one of them")
    if profile is not None:
        document = learned.machine_of(parse.profile(profile))
    else:
        document = parse.machine(machine or workload.machine).asdict()
    return Target(whatif.changed(document, changes, added))


def words(workload: Workload, target: Target) -> str:
    """On what the figures rest."""
    if target.bound:
        return (
            f"Bounds, not predictions: nobody gave curves for {target.name}, so these are the "
            "limits of its rated figures."
        )
    bases: dict[str, int] = {}
    for each in target.constants():
        bases[each["basis"]] = bases.get(each["basis"], 0) + 1
    told = ", ".join(f"{number} {basis}" for basis, number in sorted(bases.items()))
    return (
        f"Predicted for {target.name}, not measured. It rests on {told} constants (--json lists "
        "them with their sources). +- is half the interval that they leave."
    )


def points_of(workload: str, names: Sequence[str], sweeps: Sequence[str]) -> list[dict[str, str]]:
    """Every combination of the values of the axes. InvalidError: an axis that there is not."""
    found: dict[str, list[str]] = {}
    for text in sweeps:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if name not in names:
            raise unknown("axis of " + workload, name, names)
        listed = [each.strip() for each in values.split(",") if each.strip()]
        if name in found:
            raise headrace.InvalidError(f"{name} is swept twice; write {name}=V1,V2 once")
        if not equals or not listed:
            raise headrace.InvalidError(f"'{text}' sweeps nothing; write {name}=V1,V2")
        found[name] = listed
    points = [dict(zip(found, each, strict=True)) for each in itertools.product(*found.values())]
    if len(points) > MOST_POINTS:
        raise headrace.InvalidError(
            f"{len(points)} points are more than {MOST_POINTS}; sweep fewer values"
        )
    return points
