"""How much is under way on a path, and how fast the path has been seen to deliver.

The rate is measured from outside the drivers: bytes whose delivery was confirmed (an ACK or REPLY came;
without those, the driver was done) over the time in which the path had work. So the same estimate
serves every driver and the simulator. Small messages say nothing of a path's rate and are left out.

Paths that share a bottleneck each deliver what they are given, so that any split of the traffic would confirm
itself. So each path is on trial for a few samples now and then: if there are faster ones, it is given more
(`Candidates.note_rates`). Where it delivers more, that is its rate, and the next trial follows soon; where it
does not, the next one is twice as far away.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.generation import Generation

__all__ = ["MIN_SAMPLE_BYTES", "InFlight", "PathLoad", "take_answered"]

MIN_SAMPLE_BYTES: Final = 65536
_MIN_SAMPLE_SECONDS: Final = 0.01
_WEIGHT: Final = 0.25  # of the newest sample
_FIRST_SAMPLES: Final = 3  # make the first rate; the one before them also timed the way's setting up
_MORE: Final = 1.2  # times what it delivered before a trial: it can do more
_FIRST_TRIAL: Final = 4  # samples before it
_LAST_TRIAL: Final = 512  # samples between trials at most


class PathLoad:
    """One path: `outstanding` bytes sent and not confirmed, `rate` in bytes per second (0: not known).

    `stalled`: its driver sees no progress there; `on_trial`: it is to be given more than its rate;
    `fed_at`: when its last sample ended (below 0: there was none).
    """

    __slots__ = (
        "_confirmed",
        "_estimate",
        "_rates",
        "_samples",
        "_since",
        "_until_trial",
        "fed_at",
        "on_trial",
        "outstanding",
        "rate",
        "stalled",
    )

    def __init__(self, rates: Generation | None = None, *, stalled: bool = False) -> None:
        self._rates = rates or Generation()  # moves with each rate of the peer
        self._rates.invalidate("a path is used")
        self.outstanding: int = 0
        self.rate: float = 0.0
        self.stalled: bool = stalled
        self.fed_at: float = -1.0
        self._since = 0.0  # when the present sample began
        self._confirmed = 0  # bytes of the present sample
        self.on_trial: bool = False
        self._samples = -1
        self._estimate = 0.0
        self._until_trial: int = _FIRST_TRIAL  # samples

    def sample(self, size: int, now: float) -> None:
        """Enough for a sample is delivered, of it `size` bytes just now."""
        elapsed = now - self._since
        if elapsed < _MIN_SAMPLE_SECONDS:
            return
        confirmed = self._confirmed
        self._since = now
        self._confirmed = 0
        self.take(confirmed, elapsed, self.outstanding + size, now)

    def take(self, size: int, seconds: float, depth: int, now: float) -> None:
        """In the last `seconds`, all of them busy, `size` bytes were delivered; `depth` were under way."""
        self.fed_at = now
        sample = size / seconds
        samples = self._samples = self._samples + 1
        if not samples:
            return
        weight = _WEIGHT if samples > _FIRST_SAMPLES else 1 / samples
        self._estimate += (sample - self._estimate) * weight
        if samples < _FIRST_SAMPLES:
            return
        estimate = self._estimate
        if self.on_trial:
            self.on_trial = False
            more = estimate > self.rate * _MORE
            self._until_trial = _FIRST_TRIAL if more else min(self._until_trial * 2, _LAST_TRIAL)
        elif samples >= self._until_trial:
            self.on_trial = True
            self._samples = -1
        self.rate = estimate
        self._rates.invalidate("measured")

    def presume(self, rate: float) -> None:
        """Take the path for that fast until it is measured again; what was measured is not forgotten."""
        self.rate = rate
        self._rates.invalidate("measured")

    def forget_rate(self) -> None:
        """Nobody knows how fast the path is now: the next samples measure it anew."""
        self._samples = -1
        self._estimate = 0.0
        self.presume(0.0)

    def abandon(self, size: int) -> None:
        """A message failed: it says nothing of the rate."""
        self.outstanding -= size


class InFlight:
    """Messages under way on a path: they count with the pair of NIs, and with the NI towards that peer.

    All of one size that go the same way may share it; `begin` and `answered` count many at once.
    """

    __slots__ = ("_peer", "_size", "pair")

    def __init__(self, pair: PathLoad, peer: PathLoad, size: int) -> None:
        self.pair: PathLoad = pair
        self._peer = peer
        self._size = size

    def begin(self, now: float, count: int = 1) -> None:
        """Messages set out."""
        size, pair, peer = self._size * count, self.pair, self._peer
        if not pair.outstanding:
            pair._since = now
            pair._confirmed = 0
            if not peer.outstanding:
                peer._since = now
                peer._confirmed = 0
        pair.outstanding += size
        peer.outstanding += size

    def answered(self, now: float, count: int = 1) -> None:
        """So many of the messages are delivered."""
        size, pair, peer = self._size * count, self.pair, self._peer
        pair.outstanding -= size
        pair._confirmed += size
        if pair._confirmed >= MIN_SAMPLE_BYTES:
            pair.sample(size, now)
        peer.outstanding -= size
        peer._confirmed += size
        if peer._confirmed >= MIN_SAMPLE_BYTES:
            peer.sample(size, now)

    def abandon(self) -> None:
        """The message failed, or nobody will know."""
        self.pair.abandon(self._size)
        self._peer.abandon(self._size)


def take_answered(in_flight: list[InFlight], pair: PathLoad | None) -> InFlight:
    """Remove and return the message that an answer over `pair` is for: the oldest that went that way.

    One memory descriptor may have messages on fast and on slow paths; an answer comes back the way of its
    request.
    """
    for index, one in enumerate(in_flight):
        if one.pair is pair:
            return in_flight.pop(index)
    return in_flight.pop(0)
