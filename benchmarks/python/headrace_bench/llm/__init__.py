# SPDX-License-Identifier: Apache-2.0
"""Traffic of large language models: reads of a layer, and loads of cached keys and values."""
