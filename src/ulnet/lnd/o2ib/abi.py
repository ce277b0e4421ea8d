"""The part of rdma-core's libraries that the driver calls: libibverbs and librdmacm, by their stable ABI.

The distribution's pyverbs tells neither the file of a completion channel or of asynchronous events, nor of an
event of the connection manager whose it is and why; an event loop needs all of them. So this calls the
libraries that pyverbs wraps. Any Python finds them, also one in a venv.
"""

from __future__ import annotations

import ctypes as c
import errno
import os
from functools import cache
from struct import Struct
from typing import Any, Final

from ulnet.core.status import LNetError, errno_text

__all__ = [
    "ACCESS_LOCAL",
    "ACCESS_REMOTE",
    "RECV_WR",
    "SEND",
    "SEND_WR",
    "SEND_WR_SIZE",
    "SGE",
    "SIGNALED",
    "WC",
    "WC_HERE",
    "WC_LENGTH",
    "WC_SIZE",
    "WC_STATUS",
    "WRITE",
    "AsyncEvent",
    "CmEvent",
    "CmId",
    "CompChannel",
    "ConnParam",
    "Context",
    "EventChannel",
    "Libraries",
    "Mr",
    "Qp",
    "QpInitAttr",
    "failed",
    "libraries",
]

INSTALL: Final = "install Debian's rdma-core and ibverbs-providers (librdmacm, libibverbs)"
PS_TCP: Final = 0x0106
QPT_RC: Final = 2
ACCESS_LOCAL: Final = 1
ACCESS_REMOTE: Final = 3
WRITE: Final = 0
SEND: Final = 2
SIGNALED: Final = 2

# Work requests and completions are packed and unpacked in memory of our own, one call each.
SEND_WR: Final = Struct("@QQQiIIIQI")  # id, next, sges, their number, opcode, flags, -, address, key there
SEND_WR_SIZE: Final = 128
RECV_WR: Final = Struct("@QQQi4x")
SGE: Final = Struct("@QII")
WC: Final = Struct("@QIIII")  # id, status, opcode, vendor's error, bytes
WC_SIZE: Final = 48

WC_STATUS: Final = {
    1: "local length error",
    2: "local queue pair operation error",
    4: "local protection error",
    5: "flushed",
    8: "local access error",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retry counter exceeded",
    13: "RNR retry counter exceeded",
    19: "fatal error",
}
WC_LENGTH: Final = 1  # ours where we send; where something comes, the peer sent more than a message has
WC_HERE: Final = frozenset({2, 4, 19})  # what the device does; others are by the network and the peer


class ContextOps(c.Structure):
    """ibv_context_ops: the calls that go to the provider directly."""

    _fields_ = [
        ("_before", c.c_void_p * 11),
        ("poll_cq", c.c_void_p),
        ("req_notify_cq", c.c_void_p),
        ("_between", c.c_void_p * 12),
        ("post_send", c.c_void_p),
        ("post_recv", c.c_void_p),
        ("_behind", c.c_void_p * 5),
    ]


class Context(c.Structure):
    """ibv_context, its beginning."""

    _fields_ = [
        ("device", c.c_void_p),
        ("ops", ContextOps),
        ("cmd_fd", c.c_int),
        ("async_fd", c.c_int),
        ("num_comp_vectors", c.c_int),
    ]


class CompChannel(c.Structure):
    """ibv_comp_channel."""

    _fields_ = [("context", c.c_void_p), ("fd", c.c_int), ("refcnt", c.c_int)]


class Mr(c.Structure):
    """ibv_mr."""

    _fields_ = [
        ("context", c.c_void_p),
        ("pd", c.c_void_p),
        ("addr", c.c_void_p),
        ("length", c.c_size_t),
        ("handle", c.c_uint32),
        ("lkey", c.c_uint32),
        ("rkey", c.c_uint32),
    ]


class Qp(c.Structure):
    """ibv_qp, its beginning."""

    _fields_ = [
        ("context", c.c_void_p),
        ("qp_context", c.c_void_p),
        ("pd", c.c_void_p),
        ("send_cq", c.c_void_p),
        ("recv_cq", c.c_void_p),
        ("srq", c.c_void_p),
        ("handle", c.c_uint32),
        ("qp_num", c.c_uint32),
    ]


class QpInitAttr(c.Structure):
    """ibv_qp_init_attr, with its ibv_qp_cap."""

    _fields_ = [
        ("qp_context", c.c_void_p),
        ("send_cq", c.c_void_p),
        ("recv_cq", c.c_void_p),
        ("srq", c.c_void_p),
        ("max_send_wr", c.c_uint32),
        ("max_recv_wr", c.c_uint32),
        ("max_send_sge", c.c_uint32),
        ("max_recv_sge", c.c_uint32),
        ("max_inline_data", c.c_uint32),
        ("qp_type", c.c_int),
        ("sq_sig_all", c.c_int),
    ]


class AsyncEvent(c.Structure):
    """ibv_async_event: a queue pair or a port, and what of it."""

    _fields_ = [("element", c.c_void_p), ("type", c.c_int)]


class EventChannel(c.Structure):
    """rdma_event_channel."""

    _fields_ = [("fd", c.c_int)]


class Route(c.Structure):
    """rdma_route."""

    _fields_ = [
        ("addresses", c.c_uint64 * 32),
        ("ib", c.c_uint64 * 4),
        ("pkey", c.c_uint16),
        ("path_rec", c.c_void_p),
        ("num_paths", c.c_int),
    ]


class CmId(c.Structure):
    """rdma_cm_id, its beginning."""

    _fields_ = [
        ("verbs", c.POINTER(Context)),
        ("channel", c.c_void_p),
        ("context", c.c_void_p),
        ("qp", c.POINTER(Qp)),
        ("route", Route),
        ("ps", c.c_int),
        ("port_num", c.c_uint8),
    ]


