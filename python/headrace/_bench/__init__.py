# SPDX-License-Identifier: Apache-2.0
"""What `headrace bench` runs: queries over TPC-H data, and rows of DSA devices."""
