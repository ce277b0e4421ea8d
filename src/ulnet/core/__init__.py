"""LNet itself: synchronous, single-threaded, sans-I/O (docs/design/contracts.md)."""