class ConnParam(c.Structure):
    """rdma_conn_param."""

    _fields_ = [
        ("private_data", c.c_void_p),
        ("private_data_len", c.c_uint8),
        ("responder_resources", c.c_uint8),
        ("initiator_depth", c.c_uint8),
        ("flow_control", c.c_uint8),
        ("retry_count", c.c_uint8),
        ("rnr_retry_count", c.c_uint8),
        ("srq", c.c_uint8),
        ("qp_num", c.c_uint32),
    ]


class CmEvent(c.Structure):
    """rdma_cm_event."""

    _fields_ = [
        ("id", c.POINTER(CmId)),
        ("listen_id", c.POINTER(CmId)),
        ("event", c.c_int),
        ("status", c.c_int),
        ("conn", ConnParam),
    ]


_P: Final = c.c_void_p
_ID: Final = c.POINTER(CmId)
_VERBS: Final = {
    "ibv_get_device_name": (c.c_char_p, (_P,)),
    "ibv_alloc_pd": (_P, (_P,)),
    "ibv_dealloc_pd": (c.c_int, (_P,)),
    "ibv_create_comp_channel": (c.POINTER(CompChannel), (_P,)),
    "ibv_destroy_comp_channel": (c.c_int, (_P,)),
    "ibv_create_cq": (_P, (_P, c.c_int, _P, _P, c.c_int)),
    "ibv_destroy_cq": (c.c_int, (_P,)),
    "ibv_get_cq_event": (c.c_int, (_P, c.POINTER(_P), c.POINTER(_P))),
    "ibv_ack_cq_events": (None, (_P, c.c_uint)),
    "ibv_reg_mr": (c.POINTER(Mr), (_P, _P, c.c_size_t, c.c_int)),
    "ibv_dereg_mr": (c.c_int, (_P,)),
    "ibv_get_async_event": (c.c_int, (_P, c.POINTER(AsyncEvent))),
    "ibv_ack_async_event": (None, (c.POINTER(AsyncEvent),)),
}
_CM: Final = {
    "rdma_create_event_channel": (c.POINTER(EventChannel), ()),
    "rdma_destroy_event_channel": (None, (_P,)),
    "rdma_create_id": (c.c_int, (_P, c.POINTER(_ID), _P, c.c_int)),
    "rdma_destroy_id": (c.c_int, (_ID,)),
    "rdma_bind_addr": (c.c_int, (_ID, _P)),
    "rdma_listen": (c.c_int, (_ID, c.c_int)),
    "rdma_resolve_addr": (c.c_int, (_ID, _P, _P, c.c_int)),
    "rdma_resolve_route": (c.c_int, (_ID, c.c_int)),
    "rdma_create_qp": (c.c_int, (_ID, _P, c.POINTER(QpInitAttr))),
    "rdma_destroy_qp": (None, (_ID,)),
    "rdma_connect": (c.c_int, (_ID, c.POINTER(ConnParam))),
    "rdma_accept": (c.c_int, (_ID, c.POINTER(ConnParam))),
    "rdma_reject": (c.c_int, (_ID, c.c_char_p, c.c_uint8)),
    "rdma_disconnect": (c.c_int, (_ID,)),
    "rdma_notify": (c.c_int, (_ID, c.c_int)),
    "rdma_set_option": (c.c_int, (_ID, c.c_int, c.c_int, _P, c.c_size_t)),
    "rdma_get_cm_event": (c.c_int, (_P, c.POINTER(c.POINTER(CmEvent)))),
    "rdma_ack_cm_event": (c.c_int, (c.POINTER(CmEvent),)),
}


class Libraries:
    """Both libraries; their functions are attributes."""

    def __init__(self) -> None:
        for name, functions in (("libibverbs.so.1", _VERBS), ("librdmacm.so.1", _CM)):
            try:
                library = c.CDLL(name, use_errno=True)
            except OSError as missing:
                text = f"o2ib nets need RDMA devices and {name}, which cannot be loaded: {missing}; {INSTALL}"
                raise LNetError(errno.ENOPKG, text) from None
            for function, (result, arguments) in functions.items():
                found = getattr(library, function)
                found.restype = result
                found.argtypes = arguments
                setattr(self, function, found)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    # Calls of the provider, which libibverbs leaves to macros of its header.

    @staticmethod
    def poll_cq(context: Context) -> Any:
        """(cq, number, completions) -> how many, or -1."""
        return _POLL(context.ops.poll_cq)

    @staticmethod
    def req_notify_cq(context: Context) -> Any:
        """(cq, only solicited) -> errno."""
        return _NOTIFY(context.ops.req_notify_cq)

    @staticmethod
    def post_send(context: Context) -> Any:
        """(qp, first work request, bad one) -> errno."""
        return _POST(context.ops.post_send)

    @staticmethod
    def post_recv(context: Context) -> Any:
        """(qp, first work request, bad one) -> errno."""
        return _POST(context.ops.post_recv)


_POLL: Final = c.CFUNCTYPE(c.c_int, _P, c.c_int, _P)
_NOTIFY: Final = c.CFUNCTYPE(c.c_int, _P, c.c_int)
_POST: Final = c.CFUNCTYPE(c.c_int, _P, _P, _P)


@cache
def libraries() -> Libraries:
    """The libraries, loaded once. Raises LNetError(ENOPKG) with what to install."""
    return Libraries()


def failed(what: str) -> LNetError:
    """The error for a call that just set errno."""
    number = c.get_errno() or errno.EIO
    return LNetError(number, f"{what}: {errno_text(number)} ({os.strerror(number)})")
