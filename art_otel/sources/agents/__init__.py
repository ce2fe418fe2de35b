"""Agents: logs of coding agents and of evaluations, a format each, as the spans that an instrumentor would have made."""
