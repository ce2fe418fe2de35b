"""Real model servers, and whether what is recorded of them is what they sampled."""
