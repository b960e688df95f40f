# SPDX-License-Identifier: Apache-2.0
"""Parts of headrace.safetensors: files of a model, their reading, copies kept in DRAM."""
