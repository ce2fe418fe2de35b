"""Protocol: what a receiver and its consumers say to each other, in one process or over HTTP."""
