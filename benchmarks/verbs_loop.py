"""Runs in a guest, on the system's Python: RDMA writes or reads by pyverbs and nothing else, as ib_write_bw.

`verbs_loop.py serve ADDRESS SIZE`; on the other host `verbs_loop.py write ADDRESS SIZE SECONDS WINDOW`,
or `read` in place of `write`.
"""

import json
import socket
import sys
import time

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.mr import MR
from pyverbs.qp import QPCap, QPInitAttr

PORT, TOLD = "7471", 7472
WARM = 5.0  # seconds before anything is counted: an emulator translates code when it runs first


def attributes(window: int) -> QPInitAttr:
    """Of a queue pair with room for the window."""
    cap = QPCap(max_send_wr=window + 1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    return QPInitAttr(qp_type=e.IBV_QPT_RC, cap=cap, sq_sig_all=1)


def serve(address: str, size: int) -> None:
    """Lend memory to one caller after the other."""
    info = AddrInfo(src=address, src_service=PORT, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
    listener = CMID(creator=info, qp_init_attr=attributes(1))
    listener.listen()
    telling = socket.create_server((address, TOLD))
    print("serving", flush=True)
    while True:
        caller = listener.get_request()
        caller.accept()
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
        memory = MR(caller.pd, size, access)
        both, _ = telling.accept()
        both.sendall(json.dumps([memory.buf, memory.rkey]).encode() + b"\n")
        both.recv(1)
        both.close()


def load(kind: str, address: str, size: int, seconds: float, window: int) -> None:
    """Keep a window of them under way; bytes in a second."""
    info = AddrInfo(dst=address, dst_service=PORT, port_space=ce.RDMA_PS_TCP)
    caller = CMID(creator=info, qp_init_attr=attributes(window))
    caller.connect()
    told = socket.create_connection((address, TOLD))
    there, key = json.loads(told.makefile().readline())
    memory = caller.reg_msgs(size)
    post = caller.post_write if kind == "write" else caller.post_read
    for _ in range(window):
        post(memory, size, there, key, flags=e.IBV_SEND_SIGNALED)
    for lasting in (WARM, seconds):
        begin, cpu, done = time.monotonic(), time.process_time(), 0
        while time.monotonic() - begin < lasting:
            caller.get_send_comp()
            done += 1
            post(memory, size, there, key, flags=e.IBV_SEND_SIGNALED)
        took = time.monotonic() - begin
    print(json.dumps({"rate": done * size / took, "cpu": (time.process_time() - cpu) / done}))
    for _ in range(window):
        caller.get_send_comp()
    told.close()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        load(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
