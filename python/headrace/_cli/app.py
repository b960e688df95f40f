# SPDX-License-Identifier: Apache-2.0
"""The subcommands by name. Each has a module beside this one, which is loaded only when it is used.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from headrace import AbsentError, InvalidError

# Boxes and colours are for terminals only.
_STYLE: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None


#: Metavars of file names, which are bytes.
_OF_FILES = ("FILE", "PROFILE", "PROGRAM", "DIR")


class _Command(TyperCommand):
    """A command that refuses bad words before the work: words that are not UTF-8, and NaN, which
    passes every range check.
    """

    #: Rewrites arguments before they are parsed, if the command's module has `rewritten`.
    rewrite: Callable[[list[str]], list[str]] | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return list(super().parse_args(ctx, self.rewrite(args) if self.rewrite else args))

    def invoke(self, ctx: Any) -> Any:
        for option in self.params:
            given = ctx.params.get(option.name)
            if isinstance(given, float) and math.isnan(given):
                raise InvalidError(f"{option.opts[0]} {given}: give a number")
            if any(word in (option.metavar or "") for word in _OF_FILES):
                continue
            for text in given if isinstance(given, list | tuple) else [given]:
                if isinstance(text, str) and not _is_text(text):
                    raise InvalidError(f"'{text}' is not UTF-8; write it in letters and digits")
        return super().invoke(ctx)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Commands(TyperGroup):
    """Commands made from their modules' functions `command`."""

    modules: ClassVar[dict[str, str]] = {}  # below headrace._cli
    added: ClassVar[str] = ""  # commands of other packages: the group of their entry points
    groups: ClassVar[dict[str, type[_Commands]]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args or ctx.resilient_parsing:
            return list(super().parse_args(ctx, args))
        print(ctx.get_help(), file=sys.stderr)
        raise typer.Exit(2)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.modules, *_added(self.added), *self.groups]

    def module_of(self, command: str) -> str | None:
        if command in self.modules:
            return f"headrace._cli.{self.modules[command]}"
        return _added(self.added).get(command)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.groups:
            return _made(self.groups[cmd_name], cmd_name)
        if (name := self.module_of(cmd_name)) is None:
            return None
        module = import_module(name)
        app = typer.Typer(add_completion=False, rich_markup_mode=_STYLE)
        settings = getattr(module, "SETTINGS", None)
        app.command(cmd_name, cls=_Command, context_settings=settings)(module.command)
        made: Any = get_command(app)
        made.rewrite = getattr(module, "rewritten", None)
        return made


@cache
def _added(group: str) -> dict[str, str]:
    """Commands that other packages add, with their modules."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=group)} if group else {}


def _need_benchmarks() -> None:
    if not _added("headrace.bench"):
        raise AbsentError(
            "no benchmarks are installed; run: make install, in a clone of Headrace, or "
            "pip install 'headrace[bench]'"
        )


class _Bench(_Commands):
    """Measure copies, caches, DSA, queries, servers, GPUs, LLMs."""

    added = "headrace.bench"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # the shell completes a command line
            _need_benchmarks()
        return super().parse_args(ctx, args)


class _Predict(_Commands):
    """Predict a program on a machine that you do not have.

    `headrace predict --validate` compares published figures with predictions.
    """

    added = "headrace.predict"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`headrace predict --validate` is the command `validate`."""
        if not ctx.resilient_parsing:
            _need_benchmarks()
        if args and args[0] == "--validate":
            args = ["validate", *args[1:]]
        return super().parse_args(ctx, args)


class _Advise(_Commands):
    """Advise on page placement, fast memory, CXL cost and GPUs."""

    modules = {
        name: f"advise.{name}" for name in ("interleave", "capacity", "cost", "arenas", "um")
    }


class _Dsa(_Commands):
    """Set up the work queues of Intel DSA."""

    modules = {"setup": "dsa_setup"}


class _Tier(_Commands):
    """Tier memory by the kernel, or within a program's budget."""

    modules = {
        name: f"tier.{name}" for name in ("explain", "status", "kernel", "attach", "run")
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accepts the older form `headrace tier --explain`."""
        if args and args[0] in ("--explain", "--json") and "--explain" in args:
            args = ["explain", *(word for word in args if word != "--explain")]
        return super().parse_args(ctx, args)


class _Headrace(_Commands):
    """Move data to the memory that will use it, before it is used."""

    modules = {
        name: name
        for name in (
            "topo", "run", "where", "doctor", "measure", "fleet", "export", "compare", "report",
            "demo", "serve",
        )
    }  # fmt: skip
    groups = {
        "advise": _Advise, "bench": _Bench, "dsa": _Dsa, "predict": _Predict,
        "tier": _Tier,
    }  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        from headrace import __version__

        print(f"headrace {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def _group() -> None:
    pass


def _made(kind: type[_Commands], name: str | None = None) -> Any:
    return get_command(
        typer.Typer(
            name=name,
            cls=kind,
            help=kind.__doc__,
            callback=_root if name is None else _group,
            add_completion=False,
            rich_markup_mode=_STYLE,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
    )


def root() -> Any:
    """The command with all its subcommands."""
    return _made(_Headrace)


def run(arguments: list[str] | None = None) -> Any:
    """Runs the command with these arguments (default: the process's). Returns its exit code or
    None."""
    if instruction := os.environ.get("_HEADRACE_COMPLETE"):
        from headrace._cli import completion

        return completion.answer(root(), instruction)
    return root()(arguments, standalone_mode=False)
