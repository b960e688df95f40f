"""The report: what was measured as one page, with a figure and a sentence for each thing."""
