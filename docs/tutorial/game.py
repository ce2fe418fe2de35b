"""An ordinary agent: it plays a guessing game with a model behind OpenAI's API. It knows nothing of training."""

from openai import AsyncOpenAI

HIGHEST = 5
GUESSES = 3
EXAMPLE = [
    {"role": "system", "content": f"Guess my number: 1, 2, 3, 4 or {HIGHEST}."},
    {"role": "user", "content": "Guess."},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "Right! New number. Guess."},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Right! New number. Guess."},
]


async def play(client: AsyncOpenAI, secret: int) -> bool:
    """Play one game; whether the number was found."""
    messages = list(EXAMPLE)
    for _ in range(GUESSES):
        answer = await client.chat.completions.create(model="smollm2", messages=messages, temperature=1, max_tokens=4)
        guess = answer.choices[0].message.content
        if guess == str(secret):
            return True
        hint = "Say a number." if not guess.isdigit() else "Higher." if int(guess) < secret else "Lower."
        messages += [{"role": "assistant", "content": guess}, {"role": "user", "content": hint}]
    return False
