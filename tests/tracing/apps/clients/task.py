"""What every agent is asked, and its tool."""

SYSTEM, QUESTION = "You are a weather agent.", "Weather in Paris and Tokyo?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "description": "The weather of a city."}


def get_weather(city: str) -> str:
    """The tool."""
    return {"Paris": "sunny", "Tokyo": "rainy"}[city]
