# SPDX-License-Identifier: Apache-2.0
"""Reads of local files and of other file systems' files, through memory caches of this process."""
