"""HTTP: the server that receiver, gateway and viewer share, with its tokens, limits and protection against web pages.

Invariant: a client that is too slow, sends too much or lacks the token gets an error status, and never costs more
memory than the limits say.
"""

from art_otel.http.guards import CookieToken as CookieToken
from art_otel.http.guards import HostCheck as HostCheck
from art_otel.http.guards import ReadOnly as ReadOnly
from art_otel.http.guards import SecurityHeaders as SecurityHeaders
from art_otel.http.guards import TokenCheck as TokenCheck
from art_otel.http.server import CONNECTION as CONNECTION
from art_otel.http.server import Address as Address
from art_otel.http.server import Answering as Answering
from art_otel.http.server import Bodies as Bodies
from art_otel.http.server import BodyLimits as BodyLimits
from art_otel.http.server import HttpServer as HttpServer
from art_otel.http.server import RawHeaders as RawHeaders
from art_otel.http.server import Tls as Tls
from art_otel.http.server import WebPageCheck as WebPageCheck
from art_otel.http.server import WhenRefused as WhenRefused
from art_otel.http.server import listen_at as listen_at
from art_otel.http.server import new_loop as new_loop
