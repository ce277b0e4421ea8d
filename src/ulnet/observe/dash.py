"""The web page of `ulnet dash`: a fabric as a picture, with time series, events and reasons, live."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ulnet.dlc.model import Explain
from ulnet.observe.advice import advice
from ulnet.observe.equals import compare
from ulnet.observe.fabric import picture
from ulnet.observe.fabricwide import names
from ulnet.observe.fleet import Member
from ulnet.observe.live import Live, Rail
from ulnet.observe.paper import explain_at
from ulnet.observe.rails import net_of
from ulnet.observe.snapshot import Snapshot
from ulnet.observe.source import Source

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Dash", "Guard"]

_log = logging.getLogger("ulnet.dash")
_PATIENCE: Final = 10.0  # seconds for an explanation
_HEARTBEAT: Final = 1.0  # seconds without news after which a comment keeps a connection
_MOST_EVENTS: Final = 300  # that a page is told when it opens
_MOST_PAGES: Final = 64
_MOST_RAILS: Final = 16  # in one plot
_MOST_PEERS: Final = 50  # that a rail is explained for
_MOST_THREADS: Final = 64
_MOST_FINDINGS: Final = 100
_COMPARED: Final = 10.0  # seconds, at least, between two looks at what no node sees alone
_COOKIE: Final = "ulnet_token"
_PAGES: Final = {
    "/": ("dash.html", "text/html; charset=utf-8"),
    "/dash.js": ("dash.js", "text/javascript; charset=utf-8"),
    "/picture.js": ("picture.js", "text/javascript; charset=utf-8"),
    "/dash.css": ("dash.css", "text/css; charset=utf-8"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css; charset=utf-8"),
}
_POLICY: Final = b"default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'"
_HEADERS: Final = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Dash:
    """Reads all nodes, each at its own pace, and tells pages what they show; `app` is for an ASGI server."""

    def __init__(
        self,
        nodes: Sequence[tuple[str, Source]],
        every: float = 1.0,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`every` in seconds; nodes have names."""
        self.lives = [Live(name) for name, _ in nodes]
        self._sources = [source for _, source in nodes]
        self._every = every
        self._clock = clock
        self._told = [0] * len(nodes)  # events of each that are in `_events`
        self._events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self._serial = 0
        self._findings: list[dict[str, str]] = []
        self._number = 0  # of the newest frame
        self._frame = ""
        self._news = asyncio.Condition()
        self._dirty = False
        self._pages = 0
        self._ended = False
        self._pool = ThreadPoolExecutor(min(len(nodes) + 4, _MOST_THREADS), "dash")
        pages = [Route(path, self._page) for path in _PAGES]
        self.app = Starlette(
            routes=[
                *pages,
                Route("/frames", self._frames),
                Route("/rail", self._rail),
                Route("/history", self._history),
            ],
            lifespan=self._life,
        )

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._read(at)) for at in range(len(self.lives))]
        tasks.append(asyncio.create_task(self._publish()))
        if len(self.lives) > 1:
            tasks.append(asyncio.create_task(self._compare()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._pool.shutdown(wait=False, cancel_futures=True)
            for source in self._sources:
                source.close()

    # Reading ---------------------------------------------------------------------------------------

    async def _read(self, at: int) -> None:
        loop = asyncio.get_running_loop()
        live, source = self.lives[at], self._sources[at]
        while True:
            began = loop.time()
            snapshot = await loop.run_in_executor(self._pool, source.read, max(self._every, 1.0))
            try:
                live.take(snapshot, self._clock())
            except Exception:  # a mistake of ours about one node must not end the others
                _log.exception("what %s shows cannot be drawn", live.name)
            self._dirty = True
            await asyncio.sleep(max(self._every - (loop.time() - began), 0.05))

    async def _publish(self) -> None:
        """A frame each interval in which a node was read."""
        while True:
            if self._dirty:
                self._dirty = False
                self._draw()
                async with self._news:
                    self._news.notify_all()
            await asyncio.sleep(min(self._every, 1.0))

    def _draw(self) -> None:
        """The newest frame, without its events: which of them are new to a page is its own matter."""
        frame = {"at": self._clock(), **picture(self.lives), "findings": self._findings}
        self._take_events()
        self._number += 1
        self._frame = json.dumps(frame, separators=(",", ":"))

    async def _compare(self) -> None:
        """What no node sees alone, once all were read twice, then again and again."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3 * self._every)
        while True:
            members = [member for live in self.lives if (member := _member(live)) is not None]
            began = loop.time()
            try:
                found = await loop.run_in_executor(self._pool, compare, members)
                self._findings = [
                    {"level": one.level, "where": names(one.where), "text": one.text}
                    for one in found[:_MOST_FINDINGS]
                ]
            except Exception:  # as above
                _log.exception("the nodes cannot be compared")
            self._dirty = True
            await asyncio.sleep(max(_COMPARED, self._every, 10 * (loop.time() - began)))

    def _take_events(self) -> None:
        found = []
        for at, live in enumerate(self.lives):
            new = min(live.seen - self._told[at], len(live.told))
            self._told[at] = live.seen
            for told in list(live.told)[len(live.told) - new :]:
                found.append({"at": told.at, "node": live.name, **told.event._asdict()})
        found.sort(key=lambda event: float(event["at"]))
        for event in found:
            self._serial += 1
            event["serial"] = self._serial
        self._events.extend(found)

    def end(self) -> None:
        """Pages hear no more: the server, which waits for them, can end."""
        self._ended = True

    # Answers ---------------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        name, kind = _PAGES[request.url.path]
        return FileResponse(str(files("ulnet.observe") / "static" / name), media_type=kind)

    async def _frames(self, request: Request) -> Response:
        """Server-sent events: `events` there were, then a frame each time that nodes were read."""
        if self._pages >= _MOST_PAGES:
            return PlainTextResponse("too many pages are open\n", 503)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncGenerator[str, None]:
        self._pages += 1
        try:
            known = self._serial
            yield f"retry: 1000\nevent: past\ndata: {json.dumps(list(self._events))}\n\n"
            number = -1
            while not self._ended:
                if number == self._number or not self._frame:
                    async with self._news:
                        try:
                            await asyncio.wait_for(self._news.wait(), _HEARTBEAT)
                        except TimeoutError:
                            yield ": still here\n\n"
                    continue
                new = [event for event in self._events if event["serial"] > known]  # also of frames it missed
                number, known = self._number, self._serial
                yield f'event: frame\nid: {number}\ndata: {self._frame[:-1]},"events":{json.dumps(new)}}}\n\n'
        finally:
            self._pages -= 1

    async def _history(self, request: Request) -> Response:
        """`past` of rails by NID, of those that nodes show: times, messages and bytes a second, health."""
        found: dict[str, list[Any]] = {}
        for nid in request.query_params.getlist("nid")[:_MOST_RAILS]:
            rail = self._find(nid)[1]
            if rail is not None:
                found[nid] = [list(values) for values in zip(*rail.past, strict=True)]
        return JSONResponse(found)

    async def _rail(self, request: Request) -> Response:
        """Peers of a rail, the choice of path to one of them (`to`, or the busiest), and commands to try."""
        nid = request.query_params.get("nid", "")
        at, rail = self._find(nid)
        if rail is None:
            return JSONResponse({"error": f"no node that is asked has the NID {nid}"}, 404)
        live = self.lives[at]
        near = [peer for peer in live.peers.values() if any(net_of(one) == rail.net for one in peer.nids)]
        near.sort(key=lambda peer: -peer.rates.messages)
        peers = [peer.nid for peer in near[:_MOST_PEERS]]
        to = request.query_params.get("to") or next(iter(peers), "")
        told: dict[str, Any] = {"node": live.name, "nid": nid, "peers": peers, "to": to}
        if to:
            work = partial(explain_at, self._sources[at], Explain(to), _PATIENCE, live.shown)
            try:
                document, notes = await asyncio.get_running_loop().run_in_executor(self._pool, work)
                told |= {"explain": document["explain"], "notes": notes}
            except ValueError as refused:
                told["refused"] = str(refused)
        nids = [one for peer in near[:1] for one in peer.nids if net_of(one) == rail.net]
        told["commands"] = [command._asdict() for command in advice(rail, nids, self._sources[at].reach)]
        return JSONResponse(told)

    def _find(self, nid: str) -> tuple[int, Rail | None]:
        for at, live in enumerate(self.lives):
            if nid in live.rails:
                return at, live.rails[nid]
        return -1, None


def _member(live: Live) -> Member | None:
    """What a node showed last; nothing of one that was not read yet."""
    rates = {nid: rail.rates for nid, rail in live.rails.items()}
    if live.silent:
        return Member(live.name, Snapshot(live.name, {}, live.missing))
    return Member(live.name, live.shown, rates) if live.shown is not None else None


class Guard:
    """In front of the application: who may ask, and headers that keep pages from doing more than they should.

    `hosts` are the names by which the page may be asked for: other sites cannot ask under names of their own.
    A `token` is given once as `?token=`, then kept in a cookie; or it is sent as a bearer's.
    """

    def __init__(self, app: ASGIApp, *, hosts: set[str] | None, token: str | None) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = _host(headers.get(b"host", ""))

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        refusal = self._refusal(scope, headers, host)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: dict[bytes, str], host: str) -> Response | None:
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("GET alone\n", 405)
        if self._hosts is not None and host not in self._hosts:
            return PlainTextResponse("this page is not served under that name\n", 421)
        if self._token is None:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and scope["path"] == "/" and self._is(given):
            answer = Response(status_code=303, headers={"location": "./"})
            answer.set_cookie(_COOKIE, given, httponly=True, samesite="strict")
            return answer
        request = Request(scope)
        bearer = headers.get(b"authorization", "").removeprefix("Bearer ")
        if self._is(request.cookies.get(_COOKIE, "")) or self._is(bearer):
            return None
        return PlainTextResponse("a token is needed: open the address that `ulnet dash` printed\n", 401)

    def _is(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _host(header: str) -> str:
    """The name in a Host header, without a port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
