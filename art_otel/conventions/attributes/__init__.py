"""Attributes: reading the attributes of a span: their names, their values, and lists flattened over them."""
