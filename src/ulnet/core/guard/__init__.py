"""Nothing is delivered twice between nodes that keep the identities of PUTs (docs/design/duplicate-guard.md).

`identity`: the handle that tells one PUT from all others; `seen`: which of them were taken; `receiver`: the
receiving half; `sender`: the sending half.
"""

from ulnet.core.guard.identity import AGAIN, Guarded, tag_of

__all__ = ["AGAIN", "Guarded", "tag_of"]
