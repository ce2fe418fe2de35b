"""The version of the distribution, here because asking the installed metadata for it loads much."""

__version__ = "0.1.0"
