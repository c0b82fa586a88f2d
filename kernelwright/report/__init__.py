"""Stage 10: results come in; tables, JSON and lines for a docstring go out."""
