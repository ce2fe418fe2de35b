"""Clients: what clients other than OpenAI's ask and get, and streams as the body they make up."""
