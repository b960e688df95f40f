#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the manual page of the command, made of its own help.

    .venv/bin/python tools/man_page.py | man -l -

python/share has the page; `pytest --update-golden` renews it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
from headrace._cli import app, exit_codes

ROOT = Path(__file__).resolve().parent.parent
#: Columns of a terminal, less the indent of a page and the sign that a line is continued.
WIDTH = 80 - 7 - 2

#: Meanings of exit codes, by the names in exit_codes.
EXIT_CODES = {
    "success": "Success.",
    "invalid": "The request or a file makes no sense.",
    "absent": "Something named does not exist.",
    "unsupported": "This machine cannot do it.",
    "denied": "A permission is missing.",
    "exhausted": "Memory or another resource is used up.",
    "io": "Reading or writing failed.",
    "timed_out": "It took too long.",
    "changed": "compare found a change, or fleet a host unlike the others.",
    "unjudged": "compare could judge too few rows.",
    "internal": "A defect of headrace.",
    "cannot_run": "run found the program but cannot run it.",
    "no_program": "run did not find the program.",
    "cancelled": "Ctrl-C; 128 plus the number of any other signal.",
    "broken_pipe": "The reader of the output went away.",
}

#: Variables that a user may set.
ENVIRONMENT = {
    "HEADRACE_ARENAS": "File with the plan that places named heaps (advise arenas).",
    "HEADRACE_ARENAS_SEEN": "File to which a run writes the use of its named heaps.",
    "HEADRACE_COPY_KERNEL": "Kernel that copies with cores, by default the fastest.",
    "HEADRACE_DATA": "Directory for generated tables of benchmarks.",
    "HEADRACE_DSA_DEV": "Directory of the character devices of Intel DSA.",
    "HEADRACE_DSA_SYSFS": "Directory of the DSA devices in sysfs.",
    "HEADRACE_GPU_GATHER": "Size and number of small GPU copies that one kernel does: BYTES,COUNT; "
    "0 turns it off.",
    "HEADRACE_IO_URING": "0 reads and writes files with threads.",
    "HEADRACE_LIBCUDA": "Library of the GPU driver.",
    "HEADRACE_MACHINES": "Directory of presets.",
    "HEADRACE_NODES": "Kinds of memory nodes that were not recognised: 8-15=hbm,2=cxl.",
    "HEADRACE_TRACEBACK": "1 shows where an internal error came from.",
    "MEMKIND_HBW_NODES": "HBM nodes, as memkind reads it; HEADRACE_NODES wins.",
}

FILES = {
    "$XDG_CACHE_HOME/headrace": "Generated tables of benchmarks; ~/.cache/headrace by default.",
    "/run/headrace": "Settings of the kernel to restore; $XDG_RUNTIME_DIR/headrace without root.",
}

SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


def escaped(text: str) -> str:
    """One line as roff prints it unchanged."""
    made = "".join(
        SPECIAL.get(c) or (c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text
    )  # fmt: skip
    return r"\&" + made if made.startswith(".") else made


def filled(text: str) -> Iterator[str]:
    """A paragraph; roff breaks its lines anew."""
    for line in textwrap.wrap(" ".join(text.split()), WIDTH, break_on_hyphens=False):
        yield escaped(line)


def as_written(text: str) -> Iterator[str]:
    """Lines of examples. If one is too long, remarks are put below, and commands continued."""
    lines = text.splitlines()
    if max(map(len, lines)) > WIDTH:
        lines = "\n".join(re.sub(r"(?<=\S) {2,}", "\n    ", line) for line in lines).splitlines()
    yield ".EX"
    for line in lines:
        parts = textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        yield from map(escaped, " \\\n".join(parts).splitlines())
    yield ".EE"


def paragraphs(text: str) -> Iterator[str]:
    """A help text, in which a backspace begins a paragraph of lines."""
    for number, part in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield from as_written(part[2:]) if part.startswith("\b\n") else filled(part)


def entry(term: str, text: str) -> Iterator[str]:
    yield from (".TP", term, *filled(text))


def option_term(names: str) -> str:
    """`-v, --verbose` or `--out FILE`: names bold, the value's italic."""
    words = re.split(r"( |, )", names)
    return "".join(
        f"\\fB{escaped(w)}\\fR" if w.startswith("-") else w if w in (" ", ", ")
        else f"\\fI{escaped(w)}\\fR"
        for w in words
    )  # fmt: skip


def parameters(command: Any, context: Any) -> Iterator[str]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield from entry(option_term(record[0]), record[1])


def commands(group: Any, context: Any) -> Iterator[str]:
    """A section for each command, those of groups too."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.context_class(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            yield from commands(command, inner)
            continue
        usage = re.sub(r"\{(\w+)\}", r"\1", " ".join(command.collect_usage_pieces(inner)))
        yield f".SS {escaped(inner.command_path)}"
        yield f"\\fB{escaped(inner.command_path)}\\fR {escaped(usage)}"
        yield ".PP"
        yield from paragraphs(command.help)
        yield from parameters(command, inner)


def codes() -> Iterator[tuple[int, str]]:
    named = {k.lower(): v for k, v in vars(exit_codes).items() if isinstance(v, int)}
    named |= {kind.code: kind.exit_code for kind in headrace.Error.__subclasses__()}
    return iter(sorted((named[name], text) for name, text in EXIT_CODES.items()))


def released(version: str) -> str:
    """The date of a version in the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text()
    match = re.search(rf"^## {re.escape(version)} \((\S+)\)$", text, re.MULTILINE)
    if match is None:
        raise SystemExit(f"man_page: CHANGELOG.md has no date of {version}; add its heading")
    return match[1]


def page() -> str:
    root = app.root()
    context = root.context_class(root, info_name="headrace")
    version = headrace.__version__
    lines = [
        f'.TH HEADRACE 1 "{released(version)}" "headrace {version}" "User Commands"',
        ".nr HY 0", ".ad l",
        ".SH NAME", r"headrace \- bring data to the memory that will use it, before it is used",
        ".SH SYNOPSIS", r"\fBheadrace\fR \fICOMMAND\fR [\fIOPTION\fR]... [\fIARGUMENT\fR]...",
        ".SH DESCRIPTION", *paragraphs(root.help), ".PP",
        *filled("Each command prints its own help with -h or --help."),
        ".SH OPTIONS", *parameters(root, context),
        ".SH COMMANDS", *commands(root, context),
        ".SH EXIT STATUS",
    ]  # fmt: skip
    for code, text in codes():
        lines += entry(f"\\fB{code}\\fR", text)
    for title, table in (("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        lines.append(f".SH {title}")
        for name, text in table.items():
            lines += entry(f"\\fB{escaped(name)}\\fR", text)
    lines += [".SH SEE ALSO", r"\fBnumactl\fR(8), \fBnumastat\fR(8), \fBmbind\fR(2)"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
