"""Commands about the traffic of language models."""
