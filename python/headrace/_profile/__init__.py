# SPDX-License-Identifier: Apache-2.0
"""Profiles: conventions and formats of other tools, comparison of a fleet's hosts."""
