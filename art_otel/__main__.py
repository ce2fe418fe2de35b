"""`python -m art_otel` is the command line."""

from art_otel.cli import command

command()
