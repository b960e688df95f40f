# SPDX-License-Identifier: Apache-2.0
"""Exit codes of the command. Those of errors are the extension's (include/headrace/result.h)."""

from __future__ import annotations

from headrace._core import CancelledError

SUCCESS = 0
#: `headrace compare` found a change, or `headrace fleet` a host unlike the others. It is not 1, the
#: code of a failed interpreter.
CHANGED = 9
#: `headrace compare` found no change, but could judge too few rows for that to say anything;
#: `headrace fleet` found no difference, but could not judge the speed of every host.
UNJUDGED = 10
#: Ended by a signal, most often Ctrl-C; the command ends with 128 + its number (interrupt.py).
INTERRUPTED = CancelledError.exit_code
#: 128 + SIGPIPE: the reader of our output went away.
BROKEN_PIPE = 141
#: EX_SOFTWARE of sysexits.h: a defect of Headrace.
INTERNAL = 70
#: Codes that shells and numactl return when `headrace run` finds the program but cannot run it,
#: or does not find it.
CANNOT_RUN = 126
NO_PROGRAM = 127
