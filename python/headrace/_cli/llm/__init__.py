# SPDX-License-Identifier: Apache-2.0
"""Commands about the traffic of language models."""
