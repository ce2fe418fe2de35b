"""Exchange: the dialects in which models are asked, each in the words of Chat Completions and back.

    chat_request      the request that a model server gets: its messages, as a dialect adds them; what cannot be said
    messages          Anthropic's Messages: its requests, and its answers whole or event by event
    responses         the Responses API's requests, `response_shape` its answers
    generate_content  Gemini's requests and answers
    answer_shapes     what a shape of an answer is; those of Chat Completions and Completions
    translation       one request on its way to Chat Completions, and the answer on its way back

Invariant: nothing here asks a server or reads a clock, but for new ids. What a dialect can say and Chat Completions
cannot is refused by the field's name, or is named as left out where the answer is the same without it.
"""
