# SPDX-License-Identifier: Apache-2.0
"""Processes and their memory: the plan of `headrace run`, ranks of a job, places of pages."""
