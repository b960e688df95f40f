"""The arenas of this process, which its environment places and watches."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from pathlib import Path

from headrace._core import Arena, Arenas, Error, Machine, plan_arenas
from headrace._errors import error_of
from headrace._files import check_writable, read_whole, write_whole

#: A file with a plan: where each arena goes.
PLAN = "HEADRACE_ARENAS"
#: A file that is written at the end: what was seen of each arena, as a plan.
SEEN = "HEADRACE_ARENAS_SEEN"

#: Seconds between two looks. A look costs some 0.2 µs for each page of the arenas.
_LOOK_EVERY = 1.0

_lock = threading.Lock()
_of_process: Arenas | None = None
_is_child = False


def arena(name: str) -> Arena:
    """The arena of this name in this process: objects that are hot or cold together.

    ``headrace.empty(shape, place=headrace.arena("index"))`` allocates in it. Where that is says the
    plan in the file HEADRACE_ARENAS, else it is DRAM. With HEADRACE_ARENAS_SEEN=FILE the arenas are
    watched, and FILE says at the end how hot each was; ``headrace advise arenas FILE`` makes a plan
    of it for the next start.

    Raises what reading the plan raises, at the first call; InvalidError for a name that is not 1 to
    64 letters, digits or any of ``_ . - / :``.
    """
    return _arenas().arena(name)


def _arenas() -> Arenas:
    global _of_process
    with _lock:
        if _of_process is None:
            _of_process = _open(os.environ.get(PLAN), os.environ.get(SEEN))
        return _of_process


def _open(plan: str | None, seen: str | None) -> Arenas:
    text = ""
    if plan:
        try:
            text = read_whole(Path(plan)).decode(errors="replace")
        except OSError as error:
            raise error_of(error, f"cannot read {plan} ({PLAN})", "a plan of arenas") from None
    machine = Machine.discover(storage=[])
    if not seen or _is_child:  # whose parent writes the file
        return Arenas(machine, plan=text)
    check_writable(Path(seen))
    arenas = Arenas(machine, plan=text, look_every=_LOOK_EVERY)
    atexit.register(_tell, arenas, Path(seen).absolute(), os.getpid())
    return arenas


def _tell(arenas: Arenas, path: Path, process: int) -> None:
    if os.getpid() != process:
        return
    try:
        arenas.look()
        write_whole(path, plan_arenas(arenas.uses(), [("dram", None)]))
    except Error as error:
        print(f"headrace: {path} is not written: {error}", file=sys.stderr)


def _forget_parents() -> None:
    global _lock, _of_process, _is_child
    _lock = threading.Lock()
    _of_process = None
    _is_child = True


os.register_at_fork(after_in_child=_forget_parents)
