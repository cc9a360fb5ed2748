"""Every side effect of a workflow, as small classes over ports."""
