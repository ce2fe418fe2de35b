"""Secrets of every kind, put together here so that no scanner takes this file for a leak."""

import string

from hypothesis import strategies as st

_MIXED = (string.ascii_letters + string.digits) * 3

SECRETS = {
    "openai": ("openai key", "sk-proj-" + _MIXED[:74] + "T3Blbk" + "FJ" + _MIXED[5:79]),
    "openai, service": ("openai key", "sk-svcacct-" + _MIXED[:58] + "T3Blbk" + "FJ" + _MIXED[5:63]),
    "openai, old": ("openai key", "sk-" + _MIXED[20:40] + "T3Blbk" + "FJ" + _MIXED[7:27]),
    "anthropic": ("anthropic key", "sk-ant-" + "api03-" + _MIXED[3:90] + "_-4Xyz" + "AA"),
    "anthropic, admin": ("anthropic key", "sk-ant-" + "admin01-" + _MIXED[3:96] + "AA"),
    "hugging face": ("hugging face token", "hf_" + _MIXED[7:41]),
    "hugging face, organisation": ("hugging face token", "api_org_" + _MIXED[7:41]),
    "aws": ("aws key", "AKIA" + "Q7WERT2YUIOP4ASD"),
    "aws, temporary": ("aws key", "ASIA" + "Q7WERT2YUIOP4ASD"),
    "aws, secret": ("aws key", "aws_secret_access_key = " + _MIXED[4:44]),
    "aws, secret in JSON": ("aws key", '"SecretAccessKey": "' + _MIXED[6:46]),
    "github": ("github token", "ghp_" + _MIXED[5:41]),
    "github, refresh": ("github token", "ghr_" + _MIXED[5:81]),
    "github, fine-grained": ("github token", "github_pat_" + _MIXED[5:27] + "_" + _MIXED[:59]),
    "gitlab": ("gitlab token", "glpat-" + _MIXED[50:70]),
    "gitlab, routable": ("gitlab token", "glpat-" + _MIXED[40:67] + ".01" + "0q1w2e3"),
    "google": ("google key", "AIza" + _MIXED[2:35] + "-_"),
    "google, oauth": ("google key", "GOCSPX-" + _MIXED[2:30]),
    "slack": ("slack token", "xoxb-" + "123456789012-123456789012-" + _MIXED[:24]),
    "slack, user": ("slack token", "xoxp-" + "123456789012-123456789012-1234567890123-" + _MIXED[:32]),
    "slack, app": ("slack token", "xapp-" + "1-A0123456789-1234567890123-" + "0123456789abcdef" * 4),
    "stripe": ("stripe key", "sk_live_" + _MIXED[:24]),
    "stripe, restricted": ("stripe key", "rk_live_" + _MIXED[:99]),
    "npm": ("npm token", "npm_" + _MIXED[5:41]),
    "pypi": ("pypi token", "pypi-AgEIcHlwaS5vcmc" + _MIXED[:130]),
    "groq": ("groq key", "gsk_" + _MIXED[:52]),
    "xai": ("xai key", "xai-" + _MIXED[:80]),
    "nvidia": ("nvidia key", "nvapi-" + _MIXED[:63] + "-"),
    "perplexity": ("perplexity key", "pplx-" + _MIXED[:48]),
    "openrouter": ("openrouter key", "sk-or-v1-" + "0123456789abcdef" * 4),
    "tavily": ("tavily key", "tvly-" + "dev-" + _MIXED[:32]),
    "replicate": ("replicate token", "r8_" + _MIXED[:37]),
    "langsmith": ("langsmith key", "lsv2_" + "pt_" + "0123456789abcdef" * 2 + "_0123456789"),
    "docker": ("docker token", "dckr_pat_" + _MIXED[:27]),
    "gitlab, runner": ("gitlab token", "glrt-" + _MIXED[30:50]),
    "google, oauth token": ("google token", "ya29." + _MIXED[:90]),
    "sendgrid": ("sendgrid key", "SG." + _MIXED[:22] + "." + _MIXED[9:52]),
    "digitalocean": ("digitalocean token", "dop_v1_" + "0123456789abcdef" * 4),
    "jwt": ("jwt", "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJjYW5hcnkifQ." + _MIXED[:43]),
    "pem": (
        "private key",
        "-----BEGIN RSA PRIVATE KEY-----\n" + f"{_MIXED[:64]}\n{_MIXED[1:65]}\n-----END RSA PRIVATE KEY-----",
    ),
    "pem, with headers": (
        "private key",
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,3F17F5316E2BAC89\n\n"
            f"{_MIXED[:64]}\n{_MIXED[1:30]}==\n-----END RSA PRIVATE KEY-----"
        ),
    ),
    "pgp": (
        "private key",
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n"
            f"{_MIXED[:64]}\n{_MIXED[1:30]}\n=a1B2\n-----END PGP PRIVATE KEY BLOCK-----"
        ),
    ),
    "pem, cut off": ("private key", "-----BEGIN PRIVATE KEY-----\n" + f"{_MIXED[2:66]}\n{_MIXED[3:30]}"),
}
"""What is found, and as what kind; each with the real length and alphabet."""


def canaries(secret: str) -> list[str]:
    """What of a secret may be nowhere."""
    found = [
        line for line in secret.splitlines() if len(line) > 16 and not line.startswith(("---", "Proc", "DEK", "Vers"))
    ]
    return [line.rpartition(" ")[2].strip('"') for line in found]


any_secret = st.sampled_from([secret for _, secret in SECRETS.values()])

plain = st.text(max_size=40).filter(lambda text: not text or not text[-1].isalnum())
"""Text that may stand before a secret without becoming a part of its first word."""
