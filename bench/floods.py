"""Clients that mean harm: threads on blocking sockets, which cost the generator next to nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from bench import frames
from bench.connection import Address
from bench.world import Person

CONNECT_SECONDS_MAX = 10.0
READ_BYTES = 1 << 20
FEW_BYTES = 8_192
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def open_socket(address: Address, person: Person | None = None, received_bytes: int = 0) -> socket.socket:
    """An upgraded connection, greeted if it is somebody's. `received_bytes`: what is taken in unread."""
    wire = socket.socket()
    if received_bytes:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
    wire.settimeout(CONNECT_SECONDS_MAX)
    wire.connect((address.host, address.port))
    wire.sendall(address.handshake)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += wire.recv(READ_BYTES)
    if person is not None:
        wire.sendall(frames.hello(person.token, person.device_id, live=received_bytes > 0))
    wire.settimeout(None)
    return wire


class Flood:
    """What runs until it is stopped."""

    def __init__(self) -> None:
        self._running = threading.Event()
        self._running.set()
        self._threads: list[threading.Thread] = []
        self._wires: list[socket.socket] = []

    def write(self, wire: socket.socket, data: bytes) -> None:
        """Write this again and again, and throw away what is answered."""
        self._wires.append(wire)
        self._repeat(lambda: wire.sendall(data))
        thrown_away = bytearray(READ_BYTES)
        self._repeat(lambda: _read(wire, thrown_away))

    def hold(self, wire: socket.socket) -> None:
        """Keep it open and read nothing."""
        self._wires.append(wire)

    def churn(self, address: Address, person: Person) -> None:
        """Connect, greet, and reset, again and again."""

        def once() -> None:
            wire = open_socket(address, person)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            wire.close()

        self._repeat(once)

    def _repeat(self, act: Callable[[], None]) -> None:
        def run() -> None:
            with contextlib.suppress(OSError):  # being thrown out for it is right
                while self._running.is_set():
                    act()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self._running.clear()
        for wire in self._wires:
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for wire in self._wires:
            wire.close()


def _read(wire: socket.socket, into: bytearray) -> None:
    if not wire.recv_into(into):
        raise ConnectionError("the server has ended it")
