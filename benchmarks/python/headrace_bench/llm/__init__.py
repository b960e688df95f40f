# SPDX-License-Identifier: Apache-2.0
"""Traffic of large language models: what a layer reads, and where cached keys and values go."""
