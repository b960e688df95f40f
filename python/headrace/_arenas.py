# SPDX-License-Identifier: Apache-2.0
"""The arenas of this process, which its environment places and watches."""

from __future__ import annotations

import _thread
import atexit
import errno
import hashlib
import os
import socket
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace._core import (
    Arena,
    Arenas,
    Error,
    InvalidError,
    Machine,
    TimedOutError,
    arenas_in_plan,
    plan_arenas,
)
from headrace._errors import error_of
from headrace._files import check_writable, read_whole, write_whole
from headrace._format import say

#: A file with a plan: where each arena goes.
PLAN = "HEADRACE_ARENAS"
#: A file for the observed use of each arena, as a plan. It is written every few seconds and at the
#: end. %p in its name stands for the process ID.
SEEN = "HEADRACE_ARENAS_SEEN"

#: Seconds between two looks. A look costs some 0.2 µs for each page of the arenas.
_LOOK_EVERY = 1.0
#: Seconds between two writes: a signal that ends the program loses this much.
_TELL_EVERY = 3.0
#: Seconds that a thread waits while another thread opens the arenas.
_OPENED_WITHIN = 60.0
#: Largest number of names in a line on stderr.
_MOST_NAMES = 8

_lock = threading.Lock()
_of_process: Arenas | None = None
_opener: int | None = None  # the thread that opens them
_is_child = False
_parent_tells = False  # or one before it
_claims: list[socket.socket] = []


def arena(name: str) -> Arena:
    """The arena of this name in this process: objects that are hot or cold together.

    ``headrace.empty(shape, place=headrace.arena("index"))`` allocates in it. The plan in the file
    HEADRACE_ARENAS has its place; without a plan it is DRAM. With HEADRACE_ARENAS_SEEN=FILE the
    arenas are watched, and FILE gets the heat of each, every 3 s and at the end. ``headrace advise
    arenas FILE`` makes a plan from it for the next start. One process at a time writes FILE. With
    %p in its name, which stands for the process ID, each process has its own.

    Raises at the first call the errors of reading the plan. InvalidError: the name is not 1 to 64
    letters, digits or any of ``_ . - / :``, or both variables name one file.
    """
    return _arenas().arena(name)


def _arenas() -> Arenas:
    """Opens the arenas in a thread of its own. A signal handler may ask for them meanwhile: it can
    wait, because the thread it interrupts holds no lock.
    """
    if _of_process is not None:
        return _of_process
    if _opener == _thread.get_ident():
        raise InvalidError("a finalizer asks for an arena while the arenas are being opened")
    outcome: list[Arenas | BaseException] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            outcome.append(_open_once())
        except BaseException as error:
            outcome.append(error)
        finally:
            done.release()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # there are no threads to be had
        return _open_once()
    process = os.getpid()
    while not done.acquire(timeout=_LOOK_EVERY):
        if os.getpid() != process:  # a handler forked here, and nobody opens them in the child
            return _arenas()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _open_once() -> Arenas:
    global _of_process, _opener
    lock = _lock
    if not lock.acquire(timeout=_OPENED_WITHIN):
        raise TimedOutError(f"the arenas were not opened within {_OPENED_WITHIN:.0f} s; ask again")
    try:
        if _of_process is None:
            _opener = _thread.get_ident()
            _of_process = _open(os.environ.get(PLAN), os.environ.get(SEEN))
        return _of_process
    finally:
        _opener = None
        lock.release()


def _open(plan: str | None, seen: str | None) -> Arenas:
    machine = Machine.discover(storage=[])
    text = ""
    if plan:
        with _named(PLAN, plan):
            text = _read(Path(plan))
            planned = Arenas(machine, plan=text)
    path = _file_to_tell(seen, plan) if seen else None
    if seen and path:
        with _named(SEEN, seen):
            arenas = Arenas(machine, plan=text, look_every=_LOOK_EVERY)
        _tell_from_now_on(arenas, path)
    else:
        arenas = planned if plan else Arenas(machine)
    if plan and not _is_worker():
        names = {use.name for use in arenas_in_plan(text)}
        atexit.register(_say_what_differs, arenas, plan, names, os.getpid())
    return arenas


