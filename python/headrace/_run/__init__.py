# SPDX-License-Identifier: Apache-2.0
"""Processes and their memory: what `headrace run` sets, ranks of a job, where pages lie."""
