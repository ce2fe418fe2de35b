"""The settings of Django's site."""

ROOT_URLCONF = "django_app"
SECRET_KEY = "for tests"
ALLOWED_HOSTS = ["*"]
