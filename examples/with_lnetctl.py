"""A node in a program that administrators can look at: `lnetctl --socket PATH` works as with lnetd.

`ulnet top`, `ulnet exporter` and `ulnet record` take the same socket.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from ulnet import Node, TcpParams

TCP = TcpParams(accept="all", accept_port=9880, reserved_ports=False)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.sock"
        async with Node(tcp=TCP) as node, node.serve_control(path):
            node.add_ni("127.0.0.1@tcp")
            lnetctl = (sys.executable, "-m", "ulnet.cli.lnetctl", "--socket", str(path))
            asked = await asyncio.create_subprocess_exec(
                *lnetctl, "net", "show", "--net", "tcp", stdout=asyncio.subprocess.PIPE
            )
            shown, _ = await asked.communicate()
            print(shown.decode(), end="")


asyncio.run(main())
