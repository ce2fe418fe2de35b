"""Lineage: which turn each prompt continues, by messages and by token ids, and in which order the calls were made."""
