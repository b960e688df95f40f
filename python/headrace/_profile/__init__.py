# SPDX-License-Identifier: Apache-2.0
"""Compares profiles: other tools' conventions and formats, hosts of a fleet."""
