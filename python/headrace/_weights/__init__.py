# SPDX-License-Identifier: Apache-2.0
"""What headrace.safetensors consists of: files of a model, their reading, copies kept in DRAM."""
