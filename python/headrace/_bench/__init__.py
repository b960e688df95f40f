"""What `headrace bench` runs: queries over TPC-H data, and rows of DSA devices."""
