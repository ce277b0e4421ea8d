"""The state machines: their tables, what drives them, and the page that is drawn from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.fabric import Fabric
from support.rails import A0, A1, B0, B1, Rails
from ulnet.control.health.rates import RATE
from ulnet.core.lnd import NiEvent
from ulnet.core.states import (
    LOCAL_NET,
    LOCAL_NI,
    PEER,
    PEER_NI,
    NetState,
    NiState,
    PeerNiState,
    PeerState,
)
from ulnet.core.status import HealthStatus as S
from ulnet.nid import Net

ROOT = Path(__file__).parents[3]


@pytest.mark.requirement("HEALTH-fsm")
@pytest.mark.parametrize(
    ("table", "states", "first"),
    [
        (LOCAL_NI, NiState, NiState.INIT),
        (LOCAL_NET, NetState, NetState.INIT),
        (PEER, PeerState, PeerState.INIT),
        (PEER_NI, PeerNiState, PeerNiState.CREATED),
    ],
    ids=["local NI", "local net", "peer", "peer NI"],
)
def test_every_state_is_reached_from_the_first(table, states, first):
    reached = {first}
    for _ in states:
        reached |= {after for (before, _), (_, after) in table.items() if before in reached}
    assert reached == set(states)


@pytest.mark.requirement(
    "HEALTH-fsm", "hlt-005", "hlt-010", "hlt-015", "hlt-020", "hlt-025", "snd-080", "dbg-110"
)
def test_a_local_ni_follows_its_driver_and_its_net_follows_it():
    rails = Rails()
    ni, net = rails.ni(A0), rails.a.nets[Net.parse("tcp")]
    seen = [(ni.state, net.state, ni.up, ni.fatal)]
    sequence = rails.a.info.sequence
    for event in (
        NiEvent.DEGRADED,
        NiEvent.FATAL,
        NiEvent.FATAL,
        NiEvent.DEGRADED,
        NiEvent.RECOVERED,
        NiEvent.DEGRADED,
        NiEvent.RESTORED,
    ):
        rails.a.ni_event(ni, event)
        seen.append((ni.state, net.state, ni.up, ni.fatal))
    active = (NiState.ACTIVE, NetState.ACTIVE, True, False)
    degraded = (NiState.DEGRADED, NetState.ACTIVE, True, False)
    failed = (NiState.FAILED, NetState.INACTIVE, False, True)
    assert seen == [active, degraded, failed, failed, failed, active, degraded, active]
    assert rails.a.info.sequence == sequence + 2  # told of FATAL and RECOVERED
    assert (ni.health_stats.down_events, ni.health_stats.up_events) == (1, 1)
    rails.a.del_ni(A0)
    assert (ni.state, net.state) == (NiState.DELETING, NetState.DELETING)
    assert [line for line in rails.log if "tcp:" in line][:3] == [
        f"local NI {A0}: device degraded, DEGRADED now",
        f"local NI {A0}: device failed, FAILED now",
        "net tcp: all NIs failed, INACTIVE now",
    ]


@pytest.mark.requirement("HEALTH-fsm")
def test_a_net_is_active_while_one_of_its_nis_is():
    core = Fabric().node(str(A0), "10.0.0.9@tcp")
    net = core.nets[A0.net]
    states = []
    for event in (NiEvent.FATAL, NiEvent.RECOVERED):
        for ni in net.nis:
            core.ni_event(ni, event)
            states.append(net.state)
    active, inactive = NetState.ACTIVE, NetState.INACTIVE
    assert states == [active, inactive, active, active]


@pytest.mark.requirement("hlt-020", "hlt-025")
def test_a_device_that_is_fast_again_leaves_an_ni_degraded_that_carries_too_little():
    rails = Rails()
    ni = rails.ni(A0)
    rails.a.ni_event(ni, NiEvent.DEGRADED)
    ni.degraded[RATE] = "as the test says"
    rails.a.ni_event(ni, NiEvent.RESTORED)
    assert (ni.state, list(ni.degraded)) == (NiState.DEGRADED, [RATE])


@pytest.mark.requirement("HEALTH-fsm", "dbg-110")
def test_a_peer_ni_follows_its_messages_and_its_peer_follows_them_all():
    rails = Rails(retry_count=0)
    first, peer = rails.pni(B0), rails.pni(B0).peer
    assert first.state is PeerNiState.CREATED
    rails.put(B0, source=A0)
    assert first.state is PeerNiState.ACTIVATING
    rails.end(S.OK)
    assert first.state is PeerNiState.CONNECTED
    assert not first.unhealthy
    rails.put(B0, source=A0)
    rails.end(S.REMOTE_ERROR)
    assert (first.state, peer.state) == (PeerNiState.FAILED, PeerState.ACTIVE)
    rails.put(B1, source=A1)
    rails.end(S.REMOTE_ERROR)
    assert (rails.pni(B1).state, peer.state) == (PeerNiState.FAILED, PeerState.INACTIVE)
    rails.put(B1, source=A1)
    rails.end(S.OK)
    assert (rails.pni(B1).state, peer.state) == (PeerNiState.CONNECTED, PeerState.ACTIVE)
    assert [line for line in rails.log if line.startswith("peer")] == [
        f"peer NI {B0}: message failed, FAILED now",
        f"peer NI {B1}: message failed, FAILED now",
        f"peer {B0}: all paths failed, INACTIVE now",
        f"peer NI {B1}: message sent, CONNECTED now",
        f"peer {B0}: a path recovered, ACTIVE now",
    ]


@pytest.mark.requirement("HEALTH-fsm")
def test_the_page_shows_the_tables_as_they_are():
    script = ROOT / "scripts" / "health_page.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
