# SPDX-License-Identifier: Apache-2.0
"""The DIMMs of a machine, from its firmware's table (SMBIOS, DSP0134, structures of type 17).

The table is read from the kernel (/sys/firmware/dmi/tables/DMI, root only), without dmidecode. No
field has the channel of a slot: it is in the slot's name, in a way that differs by maker.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

TABLE = "sys/firmware/dmi/tables/DMI"
_MEMORY_DEVICE, _END_OF_TABLE = 17, 127
#: DDR, DDR2, DDR3, DDR4, DDR5, HBM ... (DSP0134 7.18.2).
_TYPES = {
    0x18: "DDR3", 0x1A: "DDR4", 0x1E: "LPDDR4", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5",
    0x23: "LPDDR5", 0x24: "HBM3",
}  # fmt: skip
#: "P1-DIMMA1", "CPU0_DIMM_A1", "DIMM B2", "A1": the letter is the channel, the number the slot.
_LETTER_AND_SLOT = re.compile(r"(.*DIMM|.*[\s_-]|)([A-Z])[\s_-]?(\d)")
#: "P0 CHANNEL A", "NODE 1 CHANNEL 0 DIMM 1", "P0_Node0_Channel0_Dimm0".
_CHANNEL = re.compile(r"(.*?)CHANNEL[\s_-]*([A-Z0-9]+?)(?:[\s_-]*DIMM.*)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Dimm:
    """A slot. Size 0: it is empty. Speeds are in MT/s, 0 if unknown."""

    slot: str
    bank: str
    size: int
    kind: str
    rated: int
    running: int

    @property
    def channel(self) -> str | None:
        """The channel of the slot; None if its names do not show it."""
        # The bank often says only the socket: "NODE 0".
        for name in (self.bank, self.slot):
            if match := _CHANNEL.fullmatch(name):
                return f"{match[1]}channel {match[2]}"
        if match := _LETTER_AND_SLOT.fullmatch(self.slot):
            return f"{self.bank} {match[1]}{match[2]}"
        return None


def dimms(table: bytes) -> list[Dimm]:
    """The slots of the main memory. A table that is cut off gives the slots before its end."""
    found: list[Dimm] = []
    for kind, body, texts in _structures(table):
        if kind != _MEMORY_DEVICE or len(body) < 0x15:
            continue
        (size,) = struct.unpack_from("<H", body, 0x0C)
        found.append(
            Dimm(
                slot=_text(texts, body[0x10]),
                bank=_text(texts, body[0x11]),
                size=_bytes(size, body),
                kind=_TYPES.get(body[0x12], "memory"),
                rated=_speed(body, 0x15, 0x54),
                running=_speed(body, 0x20, 0x58),
            )
        )
    return found


def _structures(table: bytes) -> Iterator[tuple[int, bytes, list[bytes]]]:
    at = 0
    while at + 4 <= len(table):
        kind, length = table[at], table[at + 1]
        end = table.find(b"\0\0", at + length)
        if length < 4 or end < 0:
            return
        yield kind, table[at : at + length], table[at + length : end].split(b"\0")
        if kind == _END_OF_TABLE:
            return
        at = end + 2


def _text(texts: list[bytes], number: int) -> str:
    """The text with this number. Texts are counted from 1; 0 is no text."""
    if not 1 <= number <= len(texts):
        return ""
    return texts[number - 1].decode("ascii", "replace").strip()


def _bytes(size: int, body: bytes) -> int:
    if size in (0, 0xFFFF):  # nothing in it, or not known
        return 0
    if size == 0x7FFF and len(body) >= 0x20:
        return int(struct.unpack_from("<I", body, 0x1C)[0] & 0x7FFFFFFF) << 20
    return (size & 0x7FFF) << (10 if size & 0x8000 else 20)


def _speed(body: bytes, offset: int, extended: int) -> int:
    if len(body) < offset + 2:
        return 0
    speed = int(struct.unpack_from("<H", body, offset)[0])
    if speed == 0xFFFF and len(body) >= extended + 4:
        return int(struct.unpack_from("<I", body, extended)[0] & 0x7FFFFFFF)
    return 0 if speed == 0xFFFF else speed
