"""Certificates: none of the hundreds that each HTTP client reads when it is made (30 ms) is needed on this machine."""

from pathlib import Path

NO_CERTIFICATES = {"SSL_CERT_FILE": "", "SSL_CERT_DIR": str(Path(__file__).parent)}
