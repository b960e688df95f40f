# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the figures of movement: upper bounds, and engines side by side."""
