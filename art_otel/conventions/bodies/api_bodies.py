"""API bodies: requests and responses of OpenAI's, Anthropic's and Gemini's APIs, told apart by their fields."""

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies import gemini, openai_body
from art_otel.conventions.facts import CallFacts
from art_otel.spans import Value


def read_request(reader: AttributeReader, name: str, body: dict[str, Value]) -> CallFacts | None:
    """Read the request body that attribute `name` holds; None when it asks for no completion."""
    read = gemini.read_request if "contents" in body else openai_body.read_request
    return read(reader, name, body)


def read_response(reader: AttributeReader, name: str, body: dict[str, Value]) -> CallFacts | None:
    """Read the response body that attribute `name` holds; None when it has no completion."""
    is_gemini = "candidates" in body or "parts" in (values.mapping(body.get("content")) or {})
    read = gemini.read_response if is_gemini else openai_body.read_response
    return read(reader, name, body)
