# SPDX-License-Identifier: Apache-2.0
"""Completes command lines for shells. Their scripts in python/share start the command with VARIABLE
set, and the typed words in other variables.
"""

from __future__ import annotations

from typing import Any

from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.completion import shell_complete

PROGRAM = "headrace"
VARIABLE = "_HEADRACE_COMPLETE"


def answer(command: Any, instruction: str) -> int:
    """Prints the words that may follow; returns the exit code. `instruction` is VARIABLE's value:
    complete_bash, source_zsh, ...
    """
    completion_init()
    try:
        return shell_complete(command, {}, PROGRAM, VARIABLE, instruction)
    except SystemExit as end:  # fish asks whether there are any words
        return int(end.code or 0)


#: zsh runs an autoloaded script as the function itself. Without this, the first TAB does nothing.
_FIRST_TAB = f"""
[[ $zsh_eval_context[-1] == loadautofunc ]] && _{PROGRAM}_completion "$@"
"""


def script(shell: str) -> str:
    """The script in python/share: bash, zsh or fish."""
    made = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)
    return made + "\n" + (_FIRST_TAB if shell == "zsh" else "")
