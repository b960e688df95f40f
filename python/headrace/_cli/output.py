# SPDX-License-Identifier: Apache-2.0
"""The output of the command: JSON documents, tables, progress, files."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import headrace
from headrace._cli import interrupt
from headrace._errors import printing
from headrace._files import is_own_output, read_whole, write_whole
from headrace._format import in_one_line, printable, say
from headrace._provenance import rests_on
from headrace._run.ranks import launched

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

#: Shorter work shows no progress bar.
_BAR_AFTER_SECONDS = 2.0
#: Wider than any table, so that lines are not folded.
_WIDTH_WITHOUT_TERMINAL = 1000


def head(kind: str) -> dict[str, Any]:
    """The fields that every JSON document of the command begins with."""
    return {
        "schema_version": headrace.SCHEMA_VERSION,
        "kind": kind,
        "version": headrace.__version__,
    }


def document(kind: str, machine: headrace.Machine, **fields: Any) -> dict[str, Any]:
    """The document of what was done on this machine."""
    return {
        **head(kind),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rests_on": rests_on(machine),
        **fields,
        "machine": machine.asdict(),
    }


def json_text(value: dict[str, Any]) -> str:
    """The document as JSON. JSON has no infinity, so infinite numbers become null."""
    try:
        return json.dumps(value, indent=2, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(_finite(value), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: dict[str, Any]) -> None:
    """Exactly one document on stdout."""
    print_as_is(json_text(value))


def print_text(text: str) -> None:
    """Prints lines for people. On a terminal they are folded to its width, except commands to copy.
    """
    with printing():
        terminal = _is_terminal(sys.stdout)
    if terminal:
        text = folded(text, shutil.get_terminal_size().columns)
    print_as_is(text)


def print_as_is(text: str) -> None:
    """Text that another program may read: a document, XML, a plan."""
    with printing():
        sys.stdout.write(printable(text if text.endswith("\n") else text + "\n"))
        sys.stdout.flush()


#: Beginnings of lines that people copy into a shell, and that must stay one line.
_TYPED = re.compile(
    r"\s*(\$ )?(sudo|headrace|numactl|accel-config|echo|mpirun|pip|python3?|[A-Z_]+=\S+) "
)
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
#: Branches of a tree, and the characters that continue below them.
_BELOW = str.maketrans({"├": "│", "└": " ", "─": " ", "!": " "})


def folded(text: str, columns: int) -> str:
    """The text with lines of at most `columns`, broken at spaces; a continuation is indented."""
    return "\n".join(each for line in text.split("\n") for each in _folded(line, columns))


def _folded(line: str, columns: int) -> list[str]:
    if len(_COLOURS.sub("", line)) <= columns or _TYPED.match(line):
        return [line]
    found = re.match(r"! |[ │├└─]*", line)
    indent = (found[0] if found else "").translate(_BELOW) + "  "
    if len(indent) > columns // 2:
        indent = "  "
    return textwrap.wrap(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _is_terminal(file: Any) -> bool:
    """Whether the file is a terminal of the user: Open MPI gives its ranks a terminal of its own.
    """
    return bool(file.isatty()) and launched(os.environ)[0] == 1


def _console(file: Any) -> Console:
    from rich.console import Console

    terminal = _is_terminal(file)
    return Console(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if terminal else _WIDTH_WITHOUT_TERMINAL,
        force_terminal=None if terminal else False,
    )


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> None:
    """A table on stdout."""
    print_text(table_text(headings, rows, left))


def print_list(command: str, *, json: bool, show: Callable[[], None], **known: Any) -> None:
    """The choices, for --list."""
    if not json:
        show()
        return
    print_json(head(f"{command} --list") | known)


def table_text(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table for stdout. The first `left` columns hold words, the others numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console(sys.stdout)
    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
        header_style="bold" if console.is_terminal else "",
    )
    for index, heading in enumerate(headings):
        table.add_column(Text(heading), justify="left" if index < left else "right")
    for row in rows:
        table.add_row(*(Text(in_one_line(cell)) for cell in row))
    with console.capture() as capture:
        console.print(table)
    # The padding at the ends of lines is of no use outside a terminal.
    lines = capture.get().splitlines()
    return "\n".join(lines if console.is_terminal else [line.rstrip() for line in lines])


class ProgressBar:
    """A bar with an estimate on stderr, for work of more than two seconds on a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._step: tuple[float, float | None] = (0, None)
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        # Shows it though the first step may take minutes.
        self._timer = threading.Timer(_BAR_AFTER_SECONDS, self._show)
        self._timer.daemon = True

    def __call__(self, done: float, total: float, what: str | None = None) -> None:
        """`done` of `total`; may be called from any thread that holds the GIL."""
        with self._lock:
            self._what = what or self._what
            self._step = done, total
            self._update()

    def _show(self) -> None:
        with self._lock:
            if not self._timer.finished.is_set():  # else the work has ended meanwhile
                self._bar, self._task = self._begin()
                self._update()

    def _update(self) -> None:
        if self._bar is not None and self._task is not None:
            done, total = self._step
            self._bar.update(self._task, completed=done, total=total, description=self._what)

    def _begin(self) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            console=_console(sys.stderr),
            transient=True,
        )
        bar.start()
        return bar, bar.add_task(self._what, total=None)

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            with suppress(RuntimeError):  # no thread to be had: no bar
                self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._timer.cancel()
            if self._bar is not None:
                self._bar.stop()


