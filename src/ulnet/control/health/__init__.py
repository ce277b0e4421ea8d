"""Health and resending (spec health.md, docs/design/health.md)."""

from __future__ import annotations

from ulnet.control.health.health import Health

__all__ = ["Health"]
