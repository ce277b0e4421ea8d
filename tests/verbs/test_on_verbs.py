"""o2ib on real verbs: rdma-core and soft-RoCE in two emulated guests."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest

from ulnet.lnd.o2ib import abi
from verbs.conftest import PYTHON, RESULTS, SOCKET, Host
from verbs_bed import ROOT

pytestmark = pytest.mark.requirement("LND-o2ib")
Hosts = tuple[Host, Host]
# Emulated guests may take longer for a first connection than the second that a ping waits by default.
PING = ("ping", "--timeout", "30")


OFFSETS = """
#include <stddef.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>
#include <infiniband/verbs.h>
#define SIZE(type) printf("%s %zu\\n", #type, sizeof(struct type))
#define AT(type, field) printf("%s.%s %zu\\n", #type, #field, offsetof(struct type, field))
int main(void) {
    SIZE(ibv_send_wr); AT(ibv_send_wr, send_flags); AT(ibv_send_wr, wr.rdma.remote_addr);
    AT(ibv_send_wr, wr.rdma.rkey);
    SIZE(ibv_recv_wr); SIZE(ibv_sge); SIZE(ibv_wc); AT(ibv_wc, byte_len); SIZE(ibv_qp_init_attr);
    AT(ibv_qp_init_attr, qp_type); SIZE(ibv_mr); AT(ibv_mr, rkey); AT(ibv_context, ops.poll_cq);
    AT(ibv_context, ops.req_notify_cq); AT(ibv_context, ops.post_send); AT(ibv_context, ops.post_recv);
    AT(ibv_context, async_fd); AT(ibv_qp, qp_num); SIZE(ibv_async_event); AT(rdma_cm_id, qp);
    AT(rdma_cm_id, port_num);
    SIZE(rdma_conn_param); AT(rdma_cm_event, status); AT(rdma_cm_event, param.conn);
}
"""


def test_the_layout_of_the_libraries_is_what_we_take_it_for(tmp_path: Path) -> None:
    """Against the headers of rdma-core, by a C compiler."""
    (tmp_path / "offsets.c").write_text(OFFSETS)
    subprocess.run(("gcc", "offsets.c", "-o", "offsets"), cwd=tmp_path, check=True)
    told = subprocess.run((str(tmp_path / "offsets"),), capture_output=True, text=True, check=True).stdout
    real = {name: int(number) for name, number in (line.split() for line in told.splitlines())}
    ops = abi.Context.ops.offset
    assert real == {
        "ibv_send_wr": abi.SEND_WR_SIZE,
        "ibv_send_wr.send_flags": struct.calcsize("@QQQiI"),
        "ibv_send_wr.wr.rdma.remote_addr": struct.calcsize("@QQQiIII"),
        "ibv_send_wr.wr.rdma.rkey": abi.SEND_WR.size - 4,
        "ibv_recv_wr": abi.RECV_WR.size,
        "ibv_sge": abi.SGE.size,
        "ibv_wc": abi.WC_SIZE,
        "ibv_wc.byte_len": abi.WC.size - 4,
        "ibv_qp_init_attr": ctypes.sizeof(abi.QpInitAttr),
        "ibv_qp_init_attr.qp_type": abi.QpInitAttr.qp_type.offset,
        "ibv_mr": ctypes.sizeof(abi.Mr),
        "ibv_mr.rkey": abi.Mr.rkey.offset,
        "ibv_context.ops.poll_cq": ops + abi.ContextOps.poll_cq.offset,
        "ibv_context.ops.req_notify_cq": ops + abi.ContextOps.req_notify_cq.offset,
        "ibv_context.ops.post_send": ops + abi.ContextOps.post_send.offset,
        "ibv_context.ops.post_recv": ops + abi.ContextOps.post_recv.offset,
        "ibv_context.async_fd": abi.Context.async_fd.offset,
        "ibv_qp.qp_num": abi.Qp.qp_num.offset,
        "ibv_async_event": ctypes.sizeof(abi.AsyncEvent),
        "rdma_cm_id.qp": abi.CmId.qp.offset,
        "rdma_cm_id.port_num": abi.CmId.port_num.offset,
        "rdma_conn_param": ctypes.sizeof(abi.ConnParam),
        "rdma_cm_event.status": abi.CmEvent.status.offset,
        "rdma_cm_event.param.conn": abi.CmEvent.conn.offset,
    }


def test_ping_discovery_and_what_is_shown(hosts: Hosts) -> None:
    a, b = hosts
    for host in hosts:
        host.begin(0, 1)
    assert f"- nid: {b.nids[0]}" in a.lnetctl(*PING, b.nids[0])
    shown = a.lnetctl("discover", b.nids[0])
    assert "Multi-Rail: true" in shown and all(nid in shown for nid in b.nids)
    assert "status: up" in a.lnetctl("net", "show", "-v", "4", "--net", "o2ib")
    a.lnetctl("net", "del", "--net", "o2ib1")
    b.lnetctl("net", "del", "--net", "o2ib1")


def test_a_ping_without_a_daemon(hosts: Hosts) -> None:
    a, b = hosts
    b.begin(0)
    shown = a.guest.ok(*PYTHON, "-m", "ulnet", "ping", "--timeout", "30", b.nids[0])
    assert b.nids[0] in shown


def test_bulk_of_all_sizes_arrives_as_it_was(hosts: Hosts) -> None:
    a, b = hosts
    program = str(ROOT / "tests/verbs/bulk.py")
    server = b.guest.start(*PYTHON, program, "serve", b.nids[0])
    b.guest.ok("sh", "-c", f"until grep -q serving /tmp/written.{server}; do sleep 0.5; done", timeout=200)
    done = a.guest.run(*PYTHON, program, "move", a.nids[0], b.nids[0], timeout=900)
    (RESULTS / "bulk.txt").write_text(done.out + done.err)
    b.guest.kill(server)
    assert "all is well" in done.out, done.out + done.err + b.guest.run("true").out


def test_a_key_that_one_connection_has_is_void_on_another(hosts: Hosts) -> None:
    """By the device's own check. Before that, each side finds no protection domain once."""
    a, b = hosts
    program = str(ROOT / "tests/verbs/keys.py")
    lender = b.guest.start(*PYTHON, program, "lend", b.nids[0])
    b.guest.ok("sh", "-c", f"until grep -q lending /tmp/written.{lender}; do sleep 0.5; done", timeout=200)
    done = a.guest.run(*PYTHON, program, "steal", a.nids[0], b.nids[0], timeout=300)
    (RESULTS / "keys.txt").write_text(done.out + done.err + b.guest.written(lender))
    b.guest.kill(lender)
    assert "all is well" in done.out, done.out + done.err + b.guest.run("true").out


