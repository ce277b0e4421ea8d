"""Hear when a peer is gone, and when it is back: a watcher, and errors that are Python's own classes."""

import asyncio

from ulnet import Nid, Node, TcpParams

PORTAL, MATCH_BITS = 30, 1
TCP = TcpParams(accept="all", accept_port=9880, reserved_ports=False)
SERVER = "127.0.0.1@tcp"


async def main() -> None:
    news: asyncio.Queue[str] = asyncio.Queue()

    def watcher(nid: Nid, there: bool, reason: str) -> None:
        news.put_nowait(f"{nid} is {'back' if there else 'gone'}")

    async with Node(tcp=TCP) as client:
        client.add_ni("127.0.0.2@tcp")
        client.watch_peers(watcher)
        server = Node(tcp=TCP)
        await server.start()
        server.add_ni(SERVER)
        await client.discover(SERVER)

        await server.close()
        try:
            await client.put(SERVER, PORTAL, MATCH_BITS, b"is anybody there?")
        except ConnectionError as error:
            print(type(error).__name__)
        print(await news.get())

        async with Node(tcp=TCP) as again:
            again.add_ni(SERVER)
            await client.discover(SERVER, force=True)
            print(await news.get())


asyncio.run(main())
