# SPDX-License-Identifier: Apache-2.0
"""The report: measurements as one page, with a figure and a sentence for each experiment."""
