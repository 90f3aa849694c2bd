"""Workflows: YvetteML and its components, compiled to columns of tasks and edges.  Knows no middleware."""
