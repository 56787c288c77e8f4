"""Authentication: a peer must prove, in the CURVE handshake, that it holds the job's secret worker key."""

from __future__ import annotations

import hmac
import threading

import zmq
from zmq.auth.thread import ThreadAuthenticator

ZAP_DOMAIN = "penstock"


class KeyAuthenticator:
    """Authenticates the clients of all server sockets of a context; admits one public key. `close` ends its thread."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], admitted_key: bytes) -> None:
        self._admitted_key = admitted_key
        self._lock = threading.Lock()
        self._denied = 0
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.configure_curve_callback(ZAP_DOMAIN, credentials_provider=self)
        self._authenticator.start()

    @property
    def denied(self) -> int:
        """The number of clients so far that knew the server's public key but held another client key."""
        with self._lock:
            return self._denied

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether the client that has proved to hold this key may connect.

        Runs in the authenticator's thread.
        """
        admitted = domain == ZAP_DOMAIN and hmac.compare_digest(key, self._admitted_key)
        if not admitted:
            with self._lock:
                self._denied += 1
        return admitted

    def close(self) -> None:
        """Stop the thread. Close the sockets that rely on it first."""
        self._authenticator.stop()
