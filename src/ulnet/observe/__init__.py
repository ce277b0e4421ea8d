"""Watching nodes: what they say of themselves, ulnet's and the kernel's alike, as metrics and probes.

Everything here reads documents, as `lnetctl` prints them; nothing knows the core.
"""
