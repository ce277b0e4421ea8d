"""The bond driver: NIs without a wire of their own, over other NIs (bonding design §2.2.1, §8)."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, Final

from ulnet.bond.bondni import BondNi
from ulnet.bond.config import BondConfig
from ulnet.bond.control import ControlChannel
from ulnet.core.lines import Line
from ulnet.core.notices import Notices
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import NetType, Nid
from ulnet.wire.bond import Answer, BondHello, Kind, Mode, Register, Resolve
from ulnet.wire.errors import WireError

if TYPE_CHECKING:
    from ulnet.bond.contract import MasterUpcalls
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.nid import Net, Nid

__all__ = ["BondLnd"]

# The slaves' credits are what counts; a bonding NI never lets a message wait for its own.
_ENDLESS: Final = 1 << 30
_MOST_LINES: Final = 16  # a second, about what others say wrong


class BondLnd:
    """All bonding NIs of one node."""

    name = "bond"
    net_type: int = NetType.BOND.value
    reports_timeout = False

    def __init__(self, core: MasterUpcalls) -> None:
        self._core = core
        self._chance = random.Random(core.cookie)  # which no other life of the node has
        self._planned: BondConfig | None = None
        self.bonds: dict[Nid, BondNi] = {}
        self._say = Notices(core.clock, core.report, _MOST_LINES).say
        self._post = ControlChannel(core, self._received)

    # Configuration ---------------------------------------------------------------------------------

    def add(self, config: BondConfig) -> NI:
        """Add a bonding NI. Raises LNetError and changes nothing."""
        self._check(config, None)
        self._planned = config
        try:
            tunables = NetTunables(peer_timeout=0, peer_credits=_ENDLESS, credits=_ENDLESS)
            return self._core.add_ni(config.net, config.nid, tunables=tunables)
        finally:
            self._planned = None

    def bond(self, nid: Nid) -> BondNi:
        """A bonding NI. Raises LNetError(ENOENT)."""
        bond = self.bonds.get(nid)
        if bond is None:
            names = ", ".join(map(str, self.bonds)) or "none"
            raise LNetError(errno.ENOENT, f"{nid} is no bonding NI of this node: it has {names}")
        return bond

    def change(self, nid: Nid, config: BondConfig) -> None:
        """Give a bonding NI another configuration, while it runs. Raises LNetError and changes nothing."""
        bond = self.bond(nid)
        if config.nid != nid:
            text = f"{nid} has the address of its first slave: {config.slaves[0]} cannot be that one"
            raise LNetError(errno.EINVAL, text)
        self._check(config, bond)
        bond.reconfigure(config)

    def switch(self, nid: Nid, slave: Nid, on: bool) -> None:
        """Switch a slave on or off. Raises LNetError: ENOENT; EBUSY (the last one that is on)."""
        bond = self.bond(nid)
        index = self._index(bond, slave)
        if not on and all(off or at == index for at, off in enumerate(bond.slaves.off)):
            text = f"{slave} is the only slave of {nid} that is switched on: switch another one on first"
            raise LNetError(errno.EBUSY, text)
        bond.switch(index, on)

    def fail_over(self, nid: Nid, slave: Nid | None = None) -> None:
        """Make another slave the active one: the next, or that. Raises LNetError: ENOENT, EINVAL, EBUSY."""
        bond = self.bond(nid)
        if bond.config.mode is not Mode.STANDBY:
            raise LNetError(
                errno.EINVAL, f"{nid} balances load, with no active slave: set --mode standby first"
            )
        if slave is None:
            index = bond.slaves.next_backup(bond.peers.values())
            if index is None:
                raise LNetError(
                    errno.EBUSY, f"{nid} has no other slave that works: see 'lnetctl net show -v'"
                )
        else:
            index = self._index(bond, slave)
            if not bond.slaves.works(index, bond.peers.values()):
                raise LNetError(errno.EBUSY, f"{slave} does not work now: see 'lnetctl net show -v'")
        bond.fail_over(index)

    @staticmethod
    def _index(bond: BondNi, slave: Nid) -> int:
        if not bond.owns_nid(slave):
            names = ", ".join(map(str, bond.config.slaves))
            raise LNetError(errno.ENOENT, f"{slave} is no slave of {bond.ni.nid}: it has {names}")
        return bond.config.slaves.index(slave)

    def _check(self, config: BondConfig, changed: BondNi | None) -> None:
        for nid in config.slaves:
            if nid not in self._core.nis:
                raise LNetError(errno.ENOENT, f"slave {nid} is not one of this node's NIDs: add it first")
        for other in self.bonds.values():
            if other is changed or other.ni.nid.net != config.net:
                continue
            shared = [nid for nid in config.slaves if other.owns_nid(nid)]
            if shared:
                text = (
                    f"{shared[0]} is a slave of {other.ni.nid} already: on one bonding net it serves one NI"
                )
                raise LNetError(errno.EEXIST, text)
            first = other.config.slaves[0]
            if first.net != config.slaves[0].net:
                text = (
                    f"first slave {config.slaves[0]}: all first slaves of {config.net} are on one net, "
                    f"and that of {other.ni.nid} is {first}; begin with a slave on {first.net}"
                )
                raise LNetError(errno.EINVAL, text)

    # Lnd -------------------------------------------------------------------------------------------

    def startup(self, ni: NI) -> None:
        """Take over the slaves named by `add`."""
        config = self._planned
        if config is None or config.nid != ni.nid:
            raise LNetError(
                errno.EINVAL,
                f"net {ni.net.net} needs slaves: name them with --slaves, such as --slaves '*@tcp'",
            )
        self._post.open()
        bond = BondNi(self._core, ni, config, self._post, self._chance.randrange(1, 1 << 32), self._show)
        self.bonds[ni.nid] = self._core.masters[ni.nid] = bond
        ni.lnd_data = bond
        self._show()
        bond.start()

    def shutdown(self, ni: NI) -> None:
        """Let the slaves go."""
        bond = self.bonds.pop(ni.nid, None)
        if bond is None:
            return
        del self._core.masters[ni.nid]
        bond.close()
        if self.bonds:
            self._show()
        else:
            self._post.close()

    def retune(self, ni: NI, timeout: float) -> None:
        """There is nothing to tune: time-outs are the slaves'."""

    def access_changed(self, ni: NI) -> None:
        """Connections are the slaves'."""

    def verify(self, ni: NI, nid: Nid) -> bool:
        """Slaves are asked."""
        return True

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Pass messages on to slaves."""
        bond = ni.lnd_data
        assert isinstance(bond, BondNi)
        for msg in msgs:
            bond.send(msg)

    # Control messages ------------------------------------------------------------------------------

    def _show(self) -> None:
        self._post.show([(bond.ni.nid.net, bond.incarnation) for bond in self.bonds.values()])

    def _received(self, kind: Kind, data: bytes, at: Nid, source: Nid) -> None:
        try:
            self._take(kind, data, at, source)
        except WireError as bad:
            self._core.stats.drops["bonding message that breaks the rules"] += 1
            self._say(source, Line("bond.odd", f"bonding message from {source}: {bad}"))

    def _take(self, kind: Kind, data: bytes, at: Nid, source: Nid) -> None:
        ni = self._core.nis.get(at)
        if kind is Kind.HELLO:
            hello = BondHello.unpack(data)
            found = self._over(ni, hello.configuration.nid.net)
            if found is not None and ni is not None:
                found.handshake.take_hello(hello, ni, source)
        elif kind is Kind.REGISTER:
            register = Register.unpack(data)
            found = self._over(ni, register.configuration.nid.net)
            if found is not None and ni is not None:
                found.data.register(register, ni, source)
        elif kind is Kind.RESOLVE:
            question = Resolve.unpack(data)
            found = self._over(ni, question.nid.net)
            if found is not None and ni is not None:
                found.data.resolve(question, ni, source)
        else:
            answer = Answer.unpack(data)
            found = self._over(ni, answer.nid.net)
            if found is not None:
                found.servers.answered(answer, source)

    def _over(self, ni: NI | None, net: Net) -> BondNi | None:
        """The bonding NI on that net of which ni is a slave."""
        if ni is None:
            return None
        return next((one for one in self.bonds.values() if one.ni.nid.net == net and one.owns(ni)), None)
