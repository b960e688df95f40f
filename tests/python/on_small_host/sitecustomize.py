# SPDX-License-Identifier: Apache-2.0
"""With this folder in PYTHONPATH, commands and what they launch measure a small host."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import small_host

small_host.shrink()
