"""Views: a trajectory as trainers, programs and people read it. They only follow the links of its prompts."""
