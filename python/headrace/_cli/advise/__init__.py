"""headrace advise: one module per question."""
