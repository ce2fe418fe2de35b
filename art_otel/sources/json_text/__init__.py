"""JSON text: its objects are found, and what is wrong with one is named, without decoding the rest."""
