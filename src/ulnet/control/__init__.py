"""The control plane: discovery, health, policies and naming, and the instance that joins them to the core.

Sans-I/O like the core; the core imports nothing of this (docs/design/contracts.md).
"""
