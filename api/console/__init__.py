"""The console: pages over the same services as REST, live, with every asset served by this process."""
