"""HTTP: what the receiver and the viewer share: the server, tokens, limits, what browsers may do.

Invariant: a client that is slow, too large or unknown gets its status, and costs no more memory than the limits say.
"""

from art_otel.http.address import Address as Address
from art_otel.http.body import Bodies as Bodies
from art_otel.http.body import BodyLimits as BodyLimits
from art_otel.http.cookie_token import CookieToken as CookieToken
from art_otel.http.host_check import HostCheck as HostCheck
from art_otel.http.read_only import ReadOnly as ReadOnly
from art_otel.http.security_headers import SecurityHeaders as SecurityHeaders
from art_otel.http.server import HttpServer as HttpServer
from art_otel.http.server import Tls as Tls
from art_otel.http.token import TokenCheck as TokenCheck
