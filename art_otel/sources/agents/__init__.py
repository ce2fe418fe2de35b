"""Agents: logs of coding agents and of evaluations, a format each, as the spans of an instrumentor."""
