# SPDX-License-Identifier: Apache-2.0
"""The command `headrace`. While it is loaded Ctrl-C ends it as it ends other programs.

Outside the package, whose import is most of the loading.
"""

import _signal

if _signal.getsignal(_signal.SIGINT) == _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main():
    """Runs the command and ends the process."""
    try:
        from headrace._cli import main as run
    except (ImportError, OSError) as error:
        raise SystemExit(f"headrace: cannot load itself: {error}") from None
    run()
