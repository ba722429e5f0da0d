"""Short messages between two processes: lines of JSON over a socket."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
_SEND_S = 2.0


class Link:
    """One end of a connection. Any thread may send; one at a time receives."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_SEND_S)
        self._socket, self._sending, self._rest = connection, threading.Lock(), b""
        self._early: list[Message] = []

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send, if the other end is still there; `receive` tells whether it is."""
        with self._sending, suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message] | None:
        """What has come, once `select` says that something has; None if no more will."""
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            found = [json.loads(line) for line in lines]
        except ValueError:
            return None
        if not data or not all(isinstance(each, dict) for each in found):
            return None
        early, self._early = self._early, []
        return early + found

    def wait(self, deadline: float) -> Message:
        """The next message. Raises TimeoutError at `deadline` (of time.monotonic), or EOFError."""
        while not self._early:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self], [], [], left)[0]:
                raise TimeoutError
            messages = self.receive()
            if messages is None:
                raise EOFError
            self._early = messages
        return self._early.pop(0)

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._socket.close()
