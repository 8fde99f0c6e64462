"""Decisions: rules, promises, selectors, budgets, and exact choice of the highest scores."""
