"""No property has a deadline: tests are not for speed, and the machine may be busy."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