@contextmanager
def _named(variable: str, value: str) -> Iterator[None]:
    """Names the variable in errors that are raised within the block."""
    try:
        yield
    except Error as error:
        raise type(error)(f"{variable}={value}: {error}") from None


def _read(path: Path) -> str:
    try:
        return read_whole(path).decode(errors="replace")
    except OSError as error:
        raise error_of(error, "cannot read the plan of arenas", "another file") from None


def _file_to_tell(seen: str, plan: str | None) -> Path | None:
    """The file for observed uses; None: another process writes to it."""
    path = Path(seen.replace("%p", str(os.getpid()))).absolute()
    with _named(SEEN, seen):
        if plan and _is_same(path, Path(plan)):
            raise InvalidError(f"this is the plan ({PLAN}={plan}), which it would replace; give "
                               "another file")  # fmt: skip
        check_writable(path)
    if _parent_tells and "%p" not in seen:
        return None
    if _claim(path):
        return path
    say(f"{path} ({SEEN}) is being written by another process, so process {os.getpid()} is not "
         "watched; with %p in its name each has a file of its own")  # fmt: skip
    return None


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _claim(path: Path) -> bool:
    """Claims the file until this process ends in any way. False: another process has it."""
    _drop_claims()  # of a start that failed
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    try:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        _claims.append(claim)
        claim.bind(f"\0headrace-arenas-{name}")
    except OSError as error:  # where there are no sockets nobody else can be seen
        return error.errno != errno.EADDRINUSE
    return True


def _drop_claims() -> None:
    for claim in _claims:
        claim.close()
    _claims.clear()


def _is_worker() -> bool:
    """Whether this process is a worker that another process of the program started."""
    processes = sys.modules.get("multiprocessing.process")
    return _is_child or (processes is not None and processes.parent_process() is not None)


def _tell_from_now_on(arenas: Arenas, path: Path) -> None:
    stop = threading.Event()

    def tell() -> None:
        while not stop.wait(_TELL_EVERY):
            try:
                _write(arenas, path)
            except (Error, MemoryError):
                pass  # the last time says so

    teller = threading.Thread(target=tell, name="headrace-seen", daemon=True)
    process = os.getpid()

    def tell_at_last() -> None:
        if os.getpid() != process:
            return
        stop.set()
        if teller.ident is not None:
            teller.join(timeout=10)
        try:
            arenas.look()
        except (Error, MemoryError) as error:
            say(f"the last look at the arenas failed: {error}; {path} has what was seen before")
        try:
            _write(arenas, path)
        except (Error, MemoryError) as error:
            say(f"{path} is not written: {error}")

    atexit.register(tell_at_last)
    if path.exists() and not path.is_file():
        return  # a pipe or a device, which gets one text
    try:
        teller.start()
    except RuntimeError:
        say(f"{path} is written at the end only: no thread can be started")


def _write(arenas: Arenas, path: Path) -> None:
    write_whole(path, plan_arenas(arenas.uses(), [("dram", None)]))


def _say_what_differs(arenas: Arenas, plan: str, planned: Collection[str], process: int) -> None:
    if os.getpid() != process:
        return
    used = {use.name for use in arenas.uses()}
    parts = []
    if unused := sorted(set(planned) - used):
        parts.append(f"names arenas that were not used: {_listed(unused)}")
    if unplanned := sorted(used - set(planned)):
        parts.append(f"does not name some that were: {_listed(unplanned)}")
    if parts:
        say(f"the plan {plan} ({PLAN}) {'; it '.join(parts)}")


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _forget_parents() -> None:
    global _lock, _of_process, _opener, _is_child, _parent_tells
    _lock = threading.Lock()
    _of_process = None
    _opener = None
    _is_child = True
    _parent_tells = _parent_tells or bool(_claims)
    _drop_claims()


os.register_at_fork(after_in_child=_forget_parents)
