"""Awaiting a transfer: the event loop watches its descriptor, no thread waits."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._core import MoveStats, Transfer


async def finished(transfer: Transfer) -> MoveStats:
    """The outcome of `transfer`, without blocking the running loop.

    Cancelling the task that awaits does not cancel the move: others may wait for it, and its
    memory is kept until it ends. Call ``transfer.cancel()`` for that.
    """
    if not transfer.done():
        await _readable(transfer.fileno())
    return transfer.wait(0)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    # A loop has one reader per descriptor, and a transfer may have several awaiters.
    own = os.dup(descriptor)
    try:
        future = loop.create_future()

        def wake() -> None:
            loop.remove_reader(own)
            if not future.done():
                future.set_result(None)

        loop.add_reader(own, wake)
        try:
            await future
        finally:
            # A loop that was closed under us has dropped its readers itself.
            if not loop.is_closed():
                loop.remove_reader(own)
    finally:
        os.close(own)
