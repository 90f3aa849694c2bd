"""Workflows: YvetteML and its components, compiled to columns of tasks and edges.  Nothing here knows a middleware."""
