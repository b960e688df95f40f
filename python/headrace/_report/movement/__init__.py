# SPDX-License-Identifier: Apache-2.0
"""What figures of movement share: how fast it can be at most, and engines side by side."""
