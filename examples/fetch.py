"""Memory that others read: a peer fetches a piece by GET, and this program is told only if it wants to be."""

import asyncio

from ulnet import LNetError, MdOption, Node, TcpParams

PORTAL, MATCH_BITS = 31, 1
TCP = TcpParams(accept="all", accept_port=9880, reserved_ports=False)


async def main() -> None:
    async with Node(tcp=TCP) as server, Node(tcp=TCP) as client:
        server.add_ni("127.0.0.1@tcp")
        client.add_ni("127.0.0.2@tcp")

        library = b"".join(b"page %06d " % number for number in range(10_000))
        options = MdOption.OP_GET | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE
        server.attach(PORTAL, MATCH_BITS, library, options=options)

        page = bytearray(11)
        count = await client.get("127.0.0.1@tcp", PORTAL, MATCH_BITS, page, offset=4711 * 12)
        print(count, "bytes:", page.decode())

        # Nobody has memory with these match bits: two ulnet nodes tell each other so at once.
        await client.discover("127.0.0.1@tcp")
        try:
            await client.get("127.0.0.1@tcp", PORTAL, 99, page)
        except LNetError as error:
            print(type(error).__name__, error.errno)


asyncio.run(main())
