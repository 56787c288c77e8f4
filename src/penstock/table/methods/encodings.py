"""Encodings, digests, IP addresses and URLs."""

from __future__ import annotations

from typing import Self

from penstock.table.methods.operand import Operand, Unary


class Encodings(Operand):
    """Methods that encode and decode strings and bytes."""

    from_base64 = Unary("FROM_BASE64", "The string decoded from Base64.")
    to_base64 = Unary("TO_BASE64", "The string encoded in Base64.")
    md5 = Unary("MD5", "The MD5 digest, in 32 hexadecimal digits.")
    sha1 = Unary("SHA1", "The SHA-1 digest, in 40 hexadecimal digits.")
    sha224 = Unary("SHA224", "The SHA-224 digest, in 56 hexadecimal digits.")
    sha256 = Unary("SHA256", "The SHA-256 digest, in 64 hexadecimal digits.")
    sha384 = Unary("SHA384", "The SHA-384 digest, in 96 hexadecimal digits.")
    sha512 = Unary("SHA512", "The SHA-512 digest, in 128 hexadecimal digits.")

    def sha2(self, hash_length: object) -> Self:
        """Return an SHA-2 digest of 224, 256, 384 or 512 bits, in hexadecimal digits."""
        return self._called("SHA2", hash_length)

    def encode(self, charset: object) -> Self:
        """Encode the string to bytes in a charset such as UTF-8."""
        return self._called("ENCODE", charset)

    def decode(self, charset: object) -> Self:
        """Decode the bytes to a string in a charset such as UTF-8."""
        return self._called("DECODE", charset)

    def inet_aton(self) -> Self:
        """Convert an IPv4 address to a number."""
        return self._called("INET_ATON")

    def inet_ntoa(self) -> Self:
        """Convert a number to an IPv4 address."""
        return self._called("INET_NTOA")

    def url_encode(self) -> Self:
        """Encode the string for a URL."""
        return self._called("URL_ENCODE")

    def url_decode(self) -> Self:
        """Decode a URL-encoded string."""
        return self._called("URL_DECODE")

    def parse_url(self, part_to_extract: object, key: object | None = None) -> Self:
        """Extract a part of a URL, such as HOST, PATH or QUERY; with QUERY, optionally the value of a key."""
        return self._called("PARSE_URL", part_to_extract, key)