def test_selftest_moves_bulk_both_ways_and_compares_all_of_it(hosts: Hosts) -> None:
    a, b = hosts
    for host in hosts:
        host.begin(0)
    plan = f"""
groups: {{c: [{a.nids[0]}], s: [{b.nids[0]}]}}
tests:
- {{name: write, from: c, to: s, brw: write, check: full, concurrency: 4, seconds: 8, expect: {{errors: 0}}}}
- {{name: read, from: c, to: s, brw: read, check: full, concurrency: 4, seconds: 8, expect: {{errors: 0}}}}
- {{name: small, from: c, to: s, concurrency: 8, seconds: 5, expect: {{rate: 1}}}}
"""
    a.guest.write("/tmp/plan.yaml", plan)
    words = ("-m", "ulnet", "selftest", "run", "/tmp/plan.yaml")
    done = a.guest.run(*PYTHON, *words, timeout=600)
    (RESULTS / "selftest.txt").write_text(done.out + done.err)
    assert done.code == 0, done.out + done.err + a.log[-3000:]


@pytest.mark.requirement("HEALTH-o2ib")
def test_a_cable_that_is_pulled_is_noticed_and_the_other_rail_carries_all(hosts: Hosts) -> None:
    a, b = hosts
    for host in hosts:
        host.begin(0, 1)
    a.lnetctl("discover", b.nids[0])
    a.guest.set_cable(1, False)
    a.until(("net", "show", "--net", "o2ib1"), "status: down")
    for _ in range(5):
        a.lnetctl(*PING, b.nids[0])
    a.guest.set_cable(1, True)
    a.until(("net", "show", "--net", "o2ib1"), "status: up")
    a.until(("ping", b.nids[1]), b.nids[1])


@pytest.mark.requirement("HEALTH-o2ib")
def test_a_device_that_vanishes_and_comes_back(hosts: Hosts) -> None:
    a, b = hosts
    for host in hosts:
        host.begin(0, 1)
    a.lnetctl("discover", b.nids[0])
    a.lnetctl(*PING, b.nids[1])
    # Of soft-RoCE the kernel waits until no program has the device open, which librdmacm has to its end.
    deleting = a.guest.start("rdma", "link", "delete", "rxe1")
    shown = a.until(("net", "show", "-v", "2", "--net", "o2ib1"), "status: down")
    assert "fatal_error: 1" in shown
    assert "the device was removed" in a.log
    a.until(("ping", b.nids[0]), b.nids[0])
    a.end()
    a.guest.ok("sh", "-c", "until ! rdma link | grep -q rxe1; do sleep 0.5; done", timeout=120)
    a.guest.kill(deleting, 0)
    a.guest.ok("rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "eth1")
    a.begin(0, 1)
    a.until(("ping", b.nids[1]), b.nids[1])


@pytest.mark.requirement("HEALTH-o2ib")
def test_a_peer_that_is_killed_and_starts_anew(hosts: Hosts) -> None:
    a, b = hosts
    for host in hosts:
        host.begin(0)
    a.lnetctl("discover", b.nids[0])
    b.end(9)
    words = ("-m", "ulnet.cli.lnetctl", "--socket", SOCKET, *PING, b.nids[0])
    refused = a.guest.run(*PYTHON, *words)
    assert refused.code
    assert "errno: -1" in refused.out, refused
    b.begin(0)
    a.until(("ping", b.nids[0]), b.nids[0])
