"""Messages as an endless stream: an inbox attaches new memory by itself, so it never fills up for good.

Each message has bytes of its own until `release`. One that comes while all are held is counted as dropped,
and its sender is told (ENOBUFS), so it can send again.
"""

import asyncio

from ulnet import Node, TcpParams

PORTAL, MATCH_BITS = 30, 7
TCP = TcpParams(accept="all", accept_port=9880, reserved_ports=False)


async def main() -> None:
    async with Node(tcp=TCP) as receiver, Node(tcp=TCP) as sender:
        receiver.add_ni("127.0.0.1@tcp")
        sender.add_ni("127.0.0.2@tcp")
        inbox = receiver.inbox(PORTAL, MATCH_BITS, slots=64, size=4096)

        async def send(count: int) -> None:
            for number in range(count):
                await sender.put("127.0.0.1@tcp", PORTAL, MATCH_BITS, b"message %d" % number)

        sending = asyncio.create_task(send(1000))
        taken = 0
        async for message in inbox:
            last = bytes(message.data)
            message.release()
            taken += 1
            if taken == 1000:
                break
        await sending
        print(taken, "messages, the last:", last.decode())


asyncio.run(main())
