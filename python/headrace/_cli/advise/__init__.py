# SPDX-License-Identifier: Apache-2.0
"""headrace advise: one module per question."""
