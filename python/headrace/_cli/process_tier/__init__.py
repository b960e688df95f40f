"""headrace tier attach, headrace tier run: another process' memory within a budget."""
