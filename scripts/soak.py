"""`make soak`: nodes in network namespaces under traffic, while links fail at random. Needs root.

Every half minute all links are repaired and traffic rests: then each message must have been delivered once
or reported, and each node must hold no more than before.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from soak_node import Holding, Ledger, Settings

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

from support.netns import Cluster, Host, Popen, stop, why_no_namespaces  # noqa: E402 - needs the path

HOSTS, RAILS, RATE = 3, 2, "400mbit"
ROUND = 30.0  # seconds of faults between two reckonings
SETTLE = 3.0  # seconds after the repair: what the kernel still holds arrives, or its connection ends
REPEAT = 8.0  # longest that a link stays as a fault left it
MEMORY_SLACK = 8 << 10  # KiB that a node may have more at the end than at the start
OBJECT_SLACK = 0.10
WARM_UP = 2  # reckonings until what each node holds counts as usual

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One link in one way out of order."""

    kind: str
    host: int
    rail: int


class Faults:
    """Breaks and repairs links at random."""

    KINDS = ("down", "cable", "hole", "address")

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._until: dict[Fault, float] = {}
        self.count: Counter[str] = Counter()

    def step(self, now: float) -> None:
        """Repair what is due, then perhaps break something; a fault is short, or lasts seconds."""
        for fault in [fault for fault, until in self._until.items() if until <= now]:
            self._repair(fault)
        chance = self._chance
        fault = Fault(
            chance.choice(self.KINDS), chance.randrange(len(self._cluster.hosts)), chance.randrange(RAILS)
        )
        if chance.random() < 0.7 and fault not in self._until:
            self._set(fault, broken=True)
            self.count[fault.kind] += 1
            self._until[fault] = now + chance.choice((0.05, 0.5, 2.0, REPEAT)) * chance.random()

    def repair_all(self) -> None:
        """No link is out of order any more."""
        for fault in list(self._until):
            self._repair(fault)

    def _repair(self, fault: Fault) -> None:
        del self._until[fault]
        self._set(fault, broken=False)

    def _set(self, fault: Fault, *, broken: bool) -> None:
        cluster, rail = self._cluster, fault.rail
        host = cluster.hosts[fault.host]
        if fault.kind == "down":
            host.set_link(rail, not broken)
        elif fault.kind == "cable":
            cluster.set_cable(host, rail, not broken)
        elif fault.kind == "hole":
            cluster.set_path(host, rail, not broken)
        else:
            word = "del" if broken else "replace"
            host.run("ip", "address", word, f"{host.address(rail)}/24", "dev", host.interface(rail))


