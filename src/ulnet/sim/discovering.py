"""Random runs of discovery: what must hold of it at any time, and what all nodes must know in the end."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from ulnet.control.discovery.exchange import PING, PUSH
from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.peer_rules import named
from ulnet.nid import Nid
from ulnet.sim.dice import PORTAL
from ulnet.sim.errors import SimError
from ulnet.sim.node import SimNode
from ulnet.sim.plan import Event, LinkPlan, NodePlan, Plan
from ulnet.sim.recipe import Recipe, register
from ulnet.sim.run import Run

__all__ = ["RECIPE", "discovery_in_order", "knows", "prepare", "random_discoveries"]

_DISCOVERING = int(PeerFlag.DISCOVERING)
_PING_SENT = int(PeerFlag.PING_SENT)
_PUSH_SENT = int(PeerFlag.PUSH_SENT)
_KNOWN: Final = int(PeerFlag.MULTI_RAIL | PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE)
_UNSETTLED: Final = int(
    PeerFlag.REDISCOVER
    | PeerFlag.DATA_PRESENT
    | PeerFlag.FORCE_PING
    | PeerFlag.MARK_DELETION
    | PeerFlag.MARK_DELETED
)


def discovery_in_order(node: SimNode) -> str:
    """What must hold of every peer at any time; "" or what is wrong."""
    discovery = node.core.discovery
    if discovery.unexpected:
        return "discovery met an input that its table does not have"
    for peer in node.core.peers:
        wrong = _in_order(peer, discovery.queued(peer))
        if wrong:
            return f"peer {peer.primary_nid} ({peer.flags:#x}): {wrong}"
    return ""


def _in_order(peer: Peer, queued: bool) -> str:
    flags = peer.flags
    known = flags & 0x110 == 0x110 and not flags & _UNSETTLED
    if peer.settled != (known and not peer.going):
        return f"settled is {peer.settled}"
    if peer.gone:
        return "it is in the table and gone"
    if bool(flags & _PING_SENT) != (PING in peer.exchanges):
        return "its ping and its flags do not agree"
    if bool(flags & _PUSH_SENT) != (PUSH in peer.exchanges):
        return "its push and its flags do not agree"
    if not (flags & _DISCOVERING or peer.going) and (peer.parked or peer.waiters):
        return f"{len(peer.parked)} messages and {len(peer.waiters)} callers wait for nothing"
    if flags & _DISCOVERING and not queued and not {PING, PUSH} & peer.exchanges.keys():
        return "it is being discovered, and nobody works on it"
    return ""


def knows(node: SimNode, other: SimNode) -> str:
    """Whether a node knows exactly the NIDs of another one, as one peer; "" or how it is instead."""
    nids = other.nids
    peers = {node.core.peers.find(nid) for nid in nids}
    if any(peer is not None and peer.configured for peer in peers):
        return ""  # configuration wins, whatever is true
    if len(peers) != 1 or None in peers:
        return f"{node} has the NIDs of {other} in {len(peers)} peers"
    peer = peers.pop()
    assert peer is not None
    if set(peer.members) != set(nids) or peer.flags & _KNOWN != _KNOWN:
        return f"{node} knows {other} as {[str(nid) for nid in peer.members]} ({peer.flags:#x})"
    return "" if peer.primary_nid == nids[0] or named(peer) else f"{node} calls {other} {peer.primary_nid}"


def _all_know_each_other(run: Run) -> str:
    """When nothing is broken any more and each has looked at each, all know all."""
    nodes = [node for node in run.sim.nodes.values() if node.alive and node.nids]
    for node in nodes:
        node.core.set_discovery(1)
    pairs = [(a, b) for a in nodes for b in nodes if a is not b and _target(a, b) is not None]
    for _ in range(3):
        for a, b in pairs:
            target = _target(a, b)
            assert target is not None
            a.loop.enter(lambda a=a, nid=target: a.core.discover(nid, done=lambda error, peer: None))
        try:
            run.sim.run_until_quiet()
        except SimError as error:
            return str(error)
        wrong = next(filter(None, (knows(a, b) for a, b in pairs)), "")
        if not wrong:
            return ""
    return f"in the end {wrong}"


def _target(node: SimNode, other: SimNode) -> Nid | None:
    return next((nid for nid in other.nids if nid.net in node.core.nets), None)


def prepare(run: Run) -> None:
    """Look at discovery all the time, and at its end."""
    run.sim.properties.append(discovery_in_order)
    run.judges.append(_all_know_each_other)


# Plans ------------------------------------------------------------------------------------------------


def random_discoveries(seed: int) -> Plan:
    """Nodes that meet, and whose NIs, settings and links change meanwhile."""
    return _Dice(seed).plan()


class _Dice:
    """Draws one plan."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(f"discoveries/{seed}")
        self.nids: dict[str, list[str]] = {}
        self.ours: list[str] = []
        self.events: list[Event] = []

    def plan(self) -> Plan:
        """All of it."""
        rng = self.rng
        link = LinkPlan(
            delay=rng.choice([5e-6, 50e-6, 5e-3]),
            jitter=rng.choice([0.0, 10e-6, 5e-3]),
            ordered=rng.random() < 0.7,
        )
        nodes = {}
        rails = rng.randint(1, 3)
        for number in range(1, rng.randint(2, 4) + 1):
            name = f"n{number}"
            old = number > 1 and rng.random() < 0.1
            nets = [f"tcp{rail}" if rail else "tcp" for rail in range(1 if old else rng.randint(1, rails))]
            self.nids[name] = nids = [f"10.{rail}.0.{number}@{net}" for rail, net in enumerate(nets)]
            nodes[name] = NodePlan(kind="single-rail" if old else "node", nids=nids, portals=[PORTAL][old:])
            if not old:
                self.ours.append(name)
        for _ in range(rng.randint(2, 8)):
            self._meet()
        for _ in range(rng.randint(0, 6)):
            self._change()
        self.events.sort(key=lambda event: event.at)
        self._add(100.0, "repair")
        return Plan(seed=self.seed, link=link, nodes=nodes, events=self.events)

    def _meet(self) -> None:
        rng = self.rng
        name, other = rng.choice(self.ours), rng.choice(list(self.nids))
        target = rng.choice(self.nids[other])
        if rng.random() < 0.4:
            request = {"op": "discover", "nids": [target], "force": rng.random() < 0.5}
            self._add(self._moment(), "lnetctl", node=name, request=request)
        else:
            kind = rng.choice(["put", "get"])
            words: dict[str, Any] = {"from": name, "to": target, "portal": PORTAL, "count": rng.randint(1, 5)}
            self._add(self._moment(), kind, **words)

    def _change(self) -> None:
        rng = self.rng
        at, name = self._moment(), rng.choice(self.ours)
        later = at + rng.choice([1e-4, 1e-3, 0.02, 1.0, 60.0])
        nid = rng.choice(self.nids[name])
        other = rng.choice(list(self.nids))
        kind = rng.choice(["ni", "ni", "mode", "peer", "flap", "partition", "kill"])
        if kind == "ni":
            self._add(at, "del_ni", node=name, nid=nid)
            self._add(later, "add_ni", node=name, nid=nid)
        elif kind == "mode":
            request = {"op": "global.set", "values": {"discovery": rng.choice([0, 0, 1, 2])}}
            self._add(at, "lnetctl", node=name, request=request)
        elif kind == "peer":
            if other == name:  # an NI that is away could not come back while its NID is a peer's
                other = next(one for one in self.nids if one != name)
            primary, *rest = self.nids[other]
            self._add(at, "add_peer", node=name, nids=[primary, *rest[: rng.randint(0, len(rest))]])
            if rng.random() < 0.7:
                request = {"op": "peer.del", "primary": primary}
                self._add(later, "lnetctl", node=name, request=request)
        elif kind == "flap":
            self._add(at, "down", port=nid)
            self._add(later, "up", port=nid)
        elif kind == "partition":
            self._add(at, "partition", between=[name], **{"and": [other]}, one_way=rng.random() < 0.5)
            self._add(later, "heal")
        else:
            self._add(at, "kill", node=name, silent=rng.random() < 0.3)
            self._add(later, "restart", node=name)

    def _moment(self) -> float:
        rng = self.rng
        return round(rng.choice([0.0, 2e-4, 2e-3, 0.02, 1.0]) * rng.random(), 9)

    def _add(self, at: float, kind: str, **words: Any) -> None:
        self.events.append(Event(at=at, kind=kind, words=words))


RECIPE: Final = Recipe(random_discoveries, (prepare,), "peers that discover each other while all changes")
register("discovery", RECIPE)
