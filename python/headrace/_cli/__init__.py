# SPDX-License-Identifier: Apache-2.0
"""The command `headrace`."""

from __future__ import annotations

import codecs
import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

from headrace import Error, ExhaustedError
from headrace._cli import exit_codes, interrupt
from headrace._errors import SaidElsewhere, WrongAnswer, error_of, limit_of_threads, printing
from headrace._format import say

if TYPE_CHECKING:
    from typer.exceptions import TyperException


def main() -> NoReturn:
    """Runs the command and ends the process with the right code and at most one line of error."""
    interrupt.end_with_a_line()
    try:
        _open_closed_output()
        _print_what_can_be_printed()
        code = _run()
        if code == exit_codes.SUCCESS:  # else what failed may have been this
            _flush()
            if interrupt.was_raised():
                code = _complain_of_signal()
    except BrokenPipeError:
        code = exit_codes.BROKEN_PIPE
    except KeyboardInterrupt:
        code = _complain_of_signal()
    except Error as error:
        code = _complain_of(error)
    except OSError as error:
        code = _complain_of(error_of(error, str(error.filename or "")))
    _forget_output()
    sys.exit(code)


def _open_closed_output() -> None:
    """Opens stdout or stderr if the caller has closed it. Printing to stdout then fails as on a
    full disk; error messages are dropped. The program of `headrace run` still finds both closed.
    """
    sys.stdout = sys.stdout or open(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")


#: Replacements for output in ASCII or Latin-1.
_PLAIN = {"├": "|", "└": "`", "│": "|", "─": "-", "≈": "~", "±": "+-", "×": "x", "→": "->"}


def _print_what_can_be_printed() -> None:
    """Replaces characters that cannot be printed, so that no result is lost. Names of files are
    bytes; names that are not UTF-8 are printed unchanged.
    """
    codecs.register_error("headrace", _instead)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="headrace")


def _instead(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    made = b""
    for character in error.object[error.start : error.end]:
        try:
            made += character.encode(error.encoding, "surrogateescape")
        except UnicodeEncodeError:
            made += _PLAIN.get(character, "?").encode("ascii")
    return made, error.end


def _run() -> int:
    try:
        from typer.exceptions import Abort, TyperException

        from headrace._cli import app
    except ImportError as error:
        # If no more files can be opened, imports fail as if modules were missing.
        os.close(os.open(os.devnull, os.O_RDONLY))
        return _complain(f"cannot load itself: {error}", exit_codes.INTERNAL)
    try:
        code = int(app.run() or exit_codes.SUCCESS)
        _flush()
        if code != exit_codes.INTERRUPTED:
            return code
        return _complain(interrupt.words_of_results(), interrupt.exit_code())
    except Error as error:
        return _complain_of(error)
    except WrongAnswer as error:
        return _complain(str(error), exit_codes.INTERNAL)
    except SaidElsewhere as end:
        return end.code
    except TyperException as error:
        return _complain(_with_help(error), error.exit_code)
    except Abort:
        return _complain_of_signal()
    except SystemExit:  # how Typer ends when the reader of our output went away
        return exit_codes.BROKEN_PIPE
    except (OSError, KeyboardInterrupt):
        raise
    except MemoryError:
        return _complain("out of memory; ask for less", ExhaustedError.exit_code)
    except BaseException as error:  # libraries written in Rust panic with one that is no Exception
        if os.environ.get("HEADRACE_TRACEBACK"):
            raise
        return _complain_of_defect(error)


def _with_help(error: TyperException) -> str:
    """The parser's error, with the command that prints the help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "headrace"
    return f"{error.format_message().removesuffix('.')}; see {path} --help"


def _flush() -> None:
    with printing():
        sys.stdout.flush()


def _complain_of_defect(error: BaseException) -> int:
    if interrupt.was_raised():
        return _complain_of_signal()
    if isinstance(error, ImportError):  # as in _run
        os.close(os.open(os.devnull, os.O_RDONLY))
    if isinstance(error, RuntimeError) and str(error) in _NO_THREAD:
        told = f"no thread can be started; raise {limit_of_threads()}"
        return _complain(told, ExhaustedError.exit_code)
    return _complain(
        f"internal error: {type(error).__name__}: {error} (HEADRACE_TRACEBACK=1 shows where)",
        exit_codes.INTERNAL,
    )


#: Messages of Python and C++ when the limit of processes is reached.
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")


def _complain(message: str, code: int) -> int:
    say(" ".join(message.split()).removesuffix("."))
    return code


def _complain_of(error: Error) -> int:
    code = error.exit_code
    stopped = code == exit_codes.INTERRUPTED
    return _complain(str(error), interrupt.exit_code() if stopped else code)


def _complain_of_signal() -> int:
    return _complain(interrupt.words(), interrupt.exit_code())


def _forget_output() -> None:
    """Drops output that could not be written, so that the interpreter does not try again at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
