"""Processes and their memory: what `headrace run` sets, ranks of a job, where pages lie."""
