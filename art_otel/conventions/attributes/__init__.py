"""Attributes: reading the values of a span's attributes, and what their names alone tell."""
