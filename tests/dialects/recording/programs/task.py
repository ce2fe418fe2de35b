"""What every program asks of its agent."""

SYSTEM = "You are a weather agent."
QUESTION = "Weather in Paris and Tokyo?"
NAME, DESCRIPTION = "get_weather", "The weather of a city."
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def get_weather(city: str) -> str:
    """The weather of a city."""
    return {"Paris": "sunny", "Tokyo": "rainy"}[city]
