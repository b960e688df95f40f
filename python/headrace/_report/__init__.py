# SPDX-License-Identifier: Apache-2.0
"""The report: what was measured as one page, with a figure and a sentence for each thing."""
