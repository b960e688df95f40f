# SPDX-License-Identifier: Apache-2.0
"""The kernel's own tiering: what is on, what it did, and how it is switched on and undone."""
