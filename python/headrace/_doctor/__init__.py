# SPDX-License-Identifier: Apache-2.0
"""For `headrace doctor`: features of the host, and settings that spoil measurements."""
