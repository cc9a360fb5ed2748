"""The astra command."""
