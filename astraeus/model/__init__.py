"""Run specification, machines, states and words: pydantic models and pure rules."""
