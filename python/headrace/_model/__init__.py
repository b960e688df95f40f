# SPDX-License-Identifier: Apache-2.0
"""Models that `headrace model` and `headrace advise um` compute with; nothing here measures."""