class Live:
    """Text that is shown repeatedly: in place on a terminal, otherwise one after the other."""

    def __init__(self, file: Any) -> None:
        from rich.live import Live as Place

        self._console = _console(file)
        self._place = Place(console=self._console, auto_refresh=False)
        self._shown = False

    def show(self, text: str) -> None:
        from rich.text import Text

        if self._console.is_terminal:
            self._place.update(Text.from_ansi(text), refresh=True)
            return
        print_text(f"\n{text}" if self._shown else text)
        self._shown = True

    def __enter__(self) -> Live:
        if self._console.is_terminal:
            self._place.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._place.stop()


def deliver(
    made: dict[str, Any], *, out: Path | None, json: bool, show: Callable[[], None]
) -> None:
    """Writes a document to the requested places: a file, and stdout as JSON or as ``show`` prints
    it. A document that an early Ctrl-C left without a value does not replace a file with values.
    """
    text = json_text(made)
    kept = out is None or (made.get("interrupted") is True and keeps_old(out, made))
    failed = None if out is None or kept else save(out, text)
    if json or failed is not None:
        print_as_is(text)
    else:
        show()
    if failed is not None:
        raise failed


#: Fields of rows with a measured value, by kind of document; null where there is none.
_RESULTS = ("median", "bytes_per_second")


def keeps_old(out: Path, made: Any) -> bool:
    """Whether `out` holds a document with values and `made` has none, as after an early Ctrl-C.
    Then `out` must stay, and a line says so.
    """
    if has_values(made) or is_own_output(out):
        return False
    try:
        old = json.loads(read_whole(out)) if out.is_file() else None
    except (headrace.Error, OSError, ValueError, RecursionError):
        return False  # none of ours
    if not has_values(old):
        return False
    say(f"{out} stays as it was: it has values, and this measurement has none")
    return True


def has_values(made: Any) -> bool:
    """Whether a document, or a part of it (the demo's), has a measured row."""
    if not isinstance(made, dict):
        return False
    lists = [made.get("rows"), made.get("rates")]
    rows = (row for each in lists if isinstance(each, list) for row in each)
    parts = (made.get(name) for name in ("copy", "query"))
    return any(map(_is_measured, rows)) or any(map(has_values, parts))


def _is_measured(row: Any) -> bool:
    if not isinstance(row, dict) or row.get("reason"):
        return False
    return any(row.get(name) is not None for name in _RESULTS)


def save(path: Path, text: str) -> headrace.Error | None:
    """Writes results. So that they are not lost, an error is returned; the caller prints the
    results instead, then raises it. Ctrl-C while a pipe has no reader is such an error too.
    """
    try:
        write_whole(path, text)
    except headrace.Error as error:
        return type(error)(f"{error}; the document is on stdout instead")
    except KeyboardInterrupt:
        return headrace.CancelledError(f"{interrupt.words()}; the document is on stdout instead")
    return None
