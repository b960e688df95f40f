# SPDX-License-Identifier: Apache-2.0
"""headrace tier: which memory is hot, the kernel's tiering, and memory within a budget."""
