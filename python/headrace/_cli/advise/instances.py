# SPDX-License-Identifier: Apache-2.0
"""Instances of a cloud, as P. Zhou's talk at MemCon 2024 listed them: vCPUs and GiB of memory."""

from __future__ import annotations

from headrace._errors import unknown

SOURCE = "P. Zhou, MemCon 2024, from aws.amazon.com/ec2/instance-types (m7i, m7a)"

INSTANCES = {
    "m7i-flex.large": (2, 8), "m7i-flex.xlarge": (4, 16), "m7i-flex.2xlarge": (8, 32),
    "m7i-flex.4xlarge": (16, 64), "m7i-flex.8xlarge": (32, 128),
    "m7a.medium": (1, 4), "m7a.large": (2, 8), "m7a.xlarge": (4, 16), "m7a.2xlarge": (8, 32),
    "m7a.4xlarge": (16, 64), "m7a.8xlarge": (32, 128), "m7a.12xlarge": (48, 192),
    "m7a.16xlarge": (64, 256), "m7a.24xlarge": (96, 384), "m7a.32xlarge": (128, 512),
    "m7a.48xlarge": (192, 768), "m7a.metal-48xl": (192, 768),
}  # fmt: skip


def gib_per_vcpu(name: str) -> float:
    if name not in INSTANCES:
        raise unknown("instance", name, INSTANCES)
    vcpus, gib = INSTANCES[name]
    return gib / vcpus
