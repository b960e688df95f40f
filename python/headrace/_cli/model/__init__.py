# SPDX-License-Identifier: Apache-2.0
"""headrace model: one module per model."""
