"""What a loader has copied to a device and done there: for ``loader.stats()`` and the lines of the log."""

from __future__ import annotations

from typing import Any


class Counts:
    """What a loader has copied and made. ``busy`` and ``made_busy`` are the device's time, in seconds."""

    def __init__(self) -> None:
        self.device = ""  # that the last pass copied to
        self.copies = self.bytes = 0
        self.busy = 0.0
        self.made, self.made_busy = 0, 0.0  # messages with which something was done there after the copy
        self.decoded, self.decode_busy = 0, 0.0  # pictures that were decoded there
        self.decode_host = 0.0  # seconds that this took the training process
        self.pinned = True  # slots are pinned in place
        self.asked = self.ahead = 0  # how often the loop asked, and the batches that were there already, in all

    def mark(self) -> tuple[int, float, int, int]:
        """The numbers now, for ``line``."""
        return self.bytes, self.busy, self.asked, self.ahead

    def line(self, mark: tuple[int, float, int, int]) -> list[str]:
        """What a line of the log says of the time since a mark."""
        moved, busy, asked, ahead = (now - then for now, then in zip(self.mark(), mark, strict=True))
        if not moved or not asked:
            return []
        rate = f" at {moved / busy / 1e9:.1f} GB/s" if busy else ""
        return [f"{moved / 1e6:,.0f} MB to {self.device}{rate}, {ahead / asked:.1f} batches ahead there"]

    def told(self) -> dict[str, Any] | None:
        """The numbers; None if no pass has copied."""
        if not self.device:
            return None
        rate = self.bytes / self.busy if self.busy else 0.0
        return {
            "device": self.device,
            "copies": self.copies,
            "bytes": self.bytes,
            "busy_s": self.busy,
            "bytes_per_s": rate,
            "transforms": self.made,
            "transforms_busy_s": self.made_busy,
            "decoded": self.decoded,
            "decode_busy_s": self.decode_busy,
            "decode_host_s": self.decode_host,
            "ahead_mean": self.ahead / self.asked if self.asked else 0.0,
            "pinned_slots": self.pinned,
        }
