"""Drivers: what carries messages between NIs (docs/design/contracts.md)."""
