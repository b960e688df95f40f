# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `headrace bench`, found by the entry points of benchmarks/pyproject.toml."""
