"""HTTP: what the receiver and the viewer share: the server, tokens, limits, what browsers may do.

Invariant: a client that is slow, too large or unknown gets its status, and costs no more memory than the limits say.
"""

from art_otel.http.address import Address
from art_otel.http.body import Bodies, BodyLimits
from art_otel.http.cookie_token import CookieToken
from art_otel.http.host_check import HostCheck
from art_otel.http.read_only import ReadOnly
from art_otel.http.security_headers import SecurityHeaders
from art_otel.http.server import HttpServer, Tls
from art_otel.http.token import TokenCheck

__all__ = [
    "Address",
    "Bodies",
    "BodyLimits",
    "CookieToken",
    "HostCheck",
    "HttpServer",
    "ReadOnly",
    "SecurityHeaders",
    "Tls",
    "TokenCheck",
]
