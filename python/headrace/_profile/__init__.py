# SPDX-License-Identifier: Apache-2.0
"""Profiles held against each other: other tools' conventions and formats, hosts of a fleet."""
