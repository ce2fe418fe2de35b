"""Serving answers a browser: the API, the built page, and the server on this machine."""
