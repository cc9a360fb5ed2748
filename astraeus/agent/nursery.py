"""The process from which shims are forked: warm, tiny, single-threaded, and gone when its agent is.

Its children share its memory, so a shim costs a few hundred kilobytes and starts in a millisecond. Run as a script by
the agent, with a socket as standard input. Each message is a worker's directory with a file of what it runs; each
answer is the pid of its shim. Standard library only.
"""

import gc
import os
import signal
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 65536


def main() -> None:
    """Fork shims on request until the agent goes away."""
    sys.path.append(str(ROOT))
    from astraeus.agent import shim

    requests = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(null, target)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(requests, LONGEST, 1)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.setsid()
            with open(files[0], "rb") as file:
                payload = file.read()
            status = 1
            try:
                shim.run(os.fsdecode(message), payload)
                status = 0
            except BaseException:
                # Standard error is the worker's log by now; the worker itself dies with its shim.
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        os.close(files[0])
        requests.send(str(pid).encode())


if __name__ == "__main__":
    main()
