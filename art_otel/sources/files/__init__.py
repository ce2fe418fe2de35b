"""Files: where dumps lie and how their bytes are had: found, fetched, decompressed, divided into parts and lines."""
