"""The agent in a guest of scripts/verbs_bed.py: sets up interfaces and RDMA devices, runs what it is told.

The system's own Python runs this, in place of an init.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("virtio_console", "virtio_net", "rdma_rxe", "rdma_ucm")
STARTED: dict[int, subprocess.Popen[bytes]] = {}
MOST = 200_000  # bytes of what a command writes that are told


def main() -> None:
    """Set up, say so, and serve."""
    number = int(sys.argv[1])
    release = os.uname().release
    os.makedirs("/lib/modules", exist_ok=True)
    if not os.path.exists(f"/lib/modules/{release}"):
        os.symlink(ROOT / "build/verbs/kernel/lib/modules" / release, f"/lib/modules/{release}")
    for module in MODULES:
        subprocess.run(("modprobe", module), check=True)
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    for rail in (0, 1):
        device, address = f"eth{rail}", f"192.168.{110 + rail}.{10 + number}/24"
        subprocess.run(("ip", "address", "add", address, "dev", device), check=True)
        subprocess.run(("ip", "link", "set", device, "up"), check=True)
        subprocess.run(("rdma", "link", "add", f"rxe{rail}", "type", "rxe", "netdev", device), check=True)
    (port,) = [path.name for path in Path("/sys/class/virtio-ports").iterdir()]
    with open(f"/dev/{port}", "rb+", buffering=0) as file:
        tell(file, ready=True)
        serve(file)


def tell(file: Any, **answer: Any) -> None:
    """Send one line."""
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[file.write(data) :]


def serve(file: Any) -> None:
    """One request after the other, without end."""
    waiting = b""
    while True:
        waiting += file.read(65536)
        while b"\n" in waiting:
            line, _, waiting = waiting.partition(b"\n")
            try:
                tell(file, **act(json.loads(line)))
            except Exception as failed:
                tell(file, error=f"{type(failed).__name__}: {failed}")


def act(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked."""
    if request["op"] == "run":
        return run(request["words"], request["timeout"])
    if request["op"] == "start":
        with open("/tmp/started", "wb") as log:
            process = subprocess.Popen(request["words"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        os.rename("/tmp/started", f"/tmp/written.{process.pid}")
        STARTED[process.pid] = process
        return {"pid": process.pid}
    if request["op"] == "kill":
        process = STARTED.pop(request["pid"])
        if request["signal"]:
            process.send_signal(signal.Signals(request["signal"]))
        return {"code": process.wait(60)}
    if request["op"] == "written":
        return {"text": Path(f"/tmp/written.{request['pid']}").read_text(errors="replace")[-MOST:]}
    if request["op"] == "write":
        path = Path(request["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(request["data"]))
        return {}
    raise ValueError(request["op"])


def run(words: list[str], timeout: float) -> dict[str, Any]:
    """A command, to its end."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=timeout, check=False)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, err = 124, late.stdout or b"", late.stderr or b""
    texts = [text.decode(errors="replace")[-MOST:] for text in (out, err)]
    return {"code": code, "out": texts[0], "err": texts[1]}


if __name__ == "__main__":
    main()
