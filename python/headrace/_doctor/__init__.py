# SPDX-License-Identifier: Apache-2.0
"""What the host offers, and which of its settings spoil measurements; for `headrace doctor`."""
