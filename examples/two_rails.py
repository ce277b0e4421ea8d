"""Two nodes with two rails each: 64 MiB go over both, and each rail tells what it carried.

Real nodes are in processes, or hosts, of their own; here both are in one, so that the example is one file.
"""

import asyncio

from ulnet import MdOption, Node, TcpParams

PORTAL, MATCH_BITS = 30, 1
SIZE, COUNT, TASKS = 1 << 20, 64, 8

# Without root: any port to any port. Kernel nodes listen at 988, and take callers from ports below 1024.
TCP = TcpParams(accept="all", accept_port=9880, reserved_ports=False)
SERVER = "127.0.0.1@tcp"


async def main() -> None:
    async with Node(tcp=TCP) as server, Node(tcp=TCP) as client:
        for node, number in ((server, 1), (client, 2)):
            node.add_ni(f"127.0.0.{number}@tcp")
            node.add_ni(f"127.0.1.{number}@tcp1")

        # The sender's offset decides where each message lands: here all go to the same megabyte.
        options = MdOption.OP_PUT | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE
        server.attach(PORTAL, MATCH_BITS, bytearray(SIZE), options=options)

        payload = bytes(SIZE)

        async def send() -> None:
            for _ in range(COUNT // TASKS):
                await client.put(SERVER, PORTAL, MATCH_BITS, payload)

        await asyncio.gather(*(send() for _ in range(TASKS)))
        rails = client.rails()
        print(sum(rail.sent_bytes for rail in rails) >> 20, "MiB sent")
        print(all(rail.sent_bytes for rail in rails) and "each rail carried some")


asyncio.run(main())
