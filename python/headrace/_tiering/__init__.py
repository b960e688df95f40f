# SPDX-License-Identifier: Apache-2.0
"""The kernel's own tiering: its state and counters, and switching it on and off."""
