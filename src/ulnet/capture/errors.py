"""What reading a capture can fail with."""

from __future__ import annotations

__all__ = ["CaptureError"]


class CaptureError(ValueError):
    """A file that is no capture, or a damaged one: one sentence for people."""
