"""The compiler's intermediate representation: expressions, traits of operators, types."""
