"""Small messages at the highest rate: memory bound once, the next message sent from the event of the last.

A handler is called in the thread of the event loop. What it sends leaves together with what others send then.
"""

import asyncio

from ulnet import Event, EventKind, MdOption, Nid, Node, TcpParams

PORTAL, MATCH_BITS = 30, 1
COUNT, WINDOW = 20_000, 256
TCP = TcpParams(accept="all", accept_port=9880, reserved_ports=False)


async def main() -> None:
    async with Node(tcp=TCP) as receiver, Node(tcp=TCP) as sender:
        receiver.add_ni("127.0.0.1@tcp")
        sender.add_ni("127.0.0.2@tcp")
        arrived = 0

        def count(event: Event) -> None:
            nonlocal arrived
            arrived += event.kind is EventKind.PUT

        options = MdOption.OP_PUT | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE
        receiver.attach(PORTAL, MATCH_BITS, bytearray(64), options=options, handler=count)

        target = Nid.parse("127.0.0.1@tcp")
        to_send, acknowledged = COUNT, 0
        done = asyncio.get_running_loop().create_future()

        def send_next(event: Event) -> None:
            nonlocal to_send, acknowledged
            if event.kind is not EventKind.ACK:
                return  # SEND: it has left
            acknowledged += 1
            if to_send:
                to_send -= 1
                sender.core.put(md, target, PORTAL, MATCH_BITS)
            elif acknowledged == COUNT:
                done.set_result(None)

        md = sender.core.memory.md_bind(bytes(64), send_next)
        for _ in range(WINDOW):
            to_send -= 1
            sender.core.put(md, target, PORTAL, MATCH_BITS)
        await done
        print(acknowledged, "acknowledged,", arrived, "arrived")


asyncio.run(main())
