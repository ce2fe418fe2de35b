"""JSON text: the documents of a dump, and the values in one that a strict decoder refuses."""
