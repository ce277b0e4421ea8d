"""Ask which path a message would take, and why the others lost: the very comparisons that messages get."""

import asyncio

from ulnet import Node, TcpParams

TCP = TcpParams(accept="all", accept_port=9880, reserved_ports=False)


async def main() -> None:
    async with Node(tcp=TCP) as server, Node(tcp=TCP) as client:
        for node, number in ((server, 1), (client, 2)):
            node.add_ni(f"127.0.0.{number}@tcp")
            node.add_ni(f"127.0.1.{number}@tcp1")
        await client.discover("127.0.0.1@tcp")
        why = client.explain("127.0.0.1@tcp", size=1 << 20)
        assert why.ni is not None
        assert why.peer_ni is not None
        print("case:", why.case)
        print("same net:", why.ni.nid.net == why.peer_ni.nid.net)
        for stage in why.stages:  # each with all candidates, and what each criterion saw of them
            print(
                f"{stage.name}: of {len(stage.candidates)}, by {stage.decided_by or 'nothing, all are equal'}"
            )


asyncio.run(main())
