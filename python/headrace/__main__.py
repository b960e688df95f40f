# SPDX-License-Identifier: Apache-2.0
"""`python -m headrace`: the command, by this interpreter, wherever its script lies."""

from headrace._cli import main

main()
