"""Health values against a second reading of the specification, in any order of what can happen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.rails import A0, A1, B0, B1, Rails
from ulnet.core.lnd import NiEvent
from ulnet.core.status import HealthStatus

SENDS = st.tuples(st.just("send"), st.sampled_from(["none", "A0", "A1"]), st.sampled_from(list(HealthStatus)))
HEARS = st.tuples(st.just("hear"), st.sampled_from([0, 1]))
SETS = st.tuples(st.just("set"), st.integers(0, 3), st.integers(0, 1000))
STEPS = st.tuples(st.just("sensitivity"), st.sampled_from([0, 1, 100, 400, 1000]))
DEVICES = st.tuples(
    st.just("device"), st.sampled_from([0, 1]), st.sampled_from([NiEvent.FATAL, NiEvent.RECOVERED])
)
HOSTILE = {"LOCAL": (1, 0), "REMOTE": (0, 1), "NETWORK": (1, 1)}


class Model:
    """Values by name, as plain as can be."""

    def __init__(self) -> None:
        self.value = {"A0": 1000, "A1": 1000, "B0": 1000, "B1": 1000}
        self.down = {"A0": False, "A1": False}
        self.broken = {"A0": False, "A1": False}
        self.step = 100

    def set(self, name: str, value: int) -> None:
        self.value[name] = value
        if name in self.down:
            self.down[name] = value == 0 or (self.down[name] and value != 1000)

    def change(self, name: str, sign: int) -> None:
        self.set(name, max(0, min(1000, self.value[name] + sign * self.step)))

    def ended(self, local: str, peer: str, status: HealthStatus) -> None:
        if status is HealthStatus.OK:
            return  # what was sent heals nobody
        mine, theirs = HOSTILE[status.name.split("_")[0]]
        if mine:
            self.change(local, -1)
        if theirs:
            self.change(peer, -1)


NAMES = {A0: "A0", A1: "A1", B0: "B0", B1: "B1"}
NIDS = {name: nid for nid, name in NAMES.items()}


@given(st.lists(st.one_of(SENDS, SENDS, HEARS, SETS, STEPS, DEVICES), max_size=60))
def test_values_are_those_of_the_model(script):
    rails = Rails(retry_count=0)
    model = Model()
    for action, *args in script:
        if action == "send":
            source, status = args
            rails.put(source=NIDS.get(source), target=B1 if source == "A1" else B0)
            if all(model.broken.values()) if source == "none" else model.broken[source]:
                assert rails.on_wire(pings=False) == []  # it failed at once, and nobody is to blame
                continue
            ni, pni = rails.end(status)
            assert not model.broken[NAMES[ni.nid]]
            model.ended(NAMES[ni.nid], NAMES[pni.nid], status)
        elif action == "hear":
            target, source = ((A0, B0), (A1, B1))[args[0]]
            md = rails.b.memory.md_bind(b"", None, threshold=1)
            rails.b.put(md, target, 5, 7, ack=False, source=source)
            _arrive(rails)
            model.change(NAMES[target], +1)
            model.change(NAMES[source], +1)
        elif action == "set":
            name = list(NIDS)[args[0]]
            if name.startswith("A"):
                rails.a.health.values.set_ni(rails.ni(NIDS[name]), args[1])
            else:
                rails.a.health.values.set_peer(rails.pni(NIDS[name]), args[1])
            model.set(name, args[1])
        elif action == "sensitivity":
            rails.a.settings.health_sensitivity = model.step = args[0]
            rails.a.health.settings_changed()
        else:
            name = ("A0", "A1")[args[0]]
            rails.a.ni_event(rails.ni(NIDS[name]), args[1])
            model.broken[name] = args[1] is NiEvent.FATAL
        assert {name: _health(rails, nid) for nid, name in NAMES.items()} == model.value
        for name in ("A0", "A1"):
            assert rails.ni(NIDS[name]).up == (not model.down[name] and not model.broken[name])
    _settled(rails, model)


def _health(rails, nid):
    return rails.ni(nid).health if nid in (A0, A1) else rails.pni(nid).health


def _arrive(rails):
    ni, msg = rails.fabric.wire.pop()
    rails.fabric.wire.appendleft((ni, msg))
    rails.fabric.step()


def _settled(rails, model):
    """When faults stop, recovery makes all well, and leaves no timer."""
    rails.a.settings.health_sensitivity = 100
    rails.a.health.settings_changed()
    for ni in (A0, A1):
        rails.a.ni_event(rails.ni(ni), NiEvent.RECOVERED)
    for target, source in ((A0, B0), (A1, B1)):  # who was never heard of is not pinged
        rails.b.put(rails.b.memory.md_bind(b"", None, threshold=1), target, 5, 7, ack=False, source=source)
    rails.fabric.run()
    for _ in range(400):
        if rails.a.next_deadline() is None:
            break
        rails.pass_time(1, answer=True, step=1)
    assert {_health(rails, nid) for nid in NAMES} == {1000}
    assert not rails.a.health.recovery.busy
    assert rails.a.next_deadline() is None
    rails.fabric.assert_conserved()
