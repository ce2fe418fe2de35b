"""Secrets of every kind, put together here so that no scanner takes this file for a leak."""

import base64
import string

from hypothesis import strategies as st

_MIXED = (string.ascii_letters + string.digits) * 3

SECRETS = {
    "openai": ("openai key", "sk-proj-" + _MIXED[:48]),
    "openai, old": ("openai key", "sk-" + _MIXED[20:68]),
    "anthropic": ("anthropic key", "sk-ant-" + "api03-" + _MIXED[3:60]),
    "hugging face": ("hugging face token", "hf_" + _MIXED[7:41]),
    "hugging face, organisation": ("hugging face token", "api_org_" + _MIXED[7:41]),
    "aws": ("aws key", "AKIA" + "Q7WERT2YUIOP4ASD"),
    "aws, temporary": ("aws key", "ASIA" + "Q7WERT2YUIOP4ASD"),
    "github": ("github token", "ghp_" + _MIXED[5:41]),
    "github, fine-grained": ("github token", "github_pat_" + _MIXED[5:27] + "_" + _MIXED[:59]),
    "gitlab": ("gitlab token", "glpat-" + _MIXED[50:70]),
    "google": ("google key", "AIza" + _MIXED[2:37]),
    "google, oauth": ("google key", "GOCSPX-" + _MIXED[2:30]),
    "slack": ("slack token", "xoxb-" + "123456789012-123456789012-" + _MIXED[:24]),
    "slack, app": ("slack token", "xapp-" + "1-A0123-456789-" + _MIXED[:24]),
    "stripe": ("stripe key", "sk_live_" + _MIXED[:24]),
    "groq": ("api key", "gsk_" + _MIXED[:52]),
    "jwt": ("jwt", "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJjYW5hcnkifQ." + _MIXED[:43]),
    "bearer": ("bearer token", "Bearer " + _MIXED[9:49]),
    "basic": ("authorization", "Basic " + base64.b64encode(b"canary:hunter2").decode()),
    "header": ("authorization", "Authorization: Custom " + _MIXED[11:51]),
    "api key header": ("api key", "x-api-key: " + _MIXED[13:53]),
    "aws, secret": ("aws key", "aws_secret_access_key = " + _MIXED[4:44]),
    "url": ("url password", "postgres://canary:hunter2canary@db.example/x"),
    "pem": (
        "private key",
        "-----BEGIN RSA PRIVATE KEY-----\n" + f"{_MIXED[:64]}\n{_MIXED[1:65]}\n-----END RSA PRIVATE KEY-----",
    ),
    "pem, cut off": ("private key", "-----BEGIN PRIVATE KEY-----\n" + f"{_MIXED[2:66]}\n{_MIXED[3:30]}"),
}
"""What is found, and as what kind."""


def canaries(secret: str) -> list[str]:
    """What of a secret may be nowhere."""
    if secret.startswith("postgres"):
        return ["hunter2canary"]
    found = [line for line in secret.splitlines() if not line.startswith("---")]
    return [line.rpartition(" ")[2] for line in found]


any_secret = st.sampled_from([secret for _, secret in SECRETS.values()])

plain = st.text(max_size=40).filter(lambda text: not text or not text[-1].isalnum())
"""Text that may stand before a secret without becoming a part of its first word."""
