"""What bonding NIs say, in words and as facts (docs/wire-bond.md)."""

from __future__ import annotations

from typing import Final

from ulnet.wire.bond import (
    MAGIC,
    Answer,
    Beacon,
    BondHello,
    Configuration,
    Kind,
    Mode,
    Policy,
    Register,
    Resolve,
    SlaveStatus,
)
from ulnet.wire.errors import WireError

__all__ = ["KIND_WORDS", "bond_words", "looks_like_bond"]

KIND_WORDS: Final = {kind: f"bond {kind.name}" for kind in Kind}
_MODES: Final = {Mode.STANDBY: "standby", Mode.LOADBALANCE: "load balancing"}
_POLICIES: Final = {policy.value: policy.name.lower().replace("_", " ") for policy in Policy}
_STATUS: Final = {status.value: status.name.lower() for status in SlaveStatus}
_LISTED: Final = 8


def looks_like_bond(payload: bytes) -> bool:
    """Whether payload begins as a bonding message does."""
    return payload[:4] in (MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big"))


def bond_words(kind: Kind, payload: bytes, facts: dict[str, object]) -> str:
    """The message that payload is; facts get the same under "bond"."""
    told: dict[str, object] = {"kind": kind.name}
    facts["bond"] = told
    try:
        return f"  [{_words(kind, payload, told)}]"
    except WireError as error:
        told["error"] = str(error)
        return f"  [{error}]"


def _words(kind: Kind, payload: bytes, told: dict[str, object]) -> str:
    if kind is Kind.HELLO:
        hello = BondHello.unpack(payload)
        told |= {
            "source": f"{hello.source:#x}",
            "target": f"{hello.target:#x}",
            "version": len(hello.capabilities),
            "capabilities": [f"{mask:#x}" for mask in hello.capabilities],
            "byteorder": hello.byteorder,
        }
        target = f"to {hello.target:x}" if hello.target else "initial"
        version = f"v{len(hello.capabilities)} {hello.capabilities[-1]:#x}"
        guard = ""
        if hello.guard:
            told["guard"] = hello.guard.hex()
            guard = f", guard {hello.guard.hex()}"
        return f"{hello.source:x} {target}, {version}{guard}: {_configuration(hello.configuration, told)}"
    if kind is Kind.REGISTER:
        register = Register.unpack(payload)
        told |= {"request": register.request, "incarnation": f"{register.incarnation:#x}"}
        return f"request {register.request}: {_configuration(register.configuration, told)}"
    if kind is Kind.RESOLVE:
        resolve = Resolve.unpack(payload)
        told |= {"request": resolve.request, "nid": str(resolve.nid), "asker": str(resolve.asker)}
        return f"request {resolve.request}: who is {resolve.nid}? asks {resolve.asker}"
    if kind is Kind.ANSWER:
        answer = Answer.unpack(payload)
        told |= {"request": answer.request, "nid": str(answer.nid), "status": answer.status}
        found = answer.configuration
        what = _configuration(found, told) if found else f"{answer.nid} status {answer.status}"
        return f"request {answer.request}: {what}"
    beacon = Beacon.unpack(payload)
    told |= {"version": beacon.version, "bonds": {net & 0xFFFF: stamp for net, stamp in beacon.incarnations}}
    bonds = ", ".join(f"bond{net & 0xFFFF} {stamp:x}" for net, stamp in beacon.incarnations[:_LISTED])
    return f"v{beacon.version}: {bonds or 'no bonding NI'}"


def _configuration(what: Configuration, told: dict[str, object]) -> str:
    policy = _POLICIES.get(what.policy, f"policy {what.policy}")
    told |= {
        "nid": str(what.nid),
        "mode": _MODES[what.mode],
        "policy": policy,
        "failback": what.failback,
        "active": what.active,
        "slaves": [
            {"nid": str(one.nid), "weight": one.weight, "status": _STATUS.get(one.status, one.status)}
            for one in what.slaves
        ],
    }
    slaves = ", ".join(
        f"{one.nid} {_STATUS.get(one.status, one.status)}{_mark(what, index, one.weight)}"
        for index, one in enumerate(what.slaves[:_LISTED])
    )
    more = f" and {len(what.slaves) - _LISTED} more" if len(what.slaves) > _LISTED else ""
    how = policy if what.mode is Mode.LOADBALANCE else "returns" if what.failback else "stays"
    return f"{what.nid} {_MODES[what.mode]} ({how}) over {slaves}{more}"


def _mark(what: Configuration, index: int, weight: int) -> str:
    if what.mode is Mode.STANDBY:
        return " (active)" if index == what.active else ""
    return f" ×{weight}" if what.policy == Policy.WEIGHTS else ""
