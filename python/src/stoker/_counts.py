"""What a loader has copied to a device and done there: for ``loader.stats()``, the lines of the log, and the page.

Counts    all of it
Work      one kind of work, as the page has it: copies, transforms, decoding
Sums      what a line of the log needs of two moments

Times are the device's own, in seconds: the loop's process waits for none of this, except for ``decode_host``, and for
all of it where the device is the CPU, and nothing is copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NOTICEABLE = 0.05  # share of the time that the loop's stream waits for this work, from which on it limits the loop
MOST = 0.5  # share of the time that the work takes, if it does


class Work(NamedTuple):
    """One kind of work on the device. ``waited``: how long the loop's stream waited until it had ended. ``queue``: what
    was given to the device and had not ended when the loop asked last; ``queued``: that, summed over all times."""

    name: str
    items: int
    bytes: int
    busy: float
    waited: float
    queue: int
    queued: int


class Sums(NamedTuple):
    """The counts of a moment."""

    bytes: int
    copying: float  # seconds
    busy: float  # with all kinds of work
    waited: float
    asked: int
    ahead: int
    here: float  # seconds of it in this process


class Counts:
    """What a loader has copied and made. ``busy``, ``made_busy`` and ``decode_busy`` are the device's time, in seconds;
    ``..._waited`` that of the loop's stream, which waited until this had ended."""

    def __init__(self) -> None:
        self.device = ""  # that the last pass copied to
        self.copies = self.bytes = 0
        self.busy = self.waited = 0.0
        self.made = self.made_bytes = 0  # messages with which something was done there after the copy; bytes of that
        self.made_busy = self.made_waited = 0.0
        self.decoded = self.decoded_bytes = 0  # pictures, and what they have compressed
        self.decode_busy = self.decode_waited = 0.0
        self.decode_host = 0.0  # seconds that the decoder's calls took the training process
        self.here = 0.0  # seconds of all this that the training process took, because it is the device
        self.copying = self.making = self.decoding = 0  # given to the device, and not known to have ended
        self.pinned = True  # slots are pinned in place
        self.asked = self.ahead = self.ready = 0  # how often the loop asked; batches there, in all and the last time
        # In progress when the loop asked, the last time and in all.
        self._copies, self._transforms, self._decoding = [0, 0], [0, 0], [0, 0]

    def ask(self, ahead: int) -> None:
        """The loop asks for a batch; so many are on the device, or on their way."""
        self.asked += 1
        self.ahead += ahead
        self.ready = ahead
        self._copies[0] = self.copying
        self._copies[1] += self.copying
        if self.made or self.making:
            self._transforms[0] = self.making
            self._transforms[1] += self.making
        if self.decoded or self.decoding:
            self._decoding[0] = self.decoding
            self._decoding[1] += self.decoding

    def worked_here(self, seconds: float, size: int, pictures: int, compressed: int, decoding: float) -> None:
        """The training process has made ``size`` bytes of a batch, because device is "cpu". The decoder took
        ``decoding`` of the seconds."""
        self.device = "cpu"
        self.here += seconds
        self.made, self.made_bytes = self.made + 1, self.made_bytes + size
        self.made_busy += seconds - decoding
        self.made_waited += seconds - decoding
        self.decoded, self.decoded_bytes = self.decoded + pictures, self.decoded_bytes + compressed
        self.decode_busy += decoding
        self.decode_waited += decoding
        self.decode_host += decoding

    def works(self) -> tuple[Work, Work, Work]:
        """Copies, transforms and decoding."""
        return (
            Work("copies", self.copies, self.bytes, self.busy, self.waited, *self._copies),
            Work("transforms", self.made, self.made_bytes, self.made_busy, self.made_waited, *self._transforms),
            Work("decoding", self.decoded, self.decoded_bytes, self.decode_busy, self.decode_waited, *self._decoding),
        )

    def mark(self) -> Sums:
        """The numbers now, for ``line``."""
        works = self.works()
        busy, waited = sum(one.busy for one in works), sum(one.waited for one in works)
        return Sums(self.bytes, self.busy, busy, waited, self.asked, self.ahead, self.here)

    def line(self, mark: Sums, seconds: float) -> list[str]:
        """What a line of the log says of the time since a mark, in which the loop ran for so many seconds."""
        since = (now - then for now, then in zip(self.mark(), mark, strict=True))
        moved, copying, busy, waited, asked, ahead, _ = since
        if not moved or not asked:
            return []
        rate = f" at {moved / copying / 1e9:.1f} GB/s" if copying else ""
        parts = [f"{moved / 1e6:,.0f} MB to {self.device}{rate}", f"{ahead / asked:.1f} batches ahead there"]
        if busy and seconds > 0:
            longer = f", for which the loop waited {100 * waited / seconds:.0f} %" if waited >= 0.01 * seconds else ""
            parts.append(f"loading took {100 * busy / seconds:.0f} % of its time{longer}")
        return [", ".join(parts)]

    def limiting(self, known: str, mark: Sums | None, seconds: float, waited: float) -> str:
        """What limits the loop since a mark: "device", or what is known from the engine. The loop ran for so many
        seconds, of which its process ``waited`` some. It is the device if the loop's stream waits for this work, which
        takes most of the time; or if the process waits, mostly for itself."""
        _, _, busy, streams, _, _, here = (
            self.mark() if mark is None else (a - b for a, b in zip(self.mark(), mark, strict=True))
        )
        if known == "training loop":
            late = seconds > 0 and busy >= MOST * seconds and streams >= NOTICEABLE * seconds
        else:
            late = bool(known) and here > 0 and here >= MOST * waited
        return "device" if late else known

    def told(self, seconds: float) -> dict[str, Any] | None:
        """The numbers; None if no pass has copied. The loop ran for so many seconds."""
        if not self.device:
            return None
        sums = self.mark()
        return {
            "device": self.device,
            "copies": self.copies,
            "bytes": self.bytes,
            "busy_s": self.busy,
            "bytes_per_s": self.bytes / self.busy if self.busy else 0.0,
            "transforms": self.made,
            "transforms_busy_s": self.made_busy,
            "decoded": self.decoded,
            "decode_busy_s": self.decode_busy,
            "decode_host_s": self.decode_host,
            "busy_share": sums.busy / seconds if seconds > 0 else 0.0,
            "waited_share": sums.waited / seconds if seconds > 0 else 0.0,
            "ahead_mean": self.ahead / self.asked if self.asked else 0.0,
            "pinned_slots": self.pinned,
            "stages": [
                {
                    "name": one.name,
                    "items": one.items,
                    "bytes": one.bytes,
                    "busy_s": one.busy,
                    "waited_s": one.waited,
                    "queue": one.queue,
                    "queue_mean": one.queued / self.asked if self.asked else 0.0,
                }
                for one in self.works()
            ],
        }
