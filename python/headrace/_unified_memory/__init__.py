# SPDX-License-Identifier: Apache-2.0
"""A model of managed memory, for `headrace advise um`."""
