"""The command `headrace`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import NoReturn

from headrace import Error
from headrace._cli import exit_codes
from headrace._errors import SaidElsewhere, WrongAnswer, error_of


def main() -> NoReturn:
    """Runs the command and ends the process with the right code and at most one line of error."""
    _open_closed_output()
    # Names of files are bytes; those that are not UTF-8 are printed as they are.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        code = _run()
        sys.stdout.flush()
        if code == exit_codes.INTERRUPTED:
            _complain("interrupted", code)
    except BrokenPipeError:
        code = exit_codes.BROKEN_PIPE
    except KeyboardInterrupt:
        code = _complain("interrupted", exit_codes.INTERRUPTED)
    except OSError as error:
        code = _complain_of(error_of(error, str(error.filename or "cannot write")))
    _forget_output()
    sys.exit(code)


def _open_closed_output() -> None:
    """Where the caller has closed stdout or stderr Python has none; what is printed there is for
    nobody then. The program of `headrace run` finds them closed as they were.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")


def _run() -> int:
    from typer.exceptions import Abort, TyperException

    from headrace._cli.app import app

    try:
        return int(app(standalone_mode=False) or exit_codes.SUCCESS)
    except Error as error:
        return _complain_of(error)
    except WrongAnswer as error:
        return _complain(str(error), exit_codes.INTERNAL)
    except SaidElsewhere as end:
        return end.code
    except TyperException as error:
        return _complain(error.format_message(), error.exit_code)
    except Abort:
        return exit_codes.INTERRUPTED
    except SystemExit:  # how Typer ends when the reader of our output went away
        return exit_codes.BROKEN_PIPE
    except OSError:
        raise
    except Exception as error:
        if os.environ.get("HEADRACE_TRACEBACK"):
            raise
        return _complain(
            f"internal error: {type(error).__name__}: {error} (HEADRACE_TRACEBACK=1 shows where)",
            exit_codes.INTERNAL,
        )


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split()).removesuffix(".")
    try:
        print(f"headrace: {line}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody listens; the exit code still tells
    return code


def _complain_of(error: Error) -> int:
    return _complain(str(error), exit_codes.BY_ERROR_CODE[error.code])


def _forget_output() -> None:
    """Output that could not be written must not be tried again by the interpreter at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
