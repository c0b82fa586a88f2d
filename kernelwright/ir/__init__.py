"""The intermediate representation: nodes, scalar functions, dtypes, interpreter, printer and rewrite engine."""