class Member:
    """One node of the soak, and what it told."""

    def __init__(self, host: Host, others: Sequence[Host]) -> None:
        self.name = _nids(host)[0]
        settings = Settings(_nids(host), [_nids(other) for other in others])
        words = [sys.executable, str(HERE / "soak_node.py"), json.dumps(asdict(settings))]
        self._process: Popen = host.start(*words, stdin=subprocess.PIPE, stderr=None)
        self.holdings: list[Holding] = []
        self.read()

    def tell(self, order: str) -> None:
        """Send an order; `read` has its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """The next answer. Raises RuntimeError when the node has died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the node {self.name} died: its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Stop it."""
        stop(self._process, signal.SIGTERM)


def _nids(host: Host) -> list[str]:
    return [host.nid(rail, f"tcp{rail}" if rail else "tcp") for rail in range(RAILS)]


class Books:
    """What all nodes told of all messages so far."""

    def __init__(self) -> None:
        self.delivered: dict[tuple[str, str], set[int]] = {}
        self.acked = self.reported = self.got = self.get_failures = 0

    def reckon(self, ledgers: dict[str, Ledger], sent: dict[str, dict[str, int]]) -> list[str]:
        """Add these, and say what is wrong."""
        wrong: list[str] = []
        for receiver, ledger in ledgers.items():
            self.got += ledger.got
            self.get_failures += ledger.get_failures
            if ledger.wrong:
                wrong.append(f"{receiver}: {ledger.wrong} messages had wrong bytes")
            for sender, numbers in ledger.received.items():
                wrong += self._delivered(sender, receiver, numbers)
        for sender, ledger in ledgers.items():
            for receiver in sent[sender]:
                wrong += self._ended(sender, receiver, ledger)
        total = sum(sum(counts.values()) for counts in sent.values())
        if total != self.acked + self.reported:
            wrong.append(
                f"{total} messages were sent, {self.acked} acknowledged and {self.reported} reported"
            )
        return wrong

    def _delivered(self, sender: str, receiver: str, numbers: list[int]) -> list[str]:
        known = self.delivered.setdefault((sender, receiver), set())
        twice = [number for number, count in Counter(numbers).items() if count > 1 or number in known]
        known.update(numbers)
        return [f"{sender} to {receiver}: delivered twice: {twice}"] if twice else []

    def _ended(self, sender: str, receiver: str, ledger: Ledger) -> list[str]:
        acked, reported = ledger.acked.get(receiver, []), ledger.reported.get(receiver, [])
        self.acked += len(acked)
        self.reported += len(reported)
        wrong = []
        if missing := set(acked) - self.delivered.get((sender, receiver), set()):
            wrong.append(f"{sender} to {receiver}: acknowledged, never delivered: {sorted(missing)}")
        if len({*acked, *reported}) != len(acked) + len(reported):
            wrong.append(f"{sender} to {receiver}: messages ended twice")
        return wrong


def leaks(name: str, holdings: Sequence[Holding]) -> list[str]:
    """What a node holds more of at the end than it did once warm."""
    if len(holdings) <= WARM_UP:
        return []
    usual, last = holdings[WARM_UP - 1], holdings[-1]
    found = []
    for what in ("descriptors", "tasks", "peers"):
        before, after = getattr(usual, what), getattr(last, what)
        if after > before:
            found.append(f"{name}: {before} {what} at first, {after} in the end")
    late = holdings[max(WARM_UP, len(holdings) * 3 // 4) :]
    grown = statistics.median(one.rss for one in late) - usual.rss
    if grown > MEMORY_SLACK:
        found.append(f"{name}: {usual.rss} KiB at first, {grown:.0f} KiB more in the end")
    if statistics.median(one.objects for one in late) > usual.objects * (1 + OBJECT_SLACK):
        found.append(f"{name}: {usual.objects} Python objects at first, {last.objects} in the end")
    return found


class Soak:
    """The whole thing."""

    def __init__(self, seed: int, tell: Tell) -> None:
        self._cluster = Cluster(HOSTS, RAILS, RATE)
        self._tell = tell
        self._chance = random.Random(seed)
        self.faults = Faults(self._cluster, self._chance)
        self.books = Books()
        hosts = self._cluster.hosts
        try:
            self.members = [Member(host, [one for one in hosts if one is not host]) for host in hosts]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Everything it made goes."""
        self._cluster.close()

    def round(self, seconds: float) -> list[str]:
        """Traffic and faults for so long, then rest; what is wrong."""
        self._order("start")
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self.faults.step(now)
            time.sleep(self._chance.random())
        self.faults.repair_all()
        self._order("pause")
        time.sleep(SETTLE)
        return self._reckon()

    def _order(self, order: str) -> list[dict[str, Any]]:
        for member in self.members:
            member.tell(order)
        return [member.read() for member in self.members]

    def _reckon(self) -> list[str]:
        wrong: list[str] = []
        ledgers, sent = {}, {}
        for member, told in zip(self.members, self._order("reckon"), strict=True):
            ledgers[member.name] = Ledger(**told["ledger"])
            sent[member.name] = told["sent"]
            holding = Holding(**told["holding"])
            member.holdings.append(holding)
            if holding.trouble:
                wrong.append(f"{member.name}: {holding.trouble}")
        wrong += self.books.reckon(ledgers, sent)
        for member in self.members:
            wrong += leaks(member.name, member.holdings)
        self._tell(self._summary())
        return wrong

    def _summary(self) -> str:
        books = self.books
        held = "; ".join(
            f"{one.holdings[-1].rss >> 10} MiB, {one.holdings[-1].descriptors} descriptors and "
            f"{one.holdings[-1].connections} connections, {one.holdings[-1].objects} objects"
            for one in self.members
        )
        return (
            f"{sum(self.faults.count.values())} faults; {books.acked} PUTs acknowledged, {books.reported} "
            f"reported, {books.got} GETs answered, {books.get_failures} reported; nodes hold {held}"
        )


def run(minutes: float, seed: int, tell: Tell) -> list[str]:
    """Soak; what is wrong at the first reckoning where something is."""
    soak = Soak(seed, tell)
    try:
        end = time.monotonic() + minutes * 60
        while (left := end - time.monotonic()) > 0:
            if wrong := soak.round(min(ROUND, left)):
                return wrong
        return []
    finally:
        for member in soak.members:
            member.end()
        soak.close()


def main() -> int:
    """Soak for as long as the command line says."""
    parser = argparse.ArgumentParser(prog="soak", description="Look for leaks while links fail at random.")
    parser.add_argument("--minutes", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, help="of the faults (default: another one each time)")
    options = parser.parse_args()
    if reason := why_no_namespaces():
        print(f"soak: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # its namespaces go first
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    began = time.monotonic()
    print(f"{options.minutes:g} minutes, seed {seed}: {HOSTS} nodes, {RAILS} rails of {RATE}", flush=True)

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s: {line}", flush=True)

    wrong = run(options.minutes, seed, tell)
    for line in wrong:
        print(line, file=sys.stderr)
    print("something is wrong, see above" if wrong else "nothing lost, nothing twice, nothing leaked")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
