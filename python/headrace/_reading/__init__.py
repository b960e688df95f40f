# SPDX-License-Identifier: Apache-2.0
"""Reads of files and of what other file systems hold, through memory caches of this process."""
