# SPDX-License-Identifier: Apache-2.0
"""One table: what went wrong -> exit code. Errors' codes are the words of ErrorCode."""

from __future__ import annotations

#: Exit codes by ErrorCode. 2 is what shells and argument parsers use for a request that makes no
#: sense, 130 = 128 + SIGINT what a program ended by Ctrl-C returns.
BY_ERROR_CODE = {
    "invalid": 2,
    "absent": 3,
    "unsupported": 4,
    "denied": 5,
    "exhausted": 6,
    "io": 7,
    "timed_out": 8,
    "cancelled": 130,
}

SUCCESS = 0
#: `headrace compare` found a change, `headrace fleet` a host unlike the others. Not 1, which the
#: interpreter's own failure has.
CHANGED = 9
#: `headrace compare` found no change, but could judge too few rows for that to say anything;
#: `headrace fleet` found no difference, but could not judge the speed of every host.
UNJUDGED = 10
#: Ended by a signal, most often Ctrl-C; the command ends with 128 + its number (interrupt.py).
INTERRUPTED = BY_ERROR_CODE["cancelled"]
#: 128 + SIGPIPE: the reader of our output went away.
BROKEN_PIPE = 141
#: EX_SOFTWARE of sysexits.h: a defect of Headrace.
INTERNAL = 70
#: Codes that shells and numactl return when `headrace run` finds the program but cannot run it,
#: or does not find it.
CANNOT_RUN = 126
NO_PROGRAM = 127
