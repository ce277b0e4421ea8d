"""What every test has: marks, skips that cannot hide, leak checks, network namespaces (tests/support)."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

from support.examples import BRIEF
from ulnet.core import sender

COMPILED = str(sender.__file__).endswith(".so")  # of the two builds this is the one through mypyc

pytest_plugins = [
    "support.complaints",
    "support.leaks",
    "support.netns",
    "support.order",
    "support.requirements",
    "support.shared",
    "support.skips",
    "support.steady",
]

PLANTED = "ULNET_SOURCE" in os.environ  # a copy of the sources with a mistake (scripts/mutants.py)

settings.register_profile(
    "ulnet",
    phases=[one for one in Phase if not (PLANTED and one in (Phase.shrink, Phase.explain))],
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,  # what is tried anew by chance is tried at developers' machines
)
settings.register_profile("long", settings.get_profile("ulnet"), max_examples=5000)
settings.register_profile(BRIEF, settings.get_profile("ulnet"), max_examples=20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run tests marked long, with more examples")
    parser.addoption("--brief", action="store_true", help="try a tenth of the examples (make check)")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("ULNET_BUILD") == "compiled" and not COMPILED:
        raise pytest.UsageError(f"the compiled build is to be tested, and {sender.__file__} is not of it")
    settings.load_profile(
        "long" if config.getoption("--long") else BRIEF if config.getoption("--brief") else "ulnet"
    )
    hear_in_children()


def hear_in_children() -> None:
    """What tests start hears the signals that nohup, or a script with `&`, has this process ignore.

    A signal that is ignored is ignored by children, too. One with a handler is not.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unwanted = set() if config.getoption("--long") else {"long"}
    if COMPILED:
        unwanted.add("pure")
    left_out = [item for item in items if unwanted & {mark.name for mark in item.iter_markers()}]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session")
def worker_number(request: pytest.FixtureRequest) -> int:
    """0 for the only or first test worker, 1 for the second…: to keep addresses and names apart."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw"))
