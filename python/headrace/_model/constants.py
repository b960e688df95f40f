# SPDX-License-Identifier: Apache-2.0
"""Constants of a model, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Constant:
    name: str
    value: float
    unit: str  #: "us", "lines", "B/s"; empty for a share
    #: A fitted constant was chosen to give the figures that `source` names: none is predicted.
    basis: Literal["fitted", "assumed", "published", "given"]
    source: str
