"""The words of `access` as tables (docs/security.md)."""

from __future__ import annotations

from ulnet.cli.lnetctl_words import Command, Option

__all__ = ["ACCESS"]

_RULE = "connect, or do WHAT (ping, push, portal4); WHO: NID ranges and own interfaces; may be repeated"


def _lists(allow: str, deny: str) -> tuple[Option, ...]:
    return (
        Option("allow", allow, "[WHAT=]WHO", "a", "each"),
        Option("deny", deny, "[WHAT=]WHO", "d", "each"),
    )


ACCESS = (
    Command(
        ("access", "add"),
        "add rules to the access lists: who may connect, ping, push, and reach which portals",
        _lists(f"these alone may {_RULE}", f"these may not {_RULE}"),
        examples=(
            "lnetctl access add --deny 10.0.0.66@tcp",
            "lnetctl access add --allow 'portal[30-39]=10.0.0.[1-4]@tcp,eth1' --deny push=eth1",
        ),
        request="AccessAdd",
    ),
    Command(
        ("access", "del"),
        "delete rules of the access lists",
        (
            *_lists("a rule of those that allow; may be repeated", "one of those that deny; may be repeated"),
            Option("all", "all rules: everybody may everything"),
        ),
        examples=("lnetctl access del --deny 10.0.0.66@tcp",),
        request="AccessDel",
    ),
    Command(
        ("access", "show"),
        "show the access lists",
        examples=("lnetctl access show",),
        request="AccessShow",
    ),
)
