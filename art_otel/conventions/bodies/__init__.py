"""Bodies: what several dialects record alike: messages, tools, tokens, finish reasons, requests and responses."""
