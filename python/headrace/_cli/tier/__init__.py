"""headrace tier: which memory is hot, the kernel's tiering, and memory within a budget."""
