"""Who may connect: only a peer that proves, in the CURVE handshake, that it holds this job's secret worker key.

libzmq asks this handler about each client key (the ZAP protocol) before it lets a message of that client through. The
sockets set ZAP_ENFORCE_DOMAIN, without which libzmq admits every client while no handler answers.
"""

from __future__ import annotations

import hmac
import threading

import zmq
from zmq.auth.thread import ThreadAuthenticator

ZAP_DOMAIN = "penstock"


class KeyAuthenticator:
    """Answers for all server sockets of one context; admits one public key. Runs a thread until `close`."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], admitted_key: bytes) -> None:
        self._admitted_key = admitted_key
        self._lock = threading.Lock()
        self._denied = 0
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.configure_curve_callback(ZAP_DOMAIN, credentials_provider=self)
        self._authenticator.start()

    @property
    def denied(self) -> int:
        """Clients so far that knew the server's public key, but hold another client key."""
        with self._lock:
            return self._denied

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether the client that proved to hold this key may connect; the authenticator's thread asks."""
        admitted = domain == ZAP_DOMAIN and hmac.compare_digest(key, self._admitted_key)
        if not admitted:
            with self._lock:
                self._denied += 1
        return admitted

    def close(self) -> None:
        """Stop the thread. Close the sockets that rely on it first."""
        self._authenticator.stop()
