// What every program asks of its agent, as task.py says it.
const zoe = JSON.stringify({ rows: [{ id: 1, name: "Zoë", score: 2.0 }], ok: true });
const weather = {
  SYSTEM: "You are a weather agent.",
  QUESTIONS: ["Weather in Paris and Tokyo?"],
  TOOLS: {
    get_weather: {
      description: "The weather of a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      run: ({ city }) => ({ weather: { Paris: "sunny", Tokyo: "rainy" }[city] }),
    },
  },
};
const harder = {
  SYSTEM: "You are a tester.\n\nBe short; say «yes».",
  QUESTIONS: ["Find the thing ☃ 😀 please.", "As JSON?", "And what is null?"],
  TOOLS: {
    lookup: {
      description: "Looks something up.",
      parameters: {
        type: "object",
        properties: {
          query: { type: "string" },
          limit: { type: "integer" },
          ratio: { type: "number" },
          nested: { type: "object" },
        },
        required: ["query"],
      },
      run: ({ query }) => (query === "second" ? "Error: nothing found" : zoe),
    },
    now: { description: "The time.", parameters: { type: "object", properties: {} }, run: () => "" },
  },
};

export const { SYSTEM, QUESTIONS, TOOLS } = process.env.TASK === "harder" ? harder : weather;
