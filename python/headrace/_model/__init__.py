# SPDX-License-Identifier: Apache-2.0
"""Unified Memory: cases, published rates, and a model of the driver's pages."""
