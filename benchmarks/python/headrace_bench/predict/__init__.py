# SPDX-License-Identifier: Apache-2.0
"""`headrace predict`: how fast a program would be on a machine that is only described.

A workload (one module each) turns its settings into flows of bytes for each placement that makes
sense on the machine. The solver of the extension finds how fast the ceilings of the machine let
them be. `command` makes the option of the command line for each axis of a workload, `answer`
holds and prints what comes out, `target` the machine.
"""
